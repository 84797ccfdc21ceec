"""Result documents made by hand: domains of a given α, spread and speed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.schema import RunConfig
from trtspec.measurement.exactness import Comparison, Difference
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import MODES, Answer, Block, Samples
from trtspec.measurement.result import ResultDocument
from trtspec.measurement.summary import build_result


def config(**blocks: Any) -> RunConfig:
    pair = {"target": {"path": "t"}, "draft": {"path": "d"}}
    return RunConfig.model_validate({"name": "toy", "pair": pair, "speculation": {"draft_len": 4}} | blocks)


def histogram(alpha: float, rng: np.random.Generator, rounds: int = 40, k: int = 4) -> RoundHistogram:
    accepted = np.minimum(rng.geometric(max(1 - alpha, 1e-9), rounds) - 1, k)
    return RoundHistogram.from_rounds((int(a), k) for a in accepted)


_MADE: dict[str, ResultDocument] = {}


def result(alphas: dict[str, float], **how: Any) -> ResultDocument:
    """As `_result`, made once for equal arguments: documents are frozen."""
    key = repr((alphas, sorted(how.items())))
    if key not in _MADE:
        _MADE[key] = _result(alphas, **how)
    return _MADE[key]


def _result(
    alphas: dict[str, float],
    *,
    prompts: int = 60,
    gain: float | dict[str, float] = 1.5,
    k: int = 4,
    blocks: int = 4,
    differences: tuple[tuple[Literal["near-tie", "real", "undiagnosed"], float | None], ...] = (),
    exact: bool = True,
    **settings: Any,
) -> ResultDocument:
    """`gain` is target-only ÷ speculative time; `differences` are of the first domain."""
    rng = np.random.default_rng(0)
    gains = gain if isinstance(gain, dict) else dict.fromkeys(alphas, gain)
    different = {f"{next(iter(alphas))}-{i}" for i in range(len(differences))}
    if k != 4:
        settings["speculation"] = {"draft_len": k}
    asked = [Prompt(f"{d}-{i}", d, "x", 200) for d in alphas for i in range(prompts)]
    answers = []
    for prompt in asked:
        counted = histogram(alphas[prompt.domain], rng, k=k)
        for mode in MODES:
            spec = mode == "speculative"
            answers.append(
                Answer(
                    prompt,
                    mode,
                    text="other" if spec and prompt.id in different else "same",
                    spec_mode=mode if spec else "",
                    output_tokens=counted.emitted,
                    seconds=counted.emitted * 0.01 / (gains[prompt.domain] if spec else 1.0),
                    histogram=counted if spec else None,
                    **{n: getattr(counted, n) if spec else None for n in ("rounds", "drafted", "tested", "accepted")},
                )
            )
    timed = [
        Block(d, i, mode, (1.0 + 0.01 * i * i) / (gains[d] if mode == "speculative" else 1.0 + 0.002 * i), 5, 100)
        for d in alphas
        for i in range(blocks)
        for mode in MODES
    ]
    found = {
        d: Comparison(
            prompts,
            prompts - (len(differences) if d == next(iter(alphas)) else 0),
            tuple(Difference(f"{d}-0", kind, "before", "a|b", "c", 3, gap) for kind, gap in differences)
            if d == next(iter(alphas))
            else (),
        )
        for d in alphas
    }
    return build_result(config(**settings), asked, Samples(tuple(answers), tuple(timed)), found if exact else None)

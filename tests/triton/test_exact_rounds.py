"""Sampled answers of the loop follow the target's distribution, whatever the acceptance and the engine's seeds."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.triton.chances import END, FURTHER_END, VOCAB, Calls, Engine, Kind, answers, exact, tables
from tests.triton.modelfolder import arguments
from trtspec.measurement.distribution import ChiSquare, chi_square

N = 1500
LIMIT = 0.001 / 8
"""Chance of a false alarm per test; the seeds are fixed, so that a green run stays green."""
PLAIN = {"temperature": 1.0, "top_p": 1.0}
MIXED = {"temperature": 0.8, "top_k": 4, "top_p": 0.9}


@pytest.fixture(scope="module")
def settings_of(bls: dict[str, ModuleType], repository: Any) -> Any:
    """The pipeline's settings for engines of the tables' size."""
    given = bls["job"].Settings.of(bls["wire"].Parameters(arguments(repository / "tensorrt_llm_bls")))
    return replace(given, end_ids=(END, FURTHER_END), vocabularies=(None, VOCAB), logits_width=VOCAB)


def _tested(
    bls: dict[str, ModuleType],
    settings: Any,
    kind: Kind = "position",
    k: int = 2,
    inputs: dict[str, Any] | None = None,
    draft: Any = None,
    target: Any = None,
    count: int = N,
) -> ChiSquare:
    target = tables(1) if target is None else target
    given = {"text_input": "x", "max_tokens": 6, "num_draft_tokens": k} | (inputs or PLAIN)
    calls = Calls(Engine(tables(2) if draft is None else draft, kind), Engine(target, kind))
    drawn = answers(bls, settings, calls, count, k, given)
    tensors = {
        {"top_k": "runtime_top_k", "top_p": "runtime_top_p"}.get(name, name): np.array([[value]])
        for name, value in given.items()
        if name in ("temperature", "top_k", "top_p")
    }
    truth = exact(target.astype(np.float32), tensors, given.get("min_tokens", 0), 3)
    return chi_square(drawn, truth, count)


@pytest.mark.parametrize(("k", "inputs"), [(2, PLAIN), (4, MIXED)], ids=["plain", "filtered"])
@pytest.mark.parametrize("kind", ["position", "call"])
@pytest.mark.parametrize("logits", [False, True], ids=["tokens", "logits"])
def test_the_first_three_tokens(
    bls: dict[str, ModuleType], settings_of: Any, kind: Kind, k: int, inputs: dict[str, Any], logits: bool
) -> None:
    found = _tested(bls, settings_of, kind, k, inputs | {"use_draft_logits": logits})
    assert found.cells > 20
    assert found.p > LIMIT


def test_a_draft_like_its_target_ends_as_often(bls: dict[str, ModuleType], settings_of: Any) -> None:
    """Half of all tokens are ends: a draft that could not propose one would halve that where it is always accepted."""
    table = tables(1)
    table[:, END] = np.log(np.exp(np.delete(table, END, axis=1)).sum(axis=1))
    inputs = PLAIN | {"use_draft_logits": True}
    assert _tested(bls, settings_of, inputs=inputs, draft=table, target=table, count=600).p > LIMIT


@pytest.mark.parametrize("logits", [False, True], ids=["tokens", "logits"])
def test_no_end_before_min_tokens(bls: dict[str, ModuleType], settings_of: Any, logits: bool) -> None:
    inputs = PLAIN | {"min_tokens": 2, "use_draft_logits": logits}
    assert _tested(bls, settings_of, k=4, inputs=inputs).p > LIMIT


@pytest.mark.parametrize("width", [VOCAB - 1, VOCAB + 3])
@pytest.mark.parametrize("logits", [False, True], ids=["tokens", "logits"])
def test_drafts_of_another_width(bls: dict[str, ModuleType], settings_of: Any, width: int, logits: bool) -> None:
    inputs, settings = PLAIN | {"use_draft_logits": logits}, replace(settings_of, vocabularies=(width, VOCAB))
    assert _tested(bls, settings, inputs=inputs, draft=tables(3, width)).p > LIMIT


def test_one_seed_for_all_calls_would_not_do(
    bls: dict[str, ModuleType], settings_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the pipeline guards against: an engine that begins its numbers anew judges a token by what drew it."""
    monkeypatch.setattr(bls["asking"].Asking, "_seed", lambda *_: {})
    found = _tested(bls, settings_of, "call", inputs=PLAIN | {"use_draft_logits": True})
    assert found.p < 1e-6


def test_a_request_without_seed_gets_fresh_ones(bls: dict[str, ModuleType], settings_of: Any) -> None:
    """TensorRT-LLM's seed is 0 where none is sent: all answers would be the same."""
    target = Engine(tables(1), "call")
    calls, settings = Calls(Engine(tables(2), "call"), target), settings_of
    seen: list[int] = []
    answer = target.answer
    target.answer = lambda tensors: seen.append(int(tensors["seed"].item())) or answer(tensors)  # type: ignore
    for _ in range(2):
        inputs = PLAIN | {"text_input": "x", "max_tokens": 6, "num_draft_tokens": 2, "seed": 7}
        answers(bls, settings, calls, 1, 2, inputs)
    assert len(seen) > 2
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :], "with a seed the same again"
    assert len(set(seen)) == len(seen) // 2, "but not in two rounds"

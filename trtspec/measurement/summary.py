"""From samples to the result document: sums, intervals and percentiles."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import numpy as np

from trtspec import __version__
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.analysis.intervals import Interval, bootstrap_ratio
from trtspec.config.schema import RunConfig
from trtspec.measurement.audit import audit
from trtspec.measurement.exactness import Comparison
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import MODES, Answer, Block, Mode, Samples, domains_of, total
from trtspec.measurement.result import (
    AnswerRow,
    BlockRow,
    Conditions,
    DifferenceRow,
    DomainResult,
    Estimate,
    Exactness,
    Figures,
    Percentiles,
    Performance,
    ProblemRow,
    PromptRow,
    ResultDocument,
    Unusable,
)

_PACKAGES = ("numpy", "scipy", "tritonclient", "torch", "nvidia-pytriton", "tensorrt-llm")


def build_result(
    config: RunConfig,
    prompts: Sequence[Prompt],
    samples: Samples,
    exactness: Mapping[str, Comparison] | None,
    *,
    streamed: bool = True,
    environment: Mapping[str, str] | None = None,
) -> ResultDocument:
    """The document of one measurement. `exactness` is what `compare` gave; `environment` adds to what is found."""
    greedy = config.validation.temperature == 0.0
    domains = domains_of(prompts)
    return ResultDocument(
        pair=config.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conditions=_conditions(config, streamed),
        environment=versions() | dict(environment or {}),
        domains=tuple(_domain(name, prompts, samples, (exactness or {}).get(name), config, greedy) for name in domains),
        overall=_figures(samples.answers, samples.blocks, config.validation.seed),
        problems=tuple(
            ProblemRow(code=p.code, domain=p.domain, message=p.message, count=p.count)
            for name in domains
            for p in audit(name, samples, greedy=greedy)
        ),
    )


def alpha_over(rows: Iterable[PromptRow], seed: int) -> Estimate | None:
    """α over the prompts of any domains; None where no token was tested."""
    counted = [r for r in rows if r.tested]
    return _estimate(bootstrap_ratio([r.accepted or 0 for r in counted], [r.tested or 0 for r in counted], seed=seed))


def speedup_over(figures: Sequence[Figures], seed: int) -> Estimate | None:
    """Speed-up over the blocks of any domains: time target-only for the same tokens ÷ time speculative."""
    plain_seconds, spec_seconds = [], []
    for each in figures:
        spec_blocks = {(b.domain, b.index): b for b in each.speculative.blocks} if each.speculative else {}
        for plain in each.target_only.blocks if each.target_only else ():
            spec = spec_blocks.get((plain.domain, plain.index))
            if spec and plain.output_tokens and spec.output_tokens:
                plain_seconds.append(plain.wall_seconds * spec.output_tokens / plain.output_tokens)
                spec_seconds.append(spec.wall_seconds)
    if not plain_seconds:
        return None
    found = bootstrap_ratio(plain_seconds, spec_seconds, seed=seed, bounds=None)
    if found is None:
        point = sum(plain_seconds) / sum(spec_seconds)
        return Estimate(point=point, low=None, high=None, n=len(plain_seconds))
    return Estimate(point=found.point, low=max(0.0, found.low), high=found.high, n=found.n)


def _domain(
    name: str, prompts: Sequence[Prompt], samples: Samples, found: Comparison | None, config: RunConfig, greedy: bool
) -> DomainResult:
    own = [p for p in prompts if p.domain == name]
    answers = [a for a in samples.answers if a.prompt.domain == name]
    by_key = {(a.prompt.id, a.mode): a for a in answers if a.usable}
    return DomainResult(
        domain=name,
        prompts=len(own),
        figures=_figures(answers, [b for b in samples.blocks if b.domain == name], config.validation.seed),
        exactness=None if found is None else _exactness(found, config.gates.near_tie),
        unusable=tuple(
            Unusable(prompt=a.prompt.id, mode=a.mode, reason=a.fault or "") for a in answers if not a.usable
        ),
        rows=tuple(_row(p, *(by_key.get((p.id, mode)) for mode in MODES), greedy=greedy) for p in own),
    )


def _row(prompt: Prompt, plain: Answer | None, spec: Answer | None, *, greedy: bool) -> PromptRow:
    counted = spec.histogram if spec else None
    names = ("rounds", "drafted", "tested", "accepted", "emitted")
    return PromptRow(
        id=prompt.id,
        **{name: None if counted is None else getattr(counted, name) for name in names},
        equal=plain.text == spec.text if plain and spec and greedy else None,
        target_only=_answer(plain),
        speculative=_answer(spec),
    )


def _answer(answer: Answer | None) -> AnswerRow | None:
    if answer is None:
        return None
    return AnswerRow(
        output_tokens=answer.output_tokens,
        seconds=answer.seconds,
        first_token_seconds=answer.first_token_seconds,
        finish_reason=answer.finish_reason,
    )


def _figures(answers: Iterable[Answer], blocks: Sequence[Block], seed: int) -> Figures:
    usable = [a for a in answers if a.usable]
    spec = [a for a in usable if a.mode == "speculative"]
    counted = total(a.histogram for a in spec)
    per_prompt = [a.histogram for a in spec if a.histogram is not None]
    own = [alpha for h in per_prompt if (alpha := h.alpha()) is not None]
    speed = {mode: _performance([a for a in usable if a.mode == mode], blocks, mode) for mode in MODES}
    partial = Figures(
        histogram=None if counted is None else _nested(counted),
        alpha=_estimate(bootstrap_ratio([h.accepted for h in per_prompt], [h.tested for h in per_prompt], seed=seed)),
        alpha_macro=float(np.mean(own)) if own else None,
        draft_acceptance_rate=counted.draft_acceptance_rate() if counted else None,
        acceptance_length=counted.acceptance_length() if counted else None,
        per_position=tuple(counted.per_position()) if counted else None,
        target_only=speed["target-only"],
        speculative=speed["speculative"],
        speedup=None,
    )
    return partial.model_copy(update={"speedup": speedup_over([partial], seed)})


def _performance(answers: Sequence[Answer], blocks: Sequence[Block], mode: Mode) -> Performance | None:
    own = [b for b in blocks if b.mode == mode]
    if not answers or not own:
        return None
    tokens, wall = sum(b.output_tokens for b in own), sum(b.wall_seconds for b in own)
    first = [a.first_token_seconds for a in answers if a.first_token_seconds is not None]
    return Performance(
        requests=sum(b.requests for b in own),
        output_tokens=tokens,
        wall_seconds=wall,
        tokens_per_second=tokens / wall if wall > 0 else None,
        latency=_percentiles([a.seconds for a in answers]),
        first_token=_percentiles(first),
        blocks=tuple(
            BlockRow(
                domain=b.domain,
                index=b.index,
                wall_seconds=b.wall_seconds,
                requests=b.requests,
                output_tokens=b.output_tokens,
            )
            for b in own
        ),
    )


def _exactness(found: Comparison, near_tie: float) -> Exactness:
    return Exactness(
        compared=found.compared,
        equal=found.equal,
        near_tie=near_tie,
        near_ties=found.count("near-tie"),
        real=found.count("real"),
        undiagnosed=found.count("undiagnosed"),
        differences=tuple(
            DifferenceRow(
                prompt=d.prompt_id,
                kind=d.kind,
                token=d.token,
                gap=d.gap,
                before=d.before,
                target_only=d.target_only,
                speculative=d.speculative,
                reason=d.reason,
            )
            for d in found.differences
        ),
    )


def _percentiles(seconds: Sequence[float]) -> Percentiles | None:
    if not seconds:
        return None
    p50, p90, p99 = (float(x) for x in np.percentile(seconds, [50, 90, 99]))
    return Percentiles(p50=p50, p90=p90, p99=p99)


def _estimate(found: Interval | None) -> Estimate | None:
    return None if found is None else Estimate(point=found.point, low=found.low, high=found.high, n=found.n)


def _nested(counted: RoundHistogram) -> tuple[tuple[tuple[int, ...], ...], ...]:
    rows = cast("list[list[list[Any]]]", counted.to_wire().tolist())
    return tuple(tuple(tuple(row) for row in half) for half in rows)


def _conditions(config: RunConfig, streamed: bool) -> Conditions:
    dtype = config.engine.compute_dtype
    if config.engine.backend == "reference" and dtype == "auto":
        dtype = "bfloat16"
    return Conditions(
        k=config.speculation.k,
        acceptance=config.speculation.acceptance,
        concurrency=config.validation.concurrency,
        temperature=config.validation.temperature,
        top_k=config.validation.top_k,
        top_p=config.validation.top_p,
        seed=config.validation.seed,
        warmup=config.validation.warmup,
        streamed=streamed,
        backend=config.engine.backend,
        compute_dtype=dtype,
        gpu=config.hardware.gpu,
        gpu_count=config.hardware.count,
    )


def versions() -> dict[str, str]:
    """Versions that explain a number: of Python, of this package and of those installed beside it."""
    found = {"trtspec": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | {"cpus": str(os.cpu_count())}

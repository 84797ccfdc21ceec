"""From samples to the result document."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

from trtspec import __version__
from trtspec.analysis.intervals import ratio_interval
from trtspec.config.schema import RunConfig
from trtspec.measurement.audit import audit, wrong_counts
from trtspec.measurement.datasets import dataset_problems
from trtspec.measurement.exactness import Comparison
from trtspec.measurement.figures import estimate, figures
from trtspec.measurement.parts import CounterCheck, DatasetRow, LooksRow, MemoryRow, QualityRow, Slo, StepCosts
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import MODES, Answer, Block, Mode, Samples, domains_of
from trtspec.measurement.repetition import repeats
from trtspec.measurement.result import (
    AnswerRow,
    Conditions,
    DifferenceRow,
    DomainResult,
    Estimate,
    Exactness,
    Figures,
    ProblemRow,
    PromptRow,
    ResultDocument,
    Unusable,
)
from trtspec.measurement.sweep import Window
from trtspec.measurement.textcheck import Ids
from trtspec.measurement.timing import curve_point

_PACKAGES = ("numpy", "scipy", "tritonclient", "torch", "nvidia-pytriton", "tensorrt-llm")


@dataclass(frozen=True)
class Around:
    """What is known beside the answers themselves."""

    streamed: bool = True
    transport: str = "grpc"
    modes: tuple[Mode, ...] = MODES
    environment: Mapping[str, str] = field(default_factory=dict)
    datasets: tuple[DatasetRow, ...] = ()
    windows: Sequence[Window] = ()
    counters: CounterCheck | None = None
    costs: StepCosts | None = None
    costs_at: tuple[StepCosts, ...] = ()
    memory: MemoryRow | None = None
    quality: tuple[QualityRow, ...] = ()
    ids: Ids | None = None
    """The deployment's tokenizer, to count the tokens of answers anew."""
    notes: tuple[ProblemRow, ...] = ()


def build_result(
    config: RunConfig,
    prompts: Sequence[Prompt],
    samples: Samples,
    exactness: Mapping[str, Comparison] | None,
    around: Around | None = None,
) -> ResultDocument:
    """The document of one measurement. `exactness` is what `compare` gave. Prompts never asked are not in it."""
    around = around or Around()
    asked = samples.asked(prompts) or list(prompts)
    planned = min(len(prompts), _budget(config, prompts))
    problems = tuple(_problems(config, domains_of(asked), samples, around))
    return ResultDocument(
        pair=config.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conditions=_conditions(config, around),
        environment=versions() | dict(around.environment),
        domains=tuple(_domain(d, asked, samples, (exactness or {}).get(d), config, around) for d in domains_of(asked)),
        overall=_figures(samples.answers, samples.blocks, _slo(config)),
        problems=problems,
        datasets=around.datasets,
        curve=tuple(curve_point(w, _slo(config)) for w in around.windows),
        counters=around.counters,
        costs=around.costs,
        costs_at=around.costs_at,
        memory=around.memory,
        quality=around.quality,
        interrupted=samples.stopped == "interrupted",
        stopped=samples.stopped,
        looks=LooksRow(budget=planned, at=samples.looks) if samples.looks else None,
        release_valid=all(p.severity == "note" for p in problems),
    )


def alpha_over(rows: Iterable[PromptRow], seed: int = 0) -> Estimate | None:
    """α over the prompts of any domains; None where no token was tested."""
    del seed
    counted = [r for r in rows if r.tested]
    return estimate(ratio_interval([r.accepted or 0 for r in counted], [r.tested or 0 for r in counted]))


def speedup_over(figures: Sequence[Figures]) -> Estimate | None:
    """Speed-up over the blocks of any domains: time target-only for the same tokens ÷ time speculative."""
    plain, spec = block_times(figures)
    if not plain:
        return None
    found = ratio_interval(plain, spec, bounds=None)
    return estimate(found) or Estimate(point=sum(plain) / sum(spec), low=None, high=None, n=len(plain))


def block_times(figures: Sequence[Figures]) -> tuple[list[float], list[float]]:
    """For each block answered in both modes: seconds target-only for the tokens of the speculative one, its seconds."""
    plain_seconds, spec_seconds = [], []
    for each in figures:
        spec_blocks = {(b.domain, b.index): b for b in each.speculative.blocks} if each.speculative else {}
        for plain in each.target_only.blocks if each.target_only else ():
            spec = spec_blocks.get((plain.domain, plain.index))
            if spec and plain.output_tokens and spec.output_tokens:
                plain_seconds.append(plain.wall_seconds * spec.output_tokens / plain.output_tokens)
                spec_seconds.append(spec.wall_seconds)
    return plain_seconds, spec_seconds


def prompt_sha256(prompt: Prompt, config: RunConfig) -> str:
    """Of what was asked: equal in two measurements that asked the same, whatever file it came from."""
    how = config.validation
    asked = (prompt.text, prompt.max_tokens, how.temperature, how.top_k, how.top_p, how.ignore_eos or prompt.ignore_eos)
    return hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass")).hexdigest()


def _budget(config: RunConfig, prompts: Sequence[Prompt]) -> int:
    most = config.validation.max_prompts
    sizes = [sum(p.domain == d for p in prompts) for d in domains_of(prompts)]
    return sum(size if most is None else min(size, most) for size in sizes)


def _problems(config: RunConfig, domains: Sequence[str], samples: Samples, around: Around) -> Iterator[ProblemRow]:
    greedy = config.validation.temperature == 0.0
    for domain in domains:
        found = audit(domain, samples, greedy=greedy, modes=around.modes, k=config.speculation.k)
        if around.ids is not None:
            found += wrong_counts(domain, samples, around.ids)
        for p in found:
            yield ProblemRow(code=p.code, domain=p.domain, message=p.message, count=p.count, severity=p.severity)
    yield from dataset_problems(around.datasets)
    if around.counters is not None and around.counters.outcome == "disagree":
        yield ProblemRow(code="counters.server", domain="", message=around.counters.reason, count=1)
    if around.counters is not None and around.counters.outcome == "disturbed":
        reason = around.counters.reason
        yield ProblemRow(code="scrape.disturbed", domain="", message=reason, count=1, severity="note")
    for window in around.windows:
        if not any(t.answer.usable for t in window.requests):
            fault = next((f"; the first: {t.answer.fault}" for t in window.requests), "; make `window` longer")
            reason = f"{window.load}, {window.mode}: {len(window.requests)} requests began, none was answered{fault}"
            yield ProblemRow(code="window.empty", domain="", message=reason, count=1, severity="note")
    if samples.stopped == "interrupted":
        reason = "the run was ended: this is what was measured until then"
        yield ProblemRow(code="interrupted", domain="", message=reason, count=1, severity="release")
    yield from around.notes


def _domain(
    name: str, prompts: Sequence[Prompt], samples: Samples, found: Comparison | None, config: RunConfig, around: Around
) -> DomainResult:
    own = [p for p in prompts if p.domain == name]
    answers = [a for a in samples.answers if a.prompt.domain == name]
    blocks = [b for b in samples.blocks if b.domain == name]
    by_key = {(a.prompt.id, a.mode): a for a in answers if a.usable}
    return DomainResult(
        domain=name,
        prompts=len(own),
        figures=_figures(answers, blocks, _slo(config)),
        exactness=None if found is None else _exactness(found, config.gates.near_tie),
        unusable=tuple(
            Unusable(prompt=a.prompt.id, mode=a.mode, reason=a.fault or "") for a in answers if not a.usable
        ),
        rows=tuple(
            _row(p, by_key.get((p.id, "target-only")), by_key.get((p.id, "speculative")), config, around.ids)
            for p in own
        ),
    )


def _figures(answers: Sequence[Answer], blocks: Sequence[Block], slo: Slo) -> Figures:
    partial = figures(answers, blocks, slo)
    return partial.model_copy(update={"speedup": speedup_over([partial])})


def _row(prompt: Prompt, plain: Answer | None, spec: Answer | None, config: RunConfig, ids: Ids | None) -> PromptRow:
    counted = spec.histogram if spec else None
    totals = spec if spec is not None and spec.totals_only and spec.accepted is not None else None
    greedy = config.validation.temperature == 0.0
    return PromptRow(
        id=prompt.id,
        sha256=prompt_sha256(prompt, config),
        rounds=counted.rounds if counted else totals.rounds if totals else None,
        drafted=counted.drafted if counted else totals.drafted if totals else None,
        tested=counted.tested if counted else None,
        accepted=counted.accepted if counted else totals.accepted if totals else None,
        emitted=counted.emitted if counted else totals.output_tokens if totals else None,
        equal=plain.text == spec.text if plain and spec and greedy else None,
        target_only=_answer(plain, ids),
        speculative=_answer(spec, ids),
    )


def _answer(answer: Answer | None, ids: Ids | None) -> AnswerRow | None:
    if answer is None:
        return None
    return AnswerRow(
        output_tokens=answer.output_tokens,
        seconds=answer.seconds,
        first_token_seconds=answer.first_token_seconds,
        per_token_seconds=answer.per_token_seconds,
        chunks=len(answer.chunks) if answer.first_token_seconds is not None else None,
        finish_reason=answer.finish_reason,
        repeats=repeats(answer.text, ids),
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


def _slo(config: RunConfig) -> Slo:
    return Slo.model_validate(config.validation.slo.model_dump())


def _conditions(config: RunConfig, around: Around) -> Conditions:
    dtype = config.engine.compute_dtype
    if config.engine.backend == "reference" and dtype == "auto":
        dtype = "bfloat16"
    how = config.validation
    return Conditions.model_validate(
        {
            "k": config.speculation.k,
            "acceptance": config.speculation.acceptance,
            "concurrency": how.concurrency,
            "temperature": how.temperature,
            "top_k": how.top_k,
            "top_p": how.top_p,
            "seed": how.seed,
            "warmup": how.warmup,
            "streamed": around.streamed,
            "transport": around.transport,
            "ignore_eos": how.ignore_eos,
            "modes": around.modes,
            "slo": None if _slo(config) == Slo() else _slo(config),
            "backend": config.engine.backend,
            "compute_dtype": dtype,
            "gpu": config.hardware.gpu,
            "gpu_count": config.hardware.count,
        }
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

"""The decision matrix: candidate drafts of one target, judged by the same checks and figures, and ranked.

Ranked by the predicted speed-up where acceptance is known: measured, or given. Where it is not, nothing is assumed:
such candidates stand by themselves, by the acceptance they need to break even, and only measuring decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from trtspec.analysis.memory import largest_batch
from trtspec.config import RunConfig
from trtspec.pairing.check import check_models, read_models
from trtspec.pairing.economics import table
from trtspec.pairing.findings import NOT_MEASURED, Finding, Severity, Verdict
from trtspec.pairing.fitting import changed
from trtspec.pairing.measured import ALPHAS, Acceptance, Basis
from trtspec.pairing.parallel import tensor_sizes
from trtspec.pairing.placement import GpuUse, MemoryPlan, uses_of
from trtspec.pairing.shape import group_size, shape_of
from trtspec.pairing.timing import Timing, timing

Status = Literal["ranked", "unmeasured", "rejected"]
Mark = Literal["good", "warning", "error", "unknown"]
PARITY = ("vocab.", "tokenizer.", "segmentation.", "special.", "stops.", "template.", "widths.")
LINEAGE = ("lineage.", "lengths.")
BY_ACCEPTANCE = ("economics.no-gain", "economics.stops-paying")
"""Findings that the ranking itself gives, for each candidate by its own acceptance."""
RANGE = Basis(tuple(Acceptance(alpha) for alpha in ALPHAS), "range", known=False)


@dataclass(frozen=True)
class Load:
    """Figures at the load that the pair is chosen for. `ms_per_token` and `tokens_per_second`: one for each α."""

    requests: int
    k: tuple[int, ...]
    speedup: tuple[float, ...]
    break_even: float | None
    ms_per_token: tuple[float, ...]
    tokens_per_second: tuple[float, ...]
    plain_ms_per_token: float | None
    plain_tokens_per_second: float | None


@dataclass(frozen=True)
class Judged:
    """One candidate. `economics` are those of :func:`trtspec.pairing.economics.table` at its own acceptance."""

    name: str
    folder: Path
    config: RunConfig
    """With this draft in its place."""
    verdict: Verdict
    timing: Timing | None
    basis: Basis
    economics: dict[str, Any] | None
    load: Load | None
    interval: tuple[float, float] | None = None
    """Of a measured α."""
    note: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Why it is rejected."""
        return tuple(f for f in self.verdict.findings if f.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What it costs or risks."""
        return tuple(f for f in self.verdict.findings if f.severity == "warning")

    @property
    def status(self) -> Status:
        """Rejected by a check; else ranked where its acceptance is known."""
        if self.errors:
            return "rejected"
        return "ranked" if self.basis.known and self.load is not None else "unmeasured"

    @property
    def speedup(self) -> float:
        """At the known acceptance and the best K; 1 where no K gains or none is known."""
        return self.load.speedup[0] if self.load is not None and self.status == "ranked" else 1.0

    @property
    def ratio(self) -> float | None:
        """Target parameters ÷ draft parameters."""
        counts = [self.verdict.facts[role]["parameters"] for role in ("target", "draft")]
        return counts[0] / counts[1] if counts[0] and counts[1] else None

    def mark(self, prefixes: Sequence[str]) -> Mark:
        """The worst that findings of some kinds say."""
        own = [f for f in self.verdict.findings if f.code.startswith(tuple(prefixes))]
        worst: list[Severity] = [f.severity for f in own]
        if "error" in worst:
            return "error"
        if "warning" in worst:
            return "warning"
        said = [f for f in own if not f.code.endswith(NOT_MEASURED)]
        return "good" if said else "unknown"


@dataclass(frozen=True)
class Selection:
    """All candidates, best first: ranked, unmeasured, rejected. `plain` is the target without a draft."""

    config: RunConfig
    candidates: tuple[Judged, ...]
    plain: dict[str, Any]
    notes: tuple[str, ...] = field(default=())

    def of(self, status: Status) -> tuple[Judged, ...]:
        """Candidates of one kind, in order."""
        return tuple(c for c in self.candidates if c.status == status)

    @property
    def best(self) -> Judged | None:
        """The first that is predicted to gain; None where none is, or acceptance is not known."""
        return next((c for c in self.of("ranked") if c.speedup > 1.0), None)


def judge(name: str, folders: tuple[Path, Path], config: RunConfig) -> Judged:
    """All checks of one candidate, its acceptance not known yet; `folders` are (target, draft)."""
    target, draft = read_models(*folders, config)
    verdict = check_models(target, draft, config)
    findings = tuple(f for f in verdict.findings if f.code not in BY_ACCEPTANCE)
    found = timing(target, draft, config)
    return known_by(Judged(name, folders[1], config, Verdict(findings, verdict.facts), found, RANGE, None, None), RANGE)


def known_by(candidate: Judged, basis: Basis, interval: tuple[float, float] | None = None, note: str = "") -> Judged:
    """The candidate with its figures for what is known of its acceptance."""
    found = candidate.timing
    economics = None if found is None else table(found, basis, candidate.config)
    load = _load(economics, candidate.config)
    return replace(candidate, basis=basis, economics=economics, load=load, interval=interval, note=note)


def _load(economics: dict[str, Any] | None, config: RunConfig) -> Load | None:
    """At validation.concurrency where times are known for every load; else at batch 1, as ratios."""
    if economics is None:
        return None
    wanted = min(config.validation.concurrency, config.engine.max_batch_size)
    row = next((r for r in economics["concurrency"] if r["requests"] == wanted), None)
    if row is None:
        k = economics["k"]
        best = economics["best"]
        return Load(
            1, tuple(b["k"] for b in best), tuple(b["speedup"] for b in best), economics["break_even"][k - 1],
            (), (), None, None,
        )  # fmt: skip
    gains = tuple(b["speedup"] for b in row["best"])
    step = row["target_step_ms"]
    return Load(
        requests=wanted,
        k=tuple(b["k"] for b in row["best"]),
        speedup=gains,
        break_even=row["break_even"],
        ms_per_token=tuple(step / gain for gain in gains),
        tokens_per_second=tuple(row["tokens_per_second"]["with"]),
        plain_ms_per_token=step,
        plain_tokens_per_second=row["tokens_per_second"]["without"],
    )


def rank(candidates: Sequence[Judged]) -> tuple[Judged, ...]:
    """Known acceptance by speed-up, unknown by what it takes to break even, then the rejected by name."""
    return tuple(sorted(candidates, key=_place))


def _place(candidate: Judged) -> tuple[int, float, str]:
    order = ("ranked", "unmeasured", "rejected").index(candidate.status)
    if candidate.status == "ranked":
        return order, -candidate.speedup, candidate.name
    load = candidate.load
    needed = load.break_even if candidate.status == "unmeasured" and load is not None else None
    return order, 2.0 if needed is None else needed, candidate.name


def target_alone(config: RunConfig, target_dir: Path) -> MemoryPlan | None:
    """The memory plan without a draft; None where no GPU or no size is known."""
    from trtspec.pairing.model import Model

    facts, memory = Model.read("target", target_dir, config).facts, config.hardware.spec.memory_bytes
    if facts is None or memory is None or not config.hardware.spec.is_gpu or config.engine.backend == "reference":
        return None
    return MemoryPlan(
        placement="shared",
        memory=memory,
        gpus=tuple(GpuUse(i, {"target": use}) for i, use in enumerate(uses_of(facts, "target", config))),
        batch=config.engine.max_batch_size,
        lengths={"target": config.engine.max_seq_len},
        windowed=shape_of(facts).windowed,
    )


def cut_target(config: RunConfig, target_dir: Path) -> RunConfig:
    """With the smallest tensor-parallel size with which a full batch of the target alone fits, else the largest.

    Only powers of two with which it builds are looked at; the configuration as it is where nothing is known.
    """
    from trtspec.pairing.model import Model

    facts = Model.read("target", target_dir, config).facts
    weights, group = config.pair.target.quantization.weights, group_size("target", config)
    sizes = () if facts is None else tensor_sizes(facts, config.hardware.count, weights, group)
    cut = config
    for size in (n for n in sizes if n & (n - 1) == 0):
        cut = config if size == 1 else changed(config, "target", parallelism={"tensor": size})
        plan = target_alone(cut, target_dir)
        if plan is None:
            return config
        if plan.fits:
            break
    return cut


def cut_finding(config: RunConfig) -> Finding:
    """What :func:`cut_target` did."""
    tensor = config.pair.target.parallelism.tensor
    message = (
        f"the target is cut over {tensor} GPUs, the fewest that hold it and a full batch, or all that it can use; "
        "for another layout: --set pair.target.parallelism.tensor=N"
    )
    return Finding("preflight.cut", "info", "target", message, None, {"tensor": tensor}, f"cut over {tensor} GPUs")


def plain_row(config: RunConfig, target_dir: Path, candidates: Sequence[Judged]) -> dict[str, Any]:
    """The target without speculation, beside which every candidate stands. Bytes, tokens, milliseconds."""
    plan = target_alone(config, target_dir)
    load = next((c.load for c in candidates if c.load is not None and c.load.plain_ms_per_token is not None), None)
    return {
        "name": "no speculation",
        "speedup": 1.0,
        "requests": load.requests if load else None,
        "ms_per_token": load.plain_ms_per_token if load else None,
        "tokens_per_second": load.plain_tokens_per_second if load else None,
        "cache_tokens": plan.tokens if plan else None,
        "sequences": largest_batch(plan.tokens, config.engine.max_seq_len) if plan else None,
    }

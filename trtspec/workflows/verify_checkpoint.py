"""verify-checkpoint: is this TensorRT-LLM checkpoint the model it is said to be made from?

config.json, every tensor, then what the model says: logits of the reference engine on the checkpoint against
transformers on the source, and, given the other model of the pair, what quantization does to acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtspec.checkpoint.claims import Claim, broken_scales, wrong_claims
from trtspec.checkpoint.compare import Compared, Comparison
from trtspec.config import Role
from trtspec.errors import ConfigError
from trtspec.workflows.reporter import Reporter, Silent

if TYPE_CHECKING:
    from trtspec.analysis.intervals import Interval
    from trtspec.measurement.agreement import Agreement
    from trtspec.measurement.offline import OfflineAcceptance
    from trtspec.measurement.reading import TokenPrompt

EXACT = 1e-4
"""Difference ÷ largest logit of the same float32 weights on two implementations, at 99 of 100 positions.

It is 1e-6 as a rule. At single positions rounding itself is amplified: on SmolLM2-135M and random tokens one position
of 72 differed by 2e-4, where transformers' own float32 was 4e-5 away from its float64."""
WORST = 10
"""Times that limit, at the worst position: a fault of few positions is no rounding."""
CAST = {"bfloat16": 0.05, "float16": 0.01, "float32": EXACT}
"""The same where weights were rounded to this type on the way: the logits of another, nearby model."""
MOST_KL = {8: 0.1, 4: 0.5}
"""Nats per position on average that quantized weights may cost, by their bits; --max-kl sets another limit."""
LOGIT_PROMPTS, LOGIT_TOKENS, LONG_TOKENS = 8, 256, 512
"""Texts whose logits are compared, the most tokens of each, and of the long one that all prompts make together."""


@dataclass(frozen=True)
class AcceptanceChange:
    """α of the pair before and after this model was replaced by its checkpoint, on the same prompts."""

    role: Role
    before: OfflineAcceptance
    after: OfflineAcceptance
    difference: Interval | None
    k: int


@dataclass(frozen=True)
class Verified:
    """Everything that was found. `holds` is the verdict."""

    comparison: Comparison
    claims: tuple[Claim, ...]
    scales: tuple[str, ...]
    tensors: tuple[Compared, ...]
    logits: Agreement | None = None
    limit: tuple[str, float] = ("relative_typical", EXACT)
    """Which figure of the logits is judged, and its limit."""
    acceptance: AcceptanceChange | None = None
    not_measured: str = ""
    """Why there are no logits."""

    @property
    def logits_hold(self) -> bool | None:
        """None where they were not compared."""
        if self.logits is None:
            return None
        figure, limit = self.limit
        good = bool(self.logits.as_dict()[figure] <= limit)
        return good and (figure != "relative_typical" or self.logits.relative <= WORST * limit)

    @property
    def holds(self) -> bool:
        """Every claim, scale, tensor and logit is as it should be, as far as it was looked at."""
        same = not self.claims and not self.scales and all(t.good for t in self.tensors)
        return same and self.logits_hold is not False

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "verdict": "good" if self.holds else "does not hold",
            "format": self.comparison.checkpoint.format.name,
            "ranks": self.comparison.plan.layout.ranks,
            "config": [asdict(claim) for claim in self.claims],
            "scales": list(self.scales),
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "logits": self.logits and self.logits.as_dict() | {"judged": self.limit[0], "limit": self.limit[1]},
            "not_measured": self.not_measured or None,
            "acceptance": self.acceptance and change_as_dict(self.acceptance),
        }


def verify_checkpoint(
    model: Path,
    checkpoint: Path,
    prompts: Sequence[Path] = (),
    *,
    draft: Path | None = None,
    target: Path | None = None,
    tensors_only: bool = False,
    max_kl: float | None = None,
    k: int = 4,
    limit: int | None = None,
    reporter: Reporter | None = None,
) -> Verified:
    """The whole story. ModelFileError (exit 4) for a folder that is broken rather than wrong; MissingError without
    torch or transformers unless `tensors_only`; ConfigError for a partner in both roles."""
    if draft and target:
        raise ConfigError("the checkpoint is one model of the pair", expected="one of --draft and --target")
    reporter = reporter or Silent()
    comparison = Comparison.open(model, checkpoint)
    tensors = _tensors(comparison, reporter)
    claims = tuple(wrong_claims(comparison.plan.config, comparison.checkpoint.config))
    found = Verified(comparison, claims, tuple(broken_scales(comparison.checkpoint)), tensors)
    if tensors_only:
        return _with(found, not_measured="only tensors were asked for")
    if not found.holds:
        # The engine may not even load it, and its numbers would explain nothing more.
        return _with(found, not_measured="the tensors or config.json are wrong already")
    from trtspec.workflows.verified_runs import acceptance_change, compare_logits

    found = _with(found, logits=compare_logits(comparison, prompts, reporter), limit=judged(comparison, max_kl))
    partner = draft or target
    if partner is None:
        return found
    role: Role = "target" if draft else "draft"
    return _with(found, acceptance=acceptance_change(comparison, role, partner, prompts, k, limit, reporter))


def judged(comparison: Comparison, max_kl: float | None) -> tuple[str, float]:
    """Which figure of the logits decides, and its limit: the difference of equal weights, the KL of quantized ones."""
    fmt = comparison.checkpoint.format
    cached = comparison.checkpoint.quantization.get("kv_cache_quant_algo")
    if max_kl is not None:
        return "kl_mean", max_kl
    if fmt.quant_algo or cached:
        return "kl_mean", MOST_KL[4 if fmt.bits < 8 else 8]
    plan = comparison.plan
    source = {info.dtype for info in plan.sources.values()}
    cast = source != {comparison.dtype} or any(rule.plus_one for rule in plan.rules)
    return "relative_typical", CAST[str(comparison.checkpoint.config["dtype"])] if cast else EXACT


def change_as_dict(change: AcceptanceChange) -> dict[str, Any]:
    """α before and after with their intervals, and the difference."""

    def side(found: OfflineAcceptance) -> dict[str, Any]:
        interval = found.alpha(change.k)
        return {"alpha": interval and interval.point, "interval": interval and [interval.low, interval.high]}

    gap = change.difference
    return {
        "role": change.role,
        "k": change.k,
        "prompts": len(change.before.readings),
        "before": side(change.before),
        "after": side(change.after),
        "difference": gap and gap.point,
        "difference_interval": gap and [gap.low, gap.high],
    }


def _tensors(comparison: Comparison, reporter: Reporter) -> tuple[Compared, ...]:
    found, total = [], len(comparison.plan.rules)
    for tensor in comparison.tensors():
        found.append(tensor)
        reporter.progress("tensors", min(len(found), total), total)
    return tuple(found)


def _with(found: Verified, **changes: Any) -> Verified:
    from dataclasses import replace

    return replace(found, **changes)


def asked(model: Path, prompts: Sequence[Path], vocab_size: int) -> list[TokenPrompt]:
    """The prompts in the model's tokens; seeded random ids for a model without a tokenizer."""
    from trtspec.measurement.promptfiles import token_prompts
    from trtspec.measurement.reading import TokenPrompt
    from trtspec.measurement.samples import random_ids

    if prompts or (model / "tokenizer.json").is_file():
        return token_prompts(model, prompts)
    texts = random_ids(LOGIT_PROMPTS, 24, vocab_size)
    return [TokenPrompt(f"random-{i}", "random tokens", ids, 32, i) for i, ids in enumerate(texts)]

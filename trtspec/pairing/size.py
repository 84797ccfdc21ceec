"""The size ratio of the pair, and whether config.json and weights agree on each model's size.

Two rules of the field are shown beside the ratio: the draft 10-50 times smaller, and at most 10-15 % of the target.
Neither decides: the configured band does, and what it costs is in the cost ratio.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.config import RunConfig
from trtspec.pairing.counts import human, is_exact, parameters_by_config
from trtspec.pairing.economics import cost_ratio
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model
from trtspec.pairing.totals import active, by_headers, parameters

RULE_RATIO = (10.0, 50.0)
RULE_SHARE = 0.15
TOLERANCE = 1e-3
"""Share by which weights may differ from a count from config.json that is not exact for every variant."""


def check_size(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Config against headers for each model, then the ratio against its band, with the cost ratio c."""
    for model in (target, draft):
        yield from _disagreement(model)
        yield from _mixture(model)
    counts = parameters(target), parameters(draft)
    # Weights without a parameter have no ratio either.
    if not counts[0] or not counts[1]:
        unknown = " and ".join(m.role for m, n in zip((target, draft), counts, strict=True) if not n)
        yield Finding("size.not-measured", "info", "pair", f"parameter count of the {unknown} is unknown")
    else:
        cost = cost_ratio(target, draft, config)
        yield _ratio(counts[0], counts[1], config, None if cost is None else cost.ratio)


def _disagreement(model: Model) -> Iterator[Finding]:
    implied = None if model.facts is None else parameters_by_config(model.facts)
    stored = by_headers(model)
    if model.facts is None or implied is None or stored is None:
        return
    allowed = 0 if is_exact(model.facts.architecture) else implied * TOLERANCE
    if abs(implied - stored) > allowed:
        yield Finding(
            "size.config-disagrees", "error", model.role,
            f"the weights hold {stored:,} parameters, config.json implies {implied:,}",
            "config.json and weights are not of one model: fetch both again",
            {"config": implied, "weights": stored},
        )  # fmt: skip


def _mixture(model: Model) -> Iterator[Finding]:
    total, used = parameters(model), active(model)
    if total and used and used < total:
        message = f"{human(used)} of {human(total)} parameters are read for one token (mixture of experts)"
        yield Finding("size.active", "info", model.role, message, None, {"active": used, "parameters": total})


def _ratio(target: int, draft: int, config: RunConfig, cost: float | None) -> Finding:
    ratio, share = target / draft, draft / target
    low, high = config.checks.min_size_ratio, config.checks.max_size_ratio
    rules = {"10-50x": RULE_RATIO[0] <= ratio <= RULE_RATIO[1], "at most 15%": share <= RULE_SHARE}
    facts = {"target": target, "draft": draft, "ratio": ratio, "band": [low, high], "share": share, "cost_ratio": cost,
             "rules": rules}  # fmt: skip
    sizes = f"target {human(target)} ÷ draft {human(draft)} = {_times(ratio)}"
    if ratio < 1:
        fix = "swap `pair.target` and `pair.draft`"
        return Finding("size.swapped", "error", "pair", f"{sizes}: the draft is the larger one", fix, facts)
    first, second = map(_mark, rules.values())
    said = f"rules of thumb: 10-50× smaller: {first}; at most 15 % of the target: {second}, it is {share:.1%}"
    if low <= ratio <= high:
        return Finding("size.ratio", "info", "pair", f"{sizes} (band {low:g}-{high:g}×; {said})", None, facts, sizes)
    message = f"{sizes}, outside {low:g}-{high:g}×; {_consequence(ratio < low, config.speculation.k, cost)}; {said}"
    fix = "choose a smaller draft" if ratio < low else "measure acceptance first, or choose a larger draft"
    return Finding("size.ratio-outside", "warning", "pair", message, fix, facts)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio >= 1 else f"{ratio:.2g}×"


def _mark(holds: bool) -> str:
    return "yes" if holds else "no"


def _consequence(large: bool, k: int, cost: float | None) -> str:
    if not large:
        told = "" if cost is None else f" (K={k} drafts cost {k * cost:.2f} target steps)"
        return f"a draft this small guesses worse than its low cost is worth, as a rule{told}"
    if cost is None:
        return "drafting costs a large part of what it can save"
    return f"a round of K={k} drafts costs about {k * cost:.2f} target steps before anything is verified"

"""The size ratio of the pair, and whether config.json and weights agree on each model's size."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.config import RunConfig
from trtspec.pairing.counts import human, parameters_by_config, parameters_by_headers
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model


def parameters(model: Model) -> int | None:
    """The best count there is: what the weights hold, else what the config implies."""
    by_headers = _by_headers(model)
    if by_headers is not None:
        return by_headers
    return None if model.facts is None else parameters_by_config(model.facts)


def _by_headers(model: Model) -> int | None:
    if model.source is None:
        return None
    return parameters_by_headers(model.source, model.facts is not None and model.facts.tie_word_embeddings)


def check_size(target: Model, draft: Model, config: RunConfig, cost: float | None) -> Iterator[Finding]:
    """Config against headers for each model, then the ratio against its band. `cost` is c, for the consequence."""
    for model in (target, draft):
        yield from _disagreement(model)
    counts = parameters(target), parameters(draft)
    if counts[0] is None or counts[1] is None:
        unknown = " and ".join(m.role for m, n in zip((target, draft), counts, strict=True) if n is None)
        yield Finding("size.not-measured", "info", "pair", f"parameter count of the {unknown} is unknown")
    else:
        yield _ratio(counts[0], counts[1], config, cost)


def _disagreement(model: Model) -> Iterator[Finding]:
    implied = None if model.facts is None else parameters_by_config(model.facts)
    stored = _by_headers(model)
    if implied is not None and stored is not None and implied != stored:
        yield Finding(
            "size.config-disagrees", "error", model.role,
            f"the weights hold {stored:,} parameters, config.json implies {implied:,}",
            "config.json and weights are not of one model: fetch both again",
            {"config": implied, "weights": stored},
        )  # fmt: skip


def _ratio(target: int, draft: int, config: RunConfig, cost: float | None) -> Finding:
    ratio = target / draft
    low, high = config.checks.min_size_ratio, config.checks.max_size_ratio
    facts = {"target": target, "draft": draft, "ratio": ratio, "band": [low, high], "share": draft / target}
    sizes = f"target {human(target)} ÷ draft {human(draft)} = {ratio:.1f}×"
    if ratio < 1:
        fix = "swap `pair.target` and `pair.draft`"
        return Finding("size.swapped", "error", "pair", f"{sizes}: the draft is the larger one", fix, facts)
    if low <= ratio <= high:
        return Finding("size.ratio", "info", "pair", f"{sizes} (band {low:g}-{high:g}×)", None, facts)
    message = f"{sizes}, outside {low:g}-{high:g}×; {_consequence(ratio < low, config.speculation.k, cost)}"
    fix = "choose a smaller draft" if ratio < low else "measure acceptance first, or choose a larger draft"
    return Finding("size.ratio-outside", "warning", "pair", message, fix, facts)


def _consequence(large: bool, k: int, cost: float | None) -> str:
    if not large:
        return "a draft this small guesses worse than its low cost is worth, as a rule"
    if cost is None:
        return "drafting costs a large part of what it can save"
    return f"a round of K={k} drafts costs about {k * cost:.2f} target steps before anything is verified"

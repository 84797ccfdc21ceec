"""Will it pay? Speed-up over draft lengths, acceptance and concurrency, and what a million tokens cost.

    speed-up = E / (v(K) + K·c + o)     in target steps, at each concurrency with that batch's c, v and o

Step times come from :mod:`trtspec.pairing.timing`, acceptance from :mod:`trtspec.pairing.measured`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trtspec.analysis.speedup import alpha_for, best_of
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.measured import Acceptance, Basis, acceptance_basis
from trtspec.pairing.model import Model
from trtspec.pairing.placement import gpus_needed
from trtspec.pairing.timing import Timing, timing

MOST = 1024
"""Requests in flight up to which speculation is followed."""


@dataclass(frozen=True)
class Cost:
    """c = draft step ÷ target step, and where it comes from."""

    ratio: float
    source: str


def cost_ratio(target: Model, draft: Model, config: RunConfig) -> Cost | None:
    """Measured if the configuration gives it, else estimated; None when a size is unknown."""
    found = timing(target, draft, config)
    return None if found is None else Cost(found.ratio, found.source)


def check_economics(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Expected speed-up; a draft that cannot pay, or not at the expected load, is a warning."""
    found = timing(target, draft, config)
    if found is None:
        yield Finding("economics.not-measured", "info", "pair", "cost of a draft step is unknown: a size is not known")
        return
    facts, k = table(found, _basis(target, draft, config), config), config.speculation.k
    at_k = facts["break_even"][k - 1]
    if k * found.ratio >= 1:
        yield Finding(
            "economics.draft-too-slow", "warning", "pair",
            f"K={k} drafts take {k * found.ratio:.2f} target steps (c = {found.ratio:.3f}, {found.source})",
            "choose a smaller or better quantized draft, or a smaller draft_len", facts,
        )  # fmt: skip
    if facts["alpha_known"] and facts["speedup"][0][k - 1] < 1:
        yield Finding(
            "economics.no-gain", "warning", "pair",
            f"at α = {facts['alphas'][0]:.2f} ({facts['alpha_source']}), K={k} is slower than no speculation: "
            f"break-even is {_percent(at_k)}",
            _smaller(facts["best"][0]), facts,
        )  # fmt: skip
    yield Finding("economics.expected", "info", "pair", _summary(found, facts, k, at_k), None, facts)
    yield from _under_load(facts, config)


def economics_facts(target: Model, draft: Model, config: RunConfig) -> dict[str, Any] | None:
    """Every figure as plain data; None when the cost of a draft step is unknown."""
    found = timing(target, draft, config)
    return None if found is None else table(found, _basis(target, draft, config), config)


def _basis(target: Model, draft: Model, config: RunConfig) -> Basis:
    return acceptance_basis(config, {model.role: model.folder for model in (target, draft)})


def _smaller(best: dict[str, Any]) -> str:
    return f"set speculation.draft_len to {best['k']}" if best["k"] else "serve this pair without speculation"


def _percent(alpha: float | None) -> str:
    return "never reached" if alpha is None else f"α = {alpha:.2f}"


def _summary(found: Timing, facts: dict[str, Any], k: int, at_k: float | None) -> str:
    low, high = facts["speedup"][0][k - 1], facts["speedup"][-1][k - 1]
    alphas = facts["alphas"]
    span = (
        f"α {alphas[0]:.3g}: {low:.2f}×"
        if len(alphas) == 1
        else f"α {alphas[0]:g}-{alphas[-1]:g}: {low:.2f}-{high:.2f}×"
    )
    return f"K={k} at {span}; break-even {_percent(at_k)} (c = {found.ratio:.3f}, {found.source}; {conditions(facts)})"


def conditions(facts: dict[str, Any]) -> str:
    """`v = 1, o = 0`, or what they are."""
    v = facts["verify_cost"][facts["k"] - 1]
    o = facts["overhead"]
    said = f"o = {o:.2f}" if facts["overhead_measured"] else "o = 0 as long as it is not measured"
    return "v = 1, o = 0" if v == 1 and o == 0 else f"v = {v:.2f}, {said}"


def _caption(facts: dict[str, Any]) -> str:
    """Under which conditions the speed-ups hold."""
    where = f"batch 1, {facts['context']:,} tokens of context, " if facts["context"] else ""
    independent = "" if "positions" in facts["alpha_source"] else " Acceptances are taken as independent."
    words = "In target steps: c a draft step, v a verify step, o a round's overhead; even: the α that breaks even."
    return f"* configured. {where}{conditions(facts)}; α: {facts['alpha_source']}.{independent}\n{words}"


def table(found: Timing, basis: Basis, config: RunConfig) -> dict[str, Any]:
    """Speed-up for each α (rows) and each K = 1..max_draft_len (columns), best K per α, break-even α per K; then load.

    At batch 1; `concurrency` has the same for more requests in flight, where absolute times are known.
    """
    ks = list(range(1, config.speculation.max_draft_len + 1))
    rounds = found.rounds(ks)
    seconds = found.step_seconds()
    facts = {
        "cost_ratio": found.ratio,
        "cost_source": found.source,
        "target_step_ms": None if seconds is None else 1000 * seconds,
        "context": found.context if found.absolute else None,
        "verify_cost": [found.v(k) for k in ks],
        "overhead": found.o(),
        "overhead_measured": found.overhead_seconds is not None,
        "round_steps": rounds,
        "alpha_source": basis.source,
        "alpha_known": basis.known,
        "alphas": [row.alpha for row in basis.rows],
        "ks": ks,
        "k": config.speculation.k,
        "tokens": [[row.tokens(k) for k in ks] for row in basis.rows],
        "speedup": [[row.tokens(k) / cost for k, cost in zip(ks, rounds, strict=True)] for row in basis.rows],
        "best": [_best(row, rounds, ks) for row in basis.rows],
        "break_even": [alpha_for(cost, k) for k, cost in zip(ks, rounds, strict=True)],
        **_load(found, basis, ks, config),
    }
    return facts | {"caption": _caption(facts)}


def _best(row: Acceptance, rounds: list[float], ks: list[int]) -> dict[str, Any]:
    k, gain = best_of([row.tokens(k) for k in ks], rounds)
    return {"alpha": row.alpha, "k": k, "speedup": gain}


def _load(found: Timing, basis: Basis, ks: list[int], config: RunConfig) -> dict[str, Any]:
    if not found.absolute:
        return {"concurrency": [], "compute_bound_from": None, "stops_paying_from": None, "price_per_hour": None}
    return {
        "concurrency": [_at(found, basis, ks, batch, config) for batch in concurrencies(config)],
        "compute_bound_from": {
            "plain": found.compute_bound(1), "verifying": found.compute_bound(config.speculation.k + 1),
        },
        "stops_paying_from": [stops_paying(found, row, ks) for row in basis.rows],
        "price_per_hour": config.hardware.price_per_hour,
    }  # fmt: skip


def concurrencies(config: RunConfig) -> list[int]:
    """1, 2, 4, … max_batch_size, and the load that `validate` will put on the pair."""
    most = config.engine.max_batch_size
    powers = [1 << i for i in range(most.bit_length()) if 1 << i <= most]
    return sorted({*powers, most, min(config.validation.concurrency, most)})


def _at(found: Timing, basis: Basis, ks: list[int], batch: int, config: RunConfig) -> dict[str, Any]:
    rounds = found.rounds(ks, batch)
    k, seconds = config.speculation.k, found.step_seconds(batch)
    assert seconds is not None
    best = [_best(row, rounds, ks) for row in basis.rows]
    plain = batch / seconds
    here = {
        "requests": batch,
        "target_step_ms": 1000 * seconds,
        "cost_ratio": found.c(batch),
        "verify_cost": found.v(k, batch),
        "break_even": alpha_for(rounds[k - 1], k),
        "speedup": [row.tokens(k) / rounds[k - 1] for row in basis.rows],
        "best": best,
        "tokens_per_second": {"without": plain, "with": [plain * b["speedup"] for b in best]},
    }
    return here | {"cost_per_million": _prices(plain, best, config)}


def _prices(plain: float, best: list[dict[str, Any]], config: RunConfig) -> dict[str, Any] | None:
    """Price of a million output tokens: of the target's GPUs without, of all GPUs with speculation at its best K."""
    price = config.hardware.price_per_hour
    if price is None:
        return None
    alone = price * config.pair.target.parallelism.world_size / 3600 / plain * 1e6
    both = price * gpus_needed(config, config.hardware.placement) / 3600 / plain * 1e6
    return {"without": alone, "with": [both / b["speedup"] for b in best]}


def stops_paying(found: Timing, row: Acceptance, ks: list[int]) -> int | None:
    """The smallest number of requests in flight at which no K gains; None if there is none up to MOST.

    Looked for among the powers of two, then between the last that gains and the first that does not.
    """
    tokens = [row.tokens(k) for k in ks]

    def pays(batch: int) -> bool:
        return best_of(tokens, found.rounds(ks, batch))[0] > 0

    high = 1
    while pays(high):
        if high == MOST:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return high


def _under_load(facts: dict[str, Any], config: RunConfig) -> Iterator[Finding]:
    """What more requests in flight do to it; a warning where a known acceptance does not pay at the expected load."""
    if not facts["concurrency"]:
        return
    load, stops = min(config.validation.concurrency, config.engine.max_batch_size), facts["stops_paying_from"]
    bound = facts["compute_bound_from"]
    pays = ", ".join(f"α {a:.2g} {_stops(s)}" for a, s in zip(facts["alphas"], stops, strict=True))
    text = (
        f"requests in flight up to which it pays, estimated without scheduler and host: {pays}; "
        f"verifying K={facts['k']} is bound by arithmetic from {_from(bound['verifying'], 4096)}, "
        f"plain steps from {_from(bound['plain'], 4096)}"
    )
    data = {"compute_bound_from": bound, "stops_paying_from": stops, "concurrency": facts["concurrency"]}
    if facts["alpha_known"] and stops[0] is not None and stops[0] <= load:
        yield Finding(
            "economics.stops-paying", "warning", "pair",
            f"at validation.concurrency {load} no draft length gains: {text}",
            f"speculate below {stops[0]} requests in flight only", data,
        )  # fmt: skip
    else:
        yield Finding("economics.concurrency", "info", "pair", text, None, data, brief=_pays(facts))


def _pays(facts: dict[str, Any]) -> str:
    """Up to which load it pays, in short: for the lowest acceptance and for the highest."""
    alphas, stops = facts["alphas"], facts["stops_paying_from"]
    if stops[-1] == 1:
        return "it pays at no load"
    ends = (0, -1) if len(alphas) > 1 and stops[0] != stops[-1] else (-1,)
    return f"requests in flight up to which it pays at most: {', '.join(_at_alpha(alphas[i], stops[i]) for i in ends)}"


def _at_alpha(alpha: float, stops: int | None) -> str:
    return f"{_stops(stops)} at α {alpha:.2g}"


def _from(batch: int, most: int) -> str:
    return f"more than {most:,}" if batch > most else f"{batch:,}"


def _stops(batch: int | None) -> str:
    return f"{MOST:,} and more" if batch is None else f"{batch - 1:,}" if batch > 1 else "none"

"""When to stop measuring: as soon as more prompts cannot change what the gates say, or the budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trtspec.config.gates import Gates
from trtspec.config.schema import RunConfig
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import Samples, domains_of
from trtspec.measurement.result import LooksRow, ResultDocument
from trtspec.measurement.summary import build_result
from trtspec.release.gates import Judgement, judge

FEWEST = 20
"""Prompts of each domain before anything is decided: with fewer the intervals rest on hardly anything."""
OPEN = frozenset(
    {"release.alpha", "length", "speedup", "ttft.p50", "ttft.p99", "tpot.p50", "tpot.p99"}
    | {"regression.alpha", "regression.length", "regression.speedup"}
)
"""Rules that more prompts can decide."""


def stopper(
    config: RunConfig, prompts: Sequence[Prompt], baseline: ResultDocument | None = None
) -> Callable[[Samples], bool]:
    """What `measure` asks after each pair of blocks: are the gates decided?

    Judged like a finished document, with intervals as wide as the looks so far (`samples.looks`, this one included)
    ask for: so stopping here errs no more often than measuring everything would.
    """

    def decided(samples: Samples) -> bool:
        asked = samples.asked(prompts)
        if any(sum(p.domain == name for p in asked) < FEWEST for name in domains_of(prompts)):
            return False
        looks = LooksRow(budget=len(prompts), at=samples.looks or (len(asked),))
        result = build_result(config, prompts, samples, None)
        result = result.model_copy(update={"looks": looks, "stopped": "decided"})
        return not open_rules(judge(result, config.gates, baseline), config.gates)

    return decided


def open_rules(judgement: Judgement, gates: Gates) -> tuple[str, ...]:
    """Rules that are undecided for want of prompts; none once one of them says no, which stays so.

    A domain on the edge of its own floor, neither kept for certain nor below it for certain, is open too.
    """
    rows = [row for row in judgement.rows if row.rule in OPEN]
    if any(row.outcome == "fail" for row in rows):
        return ()
    floor = gates.domain_alpha
    edges = [
        f"{row.rule}: {row.subject}"
        for row in judgement.rows
        if row.rule == "domain.alpha" and row.outcome == "off" and (row.high is None or row.high >= floor)
    ]
    return (*(row.rule for row in rows if row.outcome in ("undecided", "not measured")), *edges)

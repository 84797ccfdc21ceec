"""The gates, and what stands behind the numbers: exactness, problems, prompts, conditions, environment."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.measurement.result import Cost, DomainResult, ResultDocument, StepCosts
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.html.section import Section, Table, badge

MOST_ROWS = 30
"""Of one kind on the page; result.json has all."""
_DIFFERENCE = ("prompt", "domain", "kind", "token", "logit gap", "after", "target alone", "with drafts", "note")


def gates(judgement: Judgement) -> Section:
    """Every rule with what it found."""
    rows = [
        (row.name, row.subject, badge(row.outcome), words.found_of(row), words.limit_of(row), row.reason)
        for row in judgement.rows
    ]
    headings = ("gate", "subject", "outcome", "found [95 %]", "limit", "why")
    caption = "A bound is passed when the whole interval is on its good side, failed when it is wholly on the other."
    return Section("Gates", tables=(Table(caption, headings, rows, frozenset({3, 4})),))


def exactness(result: ResultDocument) -> Section:
    """Greedy equality, with the first difference of each text in its context."""
    measured = [(d, d.exactness) for d in result.domains if d.exactness]
    if not measured:
        return Section("Greedy equality", "Not measured: answers were sampled, and sampled answers may differ.")
    headings = ("domain", "texts equal", "near-ties", "really different", "undiagnosed")
    rows = [
        (d.domain, f"{e.equal} of {e.compared}", str(e.near_ties), str(e.real), str(e.undiagnosed)) for d, e in measured
    ]
    tie = max(e.near_tie for _, e in measured)
    caption = f"Speculative texts against the target's own. Near-tie: the two best logits are at most {tie:g} apart."
    tables = [Table(caption, headings, rows)]
    differences = [cells for d, _ in measured for cells in _differences(d)]
    if differences:
        caption = _shown("First difference of each text", len(differences))
        tables.append(Table(caption, _DIFFERENCE, differences[:MOST_ROWS]))
    return Section("Greedy equality", tables=tuple(tables))


def quality(result: ResultDocument) -> Section | None:
    """Whether answers are right; nothing where that was not asked."""
    if not result.quality:
        return None
    headings = ("check", "domain", "answers", "right, target alone", "right, with drafts", "says no")
    rows = [
        (q.check, q.domain or "all", f"{q.n:,}", words.share(q.target_only), words.share(q.speculative),
         "yes" if q.says_no else "no")
        for q in result.quality
    ]  # fmt: skip
    return Section("Quality", tables=(Table("Share of right answers", headings, rows),))


def _differences(domain: DomainResult) -> Iterator[tuple[str, ...]]:
    for each in domain.exactness.differences if domain.exactness else ():
        token = "–" if each.token is None else str(each.token)
        quoted = (f"…{each.before}", each.target_only, each.speculative)
        yield each.prompt, domain.domain, each.kind, token, words.number(each.gap, 4), *quoted, each.reason


def problems(result: ResultDocument) -> Section | None:
    """What is wrong with the evidence, and requests without a usable answer."""
    tables = []
    if result.problems:
        rows = [(p.code, p.domain or "all", p.severity, str(p.count), p.message) for p in result.problems]
        tables.append(Table("Problems of the evidence", ("code", "domain", "weight", "times", "what"), rows))
    failed = [(u.prompt, d.domain, u.mode, u.reason) for d in result.domains for u in d.unusable]
    if failed:
        caption = _shown("Requests without a usable answer", len(failed))
        tables.append(Table(caption, ("prompt", "domain", "mode", "why"), failed[:MOST_ROWS]))
    return Section("Problems", tables=tuple(tables)) if tables else None


def data(result: ResultDocument) -> Section:
    """Where the prompts came from."""
    if not result.datasets:
        return Section("Prompts", "Where the prompts came from was not recorded.")
    headings = ("domain", "file", "measured", "in the file", "duplicates", "near-duplicates", "random tokens", "sha256")
    rows = [
        (
            d.domain,
            d.file,
            *map(words.count, (d.prompts, d.available, d.duplicates, d.near_duplicates, d.random_tokens)),
            d.sha256[:16] + (" · end token ignored" if d.ignore_eos else ""),
        )
        for d in result.datasets
    ]
    return Section("Prompts", tables=(Table("Files of prompts", headings, rows),))


def environment(result: ResultDocument) -> Section:
    """Conditions, counters, step times, memory and versions."""
    told = result.conditions.model_dump(mode="json")
    conditions = [(name.replace("_", " "), _value(value)) for name, value in told.items()]
    tables = [
        Table("Conditions that every number depends on", ("condition", "value"), conditions),
        Table("Checked against the server", ("what", "found"), list(_checks(result))),
    ]
    if result.costs:
        steps = list(_costs(result.costs))
        tables.append(Table(f"Step times, {result.costs.concurrency} in flight", ("step", "median", "samples"), steps))
    tables.append(Table("Versions and hashes", ("name", "value"), sorted(result.environment.items())))
    return Section("Conditions and environment", tables=tuple(tables))


def _checks(result: ResultDocument) -> Iterator[tuple[str, str]]:
    counters, memory = result.counters, result.memory
    yield "counters", words.NOT_MEASURED if counters is None else f"{counters.outcome}: {counters.reason}"
    for row in counters.rows if counters else ():
        yield row.name, f"server {row.server:,.0f}, answers {row.answers:,.0f}"
    free = words.NOT_MEASURED if memory is None else f"{words.share(memory.headroom)} free on {memory.device}"
    yield "memory head-room", free


def _costs(costs: StepCosts) -> Iterator[tuple[str, str, str]]:
    named: list[tuple[str, Cost | None]] = [("draft step", costs.draft_step), ("target step", costs.target_step)]
    named += [("a token of the target alone, streamed", costs.token)]
    named += [(f"verify {k} drafts", cost) for k, cost in sorted(costs.verify.items())]
    for name, cost in (*named, ("overhead of a round", costs.overhead)):
        yield name, words.seconds(cost.seconds if cost else None), f"{cost.n:,}" if cost else "–"


def _value(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shown(what: str, count: int) -> str:
    return what if count <= MOST_ROWS else f"{what}: the first {MOST_ROWS} of {count:,}; result.json has all"

"""Measuring until it is decided, or the budget is spent."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.measurement.fake import FakeClient, prompts, validation
from trtspec.config.schema import RunConfig
from trtspec.measurement.load import budgeted, measure
from trtspec.measurement.records import MODES, Samples
from trtspec.measurement.summary import build_result

ASKED = prompts(32, max_tokens=8) + prompts(16, "law", max_tokens=8)


def test_it_stops_when_somebody_says_so() -> None:
    seen: list[Samples] = []

    def decided(samples: Samples) -> bool:
        seen.append(samples)
        return len(seen) == 2

    found = measure(FakeClient, ASKED, validation(concurrency=1), 4, decided=decided)
    assert found.stopped == "decided"
    assert found.looks == (8, 16) == seen[-1].looks
    modes = Counter((a.prompt.domain, a.mode) for a in found.answers)
    # A pair of blocks of every domain is whole whenever somebody looks.
    assert all(modes[d, "target-only"] == modes[d, "speculative"] > 0 for d in ("code", "law"))


def test_it_is_asked_in_a_random_order_that_the_seed_gives() -> None:
    orders = []
    for seed in (0, 0, 1):
        client = FakeClient()
        measure(lambda client=client: client, ASKED, validation(seed=seed, concurrency=1), 4, decided=lambda _: False)
        orders.append([r.prompt for m, r in client.asked if m == "ensemble"])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(p.text for p in ASKED)
    assert orders[0][:4] != [p.text for p in ASKED[:4]]


def test_a_prompts_seed_does_not_depend_on_the_order() -> None:
    seeds = []
    for decide in (None, lambda _: False):
        client = FakeClient()
        measure(lambda client=client: client, ASKED, validation(concurrency=1, temperature=1.0), 4, decided=decide)  # type: ignore[arg-type]
        seeds.append({(m, r.prompt, r.seed) for m, r in client.asked})
    assert seeds[0] == seeds[1]


def test_the_last_look_is_the_end() -> None:
    found = measure(FakeClient, ASKED, validation(concurrency=1), 4, decided=lambda _: False)
    assert found.stopped == "all"
    assert found.looks[-1] == len(ASKED)


def test_a_budget_of_prompts() -> None:
    how = validation(concurrency=1, max_prompts=10)
    found = measure(FakeClient, ASKED, how, 4)
    chosen = Counter((a.prompt.domain, a.mode) for a in found.answers)
    assert chosen == {(d, m): 10 for d in ("code", "law") for m in MODES}
    drawn = budgeted(ASKED, how)
    assert {p.id for p in drawn} == {a.prompt.id for a in found.answers}
    assert drawn == [p for p in ASKED if p in drawn]


def test_a_budget_of_time_ends_between_blocks() -> None:
    found = measure(
        lambda: FakeClient(seconds=lambda model: 0.002), ASKED, validation(concurrency=1, max_seconds=0.001), 4
    )
    assert found.stopped == "budget"
    assert {m: sum(a.mode == m for a in found.answers) for m in MODES} == {"target-only": 8, "speculative": 8}


@pytest.mark.parametrize("stop", [True, False])
def test_the_document_says_why_it_ended(stop: bool) -> None:
    pair = {"target": {"path": "t"}, "draft": {"path": "d"}}
    config = RunConfig.model_validate({"name": "toy", "pair": pair, "validation": {"concurrency": 1, "warmup": 0}})
    samples = measure(FakeClient, ASKED, config.validation, 4, decided=lambda _: stop)
    found = build_result(config, ASKED, samples, None)
    assert found.stopped == ("decided" if stop else "all")
    assert found.looks is not None
    assert found.looks.budget == len(ASKED)
    assert sum(d.prompts for d in found.domains) == found.looks.at[-1] == (8 if stop else 48)
    assert not found.interrupted
    assert found.release_valid

"""Stopping: as soon as the gates are decided, never on hardly anything, and at once when the answer is no."""

from __future__ import annotations

import numpy as np

from benchmarks.simulated import Population, document
from tests.measurement.fake import FakeClient, prompts
from tests.release.made import config
from trtspec.config.gates import Gates
from trtspec.measurement.load import measure
from trtspec.measurement.records import Samples
from trtspec.measurement.result import LooksRow
from trtspec.release.gates import judge
from trtspec.release.stopping import open_rules, stopper


def stopped(agrees: float, count: int, **gates: object) -> Samples:
    """A measurement of a toy pair with this α."""
    asked = prompts(count, max_tokens=40)
    run = config(validation={"concurrency": 2, "warmup": 0}, gates={"greedy_equality": "off", **gates})
    client = FakeClient(agrees=agrees)
    return measure(lambda: client, asked, run.validation, 4, decided=stopper(run, asked))


def test_a_clear_pair_is_not_measured_to_the_end() -> None:
    samples = stopped(0.9, 160)
    assert samples.stopped == "decided"
    assert 20 <= samples.looks[-1] < 160


def test_a_pair_near_its_floor_takes_all_prompts() -> None:
    assert stopped(0.7, 60, release_alpha=0.68).stopped == "all"


def test_a_clear_no_ends_it_too() -> None:
    assert stopped(0.2, 160).stopped == "decided"


def test_few_prompts_are_never_cut_short() -> None:
    samples = stopped(0.9, 24)
    assert (samples.stopped, samples.looks[-1]) == ("all", 24)


def judged(alpha: float, now: int, budget: int) -> tuple[str, ...]:
    found = Population(alpha).counts(
        np.random.default_rng(3), *Population(alpha).prompts(np.random.default_rng(2), now)
    )
    made = document({"d": found}, LooksRow(budget=budget, at=(now,)), "decided")
    return open_rules(judge(made, Gates()), Gates())


def test_a_domain_on_the_edge_of_its_floor_is_open_though_nothing_fails() -> None:
    assert judged(0.56, 40, 100) == ("release.alpha", "domain.alpha: d")
    assert judged(0.3, 60, 100) == ()


def test_an_early_look_asks_for_more_than_a_late_one() -> None:
    assert judged(0.72, 80, 800) != ()
    assert judged(0.72, 80, 80) == ()

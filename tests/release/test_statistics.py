"""The committed simulations: what they promise, and that the guide tells their numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.statistics import OUT, SCENARIOS, SIZES, table
from tests.conftest import PROJECT

Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> Found:
    document: Found = json.loads(OUT.read_bytes())
    return document


def test_intervals_cover_the_truth_in_93_to_97_of_100_runs(found: Found) -> None:
    covered = [share for row in found["alpha"] for share in row["covered"].values()]
    assert len(covered) == len(SIZES) * 15
    assert found["runs"] == 1000
    assert all(0.93 <= share <= 0.97 for share in [*covered, *found["length"].values(), *found["speed"].values()])
    assert found["methods"]["percentile bootstrap"]["20"] < 0.93


def test_verdicts_are_right_with_the_default_budget(found: Found) -> None:
    verdicts = {row["scenario"]: row["verdicts"] for row in found["judged"]}
    assert verdicts.keys() == SCENARIOS.keys()
    for name, shares in verdicts.items():
        if SCENARIOS[name].prompts < 100 or not SCENARIOS[name].same_prompts:
            continue
        if any(SCENARIOS[name].fell):
            assert shares["fail"] >= 0.95, name
        else:
            assert shares["fail"] <= 0.01, name
            assert shares["undecided"] <= 0.10, name


def test_the_guide_tells_these_numbers(found: Found) -> None:
    assert table(found) in (PROJECT / "docs" / "gates.md").read_text(encoding="utf-8")

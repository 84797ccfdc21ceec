"""Two runs side by side: the difference has an interval, and what else differs is said."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.release.full import full
from tests.release.made import result
from trtspec.analysis.differences import difference_of
from trtspec.analysis.intervals import Interval
from trtspec.cli._main import run
from trtspec.config.gates import Gates
from trtspec.measurement.result import ResultDocument
from trtspec.release.compare import Comparison, FigureRow, compare
from trtspec.release.gates import judge
from trtspec.release.report import write_report


def named(made: ResultDocument, salt: str = "") -> ResultDocument:
    """With the hashes by which prompts of two runs are paired."""
    domains = tuple(
        d.model_copy(
            update={
                "rows": tuple(
                    r.model_copy(update={"sha256": hashlib.sha256(f"{salt}{r.id}".encode()).hexdigest()})
                    for r in d.rows
                )
            }
        )
        for d in made.domains
    )
    return made.model_copy(update={"domains": domains})


def row(found: Comparison, figure: str, domain: str = "all domains") -> FigureRow:
    (only,) = [r for r in found.rows if (r.domain, r.figure) == (domain, figure)]
    return only


def test_a_run_against_itself_differs_in_nothing() -> None:
    made = named(full())
    found = compare(made, made)
    assert found.warnings == ()
    assert found.same_prompts == 180
    alpha = row(found, "α")
    assert alpha.difference is not None
    assert (alpha.difference.point, alpha.how, alpha.told) == (0.0, "same prompts", "not told apart")


def test_the_same_prompts_are_compared_one_by_one() -> None:
    found = compare(named(result({"code": 0.75})), named(result({"code": 0.60})))
    alpha = row(found, "α", "code")
    assert (alpha.how, alpha.told) == ("same prompts", "lower")
    assert alpha.difference is not None
    assert alpha.difference.n == 60
    assert row(found, "tokens a round", "code").told == "lower"


def test_other_prompts_are_two_runs_apart() -> None:
    found = compare(named(result({"code": 0.75}), "a"), named(result({"code": 0.60}), "b"))
    assert found.same_prompts == 0
    alpha = row(found, "α")
    assert (alpha.how, alpha.told) == ("apart", "lower")


def test_a_figure_without_an_interval_tells_nothing() -> None:
    found = compare(result({"code": 0.75}), result({"code": 0.75}, gain=1.1))
    assert row(found, "tokens/s with drafts").told == "no interval"
    assert row(found, "speed-up").told == "lower"
    assert row(found, "first token p50, with drafts").told == "not measured"


def test_what_differs_besides_is_said() -> None:
    one, other = full(), full(validation={"concurrency": 8})
    other = other.model_copy(
        update={
            "environment": other.environment | {"torch": "9.9"},
            "datasets": tuple(d.model_copy(update={"sha256": "cd" * 32}) for d in other.datasets),
            "domains": other.domains[:2],
        }
    )
    said = "\n".join(compare(one, other).warnings)
    for part in ("concurrency is 8, was 4", "torch is 9.9, was", "the prompts of code", "domain law"):
        assert part in said


def test_the_interval_of_a_difference_covers_the_truth() -> None:
    """Two shares of 0.8 and 0.7, each with a normal interval of 100 trials: 95 % of 2,000 runs, within the error."""
    rng = np.random.default_rng(0)
    hits = 0
    for x, y in rng.binomial(100, (0.8, 0.7), size=(2000, 2)) / 100:
        sides = []
        for share in (x, y):
            half = 1.96 * float(np.sqrt(share * (1 - share) / 100))
            sides.append(Interval(share - half, share + half, share, 100))
        found = difference_of(*sides)
        hits += found.low <= -0.1 <= found.high
    assert 0.93 <= hits / 2000 <= 0.97


def test_the_command_reads_folders_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, alpha in (("a", 0.75), ("b", 0.6)):
        made = named(result({"code": alpha}))
        write_report(tmp_path / name, made, judge(made, Gates()), Gates())
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b/result.json")]) == 0
    shown = capsys.readouterr().out
    assert "lower" in shown
    assert "60 prompts" in shown
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert Comparison.model_validate(document).same_prompts == 60
    (tmp_path / "b/result.json").write_text("{}")
    assert run(["compare", str(tmp_path / "a"), str(tmp_path / "b/result.json")]) == 6

"""The policy file: what it decides, what is refused, and how changes are picked up."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.triton.models.tensorrt_llm_bls.policy import PolicyFile, parse_policy

DOCUMENT = {
    "version": 1,
    "default": {"draft_len": 5},
    "tasks": {"code": {"draft_len": 6}, "legal": {"draft_len": 0, "reason": "α 0.48 < 0.55"}},
    "by_concurrency": [[1, 8], [8, 1]],
}


@pytest.mark.parametrize(
    ("task", "in_flight", "length"),
    [(None, 1, 5), ("unknown", 7, 5), ("code", 7, 6), ("legal", 1, 0), ("code", 8, 1), (None, 100, 1)],
)
def test_a_task_replaces_the_default_and_load_limits_both(task: str | None, in_flight: int, length: int) -> None:
    assert parse_policy(DOCUMENT).draft_len(task, in_flight) == length


@given(st.integers(0, 9), st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), max_size=4), st.integers(1, 30))
def test_load_only_ever_lowers(default: int, steps: list[tuple[int, int]], in_flight: int) -> None:
    table = [list(step) for step in sorted(dict(steps).items())]
    policy = parse_policy({"version": 1, "default": {"draft_len": default}, "by_concurrency": table})
    assert policy.draft_len(None, in_flight) <= default


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"default": None}, "default is not an object"),
        ({"default": {"draft_len": -1}}, "default.draft_len holds -1"),
        ({"default": {"draft_len": True}}, "holds True"),
        ({"tasks": {"x": {"drft_len": 1}}}, "tasks.x is not an object"),
        ({"tasks": []}, "tasks is not an object"),
        ({"tasks": {"\ud800": {"draft_len": 1}}}, r"tasks holds a name that is not UTF-8 text.*: '\\ud800'$"),
        ({"tasks": {"ä" * 129: {"draft_len": 1}}}, "at most 256 bytes"),
        ({"by_concurrency": [[1]]}, "by_concurrency is not a list"),
        ({"by_concurrency": [[8, 1], [1, 8]]}, "not sorted"),
        ({"version": 2}, "version is 2"),
        ({"defualt": {}}, "unknown key 'defualt'"),
    ],
)
def test_what_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_policy(DOCUMENT | change)


def test_a_change_is_picked_up_and_a_bad_one_leaves_the_last_good(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(DOCUMENT))
    file = PolicyFile(path)
    assert file.refresh() is None
    path.write_text(json.dumps(DOCUMENT | {"default": {"draft_len": 2}}))
    os.utime(path, ns=(1, 1))
    assert file.refresh() == ""
    assert file.policy.default == 2
    path.write_text("{")
    problem = file.refresh()
    assert problem is not None
    assert "keeps its last good content" in problem
    assert file.refresh() is None  # said once
    assert file.policy.default == 2
    path.unlink()
    assert "No such file" in (file.refresh() or "")
    assert file.refresh() is None  # said once
    path.write_text(json.dumps(DOCUMENT))
    assert file.refresh() == ""
    assert file.policy.default == 5
    assert file.refresh() is None


@pytest.mark.parametrize("broken", ["", "null", "[]", '{"version": 1', "\ufeff{}", "[" * 20000, '{"version": 2}'])
def test_any_broken_file_leaves_the_last_good(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(DOCUMENT))
    file = PolicyFile(path)
    path.write_text(broken, encoding="utf-8")
    assert (file.refresh() or "").startswith("policy.json keeps its last good content: ")
    assert file.policy.default == 5


def test_a_file_seen_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """Even if time and size of the file do not tell the two apart."""
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(DOCUMENT))
    file = PolicyFile(path)
    whole = json.dumps(DOCUMENT | {"default": {"draft_len": 2}})
    path.write_text(whole[:-1] + " ")
    os.utime(path, ns=(7, 7))
    assert file.refresh()
    path.write_text(whole)
    os.utime(path, ns=(7, 7))
    assert file.refresh() == ""
    assert file.policy.default == 2


def test_another_problem_is_said_too(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(DOCUMENT))
    file = PolicyFile(path)
    path.unlink()
    assert "No such file" in (file.refresh() or "")
    path.mkdir()
    assert "Is a directory" in (file.refresh() or "")


@pytest.mark.parametrize(
    ("steps", "in_flight", "decided"),
    [([], 9, (5, "policy")), ([[4, 2]], 3, (5, "policy")), ([[4, 2]], 4, (2, "load")), ([[1, 8]], 1, (5, "policy")),
     ([[2, 3], [8, 0]], 8, (0, "load"))],
)  # fmt: skip
def test_it_says_what_decided(steps: list[list[int]], in_flight: int, decided: tuple[int, str]) -> None:
    assert parse_policy(DOCUMENT | {"by_concurrency": steps}).decide(None, in_flight) == decided

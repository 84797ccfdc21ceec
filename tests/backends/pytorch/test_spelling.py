"""The speculative_config block of every version, and what a version has no field for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.backends.pytorch.spelling import speculative_config
from trtspec.config.llmapi import PyTorch
from trtspec.errors import ConfigError
from trtspec.versions import version

GOLDEN = {
    "1.0.0": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model_dir": "/d"},
    "1.1.0": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model_dir": "/d"},
    "1.2.0": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model": "/d"},
    "1.2.1": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model": "/d"},
    "1.3.0rc3": {"decoding_type": "DraftTarget", "max_draft_len": 5, "speculative_model": "/d"},
    "1.3.0rc22": {"decoding_type": "Draft_Target", "max_draft_len": 5, "speculative_model": "/d"},
    "1.4.0rc4": {"decoding_type": "Draft_Target", "max_draft_len": 5, "speculative_model": "/d"},
}
LENGTH = {"acceptance_window": 100, "acceptance_length_threshold": 1.5}
RATE = {"acceptance_window": 100, "acceptance_rate_threshold": 0.3}


def block(text: str, **settings: Any) -> dict[str, object]:
    return speculative_config(version(text), "/d", 5, PyTorch(**settings))


@pytest.mark.parametrize("text", GOLDEN)
def test_each_version_gets_its_spelling(text: str) -> None:
    assert block(text) == GOLDEN[text]


@pytest.mark.parametrize("text", ["0.20.0", "0.21.0", "0.17.0"])
def test_versions_without_draft_target_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="does not speculate"):
        block(text)


def test_max_concurrency_is_younger_than_the_first_release() -> None:
    assert block("1.2.1", max_concurrency=8)["max_concurrency"] == 8
    with pytest.raises(ConfigError, match=r"TensorRT-LLM 1\.0\.0 has no such setting") as caught:
        block("1.0.0", max_concurrency=8)
    assert caught.value.where == "engine.pytorch.max_concurrency"


def test_a_schedule_is_written_as_its_version_reads_it() -> None:
    schedule = {1: 5, 5: 2, 9: 0}
    assert block("1.2.1", draft_len_schedule=schedule)["draft_len_schedule"] == {1: 5, 5: 2, 9: 0}
    # Newer versions read batch sizes as upper bounds, and draft nothing above the last.
    assert block("1.4.0rc4", draft_len_schedule=schedule)["draft_len_schedule"] == {4: 5, 8: 2}


@pytest.mark.parametrize(
    ("text", "schedule", "says"),
    [
        ("1.1.0", {1: 5}, "has no such setting"),
        ("1.3.0rc10", {1: 5, 9: 0}, "is not known"),
        ("1.2.1", {1: 4}, "begins with the draft length that is served"),
        ("1.2.1", {1: 5, 9: 6}, "never exceeds"),
        ("1.4.0rc4", {1: 5, 9: 2}, "ends every schedule"),
    ],
)
def test_a_schedule_that_would_mean_something_else_is_refused(text: str, schedule: dict[int, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        block(text, draft_len_schedule=schedule)


@given(st.dictionaries(st.integers(2, 200), st.integers(1, 5), max_size=5), st.integers(1, 256))
def test_both_forms_of_a_schedule_mean_the_same(middle: dict[int, int], batch: int) -> None:
    schedule = {1: 5, **middle, 201: 0}
    ours = max((start, length) for start, length in schedule.items() if start <= batch)[1]
    lower: Any = block("1.2.1", draft_len_schedule=schedule)["draft_len_schedule"]
    assert max((start, length) for start, length in lower.items() if start <= batch)[1] == ours
    upper: Any = block("1.4.0rc4", draft_len_schedule=schedule)["draft_len_schedule"]
    assert min([(end, length) for end, length in upper.items() if batch <= end], default=(0, 0))[1] == ours


def test_the_acceptance_window_in_the_units_of_its_version() -> None:
    assert block("1.2.1", **LENGTH) == GOLDEN["1.2.1"] | LENGTH
    newer = {"acceptance_rate_window_size": 100, "acceptance_rate_threshold": 0.3}
    assert block("1.4.0rc4", **RATE) == GOLDEN["1.4.0rc4"] | newer


@pytest.mark.parametrize(("text", "settings"), [("1.2.1", RATE), ("1.4.0rc4", LENGTH), ("1.0.0", LENGTH)])
def test_a_threshold_in_other_units_is_refused_not_converted(text: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no such setting"):
        block(text, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_concurrency": 4, "draft_len_schedule": {1: 4}}, "exclude each other"),
        ({"draft_len_schedule": {2: 4}}, "begins with 1"),
        ({"acceptance_window": 4}, "goes with one of"),
        ({"acceptance_rate_threshold": 0.5}, "goes with one of"),
        (LENGTH | RATE, "goes with one of"),
        ({"options": {"model": "x"}}, "follows from other keys"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PyTorch(**settings)

"""Events in the server's log: one line of JSON each, short, and without what people wrote."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

SECRET = "my name is Ada"


class Logger:
    """Keeps lines with their level."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def log_info(self, line: str) -> None:
        self.lines.append(("info", line))

    def log_warn(self, line: str) -> None:
        self.lines.append(("warn", line))

    def log_error(self, line: str) -> None:
        self.lines.append(("error", line))


def log(bls: dict[str, ModuleType], **options: bool) -> tuple[Any, Logger]:
    logger = Logger()
    return bls["logs"].Log(logger, **options), logger


def test_an_event_is_one_json_object(bls: dict[str, ModuleType]) -> None:
    out, logger = log(bls)
    out.event("info", "request-end", "r1", task="code", tokens=np.int32(5), seconds=np.float32(0.5), mode=None, ok=True)
    out.event("warning", "fallback", "r1", reason="draft-failed")
    out.event("error", "internal-error", rates=[0.25, float("nan")])
    said = [(level, json.loads(line)) for level, line in logger.lines]
    assert said == [
        ("info", {"event": "request-end", "request": "r1", "task": "code", "tokens": 5, "seconds": 0.5, "ok": True}),
        ("warn", {"event": "fallback", "request": "r1", "reason": "draft-failed"}),
        ("error", {"event": "internal-error", "rates": [0.25, "nan"]}),
    ]


@pytest.mark.parametrize("field", ["prompt", "answer", "text", "stop_words", "bad_words"])
def test_what_people_wrote_is_left_out_unless_asked_for(bls: dict[str, ModuleType], field: str) -> None:
    silent, logger = log(bls)
    silent.event("info", "request-end", "r1", **{field: SECRET})
    assert SECRET not in logger.lines[0][1]
    open_, logger = log(bls, prompts=True)
    open_.event("info", "request-end", "r1", **{field: SECRET})
    assert json.loads(logger.lines[0][1])[field] == SECRET


def test_a_field_may_be_a_function_that_is_asked_only_if_need_be_and_may_fail(bls: dict[str, ModuleType]) -> None:
    def prompt() -> str:
        raise ValueError(SECRET)

    silent, logger = log(bls)
    silent.event("info", "request-end", "r1", prompt=prompt, answer=lambda: None)
    open_, second = log(bls, prompts=True)
    open_.event("info", "request-end", "r1", prompt=prompt, answer=lambda: SECRET)
    assert "prompt" not in json.loads(logger.lines[0][1])
    assert json.loads(second.lines[0][1]) == {
        "event": "request-end", "request": "r1", "prompt": "(ValueError)", "answer": SECRET,
    }  # fmt: skip


def test_requests_can_be_left_out_but_not_their_faults(bls: dict[str, ModuleType]) -> None:
    out, logger = log(bls, requests=False)
    out.event("info", "request-end", "r1")
    out.event("warn", "fallback", "r1")
    out.event("info", "policy-reload")
    assert [json.loads(line)["event"] for _, line in logger.lines] == ["fallback", "policy-reload"]


@given(st.text(max_size=2000), st.lists(st.text(max_size=20), max_size=100))
def test_no_client_can_break_or_flood_a_line(bls: dict[str, ModuleType], name: str, names: list[str]) -> None:
    out, logger = log(bls)
    out.event("warn", "unknown-inputs", name, names=names)
    line = logger.lines[0][1]
    assert line.isascii()
    assert line.isprintable()
    assert len(json.loads(line).get("request", "")) <= 256
    assert len(line) < 2000 + 16 * 6 * 24


def test_a_logger_that_fails_disturbs_nobody(bls: dict[str, ModuleType]) -> None:
    class Broken:
        def log_info(self, line: str) -> None:
            raise RuntimeError(line)

    bls["logs"].Log(Broken()).event("info", "request-end", "r1")

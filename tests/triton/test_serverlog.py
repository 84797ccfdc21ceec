"""What a Triton log says went wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trtspec.triton.serverlog import (
    events,
    first_sentence,
    lost_a_lock,
    model_refused,
    port_was_taken,
    telling_lines,
)

STAMP = "1129 19:47:52.646455 10241"
NOISE = f"""\
I{STAMP} model_lifecycle.cc:472] "loading: echo:1"
W{STAMP} metrics.cc:798] "DCGM unable to start: DCGM initialization error"
E{STAMP} server.cc:241] "CudaDriverHelper has not been initialized."
E{STAMP} ensemble_scheduler.cc:1468] "unable to create stream for ensemble: CUDA driver version is insufficient for …"
"""
AT = r"\n\nAt:\n  /r/echo/1/model.py(1): <module>\n  <frozen importlib._bootstrap>(241): _call\n"


def write(tmp_path: Path, text: str) -> Path:
    log = tmp_path / "triton.log"
    log.write_text("$ tritonserver --old\nE" + STAMP + ' main.cc:1] "an older run"\n$ tritonserver\n' + NOISE + text)
    return log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"""E{STAMP} backend_model.cc:692] "ERROR: Failed to create instance: ValueError: no{AT}"
E{STAMP} model_lifecycle.cc:642] "failed to load 'echo' version 1: Internal: ValueError: no{AT}"
error: creating server: Internal - failed to load all models
""",
            ["model echo: ValueError: no", "error: creating server: Internal - failed to load all models"],
        ),
        (
            f"E{STAMP} model_lifecycle.cc:642] failed to load 'a b' version 3: Invalid argument: plain, unquoted\n",
            ["model a b: plain, unquoted"],
        ),
        (
            "[libprotobuf ERROR /b/text_format.cc:337] Error parsing text-format inference.Model: 4:51: Unknown\n",
            ["Error parsing text-format inference.Model: 4:51: Unknown"],
        ),
        ("Signal (11) received.\n 0# 0x00007F\n", ["Signal (11) received."]),
        (f'E{STAMP} a.cc:1] "twice"\n' * 2, ["twice"]),
    ],
)
def test_the_cause_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert telling_lines(write(tmp_path, text)) == expected


def test_without_an_error_the_last_lines_are_shown(tmp_path: Path) -> None:
    text = f"zero\none\n+----+\n| a |\ntwo\nI{STAMP} a.cc:1] chatter\nthree\n"
    assert telling_lines(write(tmp_path, text)) == ["one", "two", "three"]
    assert telling_lines(write(tmp_path, "")) == []
    assert telling_lines(tmp_path / "absent.log") == []


def test_a_port_taken_meanwhile_is_recognised_in_the_last_run_only(tmp_path: Path) -> None:
    said = "failed to start HTTP service: Unavailable - Socket '127.0.0.1:1' already in use"
    log = write(tmp_path, f'E{STAMP} main.cc:257] "{said} "\n')
    assert port_was_taken(log)
    assert telling_lines(log) == [said]
    log.write_text(log.read_text() + "$ tritonserver --again\n")
    assert not port_was_taken(log)


def test_a_lost_lock_is_recognised_in_the_last_run_only_and_not_in_what_a_model_says(tmp_path: Path) -> None:
    said = "terminate called after throwing an instance of 'boost::interprocess::lock_exception'\n"
    log = write(tmp_path, said)
    assert lost_a_lock(log)
    log.write_text(log.read_text() + f'$ tritonserver --again\nI{STAMP} model.py:3] "{said}"\n')
    assert not lost_a_lock(log)


def test_a_model_that_refuses_is_recognised(tmp_path: Path) -> None:
    assert model_refused(write(tmp_path, f'I{STAMP} pb_stub.cc:366] "Failed to initialize Python stub: Error: no"\n'))
    assert not model_refused(write(tmp_path, ""))


def test_a_traceback_becomes_its_exception() -> None:
    text = "Failed: Traceback (most recent call last):\n  File 'x', line 1\n    f()\nValueError: too long\n"
    assert first_sentence(text) == "ValueError: too long"
    assert first_sentence("two\n  lines ") == "two lines"


@pytest.mark.parametrize("quoted", [True, False])
def test_events_are_found_among_other_lines(tmp_path: Path, quoted: bool) -> None:
    """Triton writes a message as a JSON string since 2.5x, and plainly before."""
    ours = [{"event": "request-end", "request": 'a"b\n'}, {"event": "breaker", "open": True}, {"event": "request-end"}]
    said = [json.dumps(json.dumps(each)) if quoted else json.dumps(each) for each in ours]
    log = tmp_path / "log"
    lines = ["$ tritonserver", *(f"I1130 05:34:15.192882 31345 logs.py:44] {text}" for text in said), '{"event": "no"}']
    log.write_text("\n".join([*lines, 'W1130 05:34:15.192882 31345 x.cc:1] "no event"', ""]))
    assert events(log, "request-end") == [ours[0], ours[2]]
    assert events(log, "breaker") == [ours[1]]
    assert events(log, "no") == []

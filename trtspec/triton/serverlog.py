"""The few lines of a Triton log that say what went wrong.

Line formats: Triton's default log (severity letter and date first; the message plain, or from 2.5x on quoted with
escapes), `error: creating server`, protobuf's `[libprotobuf ERROR …]`, and the signal handler's `Signal (11)`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trtspec.runner import tail

MOST_LINES = 4
SEARCHED_LINES = 2000
_TRITON = re.compile(r"E\d{4} \S+ +\d+ \S+\] (?P<text>.*)")
_EVENT = re.compile(r'[EIW]\d{4} \S+ +\d+ \S+\] (?P<text>"?\{\\?"event\\?": .*)')
_OTHER = re.compile(r"\[libprotobuf ERROR [^\]]*\] (?P<proto>.*)|(?P<plain>error: .*|Signal \(\d+\) .*|Killed.*)")
_LOAD = re.compile(r"failed to load '(?P<model>[^']*)' version \d+: \w[\w ]*: (?P<why>.*)", re.DOTALL)
_CHATTER = re.compile(r"[EIW]\d{4} |[+|]")
_TAKEN = re.compile(r"Socket '[^']*' already in use")
_LOST_LOCK = "terminate called after throwing an instance of 'boost::interprocess::lock_exception'"
_REFUSED = "Failed to initialize Python stub"
# Logged by every start without a GPU, or a repetition of what a better line says.
_NOISE = ("CudaDriverHelper", "CUDA driver version is insufficient", "ERROR: Failed to create instance", "created_time")


def telling_lines(log: Path) -> list[str]:
    """Up to four messages of the last run in `log`, each on one line and without traceback.

    Without any error message, the last three lines that Triton's own chatter did not write.
    """
    lines = last_run(log)
    found = [text for line in lines if (text := _message(line))]
    # The cause is logged before its consequences, and the same cause once for every model that needs it.
    return list(dict.fromkeys(found))[:MOST_LINES] or [line for line in lines if not _CHATTER.match(line)][-3:]


def port_was_taken(log: Path) -> bool:
    """Whether the last run in `log` failed because another program had the port."""
    return any(_TAKEN.search(line) for line in last_run(log))


def lost_a_lock(log: Path) -> bool:
    """Whether a program of the last run in `log` ended for a lock that another one died with."""
    return any(line.startswith(_LOST_LOCK) for line in last_run(log))


def model_refused(log: Path) -> bool:
    """Whether a model of the last run in `log` has itself said that it cannot be loaded."""
    return any(_REFUSED in line for line in last_run(log))


def events(log: Path, name: str) -> list[dict[str, Any]]:
    """The pipeline's events of that name (one JSON object per line, see docs/monitoring.md), oldest first."""
    found = []
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = _EVENT.match(line)
            if match:
                document = json.loads(_unquote(match["text"]))
                found += [document] if document["event"] == name else []
    return found


def last_run(log: Path) -> list[str]:
    """Lines after the last `$ command` line."""
    lines = tail(log, SEARCHED_LINES)
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    return lines[starts[-1] + 1 :] if starts else lines


def _message(line: str) -> str | None:
    """What an error line says; None for any other line."""
    match = _TRITON.match(line)
    if match is None:
        other = _OTHER.match(line)
        return None if other is None else other["proto"] or other["plain"]
    text = _unquote(match["text"])
    if any(word in text for word in _NOISE):
        return None
    load = _LOAD.match(text)
    return f"model {load['model']}: {first_sentence(load['why'])}" if load else first_sentence(text)


def _unquote(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def first_sentence(text: str) -> str:
    """The message of a Python backend's error without its `At:` section or traceback, on one line.

    Of a Python traceback the last line that is not indented is kept: it names the exception.
    """
    text = re.split(r"\n\s*At:\s*\n", text)[0]
    if "Traceback (most recent call last)" in text:
        flush = [line for line in text.splitlines() if line.strip() and not line[0].isspace()]
        text = flush[-1]
    return " ".join(text.split())

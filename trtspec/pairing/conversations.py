"""Sample conversations, and both models' templates rendered on them in a process with limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from trtspec.errors import MissingError
from trtspec.pairing.words import Words

WORKER = "trtspec.pairing.rendering"
PATIENCE = 60.0
"""Seconds of wall time for one process of templates; its processor time is limited to much less."""
STOPPED = "it needs more than 2 s or 1 GiB to render"
ANSWER = "Wombats live in Australia."
"""The assistant's text in the samples; what follows it in a rendered text is how a turn ends."""
_USER = {"role": "user", "content": "Where do wombats live?"}
_ASSISTANT = {"role": "assistant", "content": ANSWER}
_SYSTEM = {"role": "system", "content": "Answer in one sentence."}
_TOOL = {
    "type": "function",
    "function": {
        "name": "find_animal",
        "description": "Where an animal lives.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
_CALL = {"type": "function", "function": {"name": "find_animal", "arguments": {"name": "wombat"}}}
_CALLING = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_CALLED = {"role": "tool", "name": "find_animal", "content": "Australia"}
CONVERSATIONS: Mapping[str, Mapping[str, Any]] = {
    "one question": {"messages": [_USER], "add_generation_prompt": True},
    "a system prompt": {"messages": [_SYSTEM, _USER], "add_generation_prompt": True},
    "several turns": {"messages": [_USER, _ASSISTANT, _USER], "add_generation_prompt": True},
    "a finished answer": {"messages": [_USER, _ASSISTANT], "add_generation_prompt": False},
    "tools": {"messages": [_SYSTEM, _USER], "tools": [_TOOL], "add_generation_prompt": True},
    "a tool call": {"messages": [_USER, _CALLING, _CALLED], "tools": [_TOOL], "add_generation_prompt": True},
}
"""Name → arguments of one rendering, as transformers passes them."""
NAMES = tuple(CONVERSATIONS)
PLAIN = NAMES[:3]
"""What nearly every chat prompt is; finished answers and tools are judged more mildly."""
TURNS, FINISHED = 2, 3
"""Positions of the conversations in which the assistant has spoken."""
_STOPPED = json.dumps([{"error": STOPPED}] * len(NAMES))


@contextmanager
def rendering(models: Sequence[Words]) -> Iterator[None]:
    """Render both templates in another process while the body runs; `rendered` is filled at the end of the body."""
    waiting = [words for words in models if words.template is not None and words.rendered is None]
    jobs = list(dict.fromkeys(_job(words) for words in waiting))
    if not jobs:
        yield
        return
    with _started(jobs) as process:
        yield
        answers = _finished(process)
    while len(answers) < len(jobs):  # the next template was stopped: it must not hide those behind it
        answers.append(_STOPPED)
        if jobs[len(answers) :]:
            with _started(jobs[len(answers) :]) as process:
                answers += _finished(process)
    by_job = dict(zip(jobs, answers, strict=True))
    for words in waiting:
        words.rendered = json.loads(by_job[_job(words)])


def _job(words: Words) -> str:
    assert words.template is not None
    job = {"sources": words.template.sources, "tokens": words.named, "conversations": list(CONVERSATIONS.values())}
    return json.dumps(job)


@contextmanager
def _started(jobs: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as given:
        given.write("\n".join(jobs).encode() + b"\n")
        given.seek(0)
        process = _spawn(given)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _spawn(given: IO[bytes]) -> subprocess.Popen[bytes]:
    # The same packages as here, and no module of the folder one happens to be in.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", WORKER], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    except OSError as error:
        raise MissingError(f"cannot start a process for chat templates: {error}", where=sys.executable) from None


def _finished(process: subprocess.Popen[bytes]) -> list[str]:
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return []
    return [line for line in out.decode().splitlines(keepends=True) if line.endswith("\n")]

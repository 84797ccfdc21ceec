"""Sample conversations, and both models' templates rendered on them in a process with limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from trtspec.pairing import limited
from trtspec.pairing.words import Words

WORKER = "trtspec.pairing.rendering"
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
    with limited.answering(WORKER, jobs) as answers:
        yield
        found = [_STOPPED if answer is None else answer for answer in answers()]
    by_job = dict(zip(jobs, found, strict=True))
    for words in waiting:
        words.rendered = json.loads(by_job[_job(words)])


def _job(words: Words) -> str:
    assert words.template is not None
    job = {"sources": words.template.sources, "tokens": words.named, "conversations": list(CONVERSATIONS.values())}
    return json.dumps(job)

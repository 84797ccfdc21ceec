"""Chat templates rendered as transformers does it, in a sandbox; as a program, with limits on time and memory.

A template is a stranger's program: two nested loops of the longest range that the sandbox allows run for hours, and
`'a' * 10**10` takes ten gigabytes. `python -m trtspec.pairing.rendering` therefore renders in a process of its own:
one JSON job a line on stdin, one JSON list of results a line on stdout.

Source of the environment's settings and helpers: `_compile_jinja_template` in transformers 4.57.6
(utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trtspec.pairing.worker import serve

CPU_SECONDS = 2
"""A published template takes a few hundredths."""
MEMORY = 1 << 30
"""Address space of the process, in bytes."""
LONGEST = 200_000
"""Characters that one rendered conversation may have."""
TODAY = datetime(2024, 7, 26, 12)
"""A fixed day, so that a template that prints the date compares: the day that Llama 3's templates fall back to."""


class Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; for a prompt it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The statements between the two tags, as they are."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment(today: datetime | None = None) -> ImmutableSandboxedEnvironment:
    """A sandbox with the helpers that transformers gives to templates; `today` stops the clock."""
    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    world.filters["tojson"] = _tojson
    world.globals["raise_exception"] = _refuse
    world.globals["strftime_now"] = lambda form: (today or datetime.now()).strftime(form)
    return world


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # jinja2's own filter escapes < and > for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def render(job: Mapping[str, Any]) -> list[dict[str, str]]:
    """`{"text": …}` or `{"error": …}` for every conversation of the job.

    A job has `sources` (`default`, and perhaps `tool_use`), `tokens` (what the template may name) and `conversations`
    (the keyword arguments of one rendering each).
    """
    world = environment(TODAY)
    compiled = {name: _compiled(world, source) for name, source in job["sources"].items()}
    results = []
    for conversation in job["conversations"]:
        name = "tool_use" if conversation.get("tools") and "tool_use" in compiled else "default"
        template = compiled.get(name, "there is no template named default")
        results.append(
            {"error": template} if isinstance(template, str) else _one(template, job["tokens"], conversation)
        )
    return results


def _compiled(world: ImmutableSandboxedEnvironment, source: str) -> Any:
    try:
        return world.from_string(source)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except Exception as error:  # deep nesting ends in RecursionError, odd constants in anything
        return _reason(error)


def _one(template: Any, tokens: Mapping[str, str], conversation: Mapping[str, Any]) -> dict[str, str]:
    pieces, size = [], 0
    try:
        for piece in template.generate(**tokens, **conversation):
            pieces.append(piece)
            size += len(piece)
            if size > LONGEST:
                return {"error": f"its output is longer than {LONGEST:,} characters"}
    except Exception as error:  # a template is a program: anything can come out of it
        return {"error": _reason(error)}
    return {"text": "".join(pieces)}


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())[:160].encode("utf-8", "backslashreplace").decode()  # for any terminal
    return said if isinstance(error, TemplateError) and said else f"{type(error).__name__}: {said}".rstrip(": ")


def main() -> None:
    """Answer line by line within the limits; what a job leaves unanswered was stopped by them."""
    serve(lambda line: json.dumps(render(json.loads(line))), cpu_seconds=CPU_SECONDS, memory=MEMORY)


if __name__ == "__main__":
    main()

"""What went wrong with one request, in one error for every protocol and every way a server has of saying it."""

from __future__ import annotations

import re
from typing import Literal

from trtspec.errors import ServingError
from trtspec.triton.serverlog import first_sentence

Kind = Literal["overloaded", "deadline", "cancelled", "unreachable", "refused", "failed"]
"""`refused`: the request itself is wrong, and would be again. `failed`: everything that is none of the others."""


class RequestError(ServingError):
    """A request without an answer; `kind` is for programs, the text for people."""

    def __init__(
        self,
        what: str,
        kind: Kind = "failed",
        *,
        where: str | None = None,
        found: object = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(what, where=where, found=found, expected=expected, fix=fix)
        self.kind: Kind = kind

    def as_dict(self) -> dict[str, object]:
        """As every error's, and the kind."""
        return super().as_dict() | {"kind": self.kind}


_DEAD = re.compile("Stub process.*not healthy")
_FULL = re.compile(r"^overloaded: *(?P<why>.*)|(?P<queue>Exceeds maximum queue size.*)", re.IGNORECASE)
_REFUSES = "refused: "
"""How an LLM model begins (wire.py)."""
# What our models and Triton say of inputs that no repetition makes right.
_WRONG = re.compile(
    "^the prompt |^max_tokens |unexpected inference input|expected number of inputs|unexpected (shape|datatype)"
    "|must be|does not go together|this (server|pipeline) (takes|does)|has \\d+ values|is not UTF-8"
)


def told(message: str, where: str) -> RequestError:
    """What a model, or Triton for it, answered instead of text."""
    text = first_sentence(message)
    if text.startswith(_REFUSES):
        return RequestError(text.removeprefix(_REFUSES), "refused", where=where)
    full = _FULL.search(text)
    if full:
        found = full["why"] or full["queue"]
        fix = "ask again later, or send fewer requests at a time"
        return RequestError("the server is overloaded", "overloaded", where=where, found=found, fix=fix)
    if text.startswith("deadline exceeded"):
        return RequestError("no answer in time", "deadline", where=where, found=text)
    if "was cancelled" in text:
        return RequestError("the request was cancelled", "cancelled", where=where)
    if _DEAD.search(text):
        fix = "its process has died: read the server's log and start the server again"
        return RequestError(text, where=where, fix=fix)
    return RequestError(text, "refused" if _WRONG.search(text) else "failed", where=where)


def too_late(where: str, timeout: float | None) -> RequestError:
    """The client's own patience is over."""
    return RequestError(
        "no answer in time", "deadline", where=where, found=None if timeout is None else f"{timeout:g} s"
    )


def unreachable(where: str, found: object, fix: str | None = None) -> RequestError:
    """Nobody listens, or the connection broke."""
    return RequestError("the server cannot be reached", "unreachable", where=where, found=found, fix=fix)

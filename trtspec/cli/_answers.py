"""What `generate` shows: text as it comes, what it cost in words, and files of answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console

from trtspec.triton.generation import Generation

WHY_ALONE = {
    "requested": "the request asked for no drafts",
    "policy": "the serving policy switches drafts off here",
    "load": "the serving policy switches drafts off at this load",
    "guard": "the guard saw too few drafts accepted",
    "no-draft-model": "the server has no draft model",
    "draft-failed": "the draft model failed; the target went on alone",
    "draft-slow": "the draft model was too slow; the target went on alone",
    "inputs": "an input of the request forbids drafts",
    "not-drafted": "the engine made no drafts",
}


class Screen:
    """Text as it comes. On a terminal without what would steer it: a model may write anything."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._harmless = stream.isatty()
        self._last = "\n"

    def write(self, text: str) -> None:
        shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text) if self._harmless else text
        self._stream.write(shown)
        self._stream.flush()
        self._last = shown[-1:] or self._last

    def end(self) -> None:
        """What follows begins on a line of its own."""
        if self._last != "\n":
            self.write("\n")


class Lines:
    """JSON Lines: to stdout, or beside `path` and renamed when all are there. An interrupted file keeps its `.part`."""

    def __init__(self, path: Path | None, silent: bool) -> None:
        self._path = path
        self._part = None if path is None else path.with_name(path.name + ".part")
        self._file: TextIO | None = None if silent else sys.stdout

    def __enter__(self) -> Lines:
        if self._part is not None:
            self._part.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._part.open("w", encoding="utf-8")
        return self

    def add(self, row: Mapping[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            self._file.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._part is None or self._path is None or self._file is None:
            return
        self._file.close()
        if kind is None:
            os.replace(self._part, self._path)


def tell_answer(out: Console, answer: Generation) -> None:
    """Mode, speed and acceptance of one answer."""
    from trtspec.workflows.generate import figures

    first = answer.first_token_seconds
    after = "" if first is None else f", first text after {first * 1000:.0f} ms"
    ended = f", ended by {answer.finish_reason}" if answer.finish_reason else ""
    speed = f"{answer.output_tokens} tokens in {answer.seconds:.2f} s ({answer.tokens_per_second:.1f} tokens/s)"
    out.print(f"{mode_in_words(answer.mode)}: {speed}{after}{ended}", markup=False, soft_wrap=True)
    if answer.drafted:
        out.print(accepted_in_words(figures(answer)), markup=False, soft_wrap=True)


def tell_summary(out: Console, total: Mapping[str, Any], path: Path | None) -> None:
    """Of many answers."""
    where = f"; answers: {path}" if path else ""
    failed = f", {total['failed']} failed" if total["failed"] else ""
    speed = f"{total['output_tokens']} tokens in {total['seconds']:.2f} s ({total['tokens_per_second']:.1f} tokens/s)"
    out.print(f"{total['answered']} answers{failed}: {speed}{where}", markup=False, soft_wrap=True)
    for mode, count in total["modes"].items():
        out.print(f"  {count} {mode_in_words(mode)}", markup=False, soft_wrap=True)
    if total["drafted"]:
        out.print(accepted_in_words(total), markup=False, soft_wrap=True)


def mode_in_words(mode: str) -> str:
    """`target-only:<reason>`, said plainly."""
    kind, _, reason = mode.partition(":")
    if kind != "target-only":
        return mode or "answered"
    return f"target only, {WHY_ALONE.get(reason, reason)} ({reason})"


def accepted_in_words(found: Mapping[str, Any]) -> str:
    """α with its counts; only totals where the engine tells no more."""
    share = f"{found['accepted']} of {found['drafted']} drafted tokens accepted"
    if found["alpha"] is None:
        return share
    positions = [f"{p:.2f}" for p in found["per_position"] if p is not None]
    return (
        f"α {found['alpha']:.3f} ({found['accepted']} of {found['tested']} tested), "
        f"{found['acceptance_length']:.2f} tokens a round ({found['rounds']} rounds), {share}; "
        f"by position {' '.join(positions)}"
    )

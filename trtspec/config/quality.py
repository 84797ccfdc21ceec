"""How answers are checked for being right, beside being fast."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtspec.config.section import PositiveFloat, Section


class Quality(Section):
    """A check of answers, with and without speculation: against references, or by a command of your own."""

    reference: Literal["off", "exact", "words", "number"] = "off"
    """Against each prompt's reference: letter by letter; by words, without case and punctuation; by the last number."""
    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A program and its arguments; `{answers}` and `{result}` become the names of files (docs/gates.md)."""
    timeout: PositiveFloat = 600.0
    """Seconds until the command is given up."""

    @model_validator(mode="after")
    def _complete(self) -> Quality:
        if self.command and not any("{answers}" in word for word in self.command):
            raise ValueError("quality.command must name {answers}, the file with what was answered")
        return self

    @property
    def on(self) -> bool:
        """Whether there is anything to check."""
        return self.reference != "off" or bool(self.command)

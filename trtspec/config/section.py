"""The base of every block of the configuration, and the number types they share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["draft", "target"]
ROLES: tuple[Role, Role] = ("draft", "target")
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, strict=True)]
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)]


class Section(BaseModel):
    """A frozen block of the file; unknown keys are errors, values are not coerced across types."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

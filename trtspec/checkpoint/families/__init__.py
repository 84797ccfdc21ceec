"""Model families that can be converted, by architecture name."""

from __future__ import annotations

from pathlib import Path

from trtspec.checkpoint.families import llama
from trtspec.checkpoint.families.base import Family, Part, Rule
from trtspec.errors import ModelFileError

FAMILIES: tuple[Family, ...] = (llama.FAMILY,)

__all__ = ["FAMILIES", "Family", "Part", "Rule", "family_of"]


def family_of(architecture: str, where: Path) -> Family:
    """The family of an architecture; ModelFileError names the supported ones."""
    for family in FAMILIES:
        if architecture in family.architectures:
            return family
    supported = ", ".join(name for family in FAMILIES for name in family.architectures)
    raise ModelFileError(
        f"architecture {architecture} cannot be converted",
        where=where,
        expected=supported,
        fix="choose a model of a supported architecture",
    )

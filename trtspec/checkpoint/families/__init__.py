"""Model families that can be converted, by architecture name. docs/adding-a-family.md tells how to add one."""

from __future__ import annotations

from pathlib import Path

from trtspec.checkpoint.families import gemma, llama, mistral, phi3, qwen
from trtspec.checkpoint.families.base import Family, Part, Root, Rule
from trtspec.checkpoint.families.decoder import rules
from trtspec.errors import ModelFileError

FAMILIES: tuple[Family, ...] = (
    *(llama.FAMILY, mistral.MISTRAL, mistral.MIXTRAL, qwen.QWEN, qwen.QWEN_MOE),
    *(gemma.GEMMA, gemma.GEMMA2, gemma.GEMMA3, phi3.FAMILY),
)

__all__ = ["FAMILIES", "Family", "Part", "Root", "Rule", "family_of", "rules"]


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
        fix="choose a model of a supported architecture, or add its family (docs/adding-a-family.md)",
    )

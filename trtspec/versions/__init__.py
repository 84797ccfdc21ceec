"""TensorRT-LLM versions as data: flags, defaults, renamed tensors, places, containers, spellings; each with a source.

>>> version("1.2.1").tensors["seed"]
'seed'
>>> version("0.18.2").tensors["seed"]
'random_seed'
"""

from __future__ import annotations

from trtspec.versions.choice import Backend, Chosen, choose, same_release
from trtspec.versions.commands import check_flags
from trtspec.versions.flags import Flag
from trtspec.versions.llmapi import Spelling
from trtspec.versions.number import Number, parse, shown
from trtspec.versions.releases import Container, Release
from trtspec.versions.table import (
    CONTAINER,
    DEFAULT,
    ENGINES,
    NAMES,
    PINNED,
    USE_CONTAINER,
    TrtLlm,
    engine_version,
    first_of,
    llm_api_version,
    version,
)

__all__ = [
    "CONTAINER",
    "DEFAULT",
    "ENGINES",
    "NAMES",
    "PINNED",
    "USE_CONTAINER",
    "Backend",
    "Chosen",
    "Container",
    "Flag",
    "Number",
    "Release",
    "Spelling",
    "TrtLlm",
    "check_flags",
    "choose",
    "engine_version",
    "first_of",
    "llm_api_version",
    "parse",
    "same_release",
    "shown",
    "version",
]

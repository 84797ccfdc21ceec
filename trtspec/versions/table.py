"""One TensorRT-LLM version with all that differs between versions, put together from the tables beside this file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from trtspec.errors import ConfigError
from trtspec.versions.architectures import ARCHITECTURES
from trtspec.versions.flags import BUILD_FLAGS, Default, Flag
from trtspec.versions.llmapi import SPELLINGS, Spelling
from trtspec.versions.number import Number, parse, shown
from trtspec.versions.releases import CANDIDATES, CONTAINERS, FIRST_LLM_API, RELEASES, Container, Release
from trtspec.versions.row import FIRST, LAST, Span
from trtspec.versions.scripts import SCRIPTS, Script
from trtspec.versions.tensors import ADDED, RENAMED, Addition, Place

T = TypeVar("T")
DEFAULT = LAST
"""What is planned for where nothing is installed and nothing is configured."""
NAMES: tuple[str, ...] = tuple(release.name for release in RELEASES)
ENGINES = f"{shown(FIRST)} - {shown(LAST)}"
PINNED = tuple(container for container in CONTAINERS if container.tensorrt_llm == DEFAULT)
CONTAINER = PINNED[0].image
"""The first Triton image with the default version; :data:`PINNED` holds all of them."""
USE_CONTAINER = f"use the Triton containers {PINNED[0].tag} - {PINNED[-1].tag} ({CONTAINER}), which hold {DEFAULT}"
_UPGRADE = f"upgrade: {USE_CONTAINER}"
_NEWER = f"{USE_CONTAINER}, or set engine.backend to pytorch (`trtspec migrate` writes that configuration)"


@dataclass(frozen=True)
class TrtLlm:
    """One version. Mappings are read-only."""

    number: Number
    release: Release
    """The row it belongs to; a post release belongs to its release's."""
    flags: Mapping[str, Flag]
    """Arguments of trtllm-build by name without dashes; empty without engines."""
    scripts: tuple[Script, ...]
    tensors: Mapping[str, str]
    """Meaning → name of the request tensors whose names changed: min_tokens, seed, return_perf_metrics."""
    additions: tuple[Addition, ...]
    """Tensors and parameters of the Triton models that not every version has, and this one has."""
    llmapi: Spelling | None
    containers: tuple[Container, ...]

    def __str__(self) -> str:
        return str(self.number)

    @property
    def engines(self) -> bool:
        """Whether we build engines for it."""
        return self.release.engines

    @property
    def llm_api(self) -> bool:
        """Whether its LLM API speculates with a draft model."""
        return self.release.llm_api

    @property
    def image(self) -> str | None:
        """The Triton image to build and to serve in: the first that holds it; None where none does."""
        return self.containers[0].image if self.containers else None

    @property
    def tensorrt(self) -> str | None:
        """TensorRT version prefix, such as 10.14."""
        return self.release.tensorrt

    @property
    def modelopt(self) -> str | None:
        """nvidia-modelopt version prefix, such as 0.37."""
        return self.release.modelopt

    @property
    def transformers(self) -> str | None:
        """What its metadata asks of transformers, such as ==4.57.3."""
        return self.release.requires.get("transformers")

    @property
    def defaults(self) -> Mapping[str, Default]:
        """Flag → what trtllm-build takes without it."""
        return {name: flag.default for name, flag in self.flags.items()}

    @property
    def must_pass(self) -> tuple[str, ...]:
        """Flags that are always given, because their default flipped at a release that is not known."""
        return tuple(name for name, flag in self.flags.items() if flag.must_pass)

    def has(self, name: str, place: Place, model: str = "tensorrt_llm") -> bool:
        """Whether this version has one of the additions, such as ("acceptance_rate", "output")."""
        return any(row.name == name and row.place == place and model in row.models for row in self.additions)

    def builds(self, architecture: str, *, partial_rotary: bool = False) -> bool:
        """Whether engines of this architecture can be built, as far as a first version is known; else True."""
        spans = first_of(architecture, partial_rotary=partial_rotary)
        return self.engines and all(span.holds(self.number) for span in spans)


def first_of(architecture: str, *, partial_rotary: bool = False) -> tuple[Span, ...]:
    """The versions that build an architecture; empty where all do or nothing is known."""
    rows = [row for row in ARCHITECTURES if row.name == architecture and (partial_rotary or not row.partial_rotary)]
    return tuple(row.span for row in rows)


@functools.cache
def version(text: str) -> TrtLlm:
    """The version of this text, such as 1.2.1, 0.17.0.post1 or 1.3.0rc22.

    ConfigError: no version, older than 0.17, or none that was released. What is newer than the table is taken as its
    newest line, without engines; `engines` and `llm_api` tell what it can do (:func:`engine_version` insists).
    """
    number = parse(text)
    release = _release(number)
    own = release.engines
    return TrtLlm(
        number=number,
        release=release,
        flags=_frozen({row.name: row for row in BUILD_FLAGS if own and row.span.holds(number)}),
        scripts=tuple(row for row in SCRIPTS if own and row.span.holds(number)),
        tensors=_frozen({row.meaning: row.name for row in RENAMED if own and row.span.holds(number)}),
        additions=tuple(row for row in ADDED if own and row.span.holds(number)),
        llmapi=_spelling(number) if release.llm_api else None,
        containers=tuple(c for c in CONTAINERS if parse(c.tensorrt_llm).base == number.base and number.is_final),
    )


def _spelling(number: Number) -> Spelling:
    """The newest spelling that had begun by then, so that builds between two releases have their line's."""
    begun = [row for row in SPELLINGS if row.span.first is not None and parse(row.span.first) <= number]
    return begun[-1]


def _frozen(given: dict[str, T]) -> Mapping[str, T]:
    return MappingProxyType(given)


def _release(number: Number) -> Release:
    for release in RELEASES:
        if number.is_final and release.name == number.base:
            return release
    for release in CANDIDATES:
        if release.span.holds(number):
            return release
    if number < parse(FIRST):
        raise ConfigError(f"TensorRT-LLM {number} is too old", expected=_supported(), fix=_UPGRADE)
    own_build = len(number.release) > 3
    if number >= parse(FIRST_LLM_API) and (own_build or not number.is_final):
        return _unlisted(number)
    what = "is a pre-release" if not number.is_final else "was never released"
    raise ConfigError(f"TensorRT-LLM {number} {what}", expected=_supported(), fix=_UPGRADE)


def _supported() -> str:
    return f"one of {', '.join(NAMES)}; 1.3.0rc1 and newer for the LLM API only"


def _unlisted(number: Number) -> Release:
    """A candidate or an own build of NVIDIA's between the table's releases: its LLM API only, spelled as its line's."""
    return Release(
        name=str(number), engines=False, llm_api=True, tensorrt=None, modelopt=None, span=Span(str(number), None),
        source="none: not a release of the table", evidence="inferred",
        note="not a final release: its trtllm-build arguments were never listed",
    )  # fmt: skip


def engine_version(text: str) -> TrtLlm:
    """The version, which builds engines; ConfigError with the way out if it does not."""
    found = version(text)
    if not found.engines:
        raise ConfigError(
            f"engines are not built with TensorRT-LLM {found}: {found.release.note}",
            expected=f"one of {', '.join(NAMES)}",
            fix=_NEWER,
        )
    return found


def llm_api_version(text: str) -> TrtLlm:
    """The version, whose LLM API speculates with a draft model; ConfigError with the way out if it does not."""
    found = version(text)
    if not found.llm_api:
        raise ConfigError(
            f"the LLM API of TensorRT-LLM {found} has no stable draft-target decoding; 1.0 has",
            expected="1.0.0 or newer",
            fix="set engine.tensorrt_llm_version to 1.0.0 or newer, or engine.backend to tensorrt",
        )
    return found

"""Which version holds for a configuration: the configured, the installed, or the default one. A clash is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trtspec.errors import ConfigError, MissingError
from trtspec.versions.number import Number, parse
from trtspec.versions.table import DEFAULT, USE_CONTAINER, TrtLlm, engine_version, llm_api_version, version

Backend = Literal["reference", "tensorrt", "pytorch"]
WHERE = "engine.tensorrt_llm_version"


@dataclass(frozen=True)
class Chosen:
    """The version to plan and build for, and who said so."""

    version: TrtLlm
    why: Literal["configured", "installed", "default"]


def choose(configured: str | None, installed: str | None, backend: Backend) -> Chosen:
    """`installed` is the package's version on this machine, None where there is none or another machine is meant.

    ConfigError: the configured version is not in the table or cannot serve `backend`. MissingError: the installed one
    cannot, or is another than the configured one. For `reference`, which needs neither, nothing is refused.
    """
    if backend == "reference":
        return Chosen(version(DEFAULT), "default")
    fitting = engine_version if backend == "tensorrt" else llm_api_version
    try:
        wanted = None if configured is None else fitting(configured)
    except ConfigError as error:
        error.where = WHERE
        raise
    if installed is None:
        return Chosen(wanted or fitting(DEFAULT), "default" if wanted is None else "configured")
    if wanted is not None and not same_release(wanted.number, parse(installed)):
        raise _clash(wanted, installed)
    try:
        return Chosen(fitting(installed), "installed" if wanted is None else "configured")
    except ConfigError as error:
        raise MissingError(
            f"the installed TensorRT-LLM does not fit engine.backend {backend}: {error.what}",
            found=f"{installed} installed",
            expected=error.expected,
            fix=error.fix if backend == "tensorrt" else f"{USE_CONTAINER}, or set engine.backend to tensorrt",
        ) from None


def same_release(one: Number, other: Number) -> bool:
    """Equal but for post releases, which change packaging only."""
    return (one.release, one.rc, one.dev) == (other.release, other.rc, other.dev)


def _clash(wanted: TrtLlm, installed: str) -> MissingError:
    images = ", ".join(container.tag for container in wanted.containers)
    there = f"use a Triton container with {wanted} ({images})" if images else USE_CONTAINER
    return MissingError(
        "the installed TensorRT-LLM is not the configured one", where=WHERE, found=f"{installed} installed",
        expected=f"{wanted} configured",
        fix=f"set {WHERE} to {installed} (or leave it out: the installed version is then taken), or {there}",
    )  # fmt: skip

"""check: the verdict on a pair, from whatever of its files is here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.checkpoint.hub import locate
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import MissingError
from trtspec.workflows.build import verdict_on

if TYPE_CHECKING:
    from trtspec.pairing.findings import Verdict


def check_config(config: RunConfig, *, download: bool = False, cut: bool = False) -> Verdict:
    """Check both models. A hub model that is not on this machine leaves its facts *not measured*.

    `cut`: choose the target's tensor-parallel size, the smallest with which it fits the GPUs, and say so.
    """
    from trtspec.pairing.selection import cut_finding, cut_target

    folders = folders_of(config, download=download)
    chosen = cut_target(config, folders["target"]) if cut else config
    verdict = verdict_on(chosen, folders)
    if chosen is config:
        return verdict
    return replace(verdict, findings=(*verdict.findings, cut_finding(chosen)))


def folders_of(config: RunConfig, *, download: bool = False) -> dict[Role, Path]:
    """Both model folders; for a hub model that is not on this machine a path where nothing is."""
    return {role: _folder(config, role, download) for role in ROLES}


def _folder(config: RunConfig, role: Role, download: bool) -> Path:
    source = config.pair[role]
    try:
        return locate(source, download=download)
    except MissingError:
        if download:
            raise
        return Path("hub") / str(source.hub)  # names the model in findings; nothing is there to read

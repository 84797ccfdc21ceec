"""check: the verdict on a pair, from whatever of its files is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.checkpoint.hub import locate
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import MissingError
from trtspec.workflows.build import verdict_on

if TYPE_CHECKING:
    from trtspec.pairing.findings import Verdict


def check_config(config: RunConfig, *, download: bool = False) -> Verdict:
    """Check both models. A hub model that is not on this machine leaves its facts *not measured*."""
    return verdict_on(config, folders_of(config, download=download))


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

"""Where profiles and their unfinished beginnings lie, and what identifies a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from trtspec.config import Role
from trtspec.measurement.reading import Reading, Setting, TokenPrompt
from trtspec.store import content_key, write_atomic

FORMAT = 1
"""Raised when the same models and prompts would be measured differently: part of a profile's key."""
_READINGS: TypeAdapter[list[Reading]] = TypeAdapter(list[Reading])


def prompts_hash(prompts: Sequence[TokenPrompt]) -> str:
    """SHA-256 over token ids, lengths and seeds."""
    return content_key(prompts=[[p.domain, p.id, list(p.ids), p.max_tokens, p.seed] for p in prompts])


def profile_key(
    hashes: Sequence[Mapping[Role, Mapping[str, str]]],
    prompts: Sequence[TokenPrompt],
    setting: Setting,
    conditions: Sequence[Mapping[str, str]],
) -> str:
    """Equal keys mean the same measurement. `hashes`: of the models, and of checkpoints run in their place."""
    return content_key(
        format=FORMAT,
        models=hashes,
        prompts=prompts_hash(prompts),
        setting=[setting.k_max, setting.sampling, setting.end_ids, setting.tails],
        conditions=[dict(c) for c in conditions],
    )


class Unfinished:
    """Readings of a measurement that may be interrupted, in a file beside the profiles."""

    def __init__(self, folder: Path, key: str) -> None:
        self.path = folder / f".profile-{key[:16]}.json"
        self.readings: dict[tuple[str, str], Reading] = {}

    def read(self) -> dict[tuple[str, str], Reading]:
        """What an earlier run left, by (domain, id); nothing where there is none or it cannot be read."""
        try:
            found = _READINGS.validate_json(self.path.read_bytes())
        except (OSError, ValueError):
            return {}  # costs time, never correctness
        self.readings = {(r.domain, r.id): r for r in found}
        return dict(self.readings)

    def keep(self, new: Sequence[Reading]) -> None:
        """Add readings and write all."""
        self.readings |= {(r.domain, r.id): r for r in new}
        write_atomic(self.path, _READINGS.dump_json(list(self.readings.values())).decode())

    def forget(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

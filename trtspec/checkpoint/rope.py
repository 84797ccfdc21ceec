"""Rotary embedding as config.json spells it: transformers 4 (`rope_theta`, `rope_scaling` with `type` or
`rope_type`), transformers 5 (`rope_parameters`, perhaps a set per layer type). A file that says one thing twice must
say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trtspec.checkpoint.jsonfile import Keys
from trtspec.errors import ModelFileError

FULL, SLIDING = "full_attention", "sliding_attention"
"""Names of layer types, as in `layer_types`."""
_ALIASES = {"su": "longrope"}
_ELSEWHERE = ("type", "rope_type", "rope_theta", "partial_rotary_factor")
"""Keys of a rope block that are not parameters of its type."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: base θ, scaling type (`default` = none) and the parameters of that type.

    Types that transformers knows: default, linear, dynamic, yarn, longrope (old name: su), llama3.
    """

    theta: float
    type: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class RopeFacts:
    """Everything config.json says about rotary embedding."""

    rope: Rope
    local: Rope | None
    """Of the layers with a sliding window, where it is another one."""
    partial_rotary_factor: float
    original_max_position_embeddings: int | None


def read_rope(keys: Keys, aliases: Mapping[str, str]) -> RopeFacts:
    """Merge the spellings. `aliases`: old type names of this model. ModelFileError names the key that disagrees."""
    reader = _Reader(keys, {**_ALIASES, **aliases})
    sets = reader.sets()
    main, local = reader.ropes(sets)
    return RopeFacts(main, local, reader.partial(sets), reader.original(main))


@dataclass(frozen=True)
class _Reader:
    keys: Keys
    aliases: Mapping[str, str]

    def sets(self) -> dict[str, Keys]:
        """rope_parameters by layer type; one set for all is FULL."""
        block = self.keys.block("rope_parameters")
        if block is None:
            return {}
        if not any(isinstance(value, dict) for value in block.data.values()):
            return {FULL: block}
        found = {name: value for name in block.data if (value := block.block(name)) is not None}
        if set(found) - {FULL, SLIDING} or FULL not in found:
            raise self.keys.wrong("rope_parameters", "has a set for an unknown layer type", f"{FULL} and {SLIDING}")
        return found

    def ropes(self, sets: Mapping[str, Keys]) -> tuple[Rope, Rope | None]:
        """The rope of the model, and that of its windowed layers where there is one."""
        keys = self.keys
        old, theta = keys.block("rope_scaling"), keys.number("rope_theta", 10000.0)
        if not sets:
            return self._rope(old, theta), self._local()
        main = self._rope(sets[FULL], sets[FULL].number("rope_theta", theta))
        if keys.has("rope_theta") and main.theta != theta and not keys.defaulted("rope_theta"):
            raise keys.wrong("rope_theta", f"disagrees with rope_parameters.rope_theta {main.theta:g}")
        if old is not None and self._rope(old, main.theta) != main:
            raise keys.wrong("rope_scaling", "disagrees with rope_parameters")
        if SLIDING not in sets:
            return main, self._local()
        return main, self._rope(sets[SLIDING], sets[SLIDING].number("rope_theta", 10000.0))

    def _local(self) -> Rope | None:
        # Gemma 3 of transformers 4: the windowed layers have a base of their own and no scaling.
        if not self.keys.has("rope_local_base_freq"):
            return None
        return Rope(self.keys.number("rope_local_base_freq"), "default", {})

    def _rope(self, block: Keys | None, theta: float) -> Rope:
        if block is None:
            return Rope(theta, "default", {})
        old, new = (block.text(k) if block.has(k) else None for k in ("type", "rope_type"))
        if old and new and self._type(old) != self._type(new):
            raise block.wrong("rope_type", f"disagrees with type {old!r}")
        parameters = {k: v for k, v in block.data.items() if k not in _ELSEWHERE and v is not None}
        return Rope(theta, self._type(new or old or "default"), parameters)

    def _type(self, name: str) -> str:
        return self.aliases.get(name, name)

    def partial(self, sets: Mapping[str, Keys]) -> float:
        """Share of each head that is turned."""
        places = [block for block in (*sets.values(), self.keys) if block.has("partial_rotary_factor")]
        values = {block.number("partial_rotary_factor") for block in places}
        if len(values) > 1:
            raise self.keys.wrong("partial_rotary_factor", "disagrees with rope_parameters")
        share = values.pop() if values else 1.0
        if share > 1:
            raise places[0].wrong("partial_rotary_factor", "is above 1")
        return share

    def original(self, rope: Rope) -> int | None:
        """Positions the model was trained for before its context was stretched."""
        inside = rope.parameters.get("original_max_position_embeddings")
        if inside is not None:
            if type(inside) is not int or not 0 < inside < 1 << 31:
                raise ModelFileError(
                    "original_max_position_embeddings of the rope settings is not a valid size",
                    where=self.keys.where,
                    found=repr(inside)[:80],
                    expected="a whole number",
                )
            return inside
        name = "original_max_position_embeddings"
        return self.keys.integer(name) if self.keys.has(name) else None

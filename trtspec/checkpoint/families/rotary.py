"""Rotary embedding as the checkpoint's config.json tells it.

Keys of `rotary_scaling` are transformers' (`modeling_rope_utils.py`), which TensorRT-LLM reads under the same names:
`layers/attention.py` takes `type` or `rope_type`, `factor`, and for yarn beta_fast, beta_slow, mscale, mscale_all_dim
and original_max_position_embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trtspec.checkpoint.facts import ModelFacts, Rope
from trtspec.checkpoint.jsonfile import Keys
from trtspec.errors import ModelFileError

ORIGINAL = "original_max_position_embeddings"


def rotary_settings(facts: ModelFacts, types: tuple[str, ...], partial: bool) -> dict[str, Any]:
    """rotary_* and position_embedding_type. ModelFileError: a type or a share of the head that the family has not."""
    if facts.partial_rotary_factor != 1.0 and not partial:
        raise ModelFileError(
            "partial_rotary_factor is not for this architecture",
            where=facts.path,
            found=facts.partial_rotary_factor,
            expected="1",
        )
    scaling = _scaling(facts, facts.rope, types)
    if facts.rope_local is not None and facts.rope_local.type != "default":
        raise ModelFileError(
            "the rope of the windowed layers is scaled",
            where=facts.path,
            found=facts.rope_local.type,
            expected="default",
        )
    return {
        "position_embedding_type": "long_rope" if facts.rope.type == "longrope" else "rope_gpt_neox",
        "rotary_embedding_dim": facts.rotary_dim,
        "rotary_pct": facts.partial_rotary_factor,
        "rotary_base": facts.rope.theta,
        "rotary_scaling": scaling,
    }


def _scaling(facts: ModelFacts, rope: Rope, types: tuple[str, ...]) -> dict[str, Any] | None:
    if rope.type not in types or rope.type not in TYPES:
        raise ModelFileError(
            f"rope type {rope.type!r} is not supported for {facts.architecture}",
            where=facts.path,
            expected=", ".join(types),
        )
    found = TYPES[rope.type](Keys(rope.parameters, facts.path, "rope_scaling."), facts)
    return {"rope_type": rope.type, **found} if found else None


def _none(_: Keys, __: ModelFacts) -> dict[str, Any]:
    return {}


def _linear(keys: Keys, _: ModelFacts) -> dict[str, Any]:
    return {"factor": keys.number("factor")}


def _dynamic(keys: Keys, facts: ModelFacts) -> dict[str, Any]:
    # The base grows once a sequence is longer than what the model was trained for.
    return {"factor": keys.number("factor"), ORIGINAL: facts.max_position_embeddings}


def _llama3(keys: Keys, _: ModelFacts) -> dict[str, Any]:
    low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
    if high <= low:
        raise keys.wrong("high_freq_factor", f"is not above low_freq_factor {low:g}")
    original = keys.integer(ORIGINAL)
    return {"factor": keys.number("factor"), "low_freq_factor": low, "high_freq_factor": high, ORIGINAL: original}


def _yarn(keys: Keys, facts: ModelFacts) -> dict[str, Any]:
    optional = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    found: dict[str, Any] = {"factor": keys.number("factor")}
    found |= {name: keys.number(name) for name in optional if keys.has(name)}
    if keys.has("truncate"):
        found["truncate"] = keys.flag("truncate")
    # As transformers 4.57.6: the key beside rope_scaling does not count here, it does for longrope.
    return {**found, ORIGINAL: keys.integer(ORIGINAL, facts.max_position_embeddings)}


def _longrope(keys: Keys, facts: ModelFacts) -> dict[str, Any]:
    original, longest = facts.original_max_position_embeddings, facts.max_position_embeddings
    count = facts.rotary_dim // 2
    found: dict[str, Any] = {name: _factors(keys, name, count) for name in ("short_factor", "long_factor")}
    found["factor"] = longest / original if original else keys.number("factor")
    if keys.has("attention_factor"):
        found["attention_factor"] = keys.number("attention_factor")
    return {**found, ORIGINAL: original or longest}


def _factors(keys: Keys, name: str, count: int) -> list[float]:
    value = keys.data.get(name)
    if not isinstance(value, list) or len(value) != count or not all(_positive(v) for v in value):
        raise keys.wrong(
            name, "does not give a factor for each pair that is turned", f"a list of {count} numbers above 0"
        )
    return [float(v) for v in value]


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e18


TYPES: dict[str, Callable[[Keys, ModelFacts], dict[str, Any]]] = {
    "default": _none,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}

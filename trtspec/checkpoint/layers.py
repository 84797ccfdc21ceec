"""Which layers have a sliding window, and which are a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

from trtspec.checkpoint.jsonfile import Keys
from trtspec.checkpoint.rope import FULL, SLIDING
from trtspec.checkpoint.traits import Traits


@dataclass(frozen=True)
class Moe:
    """A mixture of experts: each token goes through `top_k` of `experts` FFNs of `intermediate_size` columns."""

    experts: int
    top_k: int
    intermediate_size: int
    normalize: bool
    """The weights of the chosen experts are made to sum to 1."""
    layers: tuple[bool, ...]
    """Per layer: mixture (True) or plain FFN."""


def read_windows(keys: Keys, traits: Traits, layers: int) -> tuple[int | None, tuple[int | None, ...]]:
    """The window in tokens and the window of each layer (None: sees everything).

    A query at position i sees keys j with i - window < j <= i.
    """
    window = _window(keys, traits)
    if traits.layer_types and keys.has("layer_types"):
        sliding = _by_types(keys, layers)
    else:
        sliding = _by_rule(keys, traits, layers)
    return window, tuple(window if here else None for here in sliding)


def _window(keys: Keys, traits: Traits) -> int | None:
    # Llama and Gemma 1 carry such keys in some files and ignore them.
    off = traits.windows == "none" or not keys.flag("use_sliding_window", True)
    return None if off or not keys.has("sliding_window") else keys.integer("sliding_window")


def _by_types(keys: Keys, layers: int) -> list[bool]:
    types = keys.data["layer_types"]
    if not isinstance(types, list) or len(types) != layers or any(name not in (FULL, SLIDING) for name in types):
        raise keys.wrong("layer_types", f"does not describe {layers} layers", f"{FULL} or {SLIDING} for each")
    return [name == SLIDING for name in types]


def _by_rule(keys: Keys, traits: Traits, layers: int) -> list[bool]:
    if traits.windows == "upper":
        first = keys.integer("max_window_layers", 0, least=0)
        return [i >= first for i in range(layers)]
    if traits.windows == "pattern":
        key = next((k for k in ("sliding_window_pattern", "_sliding_window_pattern") if keys.has(k)), None)
        each = keys.integer(key) if key else traits.window_pattern
        return [(i + 1) % each != 0 for i in range(layers)]
    return [traits.windows == "every"] * layers


def read_moe(keys: Keys, traits: Traits, layers: int) -> Moe | None:
    """The mixture of experts; None for a model without one."""
    if traits.experts is None:
        return None
    experts = keys.integer(traits.experts)
    top_k = keys.integer("num_experts_per_tok")
    if top_k > experts:
        raise keys.wrong("num_experts_per_tok", f"is above the {experts} experts")
    own = "moe_intermediate_size" if keys.has("moe_intermediate_size") else "intermediate_size"
    # Mixtral has no key for it and always renormalizes.
    normalize = keys.flag("norm_topk_prob", True)
    return Moe(experts, top_k, keys.integer(own), normalize, _sparse(keys, layers))


def _sparse(keys: Keys, layers: int) -> tuple[bool, ...]:
    step, plain = keys.integer("decoder_sparse_step", 1), keys.ids("mlp_only_layers")
    return tuple(i not in plain and (i + 1) % step == 0 for i in range(layers))

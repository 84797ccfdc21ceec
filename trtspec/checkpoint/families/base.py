"""What a model family must say so that its checkpoints can be converted: a table of names, and rules for config.json.

`decoder.rules` turns the table and the facts of a model into one `Rule` for each TensorRT-LLM tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trtspec.checkpoint.facts import ModelFacts

Shape = tuple[int, ...]
Split = Literal["whole", "rows", "heads", "columns", "vocabulary"]
"""What a tensor-parallel rank takes of a tensor.

whole: all of it. rows: its share of the rows. heads: its share of the key or value heads; with fewer heads than ranks,
neighbouring ranks take the same one. columns: its share of the columns. vocabulary: its share of the rows after zero
rows were added up to a multiple of the ranks.
"""


@dataclass(frozen=True)
class Part:
    """A Hugging Face tensor, the shape that config.json implies for it, and what a rank takes of it."""

    name: str
    shape: Shape
    split: Split = "whole"
    rows: tuple[int, int] | None = None
    """Take only these rows [begin, end), for tensors that hold several matrices; None: all."""
    head: int = 1
    """Rows of one head, for split `heads`."""


@dataclass(frozen=True)
class Rule:
    """A TensorRT-LLM tensor: its parts laid row after row, in this order."""

    name: str
    """Full name, or below `transformer.layers.N.` when it belongs to a layer."""
    parts: tuple[Part, ...]
    layer: int | None = None
    """Layer of the model, counted from 0."""
    last: bool = False
    """Of the tensors that belong to no layer: held by the last pipeline stage instead of the first."""
    stacked: int = 0
    """Number of experts whose matrices lie behind each other: the tensor has this dimension in front."""
    plus_one: bool = False
    """The stored value is the source's plus one, added in float32 and rounded once."""
    dtype: str | None = None
    """safetensors type where it is not the checkpoint's."""

    def named(self, first_layer: int) -> str:
        """Name in a rank whose first layer is `first_layer`: TensorRT-LLM counts layers per rank."""
        return self.name if self.layer is None else f"transformer.layers.{self.layer - first_layer}.{self.name}"


@dataclass(frozen=True)
class Attention:
    """Hugging Face names of the projections, below the layer."""

    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    output: str = "self_attn.o_proj"
    fused: str | None = None
    """One tensor that holds [Q; K; V] by rows; then q, k and v do not exist."""
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"


@dataclass(frozen=True)
class Mlp:
    """Hugging Face names of a gated FFN: down(act(gate(x)) * up(x))."""

    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    fused: str | None = None
    """One tensor that holds [gate; up] by rows. TensorRT-LLM then wants [up; gate] as `mlp.fc`, and no `mlp.gate`."""


@dataclass(frozen=True)
class Experts:
    """Hugging Face names of a mixture of experts; `{}` is the expert's number."""

    router: str
    gate: str
    up: str
    down: str


@dataclass(frozen=True)
class Root:
    """Where a checkpoint keeps the decoder: the prefix of `layers.`, and the name of the head."""

    prefix: str = "model."
    head: str = "lm_head.weight"

    @property
    def embedding(self) -> str:
        """Name of the token embedding."""
        return f"{self.prefix}embed_tokens.weight"


NORMS: Mapping[str, str] = {"input_layernorm": "input_layernorm", "post_layernorm": "post_attention_layernorm"}
"""TensorRT-LLM's name of a layer's norm → Hugging Face's."""


@dataclass(frozen=True)
class Family:
    """One family: which architectures, which tensors, which settings."""

    name: str
    architectures: Mapping[str, str]
    """Hugging Face class → the class of TensorRT-LLM that loads it."""
    activations: tuple[str, ...]
    """Values of hidden_act that are this family's."""
    activation: str
    """What `hidden_act` of the checkpoint says."""
    settings: Callable[[ModelFacts], Mapping[str, Any]]
    """Keys of the checkpoint's config.json that only this family has; ModelFileError for what it cannot express."""
    attention: Attention = field(default_factory=Attention)
    mlp: Mlp = field(default_factory=Mlp)
    experts: Experts | None = None
    norms: Mapping[str, str] = field(default_factory=lambda: NORMS)
    roots: tuple[Root, ...] = (Root(),)
    """Places where the decoder may be; the first that is there counts."""
    not_text: tuple[str, ...] = ()
    """Prefixes of tensors that belong to other modalities. They are left out, and a warning names them."""
    shares_head: bool = False
    """A tied head is not written: TensorRT-LLM takes the embedding. Not with several pipeline stages, where the last
    rank has no embedding."""
    rope_types: tuple[str, ...] = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
    partial_rotary: bool = False
    """Whether heads may be turned in part."""
    cautions: Callable[[ModelFacts], tuple[str, ...]] = lambda _: ()
    """What TensorRT-LLM is known to ignore about such a model; shown as warnings."""

"""Facts and configuration as the sizes and formats that memory and speed are computed from."""

from __future__ import annotations

from trtspec.analysis.shape import Format, Shape
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.formats import FORMATS, Scale
from trtspec.config import Role, RunConfig

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a value."""
NOT_GATED = ("GPT2LMHeadModel", "GPTJForCausalLM", "FalconForCausalLM")
FOUR_NORMS = ("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
_SCALE_BYTES = {"F32": 4, "F8_E4M3": 1, "F16": 2, "BF16": 2}
_ENGINE_GROUP_SCALE = 2.0
"""TensorRT-LLM keeps the scales of INT4 groups in the model's 16-bit type; a checkpoint stores float32."""


def shape_of(facts: ModelFacts) -> Shape:
    """Sizes of the text model."""
    moe = facts.moe
    return Shape(
        layers=facts.num_hidden_layers,
        hidden=facts.hidden_size,
        heads=facts.num_attention_heads,
        kv_heads=facts.num_key_value_heads,
        head_dim=facts.head_dim,
        intermediate=facts.intermediate_size,
        vocab=facts.vocab_size,
        tied=facts.tie_word_embeddings,
        mlp_matrices=2 if facts.architecture in NOT_GATED else 3,
        norms=4 if facts.architecture in FOUR_NORMS else 2,
        qk_norm=facts.qk_norm,
        qkv_bias=facts.qkv_bias,
        dense_bias=facts.dense_bias,
        mlp_bias=facts.mlp_bias,
        experts=moe.experts if moe else 0,
        top_k=moe.top_k if moe else 0,
        expert_intermediate=moe.intermediate_size if moe else 0,
        sparse_layers=sum(moe.layers) if moe else 0,
        windows=facts.layer_windows,
    )


def compute_type(facts: ModelFacts | None, role: Role, config: RunConfig) -> str:
    """Type of what is not quantized: float32, bfloat16 or float16."""
    if config.engine.backend == "reference":
        return "float32" if config.engine.compute_dtype == "float32" else "bfloat16"
    given = config.pair[role].dtype
    return given if given != "auto" else (facts.dtype if facts else None) or "bfloat16"


def stored_type(facts: ModelFacts, role: Role, config: RunConfig) -> str:
    """Type of the checkpoint's plain tensors."""
    given = config.pair[role].dtype
    return given if given != "auto" else facts.dtype or "bfloat16"


def group_size(role: Role, config: RunConfig) -> int | None:
    """Columns that share a scale in this role's format; None where whole rows or tensors do."""
    quantization = config.pair[role].quantization
    form = FORMATS[quantization.weights]
    return quantization.group_size if form.packs_rows else form.group_size


def form_of(weights: str, plain: int, *, group: int | None = None, stored: bool = False) -> Format:
    """How a matrix is kept by the engine, or in the checkpoint (`stored`), by its name in the configuration."""
    found = FORMATS[weights]
    if found.quant_algo is None or (found.late and stored):
        return Format(8 * plain)
    bits = _code_bits(weights)
    size = (group or found.group_size) if found.group_size else 0
    form = Format(bits, per_row=float(plain) if found.late else 0.0)
    for scale in found.scales:
        form = _with(form, scale, size or 0, plain, packed=found.packs_rows and not stored)
    return form


def _code_bits(weights: str) -> int:
    return 4 if FORMATS[weights].bits < 8 else 8


def _with(form: Format, scale: Scale, group: int, plain: int, *, packed: bool) -> Format:
    width = float(_SCALE_BYTES.get(scale.dtype, plain))
    fields = {
        "bits": form.bits, "group": form.group, "scale_bytes": form.scale_bytes,
        "per_row": form.per_row, "per_column": form.per_column, "fixed": form.fixed,
    }  # fmt: skip
    if scale.extent == "groups":
        fields |= {"group": group, "scale_bytes": _ENGINE_GROUP_SCALE if packed else width}
    elif scale.extent == "rows":
        fields["per_row"] += width
    elif scale.extent == "columns":
        fields["per_column"] += width
    else:
        fields["fixed"] += width
    return Format(**fields)  # type: ignore[arg-type]


def arithmetic_kind(weights: str) -> str:
    """Operands of the matrix products: fp16 unless activations are quantized too."""
    activation = FORMATS[weights].activation
    return {"fp8-static": "fp8", "fp8-token": "fp8", "int8-static": "int8", "nvfp4-block": "fp4"}.get(
        activation, "fp16"
    )


def cache_bytes(facts: ModelFacts, role: Role, config: RunConfig) -> int:
    """Bytes of one cached value."""
    if config.engine.backend == "reference":
        return 4  # its cache is float32
    kv_cache = config.pair[role].quantization.kv_cache
    return 1 if kv_cache in ("fp8", "int8") else WIDTHS[compute_type(facts, role, config)]

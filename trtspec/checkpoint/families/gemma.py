"""Gemma 1, 2 and 3 (text). Config keys: TensorRT-LLM 1.2.1, models/gemma/config.py (GemmaConfig).

Norm weights are stored plus one, which is how TensorRT-LLM multiplies by them (models/gemma/convert.py). Its decoder
scales embeddings by sqrt(hidden) itself, so they are stored as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import NORMS, Family, Root
from trtspec.errors import ModelFileError

PATTERN = 6
"""Gemma 3: every sixth layer sees everything."""


def _gemma(facts: ModelFacts) -> Mapping[str, Any]:
    return {"mlp_bias": facts.mlp_bias, "inter_layernorms": False}


def _gemma2(facts: ModelFacts) -> Mapping[str, Any]:
    return {
        "mlp_bias": facts.mlp_bias,
        "inter_layernorms": True,
        "query_pre_attn_scalar": _whole(facts.query_scalar or facts.head_dim),
        "attn_logit_softcapping": facts.attn_softcap,
        "final_logit_softcapping": facts.final_softcap,
    }


def _gemma3(facts: ModelFacts) -> Mapping[str, Any]:
    if facts.rope_local is None:
        raise ModelFileError("no rope of the windowed layers", where=facts.path, expected="rope_local_base_freq")
    pattern = _pattern(facts)
    return {
        **_gemma2(facts),
        "rope_local_base_freq": facts.rope_local.theta,
        # 1.2.1 reads the first name, later sources the second; each keeps keys it does not know.
        "_sliding_window_pattern": pattern or PATTERN,
        "sliding_window_pattern": pattern or PATTERN,
    }


def _pattern(facts: ModelFacts) -> int | None:
    """n, when every n-th layer and no other sees everything; None when the layers are not so regular."""
    for n in (PATTERN, *range(1, facts.num_hidden_layers + 1)):
        if all((w is None) == ((i + 1) % n == 0) for i, w in enumerate(facts.layer_windows)):
            return int(n)
    return None


def _whole(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number


def _exact_gelu(facts: ModelFacts) -> tuple[str, ...]:
    if facts.hidden_act != "gelu":
        return ()
    return (
        "hidden_act is gelu: TensorRT-LLM computes its tanh form, with which Gemma was trained, transformers 4.57 the "
        "exact one, so that logits differ a little (set hidden_act to gelu_pytorch_tanh to compare them)",
    )


def _cautions(facts: ModelFacts) -> tuple[str, ...]:
    if facts.rope_local is not None and facts.sliding_window is not None and _pattern(facts) is None:
        return ("TensorRT-LLM expects every n-th layer to see everything; this model's layer_types are not so regular",)
    return ()


GEMMA = Family(
    name="gemma",
    architectures={"GemmaForCausalLM": "GemmaForCausalLM"},
    # "gelu" is what early Gemma files say; the model computes the tanh form, and so does TensorRT-LLM under both names.
    activations=("gelu_pytorch_tanh", "gelu"),
    activation="gelu_pytorch_tanh",
    settings=_gemma,
    cautions=_exact_gelu,
    shares_head=True,
)
GEMMA2 = replace(
    GEMMA,
    name="gemma2",
    architectures={"Gemma2ForCausalLM": "Gemma2ForCausalLM"},
    activations=("gelu_pytorch_tanh",),
    settings=_gemma2,
    norms={
        **NORMS,
        "pre_feedforward_layernorm": "pre_feedforward_layernorm",
        "post_feedforward_layernorm": "post_feedforward_layernorm",
    },
)
GEMMA3 = replace(
    GEMMA2,
    name="gemma3",
    # Of the multimodal class the text part is written, which TensorRT-LLM knows as the text class.
    architectures={
        "Gemma3ForCausalLM": "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    },
    settings=_gemma3,
    cautions=_cautions,
    roots=(
        Root(),
        Root("language_model.model.", "language_model.lm_head.weight"),
        Root("model.language_model.", "lm_head.weight"),
    ),
    not_text=(
        "vision_tower.",
        "multi_modal_projector.",
        "model.vision_tower.",
        "model.multi_modal_projector.",
    ),
)

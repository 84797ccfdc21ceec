"""Small random transformers models of every family and rope type, and the road from one to an open engine.

Sizes are chosen so that nothing hides: windows of 7 tokens, an original length of 24, heads that are turned in part,
wide random weights, norms and biases that are not their initial ones.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from trtspec.backends.reference.builder import ReferenceBuilder
from trtspec.backends.reference.core import Core
from trtspec.checkpoint.convert import convert
from trtspec.config import RunConfig

VOCAB = 67
WINDOW = 7
ORIGINAL = 24
IDS = tuple(int(i) for i in np.random.default_rng(3).integers(0, VOCAB, 40))
COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
GEMMA: dict[str, Any] = {"tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}
CAPS: dict[str, Any] = {"query_pre_attn_scalar": 12, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}
MOE: dict[str, Any] = {
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "decoder_sparse_step": 1,
}
FACTORS = [1.0, 1.3, 2.0, 5.0]

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "mistral-full": ("Mistral", {"sliding_window": None}),
    "mixtral": ("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}),
    "qwen3": ("Qwen3", {}),
    "qwen3-tied": ("Qwen3", {"tie_word_embeddings": True, "head_dim": 16}),
    "qwen3-moe": ("Qwen3Moe", MOE | {"norm_topk_prob": False}),
    "qwen3-moe-renormalized": ("Qwen3Moe", MOE | {"norm_topk_prob": True, "mlp_only_layers": [1]}),
    "gemma": ("Gemma", GEMMA),
    "gemma2": ("Gemma2", GEMMA | CAPS | {"sliding_window": WINDOW}),
    "gemma3": (
        "Gemma3",
        GEMMA
        | {"query_pre_attn_scalar": 12, "sliding_window": WINDOW, "num_hidden_layers": 7, "rope_theta": 5000.0}
        | {"rope_local_base_freq": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "phi3": (
        "Phi3",
        {"partial_rotary_factor": 0.75, "head_dim": 16, "hidden_size": 64, "pad_token_id": 0, "initializer_range": 0.2},
    ),
    "phi3-window": ("Phi3", {"sliding_window": WINDOW, "pad_token_id": 0}),
}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 4.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
        "beta_fast": 8.0,
        "beta_slow": 2.0,
        "truncate": False,
        "original_max_position_embeddings": ORIGINAL,
    },
    "yarn-attention": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0.8},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "short_factor": FACTORS,
        "long_factor": [2.0 * factor for factor in FACTORS],
    },
}


def oracle(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random float32 model of one of FAMILIES; `eager`, because transformers' other kernels ignore soft-caps."""
    name, settings = FAMILIES[family]
    suffix = "Text" if name == "Gemma3" else ""
    values = COMMON | settings | changes
    config = getattr(transformers, f"{name}{suffix}Config")(**values)
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}ForCausalLM")._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name:
                parameter.uniform_(-0.5, 0.5) if name.startswith("Gemma") else parameter.uniform_(0.5, 1.5)
            elif parameter_name.endswith("bias"):
                parameter.normal_(0, 0.3)
    return model


def with_rope(rope: str, seed: int = 0, family: str = "llama") -> Any:
    """A model of `family` with one of ROPES. Of dynamic, max_position_embeddings is the original length."""
    changes: dict[str, Any] = {"rope_scaling": dict(ROPES[rope]), "rope_theta": 500.0}
    if rope == "dynamic":
        changes["max_position_embeddings"] = ORIGINAL
    return oracle(family, seed, **changes)


DYNAMIC_LIMITS = {"max_input_len": 40, "max_seq_len": 47}
"""Within twice ORIGINAL, which is as far as a factor of 2 reaches."""


def longrope(seed: int = 0) -> Any:
    """A Phi-3 whose factors change beyond ORIGINAL tokens."""
    count = 6  # pairs that are turned: 0.75 of 16 elements
    return oracle(
        "phi3",
        seed,
        initializer_range=0.2,
        original_max_position_embeddings=ORIGINAL,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0 + 0.05 * i for i in range(count)],
            "long_factor": [1.5 + 0.7 * i for i in range(count)],
        },
    )


def run_config(folder: Path, **engine: Any) -> RunConfig:
    """Limits of an engine; float32 unless said otherwise."""
    values = {"compute_dtype": "float32", "max_batch_size": 2, "max_input_len": 60, "max_seq_len": 80} | engine
    source = {"path": folder}
    return RunConfig.model_validate({"name": "x", "pair": {"target": source, "draft": source}, "engine": values})


def engine_of(model: Any, root: Path, tensor: int = 1, pipeline: int = 1, **engine: Any) -> Path:
    """save_pretrained, convert, build: the engine folder of a transformers model, as a target."""
    for name in ("checkpoint", "engine"):
        (root / name).mkdir(parents=True)
    model.save_pretrained(root / "hf")
    convert(root / "hf", root / "checkpoint", tensor=tensor, pipeline=pipeline)
    ReferenceBuilder().build(run_config(root / "hf", **engine), "target", root / "checkpoint", root / "engine")
    return root / "engine"


def core_of(model: Any, root: Path, **settings: Any) -> Core:
    """The opened engine of a model."""
    return Core(engine_of(model, root, **settings), threads=1)


def all_logits(model: Any, ids: tuple[int, ...]) -> Any:
    """[len(ids), vocab] float32, all tokens in one pass."""
    with torch.inference_mode():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def one_by_one(model: Any, ids: tuple[int, ...]) -> Any:
    """[len(ids), vocab]: what a model expects after each token when it decodes with a cache."""
    model = copy.deepcopy(model)  # rope types that follow the length keep a state
    cache, rows = transformers.DynamicCache(), []
    with torch.inference_mode():
        for token in ids:
            rows.append(model(torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits[0, -1])
    return torch.stack(rows).float().numpy()


def growing(model: Any, ids: tuple[int, ...]) -> Any:
    """[len(ids), vocab]: for each token the last row of a pass over all tokens up to it."""
    return np.stack([all_logits(model, ids[: i + 1])[-1] for i in range(len(ids))])

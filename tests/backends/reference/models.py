"""Small random Llamas as transformers models (the oracle) and as engine folders on the TensorRT-LLM layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": 61,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}
"""Wide initial weights, so that logits differ clearly and greedy text is not a constant."""

LIMITS: dict[str, int] = {
    "max_batch_size": 4,
    "max_input_len": 119,
    "max_seq_len": 120,
    "max_draft_len": 8,
}


def oracle(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """A random float32 model; norms and biases are random too, so that none can be forgotten unnoticed."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(SHAPE | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.3)
    return model


def tensors(model: LlamaForCausalLM) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors: qkv stacked, mlp.fc = gate_proj, mlp.gate = up_proj; no lm_head when tied."""
    state = model.state_dict()
    found = {
        "transformer.vocab_embedding.weight": state["model.embed_tokens.weight"],
        "transformer.ln_f.weight": state["model.norm.weight"],
    }
    if not model.config.tie_word_embeddings:
        found["lm_head.weight"] = state["lm_head.weight"]
    names = {"attention.dense": "self_attn.o_proj", "mlp.fc": "mlp.gate_proj", "mlp.gate": "mlp.up_proj"}
    names |= {"mlp.proj": "mlp.down_proj", "input_layernorm": "input_layernorm"}
    names |= {"post_layernorm": "post_attention_layernorm"}
    for i in range(model.config.num_hidden_layers):
        ours, theirs = f"transformer.layers.{i}.", f"model.layers.{i}."
        for kind in ("weight", "bias"):
            qkv = [state.get(f"{theirs}self_attn.{x}_proj.{kind}") for x in "qkv"]
            if qkv[0] is not None:
                found[f"{ours}attention.qkv.{kind}"] = torch.cat(qkv)
            for a, b in names.items():
                if f"{theirs}{b}.{kind}" in state:
                    found[f"{ours}{a}.{kind}"] = state[f"{theirs}{b}.{kind}"]
    return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}


def pretrained_config(model: LlamaForCausalLM) -> dict[str, Any]:
    """The checkpoint's config.json."""
    c = model.config
    return {
        "architecture": "LlamaForCausalLM",
        "dtype": "float32",
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_size": c.head_dim,
        "intermediate_size": c.intermediate_size,
        "vocab_size": c.vocab_size,
        "hidden_act": "silu",
        "norm_epsilon": c.rms_norm_eps,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": c.max_position_embeddings,
        "rotary_base": c.rope_theta,
        "rotary_scaling": c.rope_scaling,
        "attn_bias": c.attention_bias,
        "mlp_bias": c.mlp_bias,
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }


def engine_folder(folder: Path, model: LlamaForCausalLM, dtype: str = "float32", **limits: int) -> Path:
    """Write an engine folder; `limits` change LIMITS or the `reference` block."""
    build = LIMITS | {k: v for k, v in limits.items() if k in LIMITS}
    ours = {k: v for k, v in limits.items() if k not in LIMITS}
    folder.mkdir(parents=True)
    save_file(tensors(model), folder / "rank0.safetensors")
    document = {
        "version": "test",
        "pretrained_config": pretrained_config(model),
        "build_config": build,
        "reference": {"compute_dtype": dtype, **ours},
    }
    (folder / "config.json").write_text(json.dumps(document))
    return folder


def greedy(model: LlamaForCausalLM, ids: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """The oracle's greedy continuation, recomputed from the start for every token."""
    out = list(ids)
    with torch.inference_mode():
        for _ in range(tokens):
            out.append(int(model(torch.tensor([out])).logits[0, -1].argmax()))
    return tuple(out[len(ids) :])


def all_logits(model: LlamaForCausalLM, ids: tuple[int, ...]) -> Any:
    """[len(ids), vocab] float32."""
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].float().numpy()

"""Write a trained model as a Hugging Face folder, and read one back.

    python -m scripts.tiny_pair.export target WORK/target configs/tiny/target

exports a checkpoint while its training is still running.
"""

# The project's mypy does not look into torch.
# mypy: no-warn-return-any
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trtspec.distil.state import TENSORS, newest

from .model import BOS_ID, EOS_ID, MAX_POSITIONS, NORM_EPS, PAD_ID, ROPE_THETA, SHAPES, VOCAB_SIZE, Llama, Shape


def hf_config(shape: Shape) -> dict[str, Any]:
    """config.json in the spelling of transformers 4."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": MAX_POSITIONS,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": PAD_ID,
        "pretraining_tp": 1,
        "rms_norm_eps": NORM_EPS,
        "rope_scaling": None,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "float16",
        "use_cache": True,
        "vocab_size": VOCAB_SIZE,
    }


def save_model(model: Llama, folder: Path) -> None:
    """Every file is written beside its place and renamed, so that a reader never sees half."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    write_json(folder / "config.json", hf_config(model.shape))
    write_json(folder / "generation_config.json", {**ids, "do_sample": False})
    # A tied head is the embedding itself and is not stored twice.
    weights = {
        name: tensor.detach().to(torch.float16).clone().contiguous()
        for name, tensor in model.state_dict().items()
        if not (model.shape.tied and name == "lm_head.weight")
    }
    beside = folder / "model.safetensors.part"
    save_file(weights, str(beside), metadata={"format": "pt"})
    beside.chmod(0o644)  # safetensors makes it private
    beside.replace(folder / "model.safetensors")


def write_json(path: Path, content: dict[str, Any]) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


def load_model(folder: Path, role: str) -> Llama:
    """The shipped fp16 weights in a float32 model, ready for decoding."""
    model = Llama(SHAPES[role])
    weights: dict[str, Tensor] = load_file(str(folder / "model.safetensors"))
    if model.shape.tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return model.eval()


def load_state(model: Llama, folder: Path) -> Llama:
    """The weights of the newest training state in `folder`, into `model`."""
    found = newest(folder)
    if found is None:
        raise SystemExit(f"{folder} holds no training state: run that stage first")
    tensors: dict[str, Tensor] = load_file(str(found / TENSORS))
    weights = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    if model.shape.tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model


if __name__ == "__main__":
    role, checkpoint, destination = sys.argv[1:]
    save_model(load_state(Llama(SHAPES[role]), Path(checkpoint)), Path(destination))

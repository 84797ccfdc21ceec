"""All ranks of a checkpoint put together again, by rules written here and not taken from the converter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoint.models import load

Array = np.ndarray[Any, Any]
KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LAYER = re.compile(r"transformer\.layers\.(\d+)\.")
ROWS = ("mlp.gate.weight", "mlp.gate.bias", "mlp.fc.bias")
COLUMNS = ("attention.dense.weight",)


def ranks(folder: Path) -> list[dict[str, Array]]:
    """The tensors of each rank file as they are stored."""
    files = sorted(folder.glob("rank*.safetensors"), key=lambda p: int(p.stem[4:]))
    return [
        {n: np.frombuffer(bytes(t["data"]), KINDS[t["dtype"]]).reshape(t["shape"]) for n, t in load(file).items()}
        for file in files
    ]


def merge(folder: Path) -> dict[str, Array]:
    """Tensors of the whole model, layers counted from the first; duplicated heads and padding are undone."""
    config = json.loads((folder / "config.json").read_text())
    tp, held = config["mapping"]["tp_size"], ranks(folder)
    assert len(held) == config["mapping"]["world_size"]
    found: dict[str, Array] = {}
    first = 0
    for stage in range(config["mapping"]["pp_size"]):
        group = held[stage * tp : (stage + 1) * tp]
        assert all(set(rank) == set(group[0]) for rank in group)
        layers = {int(m[1]) for name in group[0] if (m := LAYER.match(name))}
        assert layers == set(range(len(layers)))
        for name in group[0]:
            whole = joined(name, [rank[name] for rank in group], config)
            found[LAYER.sub(lambda m, at=first: f"transformer.layers.{at + int(m[1])}.", name)] = whole
        first += len(layers)
    assert first == config["num_hidden_layers"]
    return found


def joined(name: str, parts: list[Array], config: dict[str, Any]) -> Array:
    """One tensor of all tensor-parallel ranks."""
    short = LAYER.sub("", name)
    if "embedding" in name or "lm_head" in name:
        whole = np.concatenate(parts)
        assert not whole[config["vocab_size"] :].any()
        assert len(whole) - config["vocab_size"] < len(parts)
        return whole[: config["vocab_size"]]
    if short.startswith("attention.qkv"):
        return qkv(parts, config)
    if short.startswith("mlp.proj") and parts[0].ndim > 1:
        return np.concatenate(parts, axis=-1)
    if short.startswith("mlp.fc"):
        return fc(parts, config)
    if short in ROWS:
        return np.concatenate(parts)
    if short in COLUMNS:
        return np.concatenate(parts, axis=1)
    assert all(np.array_equal(part, parts[0]) for part in parts), name
    return parts[0]


def fc(parts: list[Array], config: dict[str, Any]) -> Array:
    """Stacked and fused ones hold [up; gate] in each rank."""
    if parts[0].ndim < 3 and config["architecture"] != "Phi3ForCausalLM":
        return np.concatenate(parts)
    halves = [np.split(part, 2, axis=-2) for part in parts]
    return np.concatenate([half[i] for i in (0, 1) for half in halves], axis=-2)


def qkv(parts: list[Array], config: dict[str, Any]) -> Array:
    """[Q; K; V] of the whole model from [Q; K; V] of each rank."""
    size, kv, tp = config["head_size"], config["num_key_value_heads"], len(parts)
    q_rows = config["num_attention_heads"] * size // tp
    kv_rows = max(1, kv // tp) * size
    cut = [np.split(part, [q_rows, q_rows + kv_rows]) for part in parts]
    assert all(len(v) == kv_rows for _, _, v in cut)
    copies = max(1, tp // kv)
    for i, (_, k, v) in enumerate(cut):
        assert np.array_equal(k, cut[i - i % copies][1])
        assert np.array_equal(v, cut[i - i % copies][2])
    return np.concatenate([c[0] for c in cut] + [c[1] for c in cut[::copies]] + [c[2] for c in cut[::copies]])


def expected(values: dict[str, Array], config: dict[str, Any], prefix: str = "model.") -> dict[str, Array]:
    """What the whole model must hold, from the Hugging Face tensors."""
    plus = 1 if config["model_type"].startswith("gemma") else 0
    found = {
        "transformer.vocab_embedding.weight": values[f"{prefix}embed_tokens.weight"],
        "transformer.ln_f.weight": values[f"{prefix}norm.weight"] + np.float32(plus),
        "lm_head.weight": values.get("lm_head.weight", values[f"{prefix}embed_tokens.weight"]),
    }
    for i in range(config["num_hidden_layers"]):
        theirs = {
            n.removeprefix(f"{prefix}layers.{i}."): v for n, v in values.items() if n.startswith(f"{prefix}layers.{i}.")
        }
        for name, value in layer(theirs, np.float32(plus)).items():
            found[f"transformer.layers.{i}.{name}"] = value
    return found


NAMES = {
    "self_attn.qkv_proj": "attention.qkv", "self_attn.o_proj": "attention.dense", "mlp.gate_proj": "mlp.fc",
    "mlp.up_proj": "mlp.gate", "mlp.down_proj": "mlp.proj", "block_sparse_moe.gate": "mlp.router",
    "mlp.gate": "mlp.router", "input_layernorm": "input_layernorm", "post_attention_layernorm": "post_layernorm",
    "pre_feedforward_layernorm": "pre_feedforward_layernorm", "self_attn.q_norm": "attention.q_layernorm",
    "post_feedforward_layernorm": "post_feedforward_layernorm", "self_attn.k_norm": "attention.k_layernorm",
}  # fmt: skip


def layer(theirs: dict[str, Array], plus: np.float32) -> dict[str, Array]:
    """One layer under TensorRT-LLM's names."""
    found: dict[str, Array] = {}
    for name, value in theirs.items():
        stem, _, kind = name.rpartition(".")
        if stem in NAMES:
            found[f"{NAMES[stem]}.{kind}"] = value + plus if "norm" in stem else value
    for kind in ("weight", "bias"):
        if f"self_attn.q_proj.{kind}" in theirs:
            found[f"attention.qkv.{kind}"] = np.concatenate([theirs[f"self_attn.{x}_proj.{kind}"] for x in "qkv"])
    if "mlp.gate_up_proj.weight" in theirs:
        gate, up = np.split(theirs["mlp.gate_up_proj.weight"], 2)
        found["mlp.fc.weight"] = np.concatenate([up, gate])
    for stem, gate, up, down in (("block_sparse_moe", "w1", "w3", "w2"), ("mlp", "gate_proj", "up_proj", "down_proj")):
        count = sum(n.startswith(f"{stem}.experts.") and n.endswith(f"{down}.weight") for n in theirs)
        if count:

            def matrix(e: int, which: str, stem: str = stem) -> Array:
                return theirs[f"{stem}.experts.{e}.{which}.weight"]

            found["mlp.fc.weight"] = np.stack([np.concatenate([matrix(e, up), matrix(e, gate)]) for e in range(count)])
            found["mlp.proj.weight"] = np.stack([matrix(e, down) for e in range(count)])
    return found

"""A pair of toy models whose tokens are letters: every text is one sequence of tokens, and all can be counted.

Random weights, seven letters and an end token that is as likely as any other: what a served pair writes can be held
against the target's exact distribution, token by token. The draft is another random model of the same vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from trtspec.config import RunConfig, load_config

LETTERS = "abcdefg"
END = 0
SPECIAL = "<|end|>"
"""Begins every prompt and ends answers, as in GPT-2."""
MOST_DRAFTED = 4
SHARPNESS = 1.5
"""Standard deviation of the logits: some letters are likely and none is impossible, so that every sequence is seen."""


def write_letter_pair(folder: Path, *overrides: str) -> RunConfig:
    """Write both models and a configuration of the reference engine; results go below `folder` as well."""
    _write_model(folder / "target", seed=1, hidden=64, layers=2)
    _write_model(folder / "draft", seed=2, hidden=16, layers=1)
    (folder / "letters.yaml").write_text(
        "name: letters\n"
        "pair: {target: {path: target}, draft: {path: draft}}\n"
        f"speculation: {{max_draft_len: {MOST_DRAFTED}, draft_len: {MOST_DRAFTED}}}\n"
        "engine: {backend: reference, compute_dtype: float32, max_batch_size: 8, max_input_len: 16, max_seq_len: 48}\n"
        "serving: {http_port: 0, grpc_port: 0, metrics_port: 0}\n"
    )
    results = [f"output.{name}={folder / name}" for name in ("engines", "model_repo", "reports")]
    return load_config(folder / "letters.yaml", [*results, *overrides], environ={})


def ids_of(text: str, ended: bool) -> tuple[int, ...]:
    """The tokens of an answer; the end token is one of them."""
    letters = tuple(1 + LETTERS.index(letter) for letter in text)
    return (*letters, END) if ended else letters


def _write_model(folder: Path, seed: int, hidden: int, layers: int) -> None:
    folder.mkdir(parents=True)
    config = _model_config(hidden, layers)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": END, "eos_token_id": END}))
    special = {"bos_token": SPECIAL, "eos_token": SPECIAL, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    _tokenizer().save(str(folder / "tokenizer.json"))
    save_file(_weights(config, np.random.default_rng(seed)), folder / "model.safetensors")


def _model_config(hidden: int, layers: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 1 + len(LETTERS),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": hidden // 2,
        "hidden_act": "silu",
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": END,
        "eos_token_id": END,
        "torch_dtype": "float32",
    }


def _weights(config: dict[str, Any], dice: np.random.Generator) -> dict[str, Any]:
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]

    def random(rows: int, columns: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
        drawn: np.ndarray[Any, Any] = dice.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        return drawn.astype(np.float32)

    found = {
        "model.embed_tokens.weight": random(vocab, hidden, np.sqrt(hidden)),
        "lm_head.weight": random(vocab, hidden, SHARPNESS),
    }
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        found |= {f"{name}.self_attn.{p}_proj.weight": random(hidden, hidden) for p in "qkvo"}
        found |= {f"{name}.mlp.{p}_proj.weight": random(inner, hidden) for p in ("gate", "up")}
        found[f"{name}.mlp.down_proj.weight"] = random(hidden, inner)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{name}.{norm}.weight"] = np.ones(hidden, dtype=np.float32)
    return found | {"model.norm.weight": np.ones(hidden, dtype=np.float32)}


def _tokenizer() -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate((SPECIAL, *LETTERS))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens([SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{SPECIAL} $A", special_tokens=[(SPECIAL, END)])
    return tokenizer

"""A target so small that it can be distilled within a test: a random Llama with a tokenizer of single words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VOCAB, END = 48, 1
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": VOCAB, "max_position_embeddings": 128, "initializer_range": 0.3,
    "bos_token_id": 0, "eos_token_id": END, "pad_token_id": 2,
}  # fmt: skip


def write_target(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Model, tokenizer and generation settings as transformers would save them."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**SIZES | changes)).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w3"))
    words.pre_tokenizer = WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END}))
    return folder


def write_prompts(path: Path, count: int = 24, max_tokens: int = 12, seed: int = 0) -> Path:
    """A prompt a line, all different."""
    import random

    rng = random.Random(seed)
    lines = [
        json.dumps({"id": f"p{i}", "prompt": f"w{4 + i % 40} w{rng.randrange(4, VOCAB)} w{rng.randrange(4, VOCAB)}",
                    "max_tokens": max_tokens})
        for i in range(count)
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path

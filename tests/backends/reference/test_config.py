"""config.json of an engine folder: what is refused, and with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtspec.backends.reference.config import EngineFolder, read_model_config
from trtspec.errors import ModelFileError

GOOD: dict[str, Any] = {
    "version": "x",
    "pretrained_config": {
        "architecture": "LlamaForCausalLM",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 50,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
    },
    "build_config": {"max_batch_size": 2, "max_input_len": 30, "max_seq_len": 40, "max_draft_len": 4},
    "reference": {"compute_dtype": "float32"},
}


def write(folder: Path, **changes: Any) -> Path:
    """GOOD with dotted keys replaced; None removes one."""
    document = json.loads(json.dumps(GOOD))
    for key, value in changes.items():
        block, _, name = key.partition("__")
        inner = document[block] if name else document
        inner[name or block] = value
        if value is ...:
            del inner[name or block]
    (folder / "config.json").write_text(json.dumps(document))
    return folder


def test_defaults_are_tensorrt_llms(tmp_path: Path) -> None:
    folder = EngineFolder.read(write(tmp_path))
    model = folder.model
    assert (model.head_size, model.norm_epsilon, model.rotary_base) == (8, 1e-5, 10000.0)
    assert not model.attn_bias
    assert model.qkv_rows == (4 + 2 * 2) * 8
    assert (folder.cache_slots, folder.draft_window, folder.max_prompt_len) == (4, 5, 30)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("pretrained_config__architecture", "FalconForCausalLM", "architecture"),
        ("pretrained_config__num_key_value_heads", 3, "heads do not fit"),
        ("pretrained_config__head_size", 7, "heads do not fit"),
        ("pretrained_config__num_hidden_layers", 0, "num_hidden_layers"),
        ("pretrained_config__vocab_size", "50", "vocab_size"),
        ("pretrained_config__hidden_size", True, "hidden_size"),
        ("pretrained_config__hidden_size", ..., "found nothing"),
        ("pretrained_config__norm_epsilon", 0, "norm_epsilon"),
        ("build_config__max_batch_size", 0, "build_config.max_batch_size"),
        ("build_config__max_draft_len", -1, "build_config.max_draft_len"),
        ("build_config", ..., "build_config"),
        ("reference__compute_dtype", "float16", "float32 or bfloat16"),
        ("reference__compute_dtype", ..., "reference.compute_dtype"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, key: str, value: Any, words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        EngineFolder.read(write(tmp_path, **{key: value}))
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [("{", "cannot read"), ("[]", "not a JSON object"), (None, "no such file")])
def test_unreadable_file(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFileError, match=words):
        EngineFolder.read(tmp_path)


def test_a_checkpoint_config_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD["pretrained_config"]))
    assert read_model_config(tmp_path / "config.json").hidden == 32

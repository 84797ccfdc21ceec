"""The shipped configurations' pairs with the dimensions of a toy, made in a second.

Names, ropes, ties and biases are those of the real models' config.json; heads are fewer and narrower, so that the real
tensor-parallel sizes still divide them. llama70b, which walks the whole road, has the real layer counts; qwen2.5 a
tenth, since its layers are all alike. The tokenizer is the tiny pair's, the weights are random numbers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.checkpoint.madefamilies import write_family
from trtspec.config import RunConfig, load_config

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = CONFIGS / "tiny"
WORDS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
_TOY: dict[str, Any] = {
    "vocab_size": 2048, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16", "head_dim": 16,
}  # fmt: skip
_LLAMA = {"max_position_embeddings": 131072, "rope_theta": 500000.0}
_QWEN = {"max_position_embeddings": 32768, "rope_theta": 1000000.0}
_LARGE = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 16, "num_key_value_heads": 8}
_SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
PAIRS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "llama70b": {
        "target": ("llama", {**_LLAMA, **_LARGE, "num_hidden_layers": 80, "rope_scaling": _LLAMA3}),
        "draft": ("llama", {**_LLAMA, **_SMALL, "num_hidden_layers": 16, "tie_word_embeddings": True,
                            "rope_scaling": _LLAMA3 | {"factor": 32.0}}),
    },
    "qwen2.5": {
        "target": ("qwen2", {**_QWEN, **_LARGE, "num_hidden_layers": 8}),
        "draft": ("qwen2", {**_QWEN, **_SMALL, "num_hidden_layers": 3, "tie_word_embeddings": True}),
    },
}  # fmt: skip
"""Configuration → role → family, and what its config.json has besides."""


def write_pair(folder: Path, name: str) -> None:
    """folder/target and folder/draft for configs/<name>.yaml, and prompts to calibrate with."""
    for role, (family, changes) in PAIRS[name].items():
        write_family(folder / role, family, "BF16", seed=len(role), **(_TOY | changes))
        for file in WORDS:
            shutil.copy(TINY / role / file, folder / role / file)
    lines = (TINY / "prompts/type-stubs.jsonl").read_text(encoding="utf-8").splitlines()[:1]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def overrides(folder: Path, out: Path | None = None, *more: str) -> list[str]:
    """For `--set`: the pair in `folder` in the place of the hub's models, results below `out`."""
    found = [f"pair.{role}.{key}" for role in ("target", "draft") for key in (f"path={folder / role}", "hub=null")]
    for role in ("target", "draft"):
        found.append(f"pair.{role}.quantization.calibration={{prompts: {folder / 'prompts.jsonl'}, max_tokens: 16}}")
        found.append(f"pair.{role}.quantization.method=layerwise")
    found += [f"output.{name}={(out or folder) / name}" for name in ("engines", "model_repo", "reports")]
    return [*found, *more]


def config_of(name: str, folder: Path, out: Path | None = None, *more: str) -> RunConfig:
    """configs/<name>.yaml with its pair in `folder`."""
    return load_config(CONFIGS / f"{name}.yaml", overrides(folder, out, *more), environ={})


def document(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))

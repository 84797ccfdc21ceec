"""Checkpoints of zeros and calls of the stand-ins in this process, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.contract.standins.build import build, recorded
from tests.contract.standins.convert import write_zeros
from tests.contract.standins.program import Standin, run
from tests.contract.standins.versions import LAST, VERSIONS, generations

LLAMA: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "dtype": "bfloat16", "logits_dtype": "float32", "hidden_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_size": 32,
    "intermediate_size": 256, "vocab_size": 50, "hidden_act": "silu", "position_embedding_type": "rope_gpt_neox",
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
EVERY = [(version, generation) for version in VERSIONS for generation in generations(version)]
"""Every release with every way it may behave."""
TARGET = ["--speculative_decoding_mode", "draft_tokens_external", "--max_draft_len", "8"]
PAGED = ["--use_paged_context_fmha", "enable"]
SIZES = ["--max_batch_size", "4", "--max_input_len", "64", "--max_seq_len", "128", "--max_num_tokens", "256"]


def places(folder: Path) -> list[str]:
    """Arguments that read folder/checkpoint and write folder/engine and folder/model.cache."""
    return [
        "--checkpoint_dir", str(folder / "checkpoint"), "--output_dir", str(folder / "engine"),
        "--output_timing_cache", str(folder / "model.cache"),
    ]  # fmt: skip


def checkpoint(
    folder: Path, *, weights: str | None = None, kv: str | None = None, tp: int = 1, pp: int = 1, **changes: Any
) -> Path:
    """A checkpoint whose weights are all zero, in the format `weights` names; `changes` replace keys."""
    config = LLAMA | changes
    config["mapping"] = {"world_size": tp * pp, "tp_size": tp, "pp_size": pp}
    config["quantization"] = {
        "quant_algo": weights, "kv_cache_quant_algo": kv, "exclude_modules": ["*lm_head"],
        "pre_quant_scale": bool(weights and "AWQ" in weights),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for rank in range(tp * pp):
        write_zeros(folder / f"rank{rank}.safetensors", config, rank)
    return folder


def call(
    arguments: Sequence[str | Path], version: str = LAST, generation: str = "", environment: Mapping[str, str] = {}
) -> int:
    """The exit code of `trtllm-build`, imitated in this process."""
    words = [str(word) for word in arguments]
    try:
        return run(Standin("trtllm-build", version, words, environment, generation), build)
    except SystemExit as ended:  # argparse's way out
        return int(ended.code or 0)


def built(folder: Path, arguments: Sequence[str | Path], version: str = LAST, generation: str = "", **sm: str) -> Any:
    """build_config of the engine that `trtllm-build` writes from folder/checkpoint; its plugins in `plugin_config`."""
    assert call([*places(folder), *arguments], version, generation, sm) == 0
    return recorded(folder / "engine")["build_config"]

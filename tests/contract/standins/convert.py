"""STAND-INS for `convert_checkpoint.py` (llama, qwen, gemma) and `quantize.py`.

They check their arguments, read the model's config.json, and write a checkpoint whose config.json and tensor names,
types and shapes are right and whose weights are all zero (sparse files: no converting was done).
"""

from __future__ import annotations

import argparse
import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .checkpoint import BYTES, Refused
from .layout import GEMMA, LLAMA, QWEN, expected
from .program import Standin
from .rows import parser, rows_of
from .table_scripts import CONVERTERS, QUANTIZE
from .versions import LABEL

ALGOS = {
    "full_prec": None, "fp8": "FP8", "int8_sq": "W8A8_SQ_PER_CHANNEL", "int4_awq": "W4A16_AWQ", "int8_wo": "W8A16",
    "w4a8_awq": "W4A8_AWQ", "int4_wo": "W4A16", "nvfp4": "NVFP4", "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN",
}  # fmt: skip
STORED = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}


def converter(family: str) -> Callable[[Standin], int]:
    """The program of one family."""

    def convert(standin: Standin) -> int:
        rows = rows_of(CONVERTERS[family], standin.version)
        args = parser("convert_checkpoint.py", rows, standin.generation).parse_args(standin.arguments)
        model, out, tp, pp = _places(family, args)
        if model is None:
            raise Refused("this stand-in needs the model's folder")
        config = _model_config(family, model, args.dtype or "auto", tp, pp)
        config["quantization"] = {"quant_algo": _algo(args), "kv_cache_quant_algo": _kv(args), "group_size": 128}
        config["use_parallel_embedding"] = tp > 1 if family == "gemma" else args.use_parallel_embedding
        config["embedding_sharding_dim"] = 0 if family == "gemma" else args.embedding_sharding_dim
        _write(standin, out, config, files=not getattr(args, "save_config_only", False))
        return 0

    return convert


def quantize(standin: Standin) -> int:
    """quantize.py."""
    rows = rows_of(QUANTIZE, standin.version)
    args = parser("quantize.py", rows, standin.generation).parse_args(standin.arguments)
    if args.model_dir is None:
        raise Refused("One of source checkpoint (model_dir, nemo_ckpt_path) must be specified")
    if standin.gpus < 1 and args.device == "cuda":
        raise RuntimeError("no CUDA-capable device is detected")
    model = Path(args.model_dir)
    architecture = json.loads((model / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    families = {"llama": LLAMA, "qwen": QWEN, "gemma": GEMMA}
    family = next(name for name, members in families.items() if architecture in members)
    config = _model_config(family, model, args.dtype, args.tp_size, args.pp_size)
    algo = ALGOS[args.qformat]
    config["quantization"] = {
        "quant_algo": algo, "kv_cache_quant_algo": args.kv_cache_dtype and args.kv_cache_dtype.upper(),
        "group_size": args.awq_block_size, "pre_quant_scale": "AWQ" in (algo or ""), "has_zero_point": False,
        "exclude_modules": ["lm_head"],
    }  # fmt: skip
    # What sets ModelOpt's checkpoints apart from the converters' (§2.4).
    config |= {
        "use_parallel_embedding": True,
        "logits_dtype": "float16" if config["dtype"] == "bfloat16" else config["dtype"],
        "producer": {"name": "STAND-IN for modelopt", "version": "0"},
    }
    _write(standin, Path(args.output_dir), config)
    return 0


def _places(family: str, args: argparse.Namespace) -> tuple[Path | None, Path, int, int]:
    if family == "gemma":
        return Path(args.model_dir), Path(args.output_model_dir), args.world_size, 1
    return args.model_dir and Path(args.model_dir), Path(args.output_dir), args.tp_size, args.pp_size


def _algo(args: argparse.Namespace) -> str | None:
    if getattr(args, "use_fp8", False) or getattr(args, "enable_fp8", False):
        return "FP8"
    if getattr(args, "use_fp8_rowwise", False):
        return "FP8_PER_CHANNEL_PER_TOKEN"
    if getattr(args, "use_nvfp4", False):
        return "NVFP4"
    precision = {"int8": "W8A16", "int4": "W4A16"}
    if getattr(args, "use_weight_only", False):
        return precision.get(args.weight_only_precision)
    return precision.get(getattr(args, "use_weight_only_with_precision", None) or "")


def _kv(args: argparse.Namespace) -> str | None:
    if getattr(args, "fp8_kv_cache", False):
        return "FP8"
    return "INT8" if args.int8_kv_cache else None


def _model_config(family: str, model: Path, dtype: str, tp: int, pp: int) -> dict[str, Any]:
    """config.json of the checkpoint: §3.1."""
    hf = json.loads((model / "config.json").read_text(encoding="utf-8"))
    architecture = hf["architectures"][0]
    if architecture not in {"llama": LLAMA, "qwen": QWEN, "gemma": GEMMA}[family]:
        raise Refused(f"{architecture} is not converted by the {family} script")
    stored = hf.get("torch_dtype", hf.get("dtype", "float16"))
    heads = hf["num_attention_heads"]
    kv = hf.get("num_key_value_heads", heads)
    if heads % tp or (kv % tp and tp % kv):
        raise Refused(f"{heads} heads with {kv} key-value heads cannot be divided over tp_size {tp}")
    return {
        "architecture": architecture,
        "dtype": dtype if dtype != "auto" else "float16" if stored == "float32" else stored,
        "logits_dtype": "float32",
        "hidden_size": hf["hidden_size"],
        "num_hidden_layers": hf["num_hidden_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_size": hf.get("head_dim") or hf["hidden_size"] // heads,
        "intermediate_size": hf["intermediate_size"],
        "vocab_size": hf["vocab_size"],
        "hidden_act": "silu" if family != "gemma" else "gelu",
        "norm_epsilon": hf.get("rms_norm_eps", 1e-5),
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": hf.get("max_position_embeddings"),
        "tie_word_embeddings": hf.get("tie_word_embeddings", False),
        "rotary_base": hf.get("rope_theta", 10000.0),
        "rotary_scaling": hf.get("rope_scaling"),
        "mapping": {"world_size": tp * pp, "tp_size": tp, "pp_size": pp, "cp_size": 1, "gpus_per_node": 8},
    }


def _write(standin: Standin, out: Path, config: Mapping[str, Any], *, files: bool = True) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**config, "stand_in": LABEL}, indent=4)
    (out / "config.json").write_text(text, encoding="utf-8")
    world = config["mapping"]["world_size"] if files else 0
    for rank in range(world):
        standin.fault.reached(100 * rank / world)
        write_zeros(out / f"rank{rank}.safetensors", config, rank)
        standin.say("I", f"rank {rank} written")


def write_zeros(path: Path, config: Mapping[str, Any], rank: int) -> None:
    """A rank's file with the right header over a hole."""
    header: dict[str, Any] = {"__metadata__": {"stand_in": LABEL}}
    end = 0
    for name, (types, shape) in expected(config, rank)[0].items():
        own = STORED[config["dtype"]]
        dtype = own if own in types else sorted(types)[0]
        size = BYTES[dtype] * math.prod(shape or (1,))
        header[name] = {"dtype": dtype, "shape": list(shape or (1,)), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)

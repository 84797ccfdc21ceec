"""Reading a checkpoint folder as strictly as a builder would: config.json and the headers of the rank files.

Raises :class:`Refused` with the reason; the programs print it as a RuntimeError and end with exit code 1.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .layout import GEMMA, LLAMA, OTHERS, QWEN, SINCE, Tensors, expected
from .versions import EARLY, order

REQUIRED = ("architecture", "dtype", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I8": 1, "U8": 1, "I32": 4, "I64": 8}
EARLY_ALGOS = (
    "W8A16", "W4A16", "W4A16_AWQ", "W4A8_AWQ", "W8A16_GPTQ", "W4A16_GPTQ", "W8A8_SQ_PER_CHANNEL",
    "W8A8_SQ_PER_TENSOR_PLUGIN", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN",
    "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN", "W4A8_QSERVE_PER_GROUP", "W4A8_QSERVE_PER_CHANNEL", "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN", "INT8", "MIXED_PRECISION", "NO_QUANT",
)  # fmt: skip
LATER_ALGOS = ("NVFP4", "FP8_BLOCK_SCALES", "W4A8_NVFP4_FP8", "W4A8_MXFP4_FP8", "W4A16_MXFP4", "NVFP4_AWQ")
BUFFERS = (
    "*embed_positions*",
    "*rotary_inv_freq*",
    "*kv_cache_*scaling_factor",
    "*attention.[kv]_cache_scaling_factor",
    "*_proj_*",
)
"""Names that a file may hold without being asked for (§3.3): buffers of the converters, pairs of KV scales."""


class Refused(RuntimeError):
    """What a builder would end with."""


def read_config(path: Path, version: str, generation: str) -> dict[str, Any]:
    """config.json of a checkpoint with the defaults of §3.1."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"no such file: {path}") from None
    except ValueError as error:
        raise Refused(f"{path} is no JSON: {error}") from None
    missing = [key for key in REQUIRED if key not in config]
    if missing:
        raise Refused(f"config.json lacks {', '.join(missing)}")
    _check_architecture(config["architecture"], version)
    quantization = config.get("quantization") or {}
    algos = EARLY_ALGOS if generation == EARLY else EARLY_ALGOS + LATER_ALGOS
    for key in ("quant_algo", "kv_cache_quant_algo"):
        if quantization.get(key) not in (None, *algos):
            raise Refused(f"{key} {quantization[key]!r} is unknown to this release")
    completed = _completed(config)
    _check_mapping(completed, generation)
    return completed


def _check_architecture(name: str, version: str) -> None:
    if name not in LLAMA + QWEN + GEMMA + OTHERS or order(version) < order(SINCE.get(name, "0.17.0")):
        raise Refused(f"Unsupported model architecture: {name}")


def _completed(config: Mapping[str, Any]) -> dict[str, Any]:
    mapping: dict[str, Any] = {"tp_size": 1, "pp_size": 1, "cp_size": 1, **(config.get("mapping") or {})}
    world = mapping["tp_size"] * mapping["pp_size"] * mapping["cp_size"]
    mapping = {
        "world_size": world, "gpus_per_node": 8, "moe_tp_size": mapping["tp_size"], "moe_ep_size": 1, **mapping,
    }  # fmt: skip
    quantization = {
        "quant_algo": None, "kv_cache_quant_algo": None, "group_size": 128, "smoothquant_val": 0.5, "clamp_val": None,
        "has_zero_point": False, "pre_quant_scale": False, "exclude_modules": None,
        **(config.get("quantization") or {}),
    }  # fmt: skip
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    defaults = {
        "logits_dtype": "float32", "num_key_value_heads": heads, "head_size": hidden // heads,
        "intermediate_size": 4 * hidden, "hidden_act": "gelu", "norm_epsilon": 1e-5,
        "position_embedding_type": "learned_absolute", "max_position_embeddings": None, "qk_layernorm": False,
        "use_parallel_embedding": False, "embedding_sharding_dim": 0,
    }  # fmt: skip
    return {**defaults, **config, "mapping": mapping, "quantization": quantization}


def _check_mapping(config: Mapping[str, Any], generation: str) -> None:
    mapping, heads = config["mapping"], config["num_attention_heads"]
    tp, pp, kv = mapping["tp_size"], mapping["pp_size"], config["num_key_value_heads"]
    if mapping["world_size"] != tp * pp * mapping["cp_size"]:
        raise Refused(f"world_size {mapping['world_size']} is not tp_size * pp_size * cp_size")
    if generation == EARLY and config["num_hidden_layers"] % pp:
        raise Refused(f"{config['num_hidden_layers']} layers cannot be divided over pp_size {pp}")
    if heads % tp or (kv % tp and tp % kv):
        raise Refused(f"{heads} heads with {kv} key-value heads cannot be divided over tp_size {tp}")


def check_rank(folder: Path, config: Mapping[str, Any], rank: int) -> int:
    """Size in bytes of one rank's file once its header and every tensor in it is as it should be."""
    path = folder / f"rank{rank}.safetensors"
    found = read_header(path)
    must, may = expected(config, rank)
    missing = sorted(set(must) - set(found))
    if missing:
        raise Refused(f"{path.name}: required but not provided: {', '.join(missing[:3])} ({len(missing)} tensors)")
    for name, (dtype, shape) in found.items():
        _check_tensor(path.name, name, dtype, shape, must, may)
    return path.stat().st_size


def _check_tensor(
    file: str, name: str, dtype: str, shape: tuple[int, ...], must: Tensors, may: Tensors
) -> None:  # fmt: skip
    allowed = must.get(name) or may.get(name)
    if allowed is None:
        known = any(fnmatchcase(name, pattern) for pattern in (*BUFFERS, *may))
        # Architectures that are not described may hold anything in their layers.
        if known or not any(n.endswith("post_layernorm.weight") for n in must):
            return
        raise Refused(f"{file}: provided but not expected: {name}")
    types, wanted = allowed
    if dtype not in types:
        raise Refused(f"{file}: {name} is {dtype}, expected {' or '.join(sorted(types))}")
    if wanted is not None and shape != wanted:
        raise Refused(f"{file}: {name} has shape {list(shape)}, expected {list(wanted)}")


def read_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name → type and shape of a safetensors file whose every byte is accounted for."""
    if not path.is_file():
        raise Refused(f"no such file: {path}")
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else -1
        if not 0 < length <= size - 8:
            raise Refused(f"{path.name} is no safetensors file or was cut off")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    end, found = 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        if begin != end or stop - begin != BYTES[entry["dtype"]] * math.prod(entry["shape"]):
            raise Refused(f"{path.name}: {name} lies wrong in the file")
        end, found[name] = stop, (entry["dtype"], tuple(entry["shape"]))
    if size != 8 + length + end:
        raise Refused(f"{path.name} was cut off: {size} bytes, its header speaks of {8 + length + end}")
    return found

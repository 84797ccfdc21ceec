"""STAND-IN for `trtllm-build`: checks arguments and checkpoint, rewrites what the real one rewrites, writes a folder
with the right config.json and rank files of a few bytes that say what they are."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .checkpoint import Refused, check_rank, read_config
from .program import Standin
from .rewrites import Build, apply
from .rows import parser, rows_of
from .table_build import BUILD, MODES, PLUGINS
from .versions import EARLY, LABEL, LATE

ENGINE_BYTES = 4096
BUILD_FIELDS = (
    "max_input_len", "max_seq_len", "max_batch_size", "max_beam_width", "max_num_tokens", "opt_num_tokens",
    "max_prompt_embedding_table_size", "gather_context_logits", "gather_generation_logits", "profiling_verbosity",
    "enable_debug_output", "max_draft_len", "input_timing_cache", "output_timing_cache", "weight_sparsity",
    "weight_streaming", "max_encoder_input_len", "monitor_memory",
)  # fmt: skip
"""Arguments that build_config stores under their own name (§4)."""
ON_SM_100 = ("gemm_swiglu_plugin", "fp8_rowwise_gemm_plugin", "low_latency_gemm_plugin")


def build(standin: Standin) -> int:
    """The whole program; returns its exit code."""
    rows = rows_of(BUILD, standin.version)
    args = parser("trtllm-build", rows, standin.generation).parse_args(standin.arguments)
    _check_arguments(standin, args)
    if standin.gpus < 1:
        raise RuntimeError("no CUDA-capable device is detected")
    out = Path(args.output_dir)
    if standin.fault != "no-files":
        out.mkdir(parents=True, exist_ok=True)
    config, sizes = _read(args, standin)
    under_way = Build(config, _build_config(args, standin), _plugins(args, standin), "", standin.sm, standin.say)
    under_way.generation = standin.generation
    standin.fault.reached(10)
    apply(under_way)
    if args.logits_dtype:
        config["logits_dtype"] = args.logits_dtype
    workers = min(args.workers, standin.gpus)
    standin.say("I", f"{config['mapping']['world_size']} ranks, {workers} workers")
    _write(standin, out, under_way, sizes, dry=args.dry_run)
    if standin.fault == "traceback-exit-0":
        print("Traceback (most recent call last):\n  STAND-IN\nRuntimeError: STAND-IN: one rank failed", flush=True)
        return 0
    standin.say("I", "Total time of building all engines: 00:00:00")
    return 0


def _check_arguments(standin: Standin, args: argparse.Namespace) -> None:
    _say_deprecated(standin, args)
    if args.gather_all_token_logits:
        args.gather_context_logits = args.gather_generation_logits = True
    if args.gather_context_logits and args.max_draft_len > 0:
        raise Refused("Gather context logits is not support with draft len > 0.")
    if args.weight_streaming and args.gemm_plugin != "disable":
        raise Refused("weight_streaming requires gemm_plugin disable")
    if args.multiple_profiles == "enable" and args.opt_num_tokens is not None:
        raise Refused("multiple_profiles is enabled, while opt_num_tokens is set.")
    if args.checkpoint_dir is None and args.model_config is None:
        raise TypeError("neither --checkpoint_dir nor --model_config is given")
    refused = [name for name in ON_SM_100 if getattr(args, name) != "disable"]
    if refused and standin.generation == LATE and standin.sm == 100:
        raise NotImplementedError(f"{refused[0]}={getattr(args, refused[0])} is not supported on SM 100.")


def _say_deprecated(standin: Standin, args: argparse.Namespace) -> None:
    if standin.generation == LATE and args.gather_generation_logits:
        standin.say("W", "Option --gather_generation_logits is deprecated, a build flag is not required anymore.")
    if hasattr(args, "paged_kv_cache"):
        standin.say("W", "Option --paged_kv_cache is deprecated, use --kv_cache_type.")


def _read(args: argparse.Namespace, standin: Standin) -> tuple[dict[str, Any], list[int]]:
    """The checkpoint's config, and the size of every rank's file; no files where only a config was given."""
    if args.checkpoint_dir is None:
        config = read_config(Path(args.model_config), standin.version, standin.generation)
        return config, [0] * config["mapping"]["world_size"]
    folder = Path(args.checkpoint_dir)
    config = read_config(folder / "config.json", standin.version, standin.generation)
    sizes = [check_rank(folder, config, rank) for rank in range(config["mapping"]["world_size"])]
    standin.say("I", f"checkpoint of {config['architecture']}, {len(sizes)} ranks, {sum(sizes)} bytes")
    return config, sizes


def _build_config(args: argparse.Namespace, standin: Standin) -> dict[str, Any]:
    if args.build_config is not None:
        return dict(json.loads(Path(args.build_config).read_text(encoding="utf-8")))
    kind = getattr(args, "kv_cache_type", None) or "paged"
    found: dict[str, Any] = {name: getattr(args, name) for name in BUILD_FIELDS}
    found |= {
        "opt_batch_size": 8,
        # How the kind is spelled in the file changed with the class that holds it.
        "kv_cache_type": kind.upper() if standin.generation == EARLY else kind,
        "strongly_typed": standin.generation == LATE,
        "force_num_profiles": None,
        "speculative_decoding_mode": MODES[args.speculative_decoding_mode],
        "use_refit": False,
        "use_strip_plan": args.strip_plan,
        "use_mrope": False,
        "lora_config": {"lora_dir": args.lora_dir or [], "lora_ckpt_source": args.lora_ckpt_source,
                        "max_lora_rank": args.max_lora_rank, "lora_target_modules": args.lora_target_modules or [],
                        "trtllm_modules_to_hf_modules": {}},
        "_gemm_disabled": "--gemm_plugin" in standin.arguments and args.gemm_plugin == "disable",
    }  # fmt: skip
    if hasattr(args, "auto_parallel"):
        found["auto_parallel_config"] = {"world_size": args.auto_parallel, "gpus_per_node": args.gpus_per_node}
    if standin.generation == EARLY:
        found["use_fused_mlp"] = args.use_fused_mlp == "enable"
    return found


def _plugins(args: argparse.Namespace, standin: Standin) -> dict[str, Any]:
    words = {"enable": True, "disable": False}
    found: dict[str, Any] = {"dtype": None}
    for row in rows_of(PLUGINS, standin.version):
        value = getattr(args, row.field)
        found[row.field] = words.get(value, value) if row.kind == "onoff" else None if value == "disable" else value
    paged = getattr(args, "kv_cache_type", "paged") == "paged"
    found |= {"paged_kv_cache": paged, "paged_state": False, "manage_weights": args.fast_build}
    for name, value in found.items():
        standin.say("I", f"Set {name} to {value}.")
    return found


def _document(standin: Standin, under_way: Build) -> dict[str, Any]:
    config = dict(under_way.config)
    world = config["mapping"]["world_size"]
    plugins = {**under_way.plugins, "dtype": config["dtype"], "nccl_plugin": config["dtype"] if world > 1 else None}
    limits = dict(under_way.build)
    if standin.fault == "other-limits":
        limits |= {"max_seq_len": limits["max_seq_len"] // 2, "max_draft_len": max(limits["max_draft_len"] - 1, 0)}
    if standin.fault == "no-paged-fmha":
        plugins["use_paged_context_fmha"] = False
    return {
        "version": standin.version,
        "pretrained_config": {**config, "stand_in": LABEL},
        "build_config": {**limits, "plugin_config": plugins},
    }


def _write(standin: Standin, out: Path, under_way: Build, sizes: list[int], *, dry: bool) -> None:
    """Rank after rank, each in two pieces, as a builder that can be interrupted anywhere."""
    silent = standin.fault == "no-files"
    text = json.dumps(_document(standin, under_way), indent=4)
    if standin.fault == "truncated-config":
        text = text[: len(text) // 2]
    world = len(sizes)
    for rank in range(world):
        standin.say("I", "Build TensorRT engine Unnamed Network 0")
        if rank == 0 and not silent:
            (out / "config.json").write_text(text, encoding="utf-8")
        lost = rank == world - 1 and standin.fault == "traceback-exit-0"
        if not (dry or silent or lost):
            content = b"" if rank == world - 1 and standin.fault == "empty-engine" else _engine(text, rank)
            _serialize(out / f"rank{rank}.engine", content, _reached(standin, rank, world))
        standin.say("I", f"Serializing engine to {out / f'rank{rank}.engine'}...")
        standin.say("I", "Engine serialized. Total time: 00:00:00")
        standin.fault.reached(10 + 80 * (rank + 1) / world)
    cache = under_way.build["output_timing_cache"]
    if not silent and cache is not None:
        # Relative to the current folder, not to --output_dir, as with the real program.
        Path(cache).write_bytes(f"{LABEL}\ntiming cache of SM {standin.sm}\n".encode())
        standin.say("I", f"Timing cache serialized to {cache}")


def _reached(standin: Standin, rank: int, world: int) -> Callable[[], None]:
    return lambda: standin.fault.reached(10 + 80 * (rank + 0.5) / world)


def _serialize(path: Path, content: bytes, halfway: Callable[[], None]) -> None:
    middle = len(content) // 2
    with path.open("wb") as file:
        file.write(content[:middle])
        file.flush()
        halfway()
        file.write(content[middle:])


def _engine(text: str, rank: int) -> bytes:
    """The same bytes for the same config and rank, and a label that a person sees first."""
    digest = hashlib.sha256(f"{text}{rank}".encode()).hexdigest()
    return f"{LABEL}\nrank {rank}\n{digest}\n".encode().ljust(ENGINE_BYTES, b".")


def recorded(folder: Path) -> Mapping[str, Any]:
    """config.json of an engine folder."""
    document: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return document

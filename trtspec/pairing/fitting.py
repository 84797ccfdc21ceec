"""What would fit: the same pair with more GPUs per layer, other weight formats, another placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtspec.config import Role, RunConfig
from trtspec.pairing.parallel import tensor_sizes
from trtspec.pairing.placement import Facts, gpus_needed, plan_memory
from trtspec.pairing.quantizing import runs_as_target
from trtspec.pairing.shape import group_size

SHOWN = 3


def alternatives(facts: Facts, config: RunConfig) -> list[str]:
    """Up to SHOWN single changes with which a full batch of full length fits, each as it stands in the file."""
    found = [text for text, changed in _placements(config) if _fits(facts, changed)]
    sizes = [str(size) for size, changed in _sizes(facts, config) if _fits(facts, changed)]
    if sizes:
        last = f" or {sizes[-1]}" if len(sizes) > 1 else ""
        found.append(_tensor_text(", ".join(sizes[:-1] if last else sizes) + last))
    for text, changed in (*_formats(facts, config), *_formats_and_sizes(facts, config)):
        if len(found) == SHOWN:
            break
        if _fits(facts, changed):
            found.append(text)
    return found


def _fits(facts: Facts, config: RunConfig) -> bool:
    plan = plan_memory(facts, config)
    return plan is not None and plan.fits and gpus_needed(config, plan.placement) <= config.hardware.count


def changed(config: RunConfig, role: Role, **blocks: dict[str, Any]) -> RunConfig:
    """`config` with values of one model's blocks replaced, unvalidated."""
    source = config.pair[role]
    new = source.model_copy(update={name: getattr(source, name).model_copy(update=v) for name, v in blocks.items()})
    return config.model_copy(update={"pair": config.pair.model_copy(update={role: new})})


def _placements(config: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    if config.hardware.placement == "shared":
        hardware = config.hardware.model_copy(update={"placement": "separate"})
        yield "hardware.placement separate", config.model_copy(update={"hardware": hardware})


def _larger(facts: Facts, config: RunConfig, weights: str) -> list[int]:
    now = config.pair.target.parallelism.tensor
    sizes = tensor_sizes(facts["target"], config.hardware.count, weights, group_size("target", config))
    return [size for size in sizes if size > now]


def _sizes(facts: Facts, config: RunConfig) -> Iterator[tuple[int, RunConfig]]:
    for size in _larger(facts, config, config.pair.target.quantization.weights):
        yield size, changed(config, "target", parallelism={"tensor": size})


def _formats(facts: Facts, config: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    for weights in _smaller(config):
        size = config.pair.target.parallelism.tensor
        if size in tensor_sizes(facts["target"], size, weights):
            yield _format_text(weights), changed(config, "target", quantization={"weights": weights})


def _formats_and_sizes(facts: Facts, config: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    for weights in _smaller(config):
        for size in _larger(facts, config, weights):
            new = changed(config, "target", quantization={"weights": weights}, parallelism={"tensor": size})
            yield f"{_format_text(weights)} with {_tensor_text(size)}", new


def _smaller(config: RunConfig) -> list[str]:
    """Weight formats of fewer bits that this GPU can run as a target, the mildest first."""
    now = config.pair.target.quantization.weights
    order = ["none", "fp8", "int8_wo", "int4_awq", "nvfp4"]
    later = order[order.index(now) + 1 :] if now in order else []
    sm = config.hardware.spec.sm
    kv_cache = config.pair.target.quantization.kv_cache
    return [weights for weights in later if sm is not None and runs_as_target(weights, kv_cache, sm)]


def _tensor_text(size: int | str) -> str:
    return f"pair.target.parallelism.tensor {size}"


def _format_text(weights: str) -> str:
    return f"pair.target.quantization.weights {weights}"

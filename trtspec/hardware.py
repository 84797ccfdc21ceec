"""GPUs that plans are made for: what CUDA offers of their memory, bandwidth, dense arithmetic, links; with sources.

Peak figures are the vendor's, *dense*: data sheets print twice as much, with 2:4 sparsity. Memory is what CUDA
reports as total (TensorRT-LLM's "total" when it sizes the KV cache, torch's out-of-memory message), the smallest
value seen in public logs; it is 1-4 % less than the card's name says.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trtspec.errors import ConfigError

GIB = 1 << 30
TERA = 1e12
CPU = "cpu"
CUSTOM = "custom"


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU. Bytes, bytes/s, operations/s; None is unknown."""

    name: str
    title: str
    sm: int | None
    """Compute capability × 10, such as 90; None for a CPU."""
    memory_bytes: int | None
    """What CUDA offers, not what the card's name says."""
    bandwidth: float | None
    """Memory bandwidth, bytes/s."""
    flops: Mapping[str, float]
    """Dense peak of fp16 (bf16 alike, accumulated in fp32), fp8, int8, fp4; a missing one is not in hardware."""
    nvlink: float | None
    """Bytes/s, both directions together; None without NVLink."""
    pcie: float | None
    """Bytes/s, both directions together."""
    source: str

    @property
    def is_gpu(self) -> bool:
        """False for `cpu`: no generation, bandwidth or memory is known."""
        return self.sm is not None

    @property
    def link(self) -> float | None:
        """Bytes/s in one direction over the faster of NVLink and PCIe."""
        best = max(self.nvlink or 0.0, self.pcie or 0.0)
        return best / 2 if best else None

    def peak(self, kind: str) -> float | None:
        """Operations/s for operands of `kind`; what the hardware lacks runs as fp16."""
        return self.flops.get(kind, self.flops.get("fp16"))


def _gpu(
    name: str, title: str, sm: int, gib: float, gb_s: float, tera: Mapping[str, float], links: tuple[float, float],
    source: str,
) -> Gpu:  # fmt: skip
    flops = MappingProxyType({kind: value * TERA for kind, value in tera.items()})
    nvlink, pcie = links[0] * 1e9 or None, links[1] * 1e9
    return Gpu(name, title, sm, int(gib * GIB), gb_s * 1e9, flops, nvlink, pcie, source)


_A100 = {"fp16": 312, "int8": 624}
_H100 = {"fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}
_SHEET = "NVIDIA data sheet"
GPUS: Mapping[str, Gpu] = MappingProxyType({
    gpu.name: gpu
    for gpu in (
        _gpu("a100-40gb", "A100 40GB SXM", 80, 39.39, 1555, _A100, (600, 64), f"{_SHEET} A100"),
        _gpu("a100-80gb", "A100 80GB SXM", 80, 79.14, 2039, _A100, (600, 64), f"{_SHEET} A100"),
        _gpu("a100-80gb-pcie", "A100 80GB PCIe", 80, 79.14, 1935, _A100, (600, 64), f"{_SHEET} A100"),
        _gpu("h100-80gb", "H100 80GB SXM5", 90, 79.10, 3350, _H100, (900, 128), f"{_SHEET} H100"),
        _gpu("h100-80gb-pcie", "H100 80GB PCIe", 90, 79.09, 2000,
             {"fp16": 756, "fp8": 1513, "int8": 1513}, (600, 128), f"{_SHEET} H100 (PCIe column)"),
        _gpu("h100-nvl", "H100 NVL 94GB", 90, 93.00, 3900,
             {"fp16": 835.5, "fp8": 1670.5, "int8": 1670.5}, (600, 128), f"{_SHEET} H100 NVL"),
        _gpu("h200", "H200 141GB SXM", 90, 139.72, 4800, _H100, (900, 128), f"{_SHEET} H200"),
        _gpu("gh200", "GH200 96GB HBM3", 90, 94.50, 4000, _H100, (900, 128), f"{_SHEET} GH200 (HBM3 variant)"),
        _gpu("b200", "B200 180GB (HGX)", 100, 178.35, 7700,
             {"fp16": 2250, "fp8": 4500, "int8": 4500, "fp4": 9000}, (1800, 128), f"{_SHEET} Blackwell HGX B200"),
        _gpu("l40s", "L40S 48GB", 89, 44.34, 864,
             {"fp16": 362.05, "fp8": 733, "int8": 733}, (0, 64), f"{_SHEET} L40S"),
        _gpu("l4", "L4 24GB", 89, 21.96, 300,
             {"fp16": 121, "fp8": 242.5, "int8": 242.5}, (0, 64), f"{_SHEET} L4"),
        _gpu("a10g", "A10G 24GB", 86, 21.96, 600, {"fp16": 70, "int8": 140}, (0, 64),
             "Baseten, NVIDIA A10 vs A10G"),
        _gpu("rtx-4090", "GeForce RTX 4090 24GB", 89, 23.51, 1008,
             {"fp16": 165.2, "fp8": 330.3, "int8": 660.6}, (0, 64), "NVIDIA Ada architecture white paper, appendix A"),
    )
})  # fmt: skip
"""Known GPUs by the name that `hardware.gpu` takes."""
ALIASES: Mapping[str, str] = MappingProxyType({
    "a100": "a100-80gb", "a100-40": "a100-40gb", "a100-80": "a100-80gb", "h100": "h100-80gb", "h100-sxm": "h100-80gb",
    "h100-80": "h100-80gb", "h100-pcie": "h100-80gb-pcie", "h200-141gb": "h200", "b200-180gb": "b200",
    "gh200-96gb": "gh200", "l40s-48gb": "l40s", "l4-24gb": "l4", "a10g-24gb": "a10g",
    "rtx4090": "rtx-4090", "4090": "rtx-4090", "rtx-4090-24gb": "rtx-4090",
})  # fmt: skip
_NOTHING: Mapping[str, float] = MappingProxyType({})
_CPU = Gpu(CPU, "CPU", None, None, None, _NOTHING, None, None, "not known: any machine")


def gpu_named(name: str) -> Gpu:
    """The GPU that `hardware.gpu` names, in any spelling of case; `cpu` and `custom` hold no figures.

    ConfigError for another name, with the nearest known one.
    """
    wanted = name.lower().replace("_", "-")
    wanted = ALIASES.get(wanted, wanted)
    if wanted == CPU:
        return _CPU
    if wanted == CUSTOM:
        return dataclasses.replace(_CPU, name=CUSTOM, title="custom GPU", source="given in the configuration")
    if wanted not in GPUS:
        raise ConfigError(f"unknown GPU {name!r}", where="hardware.gpu", fix=_did_you_mean(wanted))
    return GPUS[wanted]


def _did_you_mean(wanted: str) -> str:
    names = [*GPUS, CPU, CUSTOM]
    near = difflib.get_close_matches(wanted, [*names, *ALIASES], n=1)
    known = f"known: {', '.join(names)}; `custom` takes figures of your own"
    return f"did you mean {ALIASES.get(near[0], near[0])!r}? {known}" if near else known


def with_figures(
    gpu: Gpu,
    *,
    sm: int | None = None,
    memory_gib: float | None = None,
    bandwidth_gb_s: float | None = None,
    tflops: Mapping[str, float | None] | None = None,
) -> Gpu:
    """`gpu` with the given figures in the place of the table's; None keeps the table's."""
    given = {kind: value * TERA for kind, value in (tflops or {}).items() if value is not None}
    changed: dict[str, object] = {"flops": MappingProxyType({**gpu.flops, **given})} if given else {}
    changed |= {} if sm is None else {"sm": sm}
    changed |= {} if memory_gib is None else {"memory_bytes": int(memory_gib * GIB)}
    changed |= {} if bandwidth_gb_s is None else {"bandwidth": bandwidth_gb_s * 1e9}
    if not changed:
        return gpu
    source = gpu.source if gpu.name == CUSTOM else f"{gpu.source}; figures of the configuration override it"
    return dataclasses.replace(gpu, **changed, source=source)  # type: ignore[arg-type]

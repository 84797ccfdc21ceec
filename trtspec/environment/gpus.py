"""GPUs and the driver, through `nvidia-smi --query-gpu`, or NVML's Python binding where only that is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtspec.environment.host import Host
from trtspec.environment.model import DetectedGpu

TIMEOUT = 30.0
"""Seconds: without the persistence daemon the driver first starts every GPU."""
FIELDS = ("index", "name", "memory.total", "driver_version", "compute_cap", "mig.mode.current")
"""The last two are younger than the rest: a driver that refuses them is asked again without."""
OLD_FIELDS = FIELDS[:4]
MIB = 1 << 20
NVML = (
    "import pynvml as n; n.nvmlInit(); d = n.nvmlSystemGetDriverVersion(); t = lambda s: s.decode() if isinstance(s, "
    "bytes) else s\nfor i in range(n.nvmlDeviceGetCount()):\n h = n.nvmlDeviceGetHandleByIndex(i)\n c = '%d.%d' % "
    "tuple(n.nvmlDeviceGetCudaComputeCapability(h))\n try: m = n.nvmlDeviceGetMigMode(h)[0]\n except n.NVMLError: m = 0"
    "\n print(i, t(n.nvmlDeviceGetName(h)), n.nvmlDeviceGetMemoryInfo(h).total >> 20, t(d), c, 'Enabled' if m else "
    "'Disabled', sep=', ')"
)
"""Prints the lines of the query above. In a process of its own: a hanging driver must not hang us."""
KINDS = {
    "A100-SXM4-40GB": "a100-40gb", "A100-SXM4-80GB": "a100-80gb", "A100 80GB PCIe": "a100-80gb-pcie",
    "H100 80GB HBM3": "h100-80gb", "H100 PCIe": "h100-80gb-pcie", "H100 NVL": "h100-nvl", "H200": "h200",
    "GH200 480GB": "gh200", "GH200 120GB": "gh200", "B200": "b200", "L40S": "l40s", "L4": "l4", "A10G": "a10g",
    "GeForce RTX 4090": "rtx-4090",
}  # fmt: skip
"""The driver's name, without the leading NVIDIA, → the name in `hardware.gpu`."""
_KERNEL_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)")


def detect_gpus(host: Host) -> tuple[str | None, tuple[DetectedGpu, ...]]:
    """(driver version, GPUs). A driver without GPUs is found in /proc."""
    rows = list(_rows(host))
    driver = next((row[3] for row in rows), None) or _kernel_driver(host)
    return driver, tuple(_gpu(row) for row in rows)


def _rows(host: Host) -> Iterator[list[str]]:
    text = None
    program = host.which("nvidia-smi")
    if program is not None:
        text = host.ask("GPUs", _query(program, FIELDS), TIMEOUT)
        if text is None and "not a valid field" in host.probes[-1].problem:
            text = host.ask("GPUs, older driver", _query(program, OLD_FIELDS), TIMEOUT)
    elif host.package("nvidia-ml-py") is not None:
        text = host.ask("GPUs through NVML", [host.interpreter, "-c", NVML], TIMEOUT)
    for line in (text or "").splitlines():
        row = [cell.strip() for cell in line.split(",")]
        if len(row) in (len(FIELDS), len(OLD_FIELDS)) and row[0].isdigit():
            yield row


def _query(program: object, fields: tuple[str, ...]) -> list[str]:
    return [str(program), f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def _gpu(row: list[str]) -> DetectedGpu:
    index, name, memory, _, *rest = row
    capability, mig = rest or ("", "")
    return DetectedGpu(
        index=int(index),
        name=name,
        sm=_sm(capability),
        memory_bytes=int(memory) * MIB if memory.isdigit() else None,
        mig=mig == "Enabled",
        kind=KINDS.get(name.removeprefix("NVIDIA ")),
    )


def _sm(capability: str) -> int | None:
    major, dot, minor = capability.partition(".")
    return int(major) * 10 + int(minor) if dot and major.isdigit() and minor.isdigit() else None


def _kernel_driver(host: Host) -> str | None:
    found = _KERNEL_DRIVER.search(host.text("/proc/driver/nvidia/version") or "")
    return found[1] if found else None

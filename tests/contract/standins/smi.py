"""STAND-IN for `nvidia-smi`: prints the GPUs that STANDIN_GPU, STANDIN_GPUS, STANDIN_SM and STANDIN_MIB name."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

DRIVER, CUDA = "580.65.06", "13.0"
UNITS = {"memory.total": "MiB", "memory.free": "MiB", "memory.used": "MiB", "power.limit": "W"}


def smi(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """`--query-gpu=… --format=csv[,noheader][,nounits]`, `-L`, or the table; returns the exit code."""
    count = int(environment.get("STANDIN_GPUS", "8"))
    if environment.get("STANDIN_SMI") == "broken":
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. (STAND-IN)")
        return 9
    if count == 0:
        print("No devices were found")
        return 6
    gpus = [_gpu(index, count, environment) for index in range(count)]
    query = next((a.partition("=")[2] for a in arguments if a.startswith("--query-gpu=")), None)
    if query is not None:
        return _query(query.split(","), arguments, gpus)
    if "-L" in arguments or "--list-gpus" in arguments:
        for gpu in gpus:
            print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        return 0
    print(f"| NVIDIA-SMI {DRIVER}  Driver Version: {DRIVER}  CUDA Version: {CUDA} |  STAND-IN: there is no GPU")
    for gpu in gpus:
        print(f"|   {gpu['index']}  {gpu['name']}   {gpu['memory.used']}MiB / {gpu['memory.total']}MiB |")
    return 0


def _gpu(index: int, count: int, environment: Mapping[str, str]) -> dict[str, str]:
    sm, total = environment.get("STANDIN_SM", "90"), environment.get("STANDIN_MIB", "81559")
    return {
        "index": str(index), "name": environment.get("STANDIN_GPU", "NVIDIA H100 80GB HBM3"), "count": str(count),
        "uuid": f"GPU-57a4d141-0000-0000-0000-{index:012d}", "driver_version": DRIVER,
        "compute_cap": f"{sm[:-1]}.{sm[-1]}", "memory.total": total, "memory.free": total, "memory.used": "0",
        "power.limit": "700.00", "pci.bus_id": f"00000000:{index:02X}:00.0", "mig.mode.current": "Disabled",
    }  # fmt: skip


def _query(fields: Sequence[str], arguments: Sequence[str], gpus: Sequence[Mapping[str, str]]) -> int:
    form = next((a.partition("=")[2] for a in arguments if a.startswith("--format=")), "").split(",")
    if form[0] != "csv":
        print("The format of the query has to be csv", file=sys.stderr)
        return 2
    names = [{"gpu_name": "name", "gpu_uuid": "uuid"}.get(f.strip(), f.strip()) for f in fields]
    wrong = [name for name in names if name not in gpus[0]]
    if wrong:
        print(f'Field "{wrong[0]}" is not a valid field to query.', file=sys.stderr)
        return 2
    units = "nounits" not in form
    if "noheader" not in form:
        print(", ".join(f"{n} [{UNITS[n]}]" if units and n in UNITS else n for n in names))
    for gpu in gpus:
        print(", ".join(f"{gpu[n]} {UNITS[n]}" if units and n in UNITS else gpu[n] for n in names))
    return 0

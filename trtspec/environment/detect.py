"""Look at a machine: packages, tools, image, server, driver, GPUs, disk. Nothing heavy is imported, nothing written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from trtspec.environment.gpus import detect_gpus
from trtspec.environment.host import Host
from trtspec.environment.model import PACKAGES, Environment, Image, Installed, Server
from trtspec.runner import Runner
from trtspec.versions.releases import CONTAINERS
from trtspec.versions.scripts import EXAMPLES

TOOLS = ("trtllm-build", "trtllm-serve", "trtllm-bench", "nvidia-smi", "mpirun", "sbatch", "kubectl", "docker")
METADATA_TIMEOUT = 30.0
HELP_TIMEOUT = 180.0
"""Seconds for `trtllm-build --help`, which imports torch and TensorRT-LLM first."""
_ALIASES = {"tensorrt": ("tensorrt-cu13", "tensorrt-cu12")}
_ASK = (
    "import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n"
    " try: found[name] = m.version(name)\n except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
)
_SAYS_VERSION = re.compile(r"TensorRT[- ]LLM version: *v?(\d[\w.+]*)")
_SAYS_FLAG = re.compile(r"--([a-z]\w+)")
TRITON = "/opt/tritonserver"


def detect(
    runner: Runner | None = None, *, host: Host | None = None, folder: Path | None = None, deep: bool = False
) -> Environment:
    """What this machine has. `folder`: where results would go (free disk space).

    `deep` also asks the installed trtllm-build for its arguments: tens of seconds.
    """
    host = host or (Host() if runner is None else Host(runner=runner))
    tools = {name: host.which(name) for name in TOOLS}
    builder = tools["trtllm-build"]
    packages = _own_packages(host)
    theirs = {} if builder is None or packages["tensorrt-llm"] else _packages_beside(host, builder)
    helped = host.ask("arguments of trtllm-build", [builder, "--help"], HELP_TIMEOUT) if builder and (
        deep or not (packages["tensorrt-llm"] or theirs.get("tensorrt-llm"))) else None  # fmt: skip
    driver, gpus = detect_gpus(host)
    return Environment(
        python=host.python,
        system=host.system,
        cpus=host.cpus,
        packages={name: packages[name] or theirs.get(name) for name in PACKAGES},
        tools=tools,
        tensorrt_llm=_tensorrt_llm(packages, theirs, builder, helped),
        tool_flags=None if helped is None else tuple(sorted(set(_SAYS_FLAG.findall(helped)))),
        driver=driver,
        gpus=gpus,
        image=_image(host),
        server=_server(host),
        examples=next((place for path in EXAMPLES if (place := host.place(str(path)))), None),
        disk_free=_disk(host, folder or Path.cwd()),
        probes=tuple(host.probes),
    )


def _own_packages(host: Host) -> dict[str, str | None]:
    found = {}
    for name in PACKAGES:
        names = (name, *_ALIASES.get(name, ()))
        found[name] = next((version for each in names if (version := host.package(each))), None)
    return found


def _packages_beside(host: Host, tool: Path) -> Mapping[str, str]:
    """Versions in the interpreter that the tool's first line names: quick, since only metadata is read."""
    interpreter = _interpreter(tool)
    if interpreter is None:
        return {}
    names = [*PACKAGES, *_ALIASES["tensorrt"]]
    text = host.ask("packages beside trtllm-build", [interpreter, "-c", _ASK, *names], METADATA_TIMEOUT)
    try:
        found: dict[str, str] = json.loads((text or "{}").strip().splitlines()[-1])
    except (json.JSONDecodeError, IndexError):
        return {}
    tensorrt = next((found[name] for name in ("tensorrt", *_ALIASES["tensorrt"]) if name in found), None)
    return found | ({"tensorrt": tensorrt} if tensorrt else {})


def _interpreter(tool: Path) -> Path | None:
    try:
        with tool.open("rb") as file:
            first = file.readline(512).decode("utf-8", errors="replace").strip()
    except OSError:
        return None
    words = first.removeprefix("#!").split()
    plain = first.startswith("#!") and len(words) == 1 and "python" in words[0]
    return Path(words[0]) if plain else None


def _tensorrt_llm(
    own: Mapping[str, str | None], theirs: Mapping[str, str], builder: Path | None, helped: str | None
) -> Installed | None:
    if own["tensorrt-llm"]:
        return Installed(own["tensorrt-llm"], "package metadata of this Python")
    if "tensorrt-llm" in theirs:
        return Installed(theirs["tensorrt-llm"], f"package metadata beside {builder}")
    said = _SAYS_VERSION.search(helped or "")
    return Installed(said[1], f"{builder} --help") if said else None


def _image(host: Host) -> Image | None:
    """Variables that the images set: Triton's build.py and compose.py, TensorRT-LLM's docker/Dockerfile.multi."""
    tag, triton = host.environ.get("NVIDIA_TRITON_SERVER_VERSION"), host.environ.get("TRITON_SERVER_VERSION")
    llm, trt = host.environ.get("TRT_LLM_VERSION"), host.environ.get("TRT_VERSION")
    if tag or triton:
        known = next((row for row in CONTAINERS if row.tag == tag), None)
        backend = host.place(f"{TRITON}/backends/tensorrtllm") is not None
        holds = known.tensorrt_llm if known and backend else None
        return Image("triton", tag, triton, llm or holds, trt or (known.tensorrt if known and backend else None),
                     "NVIDIA_TRITON_SERVER_VERSION, TRITON_SERVER_VERSION")  # fmt: skip
    if llm or host.place("/app/tensorrt_llm"):
        return Image("tensorrt-llm", None, None, llm, trt, "TRT_LLM_VERSION, /app/tensorrt_llm")
    if host.place("/opt/nvidia/entrypoint.d"):
        return Image("other", None, None, None, trt, "/opt/nvidia/entrypoint.d")
    return None


def _server(host: Host) -> Server | None:
    """One on PATH, the image's, or the wheel's, in the order that `serve` looks."""
    image = host.place(f"{TRITON}/bin/tritonserver")
    found = host.which("tritonserver") or image
    if found is not None:
        beside = found.resolve().parent.parent / "backends" / "tensorrtllm"
        return Server(found, "installed", beside.is_dir() or host.place(f"{TRITON}/backends/tensorrtllm") is not None)
    if host.package("nvidia-pytriton") is not None:
        return Server(Path("pytriton/tritonserver/bin/tritonserver"), "wheel", False)
    return None


def _disk(host: Host, folder: Path) -> int | None:
    """Free bytes of the nearest folder above that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return host.disk_free(folder)
    except OSError:
        return None

"""Which of the three ways to run a pair is open on a machine, what each lacks, and how to get it.

A requirement belongs to building or to serving. A way is `open` with both, `build-only` with what building needs, else
`closed`. Opinions rest on :class:`Environment` alone, so that they are the same for every machine that looks alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from trtspec.environment.model import Environment
from trtspec.errors import ConfigError
from trtspec.versions import (
    CONTAINER,
    DEFAULT,
    PINNED,
    USE_CONTAINER,
    Backend,
    TrtLlm,
    engine_version,
    llm_api_version,
)

State = Literal["open", "build-only", "closed"]
BACKENDS: tuple[Backend, ...] = ("tensorrt", "pytorch", "reference")
OLDEST_SM = 80
DRIVER = "install NVIDIA's driver, and start the container with --gpus all"
IN_IMAGE = f"start {CONTAINER} (or up to {PINNED[-1].tag}), which holds TensorRT-LLM {DEFAULT} and Triton"
LOCAL = "pip install 'trtspec[local]' (torch, transformers, nvidia-pytriton)"


@dataclass(frozen=True)
class Missing:
    """One thing that a way needs and that is not here."""

    what: str
    how: str
    """How to get it."""
    stage: Literal["build", "serve"]


@dataclass(frozen=True)
class Way:
    """One backend on this machine."""

    backend: Backend
    state: State
    missing: tuple[Missing, ...]
    version: str | None
    """TensorRT-LLM that it would use; None for `reference` and where none is installed."""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def ways(environment: Environment) -> tuple[Way, ...]:
    """Every backend, in the order of :data:`BACKENDS`."""
    return tuple(_way(backend, environment) for backend in BACKENDS)


def _way(backend: Backend, environment: Environment) -> Way:
    lacks = {"tensorrt": _tensorrt, "pytorch": _pytorch, "reference": _reference}
    missing = tuple(lacks[backend](environment))
    stages = {item.stage for item in missing}
    state: State = "closed" if "build" in stages else "build-only" if stages else "open"
    found = environment.tensorrt_llm
    return Way(backend, state, missing, None if backend == "reference" or found is None else found.version)


def _tensorrt(environment: Environment) -> Iterator[Missing]:
    found = _installed(environment, "tensorrt")
    if isinstance(found, Missing):
        yield found
    elif environment.tools.get("trtllm-build") is None:
        yield Missing("trtllm-build is not on PATH", "put the bin folder of TensorRT-LLM's Python on PATH", "build")
    if isinstance(found, TrtLlm):
        yield from _trt(environment, found)
    yield from _gpu(environment)
    server = environment.server
    if server is None or server.kind == "wheel":
        yield Missing("no tritonserver that can load engines", IN_IMAGE, "serve")
    elif not server.tensorrtllm_backend:
        yield Missing(f"{server.path} has no tensorrtllm backend", IN_IMAGE, "serve")


def _trt(environment: Environment, version: TrtLlm) -> Iterator[Missing]:
    what = "no tensorrt package" if environment.tensorrt is None else wrong_tensorrt(environment, version)
    if what is not None:
        yield Missing(what, f"install tensorrt {version.tensorrt}, or {IN_IMAGE}", "build")


def wrong_tensorrt(environment: Environment, version: TrtLlm) -> str | None:
    """That the TensorRT here is not the one `version` is built with; None where it is, or where there is none."""
    found, wanted = environment.tensorrt, version.tensorrt
    if found is None or wanted is None or found.split(".")[:2] == wanted.split("."):
        return None
    return f"TensorRT {found} does not belong to TensorRT-LLM {version}, which is built with {wanted}"


def _pytorch(environment: Environment) -> Iterator[Missing]:
    # `build` only writes files for this backend: whatever lacks is missed when they are served.
    found = _installed(environment, "pytorch")
    if isinstance(found, Missing):
        yield replace(found, stage="serve")
    yield from (replace(item, stage="serve") for item in _gpu(environment))
    served = environment.tools.get("trtllm-serve") is not None
    triton = environment.server is not None and environment.server.kind == "installed"
    if not (served or triton):
        yield Missing("neither trtllm-serve nor an installed tritonserver", IN_IMAGE, "serve")


def _reference(environment: Environment) -> Iterator[Missing]:
    if environment.torch is None:
        yield Missing("no torch package", LOCAL, "build")
    server = environment.server
    if server is None:
        yield Missing("no tritonserver", f"{LOCAL}, or use an NGC Triton image", "serve")
    elif server.kind == "wheel" and (environment.packages.get("numpy") or "").startswith("2"):
        what = f"numpy {environment.packages['numpy']}: nvidia-pytriton silently corrupts tensors under numpy 2"
        yield Missing(what, "pip install 'numpy>=1.26,<2'", "serve")


def _installed(environment: Environment, backend: Literal["tensorrt", "pytorch"]) -> TrtLlm | Missing:
    """The installed version if it can serve the backend."""
    found = environment.tensorrt_llm
    if found is None:
        return Missing("no tensorrt_llm package", IN_IMAGE, "build")
    try:
        return (engine_version if backend == "tensorrt" else llm_api_version)(found.version)
    except ConfigError as error:
        how = (
            error.fix if backend == "tensorrt" and error.fix else f"{USE_CONTAINER}, or set engine.backend to tensorrt"
        )
        return Missing(error.what, how, "build")


def _gpu(environment: Environment) -> Iterator[Missing]:
    if not environment.gpus:
        if environment.driver is None:
            yield Missing("no NVIDIA driver", DRIVER, "build")
        else:
            what = f"no GPU that the driver ({environment.driver}) can see"
            yield Missing(what, "check the GPU (nvidia-smi), CUDA_VISIBLE_DEVICES and the container's --gpus", "build")
        return
    old = [gpu for gpu in environment.gpus if gpu.sm is not None and gpu.sm < OLDEST_SM]
    if len(old) == len(environment.gpus):
        what = f"{old[0].name} has compute capability {(old[0].sm or 0) / 10:.1f}; speculation needs 8.0"
        yield Missing(what, "use an Ampere GPU (A100, A10G) or newer", "build")

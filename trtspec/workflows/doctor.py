"""doctor: what this machine has, which way to run a pair is open, and whether a configuration fits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trtspec.config import ROLES, RunConfig
from trtspec.config.quantization import SEARCHED
from trtspec.environment import DetectedGpu, Environment
from trtspec.environment.paths import Way, ways
from trtspec.errors import TrtspecError
from trtspec.versions import DEFAULT, choose, parse, version

SCHEMA = 1
MEMORY_TOLERANCE = 0.03
"""The driver reports up to 2 % more than CUDA, whose figure the planner uses."""
MODELOPT = ((0, 45), (0, 48))
OPEN = ("open", "build-only")
LACKS = 3


@dataclass(frozen=True)
class Remark:
    """One thing to know. An error: the configuration cannot be built here."""

    level: Literal["error", "warning", "info"]
    subject: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer. `config` is the name of the configuration that was asked about."""

    environment: Environment
    ways: tuple[Way, ...]
    remarks: tuple[Remark, ...]
    config: str | None = None
    backend: str | None = None

    @property
    def exit_code(self) -> int:
        """0 when the way that was asked for can be built on; without a configuration, when one with TensorRT-LLM can.

        Else 3: the reference engine, or files for another machine, are no use to a host that was to have a GPU.
        """
        if self.backend is not None:
            good = any(way.state in OPEN for way in self.ways if way.backend == self.backend)
        else:
            good = any(_on_gpu(way) for way in self.ways)
        unfit = any(remark.level == "error" for remark in self.remarks)
        return 0 if good and not unfit else LACKS

    def as_dict(self) -> dict[str, Any]:
        """For `--json`. Bytes, seconds."""
        return {
            "schema": SCHEMA,
            "environment": self.environment.as_dict(),
            "ways": [way.as_dict() for way in self.ways],
            "config": None if self.config is None else {"name": self.config, "backend": self.backend},
            "remarks": [asdict(remark) for remark in self.remarks],
            "exit_code": self.exit_code,
        }


def _on_gpu(way: Way) -> bool:
    """Whether this machine itself runs TensorRT-LLM that way, or at least builds its engines."""
    return way.state in {"tensorrt": OPEN, "pytorch": ("open",), "reference": ()}[way.backend]


def diagnose(environment: Environment, config: RunConfig | None = None) -> Diagnosis:
    """Judge a detected machine, and with `config` whether that fits it."""
    remarks = list(_machine(environment))
    if config is None:
        return Diagnosis(environment, ways(environment), tuple(remarks))
    remarks += [*_version(environment, config), *_hardware(environment, config), *_modelopt(environment, config)]
    return Diagnosis(environment, ways(environment), tuple(remarks), config.name, config.engine.backend)


def _machine(environment: Environment) -> Iterator[Remark]:
    """What is odd whatever is to be run."""
    found, image = environment.tensorrt_llm, environment.image
    if found and image and image.tensorrt_llm and _base(found.version) != _base(image.tensorrt_llm):
        message = f"TensorRT-LLM {found.version} is installed in an image that came with {image.tensorrt_llm}"
        fix = "engines load only where the same TensorRT-LLM and TensorRT built them: use one image for both"
        yield Remark("warning", "tensorrt_llm", message, fix)
    names = sorted({gpu.name for gpu in environment.gpus})
    if len(names) > 1:
        message = f"GPUs of several kinds: {', '.join(names)}"
        yield Remark("warning", "gpus", message, "build and serve on GPUs of one kind (CUDA_VISIBLE_DEVICES)")
    if any(gpu.mig for gpu in environment.gpus):
        message = "a GPU is cut into instances (MIG): it cannot be used as a whole"
        yield Remark("warning", "gpus", message, "use GPUs without MIG, or plan with the instance's memory")
    yield from _flags(environment)


def _flags(environment: Environment) -> Iterator[Remark]:
    """The version table against what the installed tool says of itself."""
    found, said = environment.tensorrt_llm, environment.tool_flags
    if found is None or said is None:
        return
    try:
        known = version(found.version)
    except TrtspecError:
        return
    names = {name for flag in known.flags.values() for name in (flag.name, *flag.aliases)}
    lacking, unknown = sorted(set(known.flags) - set(said)), sorted(set(said) - names - {"help"})
    if known.flags and lacking:
        message = f"trtllm-build {found.version} does not name --{', --'.join(lacking)}, which the version table has"
        yield Remark("warning", "trtllm-build", message, "please report it with the output of trtllm-build --help")
    if known.flags and unknown:
        message = f"trtllm-build {found.version} names --{', --'.join(unknown)}, which the version table lacks"
        yield Remark("info", "trtllm-build", message, "please report it with the output of trtllm-build --help")


def _base(text: str) -> str:
    try:
        return parse(text).base
    except TrtspecError:
        return text


def _version(environment: Environment, config: RunConfig) -> Iterator[Remark]:
    """The configured version against the installed one."""
    installed, backend = environment.tensorrt_llm, config.engine.backend
    if backend == "reference":
        return
    try:
        chosen = choose(config.engine.tensorrt_llm_version, installed.version if installed else None, backend)
    except TrtspecError as error:
        yield Remark("error", "version", str(error))
        return
    words = {"configured": "as configured", "installed": "the installed one", "default": f"the default, {DEFAULT}"}
    yield Remark("info", "version", f"TensorRT-LLM {chosen.version} is used: {words[chosen.why]}")


def _hardware(environment: Environment, config: RunConfig) -> Iterator[Remark]:
    """hardware.gpu and hardware.count against the GPUs that are here."""
    gpus, hardware = environment.gpus, config.hardware
    if not gpus or config.engine.backend == "reference":
        return
    here = gpus[0]
    if not hardware.spec.is_gpu:
        yield Remark("warning", "hardware", f"hardware.gpu is cpu, {_here(gpus)} here", _advice(gpus))
    elif here.sm is not None and here.sm != hardware.spec.sm:
        message = f"planned for {hardware.spec.title} (SM {hardware.spec.sm}), {_here(gpus)} (SM {here.sm}) here"
        yield Remark("error", "hardware", message, _advice(gpus))
    elif here.kind is not None and here.kind != hardware.spec.name and hardware.spec.name != "custom":
        yield Remark("warning", "hardware", f"planned for {hardware.spec.title}, {_here(gpus)} here", _advice(gpus))
    yield from _count(gpus, config)
    yield from _memory(here, config)


def _count(gpus: tuple[DetectedGpu, ...], config: RunConfig) -> Iterator[Remark]:
    from trtspec.pairing.placement import gpus_needed

    needed, planned = gpus_needed(config, config.hardware.placement), config.hardware.count
    if needed > len(gpus):
        message = f"the pair needs {needed} GPUs, {len(gpus)} here"
        yield Remark("error", "hardware", message, "lower pair.<role>.parallelism, or use a machine with more")
    elif planned > len(gpus) and config.hardware.spec.is_gpu:
        message = f"hardware.count is {planned}, {len(gpus)} here; the pair needs {needed}"
        yield Remark("warning", "hardware", message, f"set hardware.count to {len(gpus)}")


def _memory(gpu: DetectedGpu, config: RunConfig) -> Iterator[Remark]:
    planned = config.hardware.spec.memory_bytes
    if planned is None or gpu.memory_bytes is None or not config.hardware.spec.is_gpu:
        return
    if gpu.memory_bytes < planned * (1 - MEMORY_TOLERANCE):
        message = f"planned with {planned / 2**30:.1f} GiB of a GPU, {gpu.name} has {gpu.memory_bytes / 2**30:.1f} GiB"
        fix = f"set hardware.memory_gib to {int(gpu.memory_bytes / 2**30 * 0.98)}, and run `trtspec plan` again"
        yield Remark("error", "hardware", message, fix)


def _here(gpus: tuple[DetectedGpu, ...]) -> str:
    return f"{len(gpus)} × {gpus[0].name}"


def _advice(gpus: tuple[DetectedGpu, ...]) -> str:
    kind = gpus[0].kind or "custom (with its figures; docs/planning.md)"
    return f"to plan for this machine set hardware.gpu: {kind}, hardware.count: {len(gpus)}"


def _modelopt(environment: Environment, config: RunConfig) -> Iterator[Remark]:
    """Formats that nvidia-modelopt calibrates, and no modelopt for them."""
    if config.engine.backend == "pytorch" or config.tools.modelopt_python is not None:
        return
    used = [
        f"pair.{role}"
        for role in ROLES
        if (own := config.pair[role].quantization).calibrates and (own.method == "modelopt" or own.weights in SEARCHED)
    ]
    found = environment.modelopt
    first, end = MODELOPT
    if not used or (found is not None and first <= _pair(found) < end):
        return
    have = f"modelopt {found} is installed" if found else "no modelopt is installed"
    message = f"{' and '.join(used)} calibrate with nvidia-modelopt {first[0]}.{first[1]} or newer; {have}"
    fix = "give it a virtual environment of its own and name its Python in tools.modelopt_python, or method: layerwise"
    yield Remark("warning", "modelopt", message, fix)


def _pair(text: str) -> tuple[int, ...]:
    try:
        return parse(text).release[:2]
    except TrtspecError:
        return (0, 0)

"""Made machines: what detection would see on them. Nothing here was recorded on a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trtspec.environment import Host
from trtspec.errors import BuildError, MissingError, TrtspecError
from trtspec.runner import Completed, Process

H100 = "NVIDIA H100 80GB HBM3, 81559, 590.44.01, 9.0, Disabled"
A100 = "NVIDIA A100-SXM4-80GB, 81920, 570.124.06, 8.0, Disabled"
Answer = tuple[int, str]


@dataclass
class Answers:
    """A runner whose programs say what they are told to; an Exception is raised, a missing one is not found."""

    answers: Mapping[str, Answer | Exception] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    timeouts: list[float | None] = field(default_factory=list)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        timeout: float | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        error: type[TrtspecError] = BuildError,
    ) -> Completed:
        words = [str(word) for word in command]
        self.asked.append(words)
        self.timeouts.append(timeout)
        answer = self.answers.get(Path(words[0]).name)
        if answer is None:
            raise MissingError(f"cannot start {words[0]}")
        if isinstance(answer, Exception):
            raise answer
        log.write_text(f"$ {' '.join(words)}\n{answer[1]}\n", encoding="utf-8")
        if answer[0] != 0:
            raise error(f"{Path(words[0]).name} ended with exit code {answer[0]}")
        return Completed(tuple(words), log, 0.0)

    def start(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        grace: float = 5.0,
        remove: Sequence[str] = (),
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        raise NotImplementedError("a probe ends")


def smi(*gpus: str) -> Answer:
    """nvidia-smi's answer to the query."""
    return 0, "\n".join(f"{index}, {gpu}" for index, gpu in enumerate(gpus))


def machine(
    root: Path,
    packages: Mapping[str, str] | None = None,
    programs: Sequence[str] = (),
    answers: Mapping[str, Answer | Exception] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Host:
    """A machine below `root` with these packages and programs on PATH."""
    for program in programs:
        make_program(root / "bin" / program)
    have = {"numpy": "1.26.4", **(packages or {})}
    return Host(
        runner=Answers(answers or {}),
        environ={"PATH": str(root / "bin"), **(environ or {})},
        root=root,
        package=have.get,
        disk_free=lambda folder: 500 * 10**9,
        python="3.12.3",
        interpreter=root / "bin" / "python",
        system="Linux x86_64",
        cpus=16,
    )


def make_program(path: Path, first: str = "#!/usr/bin/python3") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return path


def bare(root: Path) -> Host:
    """Python and trtspec's own dependencies, nothing else."""
    return machine(root)


def laptop(root: Path) -> Host:
    """The `local` extra."""
    return machine(root, {"torch": "2.13.0", "transformers": "4.57.6", "nvidia-pytriton": "0.7.0"})


def _image(root: Path, tag: str, llm: str, trt: str, modelopt: str, gpus: Sequence[str]) -> Host:
    make_program(root / "opt/tritonserver/bin/tritonserver")
    (root / "opt/tritonserver/backends/tensorrtllm").mkdir(parents=True)
    (root / "app/examples").mkdir(parents=True)
    packages = {"tensorrt-llm": llm, "tensorrt": trt, "torch": "2.10.0a0", "nvidia-modelopt": modelopt}
    return machine(
        root,
        packages | {"transformers": "4.57.3"},
        ["trtllm-build", "trtllm-serve", "nvidia-smi", "mpirun"],
        {"nvidia-smi": smi(*gpus)},
        {"NVIDIA_TRITON_SERVER_VERSION": tag, "TRITON_SERVER_VERSION": "2.60.0", "TRT_VERSION": trt},
    )


def ngc_25_03(root: Path) -> Host:
    """Triton's TensorRT-LLM image 25.03 with two A100."""
    return _image(root, "25.03", "0.18.0", "10.9.0.34", "0.25.0", [A100] * 2)


def ngc_26_05(root: Path) -> Host:
    """Triton's TensorRT-LLM image 26.05 with eight H100."""
    return _image(root, "26.05", "1.2.1", "10.14.1.48", "0.37.0", [H100] * 8)


def newer(root: Path) -> Host:
    """TensorRT-LLM 1.3.0rc22, which has no engines any more, with eight H100."""
    packages = {"tensorrt-llm": "1.3.0rc22", "torch": "2.10.0"}
    return machine(root, packages, ["trtllm-serve", "nvidia-smi"], {"nvidia-smi": smi(*[H100] * 8)})


def no_gpu(root: Path) -> Host:
    """A driver that sees no GPU."""
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.44.01  Release Build\n"
    )
    return machine(root, {"torch": "2.13.0"}, ["nvidia-smi"], {"nvidia-smi": (6, "No devices were found")})

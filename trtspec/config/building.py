"""How TensorRT engines are built: flags of one's own, where the tools are, and who runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from trtspec.config.section import PositiveInt, Section

Launcher = Literal["local", "slurm", "kubernetes"]
FlagValue = Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True)] | str
FlagName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
# What may stand in a job file: one line, nothing that could end or open another directive.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.:/@=,+-]*$", max_length=253)]
# Enroot writes `registry#image:tag`; a squashed image is an absolute path. Never part of a directive.
Container = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/][\w.:/@=,+#-]*$", max_length=512)]
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([\w./-]*[A-Za-z0-9])?$", max_length=253)]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?$", max_length=63)]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?([KMGTP]i?)?$", max_length=32)]
Option = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]


class TensorRT(Section):
    """Settings of `trtllm-build` itself."""

    flags: dict[FlagName, FlagValue] = Field(default={})
    """Further flags of both builds, such as `{reduce_fusion: enable}`; what breaks speculation is refused."""


class EngineTools(Section):
    """Programs of the TensorRT-LLM installation."""

    trtllm_build: Path | None = None
    """The `trtllm-build` program. Unset: the one on PATH."""
    python: Path | None = None
    """Python of the environment that has tensorrt_llm. Unset: this one."""


class Slurm(Section):
    """Where `launcher: slurm` sends builds. Folders must lie on a disk that the node shares."""

    partition: Word | None = None
    """`--partition`."""
    account: Word | None = None
    """`--account`."""
    qos: Word | None = None
    """`--qos`."""
    constraint: Word | None = None
    """`--constraint`: a node feature, to get the GPU that `hardware.gpu` names."""
    cpus: PositiveInt = 16
    """`--cpus-per-task`."""
    memory: Quantity | None = None
    """`--mem`, such as `512G`. Unset: the partition's."""
    modules: tuple[Word, ...] = ()
    """Environment modules loaded before the build."""
    container: Container | None = None
    """Image for pyxis, such as `nvcr.io#nvidia/tritonserver:<tag>` (`srun --container-image`). Unset: none."""
    mounts: tuple[Path, ...] = ()
    """Folders that the container sees under their own names; the engines folder is always one."""
    options: dict[Option, Word] = Field(default={})
    """Further options of sbatch, such as `{reservation: nightly}`."""


class Volume(Section):
    """A folder of the pod."""

    mount: Path
    """Where the pod sees it: the same absolute path as on this machine."""
    claim: Label | None = None
    """A PersistentVolumeClaim."""
    host_path: Path | None = None
    """A folder of the node instead."""

    @model_validator(mode="after")
    def _one(self) -> Volume:
        if (self.claim is None) == (self.host_path is None):
            raise ValueError("name the volume by exactly one of `claim` or `host_path`")
        if not self.mount.is_absolute() or ".." in self.mount.parts or self.mount == Path("/"):
            raise ValueError(f"mount {self.mount} is not an absolute folder below /")
        return self


class Kubernetes(Section):
    """Where `launcher: kubernetes` sends builds."""

    namespace: Label = "default"
    """Namespace of the Jobs."""
    context: Word | None = None
    """kubectl context. Unset: the current one."""
    image: Word | None = None
    """Image of the Jobs. Unset: the Triton container of the TensorRT-LLM version."""
    pull_secret: Label | None = None
    """imagePullSecret for the registry."""
    service_account: Label | None = None
    """ServiceAccount of the pod."""
    gpu_resource: LabelKey = "nvidia.com/gpu"
    """Name of the GPU resource."""
    node_selector: dict[LabelKey, LabelValue] = Field(default={})
    """Labels of the node, to get the GPU that `hardware.gpu` names."""
    tolerate: tuple[LabelKey, ...] = ("nvidia.com/gpu",)
    """Taints that the pod tolerates."""
    cpus: PositiveInt = 16
    """CPU request."""
    memory: Quantity | None = None
    """Memory request and limit, such as `512Gi`."""
    volumes: tuple[Volume, ...] = ()
    """Volumes that hold the engines folder."""
    user: Annotated[int, Field(ge=0, strict=True)] | None = None
    """User id that the pod runs as. Unset: ours, so that the engines can be replaced later."""

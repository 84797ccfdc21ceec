"""The configuration of one draft/target pair: every key, its type, its default and what it means.

Objects are frozen and refuse unknown keys. Values that follow from others (output folders, the draft length
used when none is given) are properties beside the given ones, computed here and nowhere else.
Paths are resolved by :mod:`trtspec.config.load`: those in the file against the file's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from trtspec.config.building import EngineTools, Kubernetes, Launcher, Slurm, TensorRT
from trtspec.config.gates import Gates
from trtspec.config.llmapi import PyTorch
from trtspec.config.quantization import Quantization, Tools
from trtspec.config.section import Fraction, Name, PositiveFloat, PositiveInt, Role, Section
from trtspec.config.serving import Serving
from trtspec.config.validation import Validation
from trtspec.errors import ConfigError
from trtspec.hardware import CPU, CUSTOM, Gpu, gpu_named, with_figures


class Parallelism(Section):
    """How one model is split over GPUs."""

    tensor: PositiveInt = 1
    """Tensor-parallel size: GPUs that share every layer."""
    pipeline: PositiveInt = 1
    """Pipeline-parallel size: groups of layers on different GPUs."""

    @property
    def world_size(self) -> int:
        """Ranks of this model: tensor × pipeline."""
        return self.tensor * self.pipeline


class ModelSource(Section):
    """One model of the pair: a local folder, or a hub id pinned to a revision."""

    path: Path | None = None
    """Folder in Hugging Face layout: config.json, tokenizer.json and safetensors weights."""
    hub: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """Hub id, such as `meta-llama/Llama-3.2-1B-Instruct`; fetched only with `--download`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Full commit hash of the hub repository. Needed to download; a branch name moves and is refused."""
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    """Type of the weights in the checkpoint. `auto` keeps the source's."""
    quantization: Quantization = Quantization()
    parallelism: Parallelism = Parallelism()

    @model_validator(mode="after")
    def _one_source(self) -> ModelSource:
        if (self.path is None) == (self.hub is None):
            raise ValueError("name the model by exactly one of `path` (a local folder) or `hub` (a hub id)")
        if self.revision is not None and self.hub is None:
            raise ValueError("`revision` belongs to `hub`; a local folder is identified by its content")
        return self


class Pair(Section):
    """The draft proposes tokens, the target verifies them."""

    target: ModelSource
    draft: ModelSource

    def __getitem__(self, role: Role) -> ModelSource:
        return self.target if role == "target" else self.draft


class Speculation(Section):
    """How the draft's tokens are proposed and accepted."""

    max_draft_len: Annotated[int, Field(ge=1, le=128, strict=True)] = 8
    """Most draft tokens a request may send to the target; fixed when the target engine is built."""
    draft_len: PositiveInt | None = None
    """Draft tokens per round (K) served and validated by default; the smaller of 4 and max_draft_len if unset."""
    acceptance: Literal["tokens", "logits"] = "tokens"
    """`tokens`: the target's own token must equal the draft's. `logits`: the rejection rule on both distributions."""
    acceptance_threshold: Annotated[float, Field(gt=0.0, le=1.0, strict=True)] | None = None
    """Logits acceptance only: a fixed threshold instead of the random one. Faster, and no longer exact."""
    fast_logits: bool = False
    """Logits acceptance with TensorRT engines: the draft's logits go from GPU to GPU, not through the server."""

    @property
    def k(self) -> int:
        """The draft length used where nothing else is said."""
        return self.draft_len if self.draft_len is not None else min(4, self.max_draft_len)

    @model_validator(mode="after")
    def _consistent(self) -> Speculation:
        if self.draft_len is not None and self.draft_len > self.max_draft_len:
            raise ValueError(f"draft_len {self.draft_len} is larger than max_draft_len {self.max_draft_len}")
        if self.acceptance_threshold is not None and self.acceptance == "tokens":
            raise ValueError("acceptance_threshold has a meaning only with `acceptance: logits`")
        if self.fast_logits and self.acceptance == "tokens":
            raise ValueError("fast_logits has a meaning only with `acceptance: logits`")
        return self


class Engine(Section):
    """What builds and runs the engines, and the limits they are built for (equal for draft and target)."""

    backend: Literal["reference", "tensorrt", "pytorch"] = "reference"
    """`reference`: CPU, any machine. `tensorrt`: TensorRT-LLM 0.17 - 1.2.1. `pytorch`: its LLM API, 1.0 and newer."""
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Reference backend only: arithmetic type. `auto` is bfloat16; float32 makes greedy comparison exact."""
    max_batch_size: Annotated[int, Field(ge=1, le=4096, strict=True)] = 8
    """Most sequences an engine steps at once."""
    max_input_len: PositiveInt = 512
    """Longest prompt in tokens. In a target engine the draft tokens of a verify call count too; that room is added."""
    max_seq_len: PositiveInt = 1024
    """Longest prompt plus answer in tokens."""
    tensorrt_llm_version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+([.\w]*)$")] | None = None
    """TensorRT-LLM version to plan and build for (docs/versions.md). Unset: the installed one, else 1.2.1."""
    max_num_tokens: PositiveInt | None = None
    """Tokens of one step. Unset: 8192, or what one longest input or one round of a full batch takes, if more."""
    tokens_per_block: Literal[16, 32, 64, 128] = 32
    """Tokens of one block of the KV cache, the unit of its reuse."""
    timeout: Annotated[float, Field(gt=0.0, le=604_800.0)] = 14_400.0
    """Seconds until the build of one engine is given up."""
    launcher: Launcher = "local"
    """Who runs the builds: this machine, or a cluster through `sbatch` or `kubectl`."""
    tensorrt: TensorRT = TensorRT()
    pytorch: PyTorch = PyTorch()
    tools: EngineTools = EngineTools()
    slurm: Slurm = Slurm()
    kubernetes: Kubernetes = Kubernetes()

    @model_validator(mode="after")
    def _room(self) -> Engine:
        if self.max_seq_len <= self.max_input_len:
            raise ValueError(
                f"max_seq_len {self.max_seq_len} leaves no room for an answer after max_input_len {self.max_input_len}"
            )
        return self


class Hardware(Section):
    """Where the engines will run; used for memory and economics, never probed."""

    gpu: Name = "cpu"
    """GPU kind, such as `h100-80gb` (docs/planning.md lists them); `custom` with figures below; `cpu` for no GPU."""
    count: PositiveInt = 1
    """GPUs of that kind in the machine."""
    placement: Literal["auto", "shared", "separate"] = "auto"
    """Draft on the target's first GPUs (`shared`) or on the GPUs after them; `auto` shares unless that does not fit."""
    memory_gib: PositiveFloat | None = None
    """Memory of one GPU that CUDA reports, GiB, in the place of the table's; with `cpu`, the machine's."""
    bandwidth_gb_s: PositiveFloat | None = None
    """Memory bandwidth of one GPU, GB/s (10⁹ bytes), in the place of the table's."""
    compute_capability: Annotated[float, Field(ge=7.0, le=20.0)] | None = None
    """CUDA compute capability, such as 9.0, in the place of the table's."""
    fp16_tflops: PositiveFloat | None = None
    """Dense FP16/BF16 peak of one GPU, 10¹² operations/s, in the place of the table's."""
    fp8_tflops: PositiveFloat | None = None
    """Dense FP8 peak, likewise."""
    int8_tflops: PositiveFloat | None = None
    """Dense INT8 peak, likewise."""
    fp4_tflops: PositiveFloat | None = None
    """Dense FP4 peak, likewise."""
    price_per_hour: PositiveFloat | None = None
    """Price of one GPU (of the machine with `cpu`) per hour, in any currency; for the cost per million tokens."""

    @field_validator("gpu")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            gpu_named(value)
        except ConfigError as error:
            raise ValueError(f"{error.what}; {error.fix}") from None
        return value

    @model_validator(mode="after")
    def _complete(self) -> Hardware:
        needed = ("memory_gib", "bandwidth_gb_s", "compute_capability", "fp16_tflops")
        missing = [name for name in needed if getattr(self, name) is None]
        if self.gpu.lower() == CUSTOM and missing:
            raise ValueError(f"gpu: custom needs its figures; {', '.join(missing)} missing")
        if self.gpu.lower() == CPU and self.compute_capability is not None:
            raise ValueError("compute_capability belongs to a GPU; set gpu: custom")
        return self

    @property
    def spec(self) -> Gpu:
        """The GPU with every figure: the table's, the given ones in their place."""
        capability = self.compute_capability
        return with_figures(
            gpu_named(self.gpu),
            sm=None if capability is None else round(capability * 10),
            memory_gib=self.memory_gib,
            bandwidth_gb_s=self.bandwidth_gb_s,
            tflops={kind: getattr(self, f"{kind}_tflops") for kind in ("fp16", "fp8", "int8", "fp4")},
        )


class Checks(Section):
    """Where `check` draws its lines."""

    min_size_ratio: PositiveFloat = 8.0
    """Warn when the target has fewer than this many times the draft's parameters."""
    max_size_ratio: PositiveFloat = 64.0
    """Warn when the target has more than this many times the draft's parameters."""
    cost_ratio: Annotated[float, Field(gt=0.0, lt=100.0, strict=True)] | None = None
    """Draft step time ÷ target step time where it was measured; otherwise estimated from the bytes each must read."""
    draft_step_ms: PositiveFloat | None = None
    """Measured milliseconds of one draft step at batch 1; with target_step_ms, in the place of cost_ratio."""
    target_step_ms: PositiveFloat | None = None
    """Measured milliseconds of one target step at batch 1."""
    round_overhead_ms: Annotated[float, Field(ge=0.0, le=10_000.0)] | None = None
    """Measured milliseconds of a round outside both models (pipeline, transfers); 0 is assumed, and said, without."""
    acceptance: Fraction | None = None
    """Measured per-token acceptance (α) to plan with; without it the speed-up is shown for a range."""

    @model_validator(mode="after")
    def _ordered(self) -> Checks:
        if self.min_size_ratio >= self.max_size_ratio:
            raise ValueError(f"min_size_ratio {self.min_size_ratio} is not below max_size_ratio {self.max_size_ratio}")
        if (self.draft_step_ms is None) != (self.target_step_ms is None):
            raise ValueError("draft_step_ms and target_step_ms are one measurement: give both")
        if self.cost_ratio is not None and self.draft_step_ms is not None:
            raise ValueError("cost_ratio is draft_step_ms ÷ target_step_ms: give one or the other")
        return self


class Output(Section):
    """Where results go. Defaults are relative to the current folder."""

    engines: Path = Path("engines")
    """Checkpoints and engines: <engines>/<name>/<role>/."""
    model_repo: Path = Path("model_repo")
    """Triton repositories: <model_repo>/<name>/."""
    reports: Path = Path("reports")
    """Reports and server logs: <reports>/<name>/."""


class RunConfig(Section):
    """One pair, from its two model folders to the gates of its release."""

    name: Name
    """Names the pair's folders: engines/<name>, model_repo/<name>, reports/<name>."""
    pair: Pair
    speculation: Speculation = Speculation()
    engine: Engine = Engine()
    hardware: Hardware = Hardware()
    checks: Checks = Checks()
    serving: Serving = Serving()
    validation: Validation = Validation()
    gates: Gates = Gates()
    tools: Tools = Tools()
    output: Output = Output()

    @model_validator(mode="after")
    def _fusible(self) -> RunConfig:
        if self.serving.pipeline == "fused" and self.engine.backend != "reference":
            raise ValueError(
                f"serving.pipeline fused needs engine.backend reference, not {self.engine.backend}: other engines do "
                "not run inside the pipeline's process"
            )
        return self

    def checkpoint_dir(self, role: Role) -> Path:
        """engines/<name>/<role>/checkpoint"""
        return self.output.engines / self.name / role / "checkpoint"

    def engine_dir(self, role: Role) -> Path:
        """engines/<name>/<role>/engine"""
        return self.output.engines / self.name / role / "engine"

    @property
    def max_num_tokens(self) -> int:
        """Tokens of one step of either engine.

        The runtime takes inputs of at most this many tokens unless they are chunked (trtGptModel.h), and a verify call
        sends everything so far; `trtllm-build` raises less than batch × (max_draft_len + 1), and cuts more than
        batch × max_seq_len.
        """
        engine, round_tokens = self.engine, self.engine.max_batch_size * (self.speculation.max_draft_len + 1)
        wanted = engine.max_num_tokens or max(8192, engine.max_seq_len)
        return min(max(wanted, round_tokens), engine.max_batch_size * engine.max_seq_len)

    @property
    def repository_dir(self) -> Path:
        """model_repo/<name>"""
        return self.output.model_repo / self.name

    @property
    def report_dir(self) -> Path:
        """reports/<name>"""
        return self.output.reports / self.name

"""The configuration of one draft/target pair: every key, its type, its default and what it means.

Objects are frozen and refuse unknown keys. Values that follow from others (output folders, the draft length
used when none is given) are properties beside the given ones, computed here and nowhere else.
Paths are resolved by :mod:`trtspec.config.load`: those in the file against the file's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Role = Literal["draft", "target"]
ROLES: tuple[Role, Role] = ("draft", "target")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, strict=True)]
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)]


class Section(BaseModel):
    """A frozen block of the file; unknown keys are errors, values are not coerced across types."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Quantization(Section):
    """How one model's weights and KV cache are stored in its checkpoint."""

    weights: Literal["none", "fp8", "int8_sq", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "nvfp4"] = "none"
    """Weight format. `none` keeps the checkpoint's 16- or 32-bit weights."""
    kv_cache: Literal["auto", "fp8", "int8"] = "auto"
    """KV-cache format. `auto` is the compute type."""


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
    """TensorRT-LLM version to plan for. Detected where it is installed."""

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
    """GPU kind, such as `h100-80gb`; `cpu` for the reference backend."""
    count: PositiveInt = 1
    """GPUs of that kind in the machine."""


class Checks(Section):
    """Where `check` draws its lines."""

    min_size_ratio: PositiveFloat = 8.0
    """Warn when the target has fewer than this many times the draft's parameters."""
    max_size_ratio: PositiveFloat = 64.0
    """Warn when the target has more than this many times the draft's parameters."""
    cost_ratio: Annotated[float, Field(gt=0.0, lt=100.0, strict=True)] | None = None
    """Draft step time ÷ target step time where it was measured; otherwise estimated from the bytes each must read."""
    acceptance: Fraction | None = None
    """Measured per-token acceptance (α) to plan with; without it the speed-up is shown for a range."""

    @model_validator(mode="after")
    def _ordered(self) -> Checks:
        if self.min_size_ratio >= self.max_size_ratio:
            raise ValueError(f"min_size_ratio {self.min_size_ratio} is not below max_size_ratio {self.max_size_ratio}")
        return self


class Serving(Section):
    """The Triton server. Port 0 means any free port."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback makes the server reachable by others."""
    http_port: Port = 8000
    """Triton's HTTP endpoint."""
    grpc_port: Port = 8001
    """Triton's gRPC endpoint, which `validate` uses."""
    metrics_port: Port = 8002
    """Prometheus metrics."""
    tritonserver: Path | None = None
    """The tritonserver program. Default: one on PATH or in /opt/tritonserver, else the nvidia-pytriton wheel's."""
    start_timeout: PositiveFloat = 180.0
    """Seconds until the server must be ready."""
    stop_timeout: PositiveFloat = 10.0
    """Seconds between SIGTERM and SIGKILL."""


class Dataset(Section):
    """A file of prompts (JSONL) of one domain."""

    path: Path
    """The prompts: a JSON object with `prompt` or `messages` on each line; see docs/own-pair.md."""
    domain: Name
    """Task label: acceptance is judged per domain, and the serving policy is keyed by it."""
    limit: PositiveInt | None = None
    """Use only this many prompts, drawn with the seed."""


class Validation(Section):
    """What `validate` measures."""

    datasets: tuple[Dataset, ...] = ()
    concurrency: Annotated[int, Field(ge=1, le=1024, strict=True)] = 4
    """Requests in flight at once; the speed-up is stated at this load."""
    max_tokens: PositiveInt = 64
    """Longest answer where a prompt does not say."""
    temperature: Annotated[float, Field(ge=0.0, le=10.0, strict=True)] = 0.0
    """0 is greedy."""
    top_k: Annotated[int, Field(ge=0, strict=True)] = 0
    """Sampling only: draw from the k best tokens; 0 is no limit."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0, strict=True)] = 1.0
    """Sampling only: draw from the likeliest tokens that together have this probability."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Draws prompts where a dataset has a `limit`, seeds sampled answers, and bootstraps the intervals."""
    warmup: Annotated[int, Field(ge=0, strict=True)] = 4
    """Requests sent before anything is counted."""
    request_timeout: PositiveFloat = 120.0
    """Seconds until one request is given up."""

    @model_validator(mode="after")
    def _distinct(self) -> Validation:
        names = [d.domain for d in self.datasets]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two datasets share the domain {twice[0]!r}; give each its own")
        return self


class Gates(Section):
    """Rules on measured numbers that can block a release."""

    release_alpha: Fraction = 0.65
    """Floor of α over the domains that keep speculation."""
    domain_alpha: Fraction = 0.55
    """A domain whose interval is not wholly above this floor is served without speculation."""
    greedy_equality: Literal["exact", "near-tie", "off"] = "near-tie"
    """Speculative greedy text against target-only: equal; equal but for near-ties of the best logits; not judged."""
    near_tie: Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)] = 0.1
    """Largest gap between the two best logits that counts as a near-tie."""
    min_speedup: PositiveFloat | None = None
    """Floor of throughput with ÷ without speculation. Unset: reported, not judged."""


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
    output: Output = Output()

    def checkpoint_dir(self, role: Role) -> Path:
        """engines/<name>/<role>/checkpoint"""
        return self.output.engines / self.name / role / "checkpoint"

    def engine_dir(self, role: Role) -> Path:
        """engines/<name>/<role>/engine"""
        return self.output.engines / self.name / role / "engine"

    @property
    def repository_dir(self) -> Path:
        """model_repo/<name>"""
        return self.output.model_repo / self.name

    @property
    def report_dir(self) -> Path:
        """reports/<name>"""
        return self.output.reports / self.name

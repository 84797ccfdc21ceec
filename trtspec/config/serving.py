"""The Triton server of a pair: ports, time limits, and what its models are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from trtspec.config.parameters import ModelParameters
from trtspec.config.section import Fraction, PositiveFloat, PositiveInt, Role, Section

Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
OWN_ARGS = (
    *("model-repository", "model-store", "disable-auto-complete-config", "exit-on-error", "strict-readiness"),
    *("exit-timeout-secs", "http-address", "http-port", "grpc-address", "grpc-port", "metrics-address"),
    *("metrics-port", "allow-http", "allow-grpc", "allow-metrics"),
)
"""Arguments that trtspec sets itself, or whose default it depends on."""


def _server_arg(word: str) -> str:
    """Only --name or --name=value: a value of its own would be taken for an argument."""
    name = word.partition("=")[0]
    if not re.fullmatch(r"--[a-z][a-z0-9-]*", name) or any(not letter.isprintable() for letter in word):
        raise ValueError(f"{word!r} is not of the form --name=value")
    if name.removeprefix("--") in OWN_ARGS:
        raise ValueError(f"{name} is set by trtspec; see the other keys of `serving`")
    return word


ServerArg = Annotated[str, AfterValidator(_server_arg)]


class Guard(Section):
    """Switches drafts off for a task while its live α (accepted ÷ tested draft tokens) is low, and on again."""

    enabled: bool = False
    """Whether the server watches at all. The policy file holds with or without it."""
    floor: Fraction = 0.5
    """Drafts of a task stop when α of the last `window` tested tokens is below this."""
    recover: Fraction = 0.6
    """They begin again when α of a whole window of probes is at least this; above `floor`, or it would flap."""
    window: PositiveInt = 256
    """Tested draft tokens that a decision looks at."""
    probe_every: PositiveInt = 32
    """While drafts are off, every so many requests of the task one speculates all the same, to see if α is back."""

    @model_validator(mode="after")
    def _band(self) -> Guard:
        if self.recover <= self.floor:
            raise ValueError(f"recover is {self.recover:g}; it must be above floor ({self.floor:g})")
        return self


class Limits(Section):
    """What one request may hold; more is refused in one line before any model is called."""

    prompt_bytes: PositiveInt = 1 << 20
    """Bytes of the prompt's text."""
    max_tokens: PositiveInt | None = None
    """Most tokens of an answer. Unset: what the engine's max_seq_len leaves."""
    stop_words: PositiveInt = 64
    """Stop words, and bad words likewise."""
    stop_word_bytes: PositiveInt = 1024
    """Bytes of one such word."""


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
    require_draft: bool = True
    """Whether a draft model that does not load keeps the server from starting. With false it serves target-only."""
    stop_timeout: PositiveFloat = 10.0
    """Seconds from the wish to stop until all is gone: time for running requests to end. Clients that keep their gRPC
    stream open use all of it."""
    mode: Literal["auto", "orchestrator", "leader"] = "auto"
    """TensorRT engines: one server that starts a process per rank, or a server per rank (models of equal size)."""
    max_queue_size: Annotated[int, Field(ge=0, strict=True)] = 0
    """TensorRT engines: requests that may wait for each model before others are turned away; 0 is no limit."""
    max_queue_delay_us: Annotated[int, Field(ge=0, strict=True)] = 0
    """TensorRT engines: microseconds that a model waits for more requests before it takes a batch."""
    pipeline: Literal["bls", "fused"] = "bls"
    """Draft and target as two models behind the BLS, or (reference engine only) both in one process: faster."""
    decoupled: bool = True
    """With false no answer is streamed, and clients may call `infer`: Triton refuses it for models that stream, and
    some of TensorRT-LLM's own test clients know nothing else."""
    exclude_input_in_output: bool = True
    """Whether the BLS leaves the prompt out of an answer where the request does not say. TensorRT-LLM's own puts it in
    front; a chat must not begin with its prompt."""
    include_stop_words: bool = False
    """Whether an answer of the BLS that a stop word ends holds the word, as TensorRT-LLM's does, or ends before it, as
    OpenAI's and vLLM's do."""
    dynamic_batching: bool = True
    """Reference engine: with false Triton hands it each request by itself, so that `nv_inference_exec_count` counts
    requests, as it does for TensorRT-LLM's C++ backend. Much slower with many requests at once."""
    max_concurrent_requests: PositiveInt | None = None
    """Requests that the BLS works on at once. Unset: twice engine.max_batch_size, so that one half can draft while the
    other is verified."""
    max_waiting_requests: Annotated[int, Field(ge=0, strict=True)] = 256
    """Requests that may wait beside those; more are turned away with an error that begins `overloaded:`."""
    request_timeout: PositiveFloat | None = None
    """Seconds from arrival until a request is given up, waiting included. Unset: none. A request's own `timeout`
    parameter (microseconds) goes before."""
    draft_timeout: PositiveFloat = 10.0
    """Seconds that one draft call may take; then the target goes on alone."""
    adaptive_draft_len: bool = False
    """Let each request lower and raise its draft length by the acceptance it sees, within all other limits."""
    guard: Guard = Guard()
    limits: Limits = Limits()
    log_requests: bool = True
    """One line of JSON in the server's log for each request: its id, how it ended, its figures; no text."""
    log_prompts: bool = False
    """Prompts and answers in those lines, too. They may be personal data."""
    server_args: tuple[ServerArg, ...] = ()
    """More arguments for tritonserver, such as those for TLS (see docs/security.md). Not those that trtspec sets."""
    target_parameters: ModelParameters = ModelParameters()
    draft_parameters: ModelParameters = ModelParameters()

    def concurrent(self, batch: int) -> int:
        """Requests at once for engines of that batch size: while one half is verified the other half drafts."""
        return self.max_concurrent_requests or 2 * batch

    def parameters(self, role: Role) -> ModelParameters:
        """Given parameters of one model."""
        return self.target_parameters if role == "target" else self.draft_parameters

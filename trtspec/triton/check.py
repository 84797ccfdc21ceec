"""Findings about serving TensorRT engines: parameters, GPUs, the way the server is started, sliding windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import ConfigError
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model
from trtspec.triton.devices import Devices
from trtspec.triton.plan import plan_tensorrt, served_length
from trtspec.triton.windows import REUSE, shortest
from trtspec.versions import DEFAULT, engine_version


def check_serving(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """For `engine.backend: tensorrt`; the version is the configured one, else the default."""
    if config.engine.backend != "tensorrt" or target.facts is None or draft.facts is None:
        return
    facts: Mapping[Role, ModelFacts] = {"target": target.facts, "draft": draft.facts}
    try:
        version = engine_version(config.engine.tensorrt_llm_version or DEFAULT)
    except ConfigError:
        return  # preflight.version has that
    for role in ROLES[::-1]:
        yield from _windows(role, facts[role], config)
    try:
        devices: Devices = plan_tensorrt(config, facts, version)["devices"]
    except ConfigError as error:
        if error.where not in ("hardware", "hardware.count"):  # memory.too-large and preflight.gpu-count have those
            yield Finding("serving.refused", "error", "pair", f"{error.where}: {error.what}", error.fix)
        return
    placed = "; ".join(f"{role} on GPU {', '.join(map(str, devices.gpus[role]))}" for role in ROLES[::-1])
    yield Finding(
        "serving.placement", "info", "pair", f"{devices.mode}, {devices.world_size} process(es) started: {placed} "
        f"({devices.why})", None, {"mode": devices.mode, "gpus": {r: list(devices.gpus[r]) for r in ROLES}},
        brief=f"{devices.mode}; {placed}",
    )  # fmt: skip


def _windows(role: Role, facts: ModelFacts, config: RunConfig) -> Iterator[Finding]:
    window = shortest(facts, served_length(config, role))
    if window is not None:
        yield Finding(
            "serving.windows", "warning", role,
            f"layers see {window:,} tokens, sequences have up to {config.engine.max_seq_len:,}: {REUSE}, so that each "
            "round computes the whole sequence anew",
            f"set engine.max_seq_len to {window - config.speculation.max_draft_len:,} or less, or serve without drafts",
        )  # fmt: skip

"""The build command as `plan` shows it: for this machine's TensorRT-LLM, or the configured or default version."""

from __future__ import annotations

import dataclasses

from trtspec.backends.tensorrt.commands import build_command
from trtspec.backends.tensorrt.machine import machine_for
from trtspec.backends.tensorrt.subject import planned
from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import Role, RunConfig
from trtspec.environment import Environment


def planned_command(
    config: RunConfig, role: Role, facts: ModelFacts | None, environment: Environment | None = None
) -> tuple[tuple[str, ...], str]:
    """(argument list, what it was planned for). ConfigError or MissingError where there is no such command."""
    machine = machine_for(config, environment)
    seen = planned(config, role, machine.version, facts.architecture if facts else None)
    subject = dataclasses.replace(seen, sm=machine.sm, gpus=machine.gpus or None)
    command = build_command(
        config, role, config.checkpoint_dir(role), config.engine_dir(role), machine.version,
        subject=subject, tensorrt=machine.tensorrt,
    )  # fmt: skip
    whose = "installed here" if machine.seen else "planned"
    launcher = "" if config.engine.launcher == "local" else f", by {config.engine.launcher}"
    return command, f"TensorRT-LLM {machine.version} ({whose}){launcher}"

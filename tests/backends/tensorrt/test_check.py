"""Findings about the engines, and the command that `plan` shows, without any installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.backends.tensorrt.pairs import environment, formats, pair
from tests.conftest import PROJECT
from trtspec.backends.tensorrt.check import check_engines
from trtspec.backends.tensorrt.planning import planned_command
from trtspec.config import RunConfig, load_config
from trtspec.errors import MissingError
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model
from trtspec.versions import NAMES


def found(config: RunConfig) -> list[Finding]:
    target, draft = (Model(role, Path("/none"), here=False) for role in ("target", "draft"))
    return list(check_engines(target, draft, config))


def codes(config: RunConfig) -> dict[str, str]:
    return {finding.code: finding.severity for finding in found(config)}


@pytest.mark.parametrize("release", NAMES)
@pytest.mark.parametrize("name", ["llama70b", "qwen2.5"])
def test_shipped_configurations_have_nothing_to_say(name: str, release: str) -> None:
    config = load_config(PROJECT / "configs" / f"{name}.yaml", [f"engine.tensorrt_llm_version={release}"])
    assert codes(config) == {"engine.turns": "info"}


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"engine": {"tensorrt": {"flags": {"max_draft_len": 3}}}}, "engine.flags", "error"),
        ({"engine": {"tensorrt": {"flags": {"tokens": 3}}}}, "engine.flags", "error"),
        ({"target": formats("none", "fp8"), "hardware": {"gpu": "cpu"}}, "engine.refused", "error"),
        ({"target": {"dtype": "float32"}}, "engine.refused", "error"),
        ({"engine": {"tensorrt": {"flags": {"reduce_fusion": "enable"}}}}, "engine.rewritten", "warning"),
        ({"draft": formats("none", "fp8")}, "engine.rewritten", "warning"),
        ({"engine": {"max_num_tokens": 512}}, "engine.input", "warning"),
        ({}, "engine.turns", "info"),
    ],
)
def test_each_code(changes: dict[str, Any], code: str, severity: str) -> None:
    assert codes(pair(**changes))[code] == severity


def test_what_the_preflight_says_is_not_said_twice() -> None:
    assert "engine.refused" not in codes(pair(target=formats("none", "fp8")))
    old = pair(draft=formats("none", "fp8"), engine={"tensorrt_llm_version": "0.17.0"})
    assert codes(old)["engine.refused"] == "error", "old versions do not build such a draft either"


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_other_backends_build_no_such_engines(backend: str) -> None:
    assert not found(pair(engine={"backend": backend}))


def test_turns_follow_the_gpus() -> None:
    def said(count: int) -> str:
        return next(f.message for f in found(pair(hardware={"count": count})) if f.code == "engine.turns")

    assert "side by side" in said(2)
    assert "one after the other" in said(1)


def test_the_planned_command_needs_nothing_installed() -> None:
    command, whose = planned_command(pair(), "target", None, environment(llm=None, gpus=0))
    assert command[0] == "trtllm-build"
    assert whose == "TensorRT-LLM 1.2.1 (planned)"
    old = pair(engine={"tensorrt_llm_version": "0.18.2", "launcher": "slurm"})
    assert planned_command(old, "draft", None)[1] == "TensorRT-LLM 0.18.2 (planned), by slurm"
    assert planned_command(pair(), "draft", None, environment())[1] == "TensorRT-LLM 1.2.1 (installed here)"
    with pytest.raises(MissingError):
        planned_command(pair(engine={"tensorrt_llm_version": "0.18.2"}), "draft", None, environment())

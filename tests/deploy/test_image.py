"""Dockerfile, compose file and Slurm examples: what must be true of them, and what public validators say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import PROJECT
from tests.deploy.validators import accepts, run
from trtspec.checkpoint.quantize import separate
from trtspec.cli._verbs import VERBS
from trtspec.versions import CONTAINER, PINNED

DOCKERFILE = PROJECT / "Dockerfile"
COMPOSE = PROJECT / "compose.yaml"
SLURM = sorted((PROJECT / "deploy" / "slurm").glob("*.sbatch"))
PINS = PROJECT / "deploy" / "modelopt-requirements.txt"


def stages() -> dict[str, list[str]]:
    """Instructions by stage, continuation lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    found: dict[str, list[str]] = {}
    name = "before"
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("#"):
            continue
        if line.startswith("FROM"):
            words = line.split()
            name = words[3] if len(words) > 3 else "last"
        found.setdefault(name, []).append(line)
    return found


def test_the_base_is_the_pinned_container() -> None:
    [line] = [line for line in stages()["before"] if line.startswith("ARG TRITON=")]
    assert line == f"ARG TRITON={CONTAINER}"
    assert CONTAINER.split(":")[1].startswith(PINNED[0].tag)


def test_the_image_runs_as_nobody_special_and_has_a_healthcheck() -> None:
    final = stages()["trtspec"]
    users = [line.split()[1] for line in final if line.startswith("USER")]
    assert users == ["10001"]
    assert any(line.startswith("HEALTHCHECK") and "/v2/health/ready" in line for line in final)
    assert stages()["last"] == ["FROM trtspec"]
    assert [line.split()[1] for line in stages()["multinode"] if line.startswith("USER")] == ["0", "10001"]


def test_nothing_of_the_image_is_replaced() -> None:
    final = stages()["trtspec"]
    assert not [line for line in final if "pip" in line]
    assert any("--system-site-packages /opt/trtspec" in line for line in stages()["trtspec-venv"])


def test_no_weights_reach_the_build() -> None:
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert "**/*.safetensors" in ignored
    copied = [w for lines in stages().values() for line in lines if line.startswith("COPY") and "--from" not in line
              for w in line.split()[1:-1]]  # fmt: skip
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert set(copied) <= kept
    assert all((PROJECT / name).exists() for name in copied)


def test_modelopt_pins_are_those_that_were_tried() -> None:
    pins = dict(line.split("==") for line in PINS.read_text().splitlines() if "==" in line)
    assert {"torch", "nvidia-modelopt", "transformers", "accelerate", "safetensors", "requests"} <= set(pins)
    major, minor = (int(part) for part in pins["nvidia-modelopt"].split(".")[:2])
    assert separate.OLDEST <= (major, minor) < separate.TOO_NEW
    low, high = separate.TRANSFORMERS[(major, minor)]
    assert low <= tuple(int(part) for part in pins["transformers"].split(".")[:2]) < high
    assert pins["transformers"].startswith("4.57.")  # TensorRT-LLM 1.2.1 reads what this version writes


def test_hadolint() -> None:
    accepts("hadolint", DOCKERFILE)


def test_hadolint_would_say_no(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text("FROM ubuntu\nRUN cd /tmp && apt-get install curl\n")
    assert run("hadolint", broken).returncode != 0


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_compose_services_call_verbs_and_start_only_when_named() -> None:
    assert set(services()) == {"doctor", "build", "serve", "validate"}
    for name, service in services().items():
        assert service["command"][0] in VERBS
        assert service["profiles"] == [name]
        assert service["cap_drop"] == ["ALL"]


def test_compose_publishes_on_loopback_only() -> None:
    assert all(port.startswith("127.0.0.1:") for port in services()["serve"]["ports"])


def test_compose_schema() -> None:
    accepts("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.parametrize("path", SLURM, ids=lambda path: path.name)
def test_slurm_scripts(path: Path) -> None:
    text = path.read_text()
    assert "set -euo pipefail" in text
    lines = text.splitlines()
    directives = [i for i, line in enumerate(lines) if line.startswith("#SBATCH")]
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert directives
    assert max(directives) < first  # sbatch stops reading at the first command
    assert set(re.findall(r"^(?:run|  )\s*(build|validate|doctor)", text, re.MULTILINE)) <= set(VERBS)
    accepts("shellcheck", path)


def test_shellcheck_would_say_no(tmp_path: Path) -> None:
    broken = tmp_path / "x.sh"
    broken.write_text("#!/bin/sh\nrm -rf $1/*\n")
    assert run("shellcheck", broken).returncode != 0

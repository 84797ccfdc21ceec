"""The verdict on made machines, with and without a configuration; the document keeps its shape."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT
from tests.environment import machines
from tests.environment.machines import H100, machine, smi
from trtspec.config import load_config
from trtspec.environment import Environment, Host, detect
from trtspec.workflows.doctor import Diagnosis, diagnose

LLAMA = PROJECT / "configs" / "llama70b.yaml"
TINY = PROJECT / "configs" / "tiny.yaml"


def on(host: Host, config: Path | None = None, *overrides: str) -> Diagnosis:
    return diagnose(detect(host=host), None if config is None else load_config(config, overrides))


def said(found: Diagnosis, level: str) -> str:
    return " / ".join(f"{r.subject}: {r.message}: {r.fix}" for r in found.remarks if r.level == level)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (machines.bare, 3),
        (machines.laptop, 3),  # its torch builds reference engines, and nothing else
        (machines.ngc_25_03, 0),
        (machines.ngc_26_05, 0),
        (machines.newer, 0),
        (machines.no_gpu, 3),  # an image started without --gpus
    ],
)
def test_without_a_configuration_one_way_with_tensorrt_llm_must_be_open(
    tmp_path: Path, make: Callable[[Path], Host], code: int
) -> None:
    assert on(make(tmp_path)).exit_code == code


@pytest.mark.parametrize(
    ("make", "config", "code"),
    [
        (machines.bare, TINY, 3),
        (machines.laptop, TINY, 0),
        (machines.laptop, LLAMA, 3),
        (machines.ngc_26_05, LLAMA, 0),
        (machines.ngc_25_03, LLAMA, 3),
        (machines.newer, LLAMA, 3),
    ],
)
def test_with_a_configuration_its_backend_must_be_open(
    tmp_path: Path, make: Callable[[Path], Host], config: Path, code: int
) -> None:
    assert on(make(tmp_path), config).exit_code == code


def test_the_machine_that_the_configuration_was_made_for(tmp_path: Path) -> None:
    found = on(machines.ngc_26_05(tmp_path), LLAMA)
    assert said(found, "error") == ""
    assert "TensorRT-LLM 1.2.1 is used: as configured" in said(found, "info")
    assert "modelopt 0.37.0 is installed" in said(found, "warning")  # the calibrator wants a newer one of its own


def test_another_version_than_the_configured_one(tmp_path: Path) -> None:
    found = on(machines.ngc_25_03(tmp_path), LLAMA)
    errors = said(found, "error")
    assert "0.18.0 installed" in errors
    assert "planned for H100 80GB SXM5 (SM 90), 2 × NVIDIA A100-SXM4-80GB (SM 80) here" in errors
    assert "hardware.gpu: a100-80gb, hardware.count: 2" in errors
    assert "the pair needs 8 GPUs, 2 here" in errors


def test_the_version_follows_the_installation_when_none_is_configured(tmp_path: Path) -> None:
    found = on(machines.ngc_25_03(tmp_path), LLAMA, "engine.tensorrt_llm_version=null")
    assert "TensorRT-LLM 0.18.0 is used: the installed one" in said(found, "info")


def test_a_newer_version_can_serve_the_pytorch_backend(tmp_path: Path) -> None:
    changed = ("engine.backend=pytorch", "engine.tensorrt_llm_version=null")
    assert on(machines.newer(tmp_path), LLAMA, *changed).exit_code == 0


def test_a_plan_for_no_gpu_or_another_of_the_same_generation(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    cpu = on(host, LLAMA, "hardware.gpu=cpu")
    assert "hardware.gpu is cpu, 8 × NVIDIA H100 80GB HBM3 here" in said(cpu, "warning")
    assert cpu.exit_code == 0
    h200 = on(host, LLAMA, "hardware.gpu=h200")
    assert "planned for H200" in said(h200, "warning")
    assert "139.7 GiB of a GPU" in said(h200, "error")  # the plan would not fit
    assert h200.exit_code == 3


def test_more_gpus_planned_than_there_are(tmp_path: Path) -> None:
    found = on(machines.ngc_26_05(tmp_path), LLAMA, "hardware.count=16")
    assert "hardware.count is 16, 8 here; the pair needs 8" in said(found, "warning")
    assert found.exit_code == 0


def test_gpus_cut_or_mixed(tmp_path: Path) -> None:
    cut = H100.replace("Disabled", "Enabled")
    host = machine(tmp_path, programs=["nvidia-smi"], answers={"nvidia-smi": smi(cut, machines.A100)})
    warnings = said(on(host), "warning")
    assert "GPUs of several kinds: NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3" in warnings
    assert "MIG" in warnings


def test_an_installation_that_is_not_the_image_s(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    host.package = {"tensorrt-llm": "1.1.0", "tensorrt": "10.13.3.9", "numpy": "1.26.4"}.get
    assert "TensorRT-LLM 1.1.0 is installed in an image that came with 1.2.1" in said(on(host), "warning")


def test_the_installed_tool_against_the_table(tmp_path: Path) -> None:
    environment = detect(host=machines.ngc_26_05(tmp_path))

    def flags(*names: str) -> Environment:
        return dataclasses.replace(environment, tool_flags=names)

    from trtspec.versions import version

    known = {name for flag in version("1.2.1").flags.values() for name in (flag.name, *flag.aliases)}
    assert diagnose(flags(*known, "help")).remarks == ()
    assert "does not name --workers, which" in said(diagnose(flags(*known - {"workers"})), "warning")
    assert "names --brand_new, which the version table lacks" in said(diagnose(flags(*known, "brand_new")), "info")


def test_modelopt_is_asked_for_only_where_it_calibrates(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    layerwise = [f"pair.{role}.quantization.method=layerwise" for role in ("draft", "target")]
    assert "modelopt" not in said(on(host, LLAMA, *layerwise), "warning")
    assert "modelopt" not in said(on(host, LLAMA, "tools.modelopt_python=/venv/bin/python"), "warning")
    host.package = {"tensorrt-llm": "1.2.1", "tensorrt": "10.14.1.48", "nvidia-modelopt": "0.47.0"}.get
    assert "modelopt" not in said(on(host, LLAMA), "warning")


def keys(document: Any) -> Any:
    """The document's shape: keys, and the shape of a list's first entry."""
    if isinstance(document, dict):
        return {name: keys(value) for name, value in document.items() if name not in ("packages", "tools")}
    return [keys(document[0])] if isinstance(document, list) and document and isinstance(document[0], dict) else None


def test_the_document_keeps_its_shape(tmp_path: Path) -> None:
    document = json.loads(json.dumps(on(machines.ngc_26_05(tmp_path), LLAMA).as_dict()))
    assert document["schema"] == 1
    names = ("python", "system", "cpus", "tool_flags", "driver", "examples", "disk_free", "tensorrt", "sm")
    assert keys(document) == {
        "schema": None,
        "environment": dict.fromkeys(names)
        | {
            "tensorrt_llm": dict.fromkeys(("version", "source")),
            "gpus": [dict.fromkeys(("index", "name", "sm", "memory_bytes", "mig", "kind"))],
            "image": dict.fromkeys(("kind", "tag", "triton_version", "tensorrt_llm", "tensorrt", "source")),
            "server": dict.fromkeys(("path", "kind", "tensorrtllm_backend")),
            "probes": [dict.fromkeys(("name", "command", "answered", "problem", "seconds"))],
        },
        "ways": [dict.fromkeys(("backend", "state", "missing", "version"))],
        "config": dict.fromkeys(("name", "backend")),
        "remarks": [dict.fromkeys(("level", "subject", "message", "fix"))],
        "exit_code": None,
    }
    bare = json.loads(json.dumps(on(machines.bare(tmp_path / "bare")).as_dict()))
    assert set(bare) == set(document)
    assert set(bare["environment"]) == set(document["environment"])
    assert set(bare["ways"][0]["missing"][0]) == {"what", "how", "stage"}

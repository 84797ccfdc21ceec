"""Which way is open where, and what the others lack, each with a way to get it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environment import machines
from tests.environment.machines import machine, smi
from trtspec.environment import Environment, Host, detect
from trtspec.environment.paths import BACKENDS, Way, ways


def found(host: Host) -> dict[str, Way]:
    return {way.backend: way for way in ways(detect(host=host))}


@pytest.mark.parametrize(
    ("make", "states"),
    [
        (machines.bare, ("closed", "build-only", "closed")),
        (machines.laptop, ("closed", "build-only", "open")),
        (machines.ngc_25_03, ("open", "build-only", "open")),
        (machines.ngc_26_05, ("open", "open", "open")),
        (machines.newer, ("closed", "open", "build-only")),
        (machines.no_gpu, ("closed", "build-only", "build-only")),
    ],
)
def test_what_is_open(tmp_path: Path, make: Callable[[Path], Host], states: tuple[str, ...]) -> None:
    judged = found(make(tmp_path))
    assert tuple(judged[backend].state for backend in BACKENDS) == states
    for way in judged.values():
        assert bool(way.missing) == (way.state != "open")
        assert all(item.what and item.how for item in way.missing)


def lacks(host: Host, backend: str) -> str:
    return " / ".join(f"{item.what}: {item.how}" for item in found(host)[backend].missing)


def test_a_newer_version_names_both_ways_out(tmp_path: Path) -> None:
    said = lacks(machines.newer(tmp_path), "tensorrt")
    assert "1.3.0rc22" in said
    assert "26.04 - 26.07" in said
    assert "engine.backend to pytorch" in said


def test_an_older_version_for_the_llm_api(tmp_path: Path) -> None:
    said = lacks(machines.ngc_25_03(tmp_path), "pytorch")
    assert "0.18.0 has no stable draft-target decoding" in said
    assert "engine.backend to tensorrt" in said


def test_another_tensorrt_than_the_version_is_built_with(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    host.package = {"tensorrt-llm": "1.2.1", "tensorrt": "10.13.3.9", "numpy": "1.26.4"}.get
    assert "TensorRT 10.13.3.9 does not belong to TensorRT-LLM 1.2.1" in lacks(host, "tensorrt")
    host = machines.ngc_26_05(tmp_path / "two")
    host.package = {"tensorrt-llm": "1.2.1", "numpy": "1.26.4"}.get
    host.environ = {**host.environ, "TRT_VERSION": "10.14.1.48"}
    assert found(host)["tensorrt"].state == "open"  # the image says which TensorRT it holds


def test_no_tool_on_path(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    (tmp_path / "bin" / "trtllm-build").unlink()
    assert "trtllm-build is not on PATH" in lacks(host, "tensorrt")


def test_building_without_a_server(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    (tmp_path / "opt/tritonserver/backends/tensorrtllm").rmdir()
    way = found(host)["tensorrt"]
    assert way.state == "build-only"
    assert "no tensorrtllm backend" in way.missing[0].what


def test_old_gpus_are_not_enough_but_a_mixed_machine_is(tmp_path: Path) -> None:
    turing, ampere = "Tesla T4, 15360, 590.44.01, 7.5, [N/A]", "NVIDIA A10G, 23028, 590.44.01, 8.6, Disabled"
    host = machine(tmp_path, programs=["nvidia-smi"], answers={"nvidia-smi": smi(turing)})
    assert "compute capability 7.5" in lacks(host, "tensorrt")
    host = machine(tmp_path, programs=["nvidia-smi"], answers={"nvidia-smi": smi(turing, ampere)})
    assert "compute capability" not in lacks(host, "tensorrt")


def test_a_driver_without_a_gpu_is_told_from_no_driver(tmp_path: Path) -> None:
    assert "no NVIDIA driver" in lacks(machines.laptop(tmp_path), "tensorrt")
    assert "no GPU that the driver (590.44.01) can see" in lacks(machines.no_gpu(tmp_path / "two"), "tensorrt")


def test_numpy_2_closes_serving_from_the_wheel(tmp_path: Path) -> None:
    host = machines.laptop(tmp_path)
    host.package = {"torch": "2.13.0", "nvidia-pytriton": "0.7.0", "numpy": "2.1.0"}.get
    assert found(host)["reference"].state == "build-only"
    assert "corrupts tensors" in lacks(host, "reference")


def test_the_version_is_that_of_the_installation(tmp_path: Path) -> None:
    judged = found(machines.ngc_26_05(tmp_path))
    assert (judged["tensorrt"].version, judged["reference"].version) == ("1.2.1", None)


def test_judging_needs_the_environment_alone(tmp_path: Path) -> None:
    environment: Environment = detect(host=machines.ngc_26_05(tmp_path))
    assert ways(environment) == ways(environment)

"""The GPU table: names, aliases, figures that hang together, and figures of one's own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import PROJECT
from trtspec.config import load_config
from trtspec.errors import ConfigError
from trtspec.hardware import ALIASES, CPU, CUSTOM, GIB, GPUS, gpu_named, with_figures

WANTED = {"a100-40gb", "a100-80gb", "h100-80gb", "h200", "l40s", "a10g", "l4", "b200", "rtx-4090", "gh200"}
NAMED = {"a100-40gb": 40, "a100-80gb": 80, "h100-80gb": 80, "h200": 141, "l40s": 48, "a10g": 24, "l4": 24,
         "b200": 180, "rtx-4090": 24, "gh200": 96}  # fmt: skip


def test_every_gpu_of_the_field_is_there() -> None:
    assert set(GPUS) >= WANTED
    assert set(ALIASES.values()) <= set(GPUS)


@pytest.mark.parametrize("name", sorted(GPUS))
def test_figures_hang_together(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.is_gpu
    assert gpu.source
    assert gpu.sm in (80, 86, 89, 90, 100)
    assert ("fp8" in gpu.flops) == (gpu.sm >= 89)
    assert ("fp4" in gpu.flops) == (gpu.sm >= 100)
    # Dense tensor-core rates double from one operand width to the next, within rounding of the sheets.
    fp16 = gpu.flops["fp16"]
    assert gpu.peak("fp8") in (fp16, pytest.approx(2 * fp16, rel=0.02))
    assert gpu.bandwidth is not None
    assert 100 < fp16 / gpu.bandwidth < 500, "operations per byte of a data-centre GPU, dense"


@pytest.mark.parametrize(("name", "size"), NAMED.items())
def test_memory_is_what_cuda_offers_not_the_name(name: str, size: int) -> None:
    memory = GPUS[name].memory_bytes
    assert memory is not None
    assert 0.9 * size * GIB < memory < size * GIB


def test_dense_not_sparse() -> None:
    assert GPUS["h100-80gb"].flops["fp16"] == pytest.approx(989.4e12)
    assert GPUS["b200"].flops["fp4"] == pytest.approx(9e15)
    assert GPUS["rtx-4090"].flops["fp8"] == pytest.approx(330.3e12), "with FP32 accumulation"


def test_names_in_any_spelling() -> None:
    assert gpu_named("H100_80GB") is GPUS["h100-80gb"]
    assert gpu_named("h100").name == "h100-80gb"
    assert gpu_named("RTX4090").name == "rtx-4090"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as refused:
        gpu_named("h10-80gb")
    assert "did you mean 'h100-80gb'?" in str(refused.value)
    with pytest.raises(ConfigError, match=r"known: a100-40gb"):
        gpu_named("zzz")


@given(st.text(max_size=40))
def test_any_text_is_a_gpu_or_one_error(text: str) -> None:
    with suppress(ConfigError):
        assert gpu_named(text).name in {*GPUS, CPU, CUSTOM}


def test_what_the_hardware_lacks_runs_as_fp16() -> None:
    assert GPUS["a100-80gb"].peak("fp8") == GPUS["a100-80gb"].flops["fp16"]
    assert gpu_named("cpu").peak("fp8") is None


def test_links() -> None:
    assert GPUS["h100-80gb"].link == 450e9, "one direction of NVLink"
    assert GPUS["l4"].link == 32e9, "PCIe, one direction"
    assert gpu_named("cpu").link is None


def test_figures_of_ones_own_override_and_say_so() -> None:
    own = with_figures(GPUS["h100-80gb"], memory_gib=10, tflops={"fp16": 100, "fp8": None})
    assert own.memory_bytes == 10 * GIB
    assert (own.flops["fp16"], own.flops["fp8"]) == (100e12, GPUS["h100-80gb"].flops["fp8"])
    assert own.bandwidth == GPUS["h100-80gb"].bandwidth
    assert "override" in own.source
    assert with_figures(GPUS["l4"]) is GPUS["l4"]


def load(tmp_path: Path, hardware: str) -> object:
    path = tmp_path / "c.yaml"
    path.write_text(f"name: c\npair: {{target: {{hub: a/b}}, draft: {{hub: a/c}}}}\nhardware: {{{hardware}}}\n")
    return load_config(path, environ={}).hardware.spec


def test_the_configuration_refuses_unknown_gpus_at_their_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "gpu: h200x")
    assert "c.yaml:3" in str(refused.value)
    assert "did you mean 'h200'?" in str(refused.value)


def test_a_custom_gpu_needs_all_its_figures(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fp16_tflops missing"):
        load(tmp_path, "gpu: custom, memory_gib: 30, bandwidth_gb_s: 1792, compute_capability: 12.0")
    spec = load(
        tmp_path, "gpu: custom, memory_gib: 30, bandwidth_gb_s: 1792, compute_capability: 12.0, fp16_tflops: 209"
    )
    assert (spec.sm, spec.bandwidth, spec.memory_bytes) == (120, 1792e9, 30 * GIB)  # type: ignore[attr-defined]


def test_a_cpu_has_no_compute_capability(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="belongs to a GPU"):
        load(tmp_path, "gpu: cpu, compute_capability: 9.0")


@pytest.mark.parametrize("name", sorted(GPUS))
def test_the_guide_has_every_gpu_with_its_figures(name: str) -> None:
    gpu, text = GPUS[name], (PROJECT / "docs" / "planning.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert gpu.memory_bytes is not None
    assert gpu.bandwidth is not None
    assert cells[2:4] == [f"{gpu.memory_bytes / GIB:.2f}", f"{gpu.bandwidth / 1e9:,.0f}"]
    assert cells[4:8] == [f"{gpu.flops[k] / 1e12:g}" if k in gpu.flops else "-" for k in ("fp16", "fp8", "int8", "fp4")]

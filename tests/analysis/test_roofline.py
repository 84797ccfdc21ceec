"""Step times: monotone in what they should be, and near published single-stream speeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.test_shape import LLAMA_1B, LLAMA_70B, MIXTRAL
from trtspec.analysis.roofline import Machine, Work, compute_bound_from, step
from trtspec.analysis.shape import Format, Shape
from trtspec.hardware import GPUS

FP8, FP16 = Format(8, fixed=8), Format(16)
LLAMA_405B = Shape(126, 16384, 128, 8, 128, 53248, 128256)
LLAMA_8B = Shape(32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_2_70B = replace(LLAMA_70B, vocab=32000)
LLAMA_2_7B = Shape(32, 4096, 32, 32, 128, 11008, 32000)
QWEN_7B = Shape(28, 3584, 28, 4, 128, 18944, 152064, qkv_bias=True)


def machine(name: str, kind: str = "fp16") -> Machine:
    gpu = GPUS[name]
    peak = gpu.peak(kind)
    assert gpu.bandwidth
    assert peak
    return Machine(gpu.bandwidth, peak, gpu.link)


PUBLISHED = {
    # name: (work, machine, context, tokens per second of one stream, allowed error)
    "TensorRT-LLM 70B FP8, H200": (Work(LLAMA_70B, FP8, 2, 1), machine("h200", "fp8"), 51.14, 0.05),
    "TensorRT-LLM 405B FP8, 4 H200": (Work(LLAMA_405B, FP8, 2, 1, 4), machine("h200", "fp8"), 33.46, 0.05),
    "SGLang 8B BF16, H100": (Work(LLAMA_8B, FP16, 2, 2), machine("h100-80gb"), 158.3, 0.05),
    "vLLM Qwen2.5-Coder 7B, RTX 4090": (Work(QWEN_7B, FP16, 2, 2), machine("rtx-4090"), 1000 / 15.73, 0.10),
    # A100 limited to 330 W: the estimate, made for full power, is 11 to 18 % faster.
    "gpt-fast 7B BF16, A100": (Work(LLAMA_2_7B, FP16, 2, 2), machine("a100-80gb"), 104.9, 0.20),
    "gpt-fast 7B BF16, 8 A100": (Work(LLAMA_2_7B, FP16, 2, 2, 8), machine("a100-80gb"), 328.43, 0.20),
    "gpt-fast 70B BF16, 2 A100": (Work(LLAMA_2_70B, FP16, 2, 2, 2), machine("a100-80gb"), 21.32, 0.20),
    "gpt-fast 70B BF16, 4 A100": (Work(LLAMA_2_70B, FP16, 2, 2, 4), machine("a100-80gb"), 38.01, 0.20),
    "gpt-fast 70B BF16, 8 A100": (Work(LLAMA_2_70B, FP16, 2, 2, 8), machine("a100-80gb"), 62.50, 0.20),
}


@pytest.mark.parametrize(("work", "on", "tokens_per_second", "allowed"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_single_stream_speeds(work: Work, on: Machine, tokens_per_second: float, allowed: float) -> None:
    assert step(work, on, context=500).seconds == pytest.approx(1 / tokens_per_second, rel=allowed)


TARGET = Work(LLAMA_70B, FP8, 2, 1, 8)
H100 = machine("h100-80gb", "fp8")


def test_a_step_by_hand() -> None:
    work, on = Work(LLAMA_8B, FP16, 2, 2), Machine(1e12, 1e15)
    found = step(work, on, batch=2, context=1000, positions=3)
    read = 2 * (LLAMA_8B.parameters - 128256 * 4096 - 65 * 4096) + 2 * 1000 * 131072
    assert found.memory == pytest.approx(read / 0.9e12)
    assert found.compute == pytest.approx(2 * 6 * (LLAMA_8B.parameters - 128256 * 4096 - 65 * 4096) / 0.65e15)
    assert found.floor == pytest.approx(32 * 40e-6)


@given(st.integers(1, 256), st.integers(1, 16), st.integers(0, 32768))
def test_steps_grow_with_batch_positions_and_context(batch: int, positions: int, context: int) -> None:
    here = step(TARGET, H100, batch=batch, context=context, positions=positions).seconds
    assert step(TARGET, H100, batch=batch + 1, context=context, positions=positions).seconds >= here
    assert step(TARGET, H100, batch=batch, context=context, positions=positions + 1).seconds >= here
    assert step(TARGET, H100, batch=batch, context=context + 256, positions=positions).seconds >= here


@given(st.integers(0, 8192), st.integers(1, 16))
def test_the_first_compute_bound_batch_is_the_first(context: int, positions: int) -> None:
    first = compute_bound_from(TARGET, H100, context=context, positions=positions, most=1024)
    assert first >= 1
    if first <= 1024:
        assert step(TARGET, H100, batch=first, context=context, positions=positions).compute_bound
    if 1 < first <= 1024:
        assert not step(TARGET, H100, batch=first - 1, context=context, positions=positions).compute_bound


def test_verifying_more_positions_is_bound_earlier() -> None:
    assert compute_bound_from(TARGET, H100, positions=6) < compute_bound_from(TARGET, H100, positions=1)


def test_verifying_is_nearly_free_at_batch_1_and_not_under_load() -> None:
    def v(batch: int) -> float:
        return step(TARGET, H100, batch=batch, positions=6).seconds / step(TARGET, H100, batch=batch).seconds

    assert v(1) < 1.05
    assert v(128) > 1.5


def test_a_mixture_reads_the_experts_that_are_hit() -> None:
    work = Work(MIXTRAL, FP16, 2, 2)
    one, all_ = work.bytes_read(1, 0, 1), work.bytes_read(1024, 0, 1)
    assert one == pytest.approx(2 * (MIXTRAL.active_parameters - 32000 * 4096), rel=0.001)
    assert all_ == pytest.approx(2 * (MIXTRAL.parameters - 32000 * 4096), rel=0.001)
    assert one < work.bytes_read(4, 0, 1) < all_


def test_a_small_draft_is_dearer_than_its_bytes() -> None:
    draft = Work(LLAMA_1B, FP8, 2, 1)
    by_time = step(draft, H100).seconds / step(replace(TARGET, tensor=1), H100).seconds
    by_bytes = draft.bytes_read(1, 0, 1) / replace(TARGET, tensor=1).bytes_read(1, 0, 1)
    assert by_time > 1.5 * by_bytes


def test_splitting_a_small_model_costs_all_reduces() -> None:
    assert step(Work(LLAMA_1B, FP8, 2, 1, 4), H100).floor > step(Work(LLAMA_1B, FP8, 2, 1), H100).floor

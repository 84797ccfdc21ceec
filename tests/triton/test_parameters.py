"""The LLM models' parameters as text, and what a TensorRT-LLM version does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.config.parameters import ModelParameters
from trtspec.errors import ConfigError
from trtspec.triton.parameters import MUST_EXIST, Planned, llm_parameters, reference_parameters, text
from trtspec.versions import version

PLANNED = Planned(Path("/e"), 0.8416, 4096, (0, 1), (2, 3), (64, 128), fast_logits=True)


def written(name: str = "1.2.1", planned: Planned = PLANNED, **given: Any) -> dict[str, str]:
    return llm_parameters("target", planned, ModelParameters(**given), version(name))


def test_planned_values() -> None:
    found = written()
    assert found["gpt_model_path"] == "/e"
    assert found["kv_cache_free_gpu_mem_fraction"] == "0.8416"
    assert found["max_tokens_in_paged_kv_cache"] == "4096"
    assert found["gpu_device_ids"] == "0,1"  # not escaped: nothing fills this file
    assert found["participant_ids"] == "2,3"
    assert found["max_attention_window_size"] == "64,128"
    assert found["speculative_decoding_fast_logits"] == "true"
    assert found["enable_kv_cache_reuse"] == "true"
    assert all(found[name] == "" for name in MUST_EXIST)


def test_what_was_not_planned_is_left_to_tensorrt_llm() -> None:
    found = written(planned=Planned(Path("/e"), 0.45, None, ()))
    absent = ("max_tokens_in_paged_kv_cache", "gpu_device_ids", "participant_ids", "max_attention_window_size")
    assert not {*absent, "speculative_decoding_fast_logits", "decoding_mode", "lora_prefetch_dir"} & set(found)


def test_given_values_win() -> None:
    found = written(
        kv_cache_free_gpu_mem_fraction=0.3, max_tokens_in_paged_kv_cache=64, enable_chunked_context=True,
        gpt_model_path=Path("/mnt/e"), batch_scheduler_policy="max_utilization", lora_prefetch_dir=Path("/l"),
        guided_decoding_backend="xgrammar", tokenizer_dir=Path("/t"),
    )  # fmt: skip
    assert found["kv_cache_free_gpu_mem_fraction"] == "0.3"
    assert found["enable_chunked_context"] == "true"
    assert (found["gpt_model_path"], found["tokenizer_dir"]) == ("/mnt/e", "/t")
    assert found["batch_scheduler_policy"] == "max_utilization"


@pytest.mark.parametrize(
    ("name", "given", "known"),
    [
        ("0.18.2", {"num_nodes": 1}, "1.2.1"),
        ("0.17.0", {"lora_prefetch_dir": Path("/l")}, "0.19.0"),
        ("0.18.2", {"guided_decoding_backend": "xgrammar", "tokenizer_dir": Path("/t")}, "0.19.0"),
        ("1.2.1", {"enable_trt_overlap": True}, "0.17.0"),
    ],
)
def test_a_parameter_of_another_version_is_refused(name: str, given: dict[str, Any], known: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(name, **given)
    assert caught.value.where is not None
    assert caught.value.where.removeprefix("serving.target_parameters.") in given
    assert name in caught.value.what
    assert written(known, **given)


@pytest.mark.parametrize("name", ["0.17.0", "0.19.0", "1.2.1"])
def test_keys_that_must_exist_do(name: str) -> None:
    assert set(MUST_EXIST) <= set(written(name))


@given(st.floats(0, 1))
def test_fractions_are_plain_decimals(value: float) -> None:
    assert abs(float(text(value)) - value) < 1e-6
    assert "e" not in text(value)


def test_the_reference_engine_keeps_its_parameters() -> None:
    found = reference_parameters(Path("/e"), 3)
    assert found["kv_cache_free_gpu_mem_fraction"] == "0.45"
    assert found["reference_threads"] == "3"
    assert "max_tokens_in_paged_kv_cache" not in found

"""Parameters of the LLM models: every key of TensorRT-LLM's template, and nothing that would end speculation."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtspec.config import load_config
from trtspec.config.parameters import BREAKING, ModelParameters
from trtspec.errors import ConfigError

# Transcribed from the template and the backend's sources, not from the class.
_TEMPLATE = """gpt_model_type gpt_model_path encoder_model_path max_beam_width max_tokens_in_paged_kv_cache
    max_attention_window_size sink_token_length batch_scheduler_policy kv_cache_free_gpu_mem_fraction
    cross_kv_cache_fraction kv_cache_host_memory_bytes kv_cache_onboard_blocks enable_kv_cache_reuse
    exclude_input_in_output cancellation_check_period_ms stats_check_period_ms recv_poll_period_ms
    iter_stats_max_iterations request_stats_max_iterations normalize_log_probs enable_chunked_context
    enable_trt_overlap gpu_device_ids participant_ids num_nodes executor_worker_path
    lora_cache_optimal_adapter_size lora_cache_max_adapter_size lora_cache_gpu_memory_fraction
    lora_cache_host_memory_bytes lora_prefetch_dir decoding_mode medusa_choices eagle_choices lookahead_window_size
    lookahead_ngram_size lookahead_verification_set_size gpu_weights_percent multi_block_mode
    enable_context_fmha_fp32_acc cuda_graph_mode cuda_graph_cache_size speculative_decoding_fast_logits tokenizer_dir
    guided_decoding_backend xgrammar_tokenizer_info_path FORCE_CPU_ONLY_INPUT_TENSORS"""
UPSTREAM = set(_TEMPLATE.split())
REFUSED = [
    ("enable_kv_cache_reuse=false", "KV-cache reuse"),
    ("exclude_input_in_output=true", "empty text"),
    ("max_beam_width=2", "beams and drafts"),
    ("decoding_mode=medusa", "verifies drafts by sampling"),
    ("decoding_mode=beam_search", "verifies drafts by sampling"),
    ("kv_cache_onboard_blocks=false", "does not load without onboarding"),
    ("gpt_model_type=V1", "static batching"),
    ("sink_token_length=4", "switch KV-cache reuse off"),
    ("lookahead_window_size=3", "another kind of speculation"),
    ("medusa_choices='{0,0}'", "another kind of speculation"),
    ("eagle_choices='{0,0}'", "another kind of speculation"),
    ("cross_kv_cache_fraction=0.5", "decoder-only"),
    ("encoder_model_path=/e", "decoder-only"),
    ("speculative_decoding_fast_logits=true", "speculation.fast_logits"),
    ("gpu_device_ids=[0, 1, 0]", "names one twice"),
    ("gpt_model_path=engines/x", "not absolute"),
    ("tokenizer_dir=/t", "go together"),
]


def test_every_parameter_of_the_backend_can_be_set() -> None:
    assert set(ModelParameters.model_fields) == UPSTREAM
    assert ModelParameters().given == ()


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(("setting", "why"), REFUSED, ids=[setting for setting, _ in REFUSED])
def test_what_would_break_speculation_is_refused_with_the_reason(
    setting: str, why: str, role: str, tiny_config: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tiny_config, [f"serving.{role}_parameters.{setting}"])
    assert why in caught.value.what
    assert f"serving.{role}_parameters" in caught.value.what
    assert str(caught.value.where).startswith("--set")


def test_the_harmless_value_of_a_refused_key_is_fine() -> None:
    for name, (allowed, _) in BREAKING.items():
        for value in allowed:
            assert ModelParameters(**{name: value}).given == (name,)


def test_an_unknown_parameter_brings_the_nearest_known_one(tiny_config: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tiny_config, ["serving.draft_parameters.kv_cache_free_gpu_memory_fraction=0.3"])
    assert caught.value.fix == "did you mean 'kv_cache_free_gpu_mem_fraction'?"


@pytest.mark.parametrize("setting", ["kv_cache_free_gpu_mem_fraction=1.5", "max_tokens_in_paged_kv_cache=many",
                                     "gpu_device_ids=[]", "gpu_device_ids=[-1]", "participant_ids=[0]",
                                     "batch_scheduler_policy=fair"])  # fmt: skip
def test_values_are_typed(setting: str, tiny_config: Path) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        load_config(tiny_config, [f"serving.target_parameters.{setting}"])


def test_fast_logits_need_logits(tiny_config: Path) -> None:
    with pytest.raises(ConfigError, match="fast_logits has a meaning only with"):
        load_config(tiny_config, ["speculation.fast_logits=true"])
    assert load_config(
        tiny_config, ["speculation.fast_logits=true", "speculation.acceptance=logits"]
    ).speculation.fast_logits

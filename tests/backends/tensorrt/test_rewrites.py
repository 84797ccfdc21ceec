"""Each silent change of trtllm-build is foreseen: what becomes of the flag, and whether the engine is still of use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.backends.tensorrt.pairs import pair
from trtspec.backends.tensorrt.builder import refuse
from trtspec.backends.tensorrt.flags import Flags, engine_flags
from trtspec.backends.tensorrt.rewrites import predict
from trtspec.backends.tensorrt.rules import RULES
from trtspec.backends.tensorrt.subject import Subject, of_checkpoint, planned
from trtspec.config import ROLES
from trtspec.errors import ConfigError, ModelFileError
from trtspec.versions import version

LATEST, OLDEST = version("1.2.1"), version("0.17.0")
SIZES: Flags = {
    "max_batch_size": 2, "max_input_len": 8, "max_seq_len": 10, "max_num_tokens": 20, "gemm_plugin": "auto",
    "use_paged_context_fmha": "enable", "use_fp8_context_fmha": "disable", "context_fmha": "enable",
}  # fmt: skip
MODE: Flags = {"speculative_decoding_mode": "draft_tokens_external", "max_draft_len": 3}
FP8: dict[str, Any] = {"quant_algo": "FP8", "kv_algo": "FP8"}
CASES: list[tuple[str, Flags, dict[str, Any], Flags, bool]] = [
    # rule, flags, subject, what becomes of them, refused for a target
    ("float32", {}, {"dtype": "float32"}, {}, True),
    ("nvfp4-unknown", {}, {"quant_algo": "NVFP4", "version": OLDEST}, {}, True),
    ("workers", {"workers": 8}, {"gpus": 4}, {"workers": 4}, False),
    ("mode-missing", {"max_draft_len": 3}, {}, {}, True),
    ("drafts-missing", {"speculative_decoding_mode": "draft_tokens_external"}, {}, {}, True),
    ("input-clipped", {"max_input_len": 11}, {}, {"max_input_len": 10}, False),
    ("tokens-cut", {"max_num_tokens": 21}, {}, {"max_num_tokens": 20}, False),
    ("tokens-block", {"tokens_per_block": 32}, {}, {"max_num_tokens": 32}, False),
    ("streamingllm", {"streamingllm": "enable"}, {}, {"use_paged_context_fmha": "disable"}, True),
    ("reduce-fusion", {"reduce_fusion": "enable"}, {"tensor": 1}, {"reduce_fusion": "disable"}, False),
    ("user-buffer", {"user_buffer": "enable"}, {"tensor": 2}, {"user_buffer": "disable"}, False),
    ("norm-quant-fusion", {"norm_quant_fusion": "enable"}, FP8, {"norm_quant_fusion": "disable"}, False),
    ("draft-room", MODE, {}, {"max_seq_len": 13}, False),
    ("tokens-raised", MODE | {"max_num_tokens": 7}, {}, {"max_num_tokens": 8, "max_seq_len": 13}, False),
    ("no-context-fmha", {"context_fmha": "disable"}, {}, {"use_paged_context_fmha": "disable"}, True),
    ("fp8-attention", {"use_fp8_context_fmha": "enable"}, {}, {"use_fp8_context_fmha": "disable"}, False),
    ("fp8-cache", {}, {"kv_algo": "FP8"}, {"use_paged_context_fmha": "disable"}, True),
    ("fp8-cache", {}, {"quant_algo": "W4A16_AWQ", "kv_algo": "FP8"}, {"use_paged_context_fmha": "disable"}, True),
    ("old-gpu", {"use_fp8_context_fmha": "enable"}, {"quant_algo": "FP8", "sm": 80},
     {"use_fp8_context_fmha": "disable"}, False),
    ("old-gpu-cache", {}, FP8 | {"sm": 86}, {"use_paged_context_fmha": "disable"}, True),
    ("fp8-needs-cache", {"use_fp8_context_fmha": "enable"}, {"quant_algo": "FP8"},
     {"use_fp8_context_fmha": "disable"}, False),
    ("fp8-turned-on", {}, FP8, {"use_fp8_context_fmha": "enable"}, False),
    ("int8-cache", {}, {"quant_algo": "W8A16", "kv_algo": "INT8"}, {"use_paged_context_fmha": "disable"}, True),
    ("context-logits", MODE | {"gather_context_logits": True}, {}, {"max_seq_len": 13}, True),
    ("context-logits", MODE | {"gather_all_token_logits": True}, {}, {"max_seq_len": 13}, True),
    ("blackwell-integers", {}, {"quant_algo": "W4A16_AWQ", "sm": 100}, {}, True),
    ("blackwell-scales", {}, {"quant_algo": "W8A8_SQ_PER_CHANNEL", "sm": 100}, {}, True),
    ("wrong-gpu", {}, {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "sm": 80}, {}, True),
    ("wrong-gpu", {}, {"sm": 75}, {}, True),
    ("swiglu", {"gemm_swiglu_plugin": "fp8", "use_fused_mlp": "disable"}, {}, {}, True),
    ("weight-streaming", {"weight_streaming": True}, {}, {}, True),
    ("nvfp4-plugin", {}, {"quant_algo": "NVFP4", "sm": 100}, {"gemm_plugin": "nvfp4"}, False),
    ("nccl-plugin", {"nccl_plugin": "auto"}, {"tensor": 1}, {"nccl_plugin": "disable"}, False),
]  # fmt: skip


def subject(**facts: Any) -> Subject:
    given = {"role": "target", "version": LATEST, "dtype": "bfloat16", "sm": 90, "architecture": "LlamaForCausalLM"}
    return Subject(**(given | facts))


@pytest.mark.parametrize(("rule", "flags", "facts", "becomes", "refused"), CASES)
def test_each_change_is_foreseen(rule: str, flags: Flags, facts: dict[str, Any], becomes: Flags, refused: bool) -> None:
    found = predict(SIZES | flags, subject(**facts))
    mine = [rewrite for rewrite in found.rewrites if rewrite.rule.name == rule]
    assert mine, [rewrite.rule.name for rewrite in found.rewrites]
    assert {name: found.flags[name] for name in becomes} == becomes
    assert any(rewrite.refused for rewrite in mine) == refused
    assert all(rewrite.rule.why in str(rewrite) for rewrite in mine)


def test_every_rule_has_a_case() -> None:
    assert {rule.name for rule in RULES} == {case[0] for case in CASES}


@pytest.mark.parametrize(("rule", "flags", "facts", "becomes", "refused"), CASES)
def test_without_its_reason_no_rule_applies(
    rule: str, flags: Flags, facts: dict[str, Any], becomes: Flags, refused: bool
) -> None:
    assert rule not in {rewrite.rule.name for rewrite in predict(SIZES, subject()).rewrites}


def test_old_versions_raise_for_a_draft_where_new_ones_only_warn() -> None:
    facts = {"role": "draft", "kv_algo": "FP8"}
    assert not predict(SIZES, subject(**facts)).refused
    (refused,) = predict(SIZES, subject(**facts, version=OLDEST)).refused
    assert str(refused).endswith("this version may end with an error instead")


def test_pipelines_lose_reduce_fusion_only_in_old_versions() -> None:
    flags, facts = SIZES | {"reduce_fusion": "enable"}, {"tensor": 2, "pipeline": 2}
    assert predict(flags, subject(**facts)).flags["reduce_fusion"] == "enable"
    assert predict(flags, subject(**facts, version=OLDEST)).flags["reduce_fusion"] == "disable"
    other = subject(tensor=2, architecture="Qwen2ForCausalLM")
    assert predict(flags, other).flags["reduce_fusion"] == "disable"


@pytest.mark.parametrize("role", ROLES)
def test_what_we_ask_for_is_hardly_changed(role: Any) -> None:
    """Only the draft's room is added: every other flag is asked for as it will be recorded."""
    wanted = planned(pair(), role, LATEST, "LlamaForCausalLM")
    found = predict(engine_flags(pair(), wanted), wanted)
    assert [rewrite.rule.name for rewrite in found.rewrites] == (["draft-room"] if role == "target" else [])


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="use_paged_context_fmha enable becomes disable") as caught:
        refuse(predict(SIZES, subject(kv_algo="INT8")), "pair.target")
    assert "kv_cache to auto" in str(caught.value.fix)


def test_a_checkpoint_tells_its_formats_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"dtype": "float16", "mapping": {"tp_size": 2, "pp_size": 3}, "quantization": {"kv_cache_quant_algo": "FP8"}}'
    )
    found = of_checkpoint(tmp_path, "draft", LATEST, sm=89)
    assert (found.ranks, found.kv_algo, found.quant_algo, found.fp8) == (6, "FP8", None, False)


@pytest.mark.parametrize("text", ["", "[]", '{"mapping": 1}', '{"quantization": [1]}', "\x00"])
def test_a_broken_checkpoint_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFileError):
        of_checkpoint(tmp_path, "draft", LATEST)

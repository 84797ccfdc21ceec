"""The exact lines of both engines: every version, every shipped configuration, equal limits, flags of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.tensorrt.pairs import formats, pair, parsed
from tests.conftest import PROJECT
from trtspec.backends.tensorrt.commands import build_command, timing_cache, tool_of
from trtspec.backends.tensorrt.flags import REFUSED
from trtspec.config import ROLES, RunConfig, load_config
from trtspec.errors import ConfigError
from trtspec.versions import NAMES, check_flags, version

LATEST = version("1.2.1")


def line(config: RunConfig, role: str, release: str = "1.2.1") -> tuple[str, ...]:
    return build_command(config, role, Path("/c"), Path("/e"), version(release))  # type: ignore[arg-type]


def test_the_target_of_a_plain_pair() -> None:
    assert line(pair(target={"parallelism": {"tensor": 2}}), "target") == (
        *("trtllm-build", "--checkpoint_dir", "/c", "--output_dir", "/e", "--max_batch_size", "4"),
        *("--max_input_len", "1024", "--max_seq_len", "1024", "--max_num_tokens", "4096", "--max_beam_width", "1"),
        *("--kv_cache_type", "paged", "--tokens_per_block", "32", "--remove_input_padding", "enable"),
        *("--context_fmha", "enable", "--use_paged_context_fmha", "enable", "--use_fp8_context_fmha", "disable"),
        *("--gemm_plugin", "auto", "--logits_dtype", "float32"),
        *("--speculative_decoding_mode", "draft_tokens_external", "--max_draft_len", "5"),
        *("--gather_generation_logits", "--workers", "2", "--log_level", "info"),
        *("--input_timing_cache", "/results/engines/.timing-cache/sm90-tensorrt10.14.cache"),
        *("--output_timing_cache", "/e/model.cache"),
    )


def test_a_draft_has_no_mode_and_gathers_logits_only_for_the_logits_rule() -> None:
    tokens = parsed(line(pair(), "draft"))
    assert not {"speculative_decoding_mode", "max_draft_len", "gather_generation_logits"} & set(tokens)
    both = [parsed(line(pair(speculation={"acceptance": "logits"}), role)) for role in ROLES]
    assert all(flags["gather_generation_logits"] is True for flags in both)
    assert both[0]["logits_dtype"] == both[1]["logits_dtype"] == "float32"


@pytest.mark.parametrize("release", NAMES)
@pytest.mark.parametrize("name", ["llama70b", "qwen2.5"])
@pytest.mark.parametrize("role", ROLES)
def test_shipped_configurations_render_for_every_version(release: str, name: str, role: str) -> None:
    config = load_config(PROJECT / "configs" / f"{name}.yaml")
    words = line(config, role, release)
    check_flags(version(release), words)
    flags = parsed(words)
    assert flags["use_paged_context_fmha"] == "enable"
    assert flags["workers"] == config.pair[role].parallelism.world_size  # type: ignore[index]
    assert set(version(release).must_pass) <= set(flags), "defaults that flipped are always given"
    assert flags["use_fp8_context_fmha"] == ("enable" if name == "llama70b" else "disable")


@given(
    batch=st.integers(1, 4096),
    length=st.integers(2, 200_000),
    drafts=st.integers(1, 128),
    tokens=st.one_of(st.none(), st.integers(1, 100_000)),
    acceptance=st.sampled_from(["tokens", "logits"]),
)
def test_limits_agree_across_the_pair(
    batch: int, length: int, drafts: int, tokens: int | None, acceptance: str
) -> None:
    config = pair(
        engine={"max_batch_size": batch, "max_input_len": 1, "max_seq_len": length, "max_num_tokens": tokens},
        speculation={"max_draft_len": drafts, "draft_len": 1, "acceptance": acceptance},
    )
    target, draft = (parsed(line(config, role)) for role in ("target", "draft"))
    for name in ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "max_beam_width", "logits_dtype"):
        assert target[name] == draft[name]
    # A verify call sends all so far and its drafts: at most max_seq_len - 1 tokens together.
    assert int(target["max_input_len"]) >= length - 1
    assert int(target["max_num_tokens"]) >= min(batch * (drafts + 1), batch * length), "one round of a full batch"
    assert int(target["max_num_tokens"]) <= batch * length
    if tokens is None:
        assert int(target["max_num_tokens"]) >= min(length, batch * length), "the longest input in one step"


@pytest.mark.parametrize(
    ("weights", "kv_cache", "gpu", "fp8", "gemm"),
    [
        ("none", "auto", "h100-80gb", "disable", "auto"),
        ("fp8", "fp8", "h100-80gb", "enable", "disable"),
        ("fp8", "fp8", "a100-80gb", "disable", "disable"),
        ("fp8", "auto", "h100-80gb", "disable", "disable"),
        ("w4a8_awq", "fp8", "h100-80gb", "enable", "auto"),
        ("int4_awq", "auto", "h100-80gb", "disable", "auto"),
        ("nvfp4", "fp8", "b200", "enable", "nvfp4"),
    ],
)
def test_attention_and_matrix_kernels_follow_the_formats(
    weights: str, kv_cache: str, gpu: str, fp8: str, gemm: str
) -> None:
    flags = parsed(line(pair(target=formats(weights, kv_cache), hardware={"gpu": gpu}), "target"))
    assert (flags["use_fp8_context_fmha"], flags["gemm_plugin"]) == (fp8, gemm)


def test_own_flags_come_last_and_replace_ours() -> None:
    own = {"reduce_fusion": True, "gemm_plugin": "bfloat16", "opt_num_tokens": 64, "weight_sparsity": True,
           "monitor_memory": False}  # fmt: skip
    flags = parsed(line(pair(engine={"tensorrt": {"flags": own}}), "target"))
    assert flags["reduce_fusion"] == "enable", "YAML reads `on` as true"
    assert (flags["gemm_plugin"], flags["opt_num_tokens"], flags["weight_sparsity"]) == ("bfloat16", 64, True)
    assert "monitor_memory" not in flags


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_flags_that_break_speculation_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name} cannot be set by hand") as caught:
        line(pair(engine={"tensorrt": {"flags": {name: "disable"}}}), "target")
    assert caught.value.where == f"engine.tensorrt.flags.{name}"


@pytest.mark.parametrize(
    ("flags", "release", "message"),
    [
        ({"no_such_flag": 1}, "1.2.1", "is no flag"),
        ({"auto_parallel": 2}, "1.2.1", "0.17.0 - 0.18.2 only"),
        ({"norm_quant_fusion": "enable"}, "0.19.0", "1.2.0"),
        ({"gemm_plugin": "float64"}, "1.2.1", "takes auto"),
        ({"opt_num_tokens": "many"}, "1.2.1", "whole number"),
        ({"weight_sparsity": "yes"}, "1.2.1", "takes no value"),
        ({"tp_size": 2}, "1.2.1", "mapping"),
    ],
)
def test_flags_that_a_version_does_not_take(flags: dict[str, object], release: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        line(pair(engine={"tensorrt": {"flags": flags}}), "draft", release)
    assert str(caught.value.where).startswith(f"engine.tensorrt.flags.{next(iter(flags))}")


def test_the_timing_cache_is_of_one_gpu_generation_and_one_tensorrt() -> None:
    names = {timing_cache(pair(), sm, trt).name for sm in (80, 90, None) for trt in ("10.14.1.48", "10.9.0.34", None)}
    assert len(names) == 9
    assert "sm90-tensorrt10.14.1.48.cache" in names


def test_the_tool_of_another_installation() -> None:
    assert tool_of(pair()) is None
    assert tool_of(pair(engine={"tools": {"python": "/venv/bin/python"}})) == Path("/venv/bin/trtllm-build")
    own = pair(engine={"tools": {"trtllm_build": "/opt/x y/build", "python": "/venv/bin/python"}})
    assert line(own, "draft")[0] == "/opt/x y/build"

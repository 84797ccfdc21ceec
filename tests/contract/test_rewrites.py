"""The stand-ins themselves: what `trtllm-build` changes without being asked, §1.3.

Every expected value below stands in the fact sheet (sections in README.md); none is taken from the stand-ins' tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.made import EVERY, PAGED, SIZES, TARGET, built, call, checkpoint, places
from tests.contract.standins.build import recorded
from tests.contract.standins.versions import EARLY, LATE, VERSIONS


@pytest.mark.parametrize(("version", "generation"), EVERY)
def test_a_mode_lengthens_the_sequence_and_raises_the_tokens(tmp_path: Path, version: str, generation: str) -> None:
    checkpoint(tmp_path / "checkpoint")
    made = built(tmp_path, [*TARGET, *SIZES[:6], "--max_num_tokens", "20", *PAGED], version, generation)
    assert made["speculative_decoding_mode"] == 2
    assert made["max_seq_len"] == 128 + 8
    assert made["max_num_tokens"] == max(4 * 9, 64 if generation == EARLY else 32)
    assert made["max_input_len"] == 64


@pytest.mark.parametrize(("version", "generation"), EVERY)
def test_a_length_without_the_mode_builds_something_else_without_a_word(
    tmp_path: Path, version: str, generation: str
) -> None:
    checkpoint(tmp_path / "checkpoint")
    made = built(tmp_path, ["--max_draft_len", "8", *SIZES], version, generation)
    assert (made["speculative_decoding_mode"], made["max_draft_len"], made["max_seq_len"]) == (1, 8, 128)


@pytest.mark.parametrize(
    ("weights", "kv", "sm", "paged", "fp8"),
    [
        (None, None, "90", True, False),
        (None, "FP8", "90", False, False),
        (None, "INT8", "90", False, False),
        ("FP8", "FP8", "90", True, True),
        ("FP8", None, "90", True, False),
        ("FP8", "FP8", "80", False, False),
        ("FP8", None, "80", True, False),
        ("FP8", "INT8", "90", False, False),
        ("FP8_PER_CHANNEL_PER_TOKEN", None, "90", True, False),
        ("FP8_PER_CHANNEL_PER_TOKEN", "FP8", "90", False, False),
        ("W4A16_AWQ", "FP8", "90", False, False),
        ("W4A8_AWQ", "FP8", "90", True, True),
        ("W8A16", "FP8", "90", False, False),
        ("W8A16", None, "90", True, False),
        ("NVFP4", "FP8", "100", True, True),
    ],
)
@pytest.mark.parametrize("asked", ["enable", "disable"])
def test_late_releases_switch_paged_and_fp8_attention_off_with_a_warning(
    tmp_path: Path, weights: str | None, kv: str | None, sm: str, paged: bool, fp8: bool, asked: str
) -> None:
    checkpoint(tmp_path / "checkpoint", weights=weights, kv=kv)
    made = built(tmp_path, [*PAGED, "--use_fp8_context_fmha", asked], "1.2.1", STANDIN_SM=sm)["plugin_config"]
    assert (made["use_paged_context_fmha"], made["use_fp8_context_fmha"]) == (paged, fp8)


@pytest.mark.parametrize(("kv", "weights"), [("INT8", None), ("FP8", None), ("FP8", "W4A16_AWQ"), ("INT8", "FP8")])
@pytest.mark.parametrize("version", ["0.17.0.post1", "0.18.2", "0.19.0"])
def test_early_releases_raise_instead(
    tmp_path: Path, version: str, kv: str, weights: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint(tmp_path / "checkpoint", weights=weights, kv=kv)
    given = [*places(tmp_path), *PAGED]
    assert call(given, version, EARLY) == 1
    assert "RuntimeError" in capsys.readouterr().err
    assert not list((tmp_path / "engine").iterdir())


@pytest.mark.parametrize(("version", "generation"), EVERY)
def test_fp8_everywhere_switches_fp8_attention_on_and_types_strongly(
    tmp_path: Path, version: str, generation: str
) -> None:
    checkpoint(tmp_path / "checkpoint", weights="FP8", kv="FP8")
    made = built(tmp_path, [*PAGED, "--use_fp8_context_fmha", "disable"], version, generation)
    assert made["plugin_config"]["use_fp8_context_fmha"] is True
    assert made["strongly_typed"] is True


@pytest.mark.parametrize(("version", "generation"), EVERY)
def test_context_fmha_off_takes_both_with_it_in_late_releases(tmp_path: Path, version: str, generation: str) -> None:
    checkpoint(tmp_path / "checkpoint")
    made = built(tmp_path, [*PAGED, "--context_fmha", "disable"], version, generation)["plugin_config"]
    assert made["use_paged_context_fmha"] is (generation == EARLY)


@pytest.mark.parametrize(("version", "generation"), EVERY)
def test_reduce_fusion_needs_tensor_parallelism(tmp_path: Path, version: str, generation: str) -> None:
    words = ["--reduce_fusion", "enable", "--user_buffer", "enable"]
    checkpoint(tmp_path / "checkpoint")
    plugins = built(tmp_path, words, version, generation)["plugin_config"]
    assert (plugins["reduce_fusion"], plugins["user_buffer"]) == (False, False)
    checkpoint(tmp_path / "checkpoint", tp=2)
    assert built(tmp_path, words, version, generation)["plugin_config"]["reduce_fusion"] is True
    checkpoint(tmp_path / "checkpoint", tp=2, pp=2)
    plugins = built(tmp_path, words, version, generation)["plugin_config"]
    assert plugins["reduce_fusion"] is (generation == LATE)


@pytest.mark.parametrize(
    ("weights", "kv"), [("W8A16", None), ("W4A16", None), (None, "INT8"), ("W8A8_SQ_PER_CHANNEL", None),
                        ("FP8_PER_CHANNEL_PER_TOKEN", None)],
)  # fmt: skip
@pytest.mark.parametrize(("sm", "code"), [("90", 0), ("100", 1), ("103", 1), ("120", 0)])
def test_int8_and_int4_are_refused_on_sm_100_to_119(
    tmp_path: Path, weights: str | None, kv: str | None, sm: str, code: int
) -> None:
    checkpoint(tmp_path / "checkpoint", weights=weights, kv=kv)
    given = places(tmp_path)
    assert call(given, "1.2.1", environment={"STANDIN_SM": sm}) == code


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("flag", ["--gather_context_logits", "--gather_all_token_logits"])
def test_context_logits_do_not_go_with_drafts(tmp_path: Path, version: str, flag: str) -> None:
    checkpoint(tmp_path / "checkpoint")
    given = places(tmp_path)
    assert call([*given, *TARGET, flag], version) == 1
    assert call([*given, flag], version) == 0


def test_length_is_deduced_from_the_rope(tmp_path: Path) -> None:
    for scaling, length in (
        (None, 512),
        ({"rope_type": "linear", "factor": 4.0}, 2048),
        ({"type": "llama3", "factor": 8.0}, 512),
        ({"rope_type": "longrope", "factor": 8.0}, 512),
    ):
        checkpoint(tmp_path / "checkpoint", rotary_scaling=scaling)
        assert built(tmp_path, [])["max_seq_len"] == length


def test_logits_type_is_the_checkpoints_unless_given(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint", logits_dtype="float16")
    built(tmp_path, [])
    assert recorded(tmp_path / "engine")["pretrained_config"]["logits_dtype"] == "float16"
    built(tmp_path, ["--logits_dtype", "float32"])
    assert recorded(tmp_path / "engine")["pretrained_config"]["logits_dtype"] == "float32"


def test_nvfp4_switches_its_gemm_plugin_on_unless_told_not_to(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint", weights="NVFP4")
    assert built(tmp_path, [], STANDIN_SM="100")["plugin_config"]["gemm_plugin"] == "nvfp4"
    assert built(tmp_path, ["--gemm_plugin", "disable"], STANDIN_SM="100")["plugin_config"]["gemm_plugin"] is None

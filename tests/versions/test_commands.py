"""Command lines are checked against a version before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.errors import ConfigError
from trtspec.versions import NAMES, Flag, check_flags, version
from trtspec.versions.flags import BUILD_FLAGS

EXPLICIT = ["--use_paged_context_fmha", "enable", "--use_fp8_context_fmha", "disable", "--tokens_per_block", "32"]


def value_of(flag: Flag) -> list[str]:
    if flag.kind == "switch":
        return []
    return [flag.choices[-1] if flag.choices else "7"]


@given(st.sampled_from(NAMES), st.data())
def test_every_flag_of_a_version_passes_with_a_value_of_its_kind(name: str, data: st.DataObject) -> None:
    known = version(name)
    chosen = data.draw(st.lists(st.sampled_from(sorted(known.flags)), unique=True))
    words = [word for each in chosen for word in (f"--{each}", *value_of(known.flags[each]))]
    check_flags(known, words, complete=False)


@given(st.sampled_from(NAMES), st.sampled_from(BUILD_FLAGS))
def test_a_flag_passes_exactly_where_the_table_has_it(name: str, flag: Flag) -> None:
    known = version(name)
    if flag.name in known.flags:
        check_flags(known, [flag.option, *value_of(known.flags[flag.name])], complete=False)
    else:
        with pytest.raises(ConfigError, match=f"{name}: --{flag.name} is a flag of .* only"):
            check_flags(known, [flag.option, *value_of(flag)], complete=False)


@given(st.sampled_from(NAMES), st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=12))
def test_invented_flags_are_refused(name: str, flag: str) -> None:
    if flag in {each for row in BUILD_FLAGS for each in (row.name, *row.aliases)}:
        return
    with pytest.raises(ConfigError, match=f"--{flag} is no flag"):
        check_flags(version(name), [f"--{flag}"], complete=False)


def test_a_whole_line_with_paths_and_the_program_s_name() -> None:
    line = ["trtllm-build", "--checkpoint_dir", Path("c"), "--output_dir=e", "--max_decoder_seq_len", "9",
            "--speculative_decoding_mode", "draft_tokens_external", "--gather_generation_logits", *EXPLICIT,
            "--lora_dir", "a", "b"]  # fmt: skip
    check_flags(version("1.2.1"), line)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max_batch", "3"], r"trtllm-build 1\.2\.1: --max_batch is no flag; did you mean --max_batch_size\?"),
        (["--tp_size", "2"], "--tp_size is no flag: parallelism comes from the checkpoint's mapping"),
        (["--auto_parallel", "1"], r"--auto_parallel is a flag of 0\.17\.0 - 0\.18\.2 only"),
        (["--workers"], "--workers needs a value"),
        (["--workers", "two"], "--workers takes a whole number, found 'two'"),
        (["--workers", "1", "2"], "--workers takes one value, found '1 2'"),
        (["--workers="], "takes a whole number, found ''"),
        (["--dry_run", "yes"], "--dry_run takes no value, found 'yes'"),
        (["--gemm_plugin", "fp4"], r"--gemm_plugin takes auto \| .* \| disable, found 'fp4'"),
        (["--workers", "1", "--workers", "2"], "--workers is given twice"),
        (["--max_seq_len", "1", "--max_decoder_seq_len", "1"], "--max_seq_len is given twice"),
        (["trtllm-build", "stray"], "'stray' is no argument of trtllm-build"),
        (["-h"], "'-h' is no argument"),
        (["--workers", "1"], "--use_paged_context_fmha must be given: default disable in .*, enable in"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_flags(version("1.2.1"), words)


def test_each_flipped_default_must_be_given() -> None:
    for left_out in range(0, 6, 2):
        words = EXPLICIT[:left_out] + EXPLICIT[left_out + 2 :]
        with pytest.raises(ConfigError, match=f"{EXPLICIT[left_out]} must be given"):
            check_flags(version("0.19.0"), words)
    check_flags(version("0.19.0"), EXPLICIT)


def test_a_version_without_engines_has_no_such_tool() -> None:
    with pytest.raises(ConfigError, match=r"1\.3\.0rc22 has no trtllm-build; use 1\.2\.1"):
        check_flags(version("1.3.0rc22"), ["--workers", "1"])

"""What holds for the version table as a whole, and facts of it that were read elsewhere once more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.errors import ConfigError
from trtspec.versions import CONTAINER, DEFAULT, NAMES, PINNED, TrtLlm, engine_version, llm_api_version, parse, version
from trtspec.versions.architectures import ARCHITECTURES, REPORTS
from trtspec.versions.flags import BUILD_FLAGS, ENABLE, NEVER_THERE
from trtspec.versions.llmapi import SPELLINGS
from trtspec.versions.page import versions_page
from trtspec.versions.releases import CANDIDATES, CONTAINERS, RELEASES
from trtspec.versions.row import FIRST, LAST
from trtspec.versions.scripts import SCRIPTS
from trtspec.versions.tensors import ADDED, RENAMED

names = st.sampled_from(NAMES)
ROWS = [*BUILD_FLAGS, *RENAMED, *ADDED, *SCRIPTS, *SPELLINGS, *ARCHITECTURES, *REPORTS, *RELEASES, *CANDIDATES]
FLIPPED = ("use_paged_context_fmha", "use_fp8_context_fmha", "tokens_per_block")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{type(row).__name__}-{getattr(row, 'name', row.span)}")
def test_every_row_has_a_source_and_a_span_in_order(row: object) -> None:
    assert getattr(row, "source", "").strip()
    span = row.span  # type: ignore[attr-defined]
    ends = [parse(end) for end in (span.first, span.last) if end is not None]
    assert ends == sorted(ends)


def test_releases_are_in_order_and_enclosed() -> None:
    assert [parse(name) for name in NAMES] == sorted(parse(name) for name in NAMES)
    assert (NAMES[0], NAMES[-1], DEFAULT) == (FIRST, LAST, "1.2.1")
    assert set(NAMES) == {
        *("0.17.0", "0.18.0", "0.18.1", "0.18.2", "0.19.0", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.2.1")
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_flag_has_one_row_in_each_version(name: str) -> None:
    held = [flag.name for flag in BUILD_FLAGS if flag.span.holds(parse(name))]
    every = held + [alias for flag in BUILD_FLAGS if flag.span.holds(parse(name)) for alias in flag.aliases]
    assert len(every) == len(set(every))
    assert set(version(name).flags) == set(held)
    assert not set(held) & set(NEVER_THERE)


@given(names, st.data())
def test_a_default_is_a_value_that_the_flag_takes(name: str, data: st.DataObject) -> None:
    flags = version(name).flags
    flag = flags[data.draw(st.sampled_from(sorted(flags)))]
    if flag.kind == "switch":
        assert flag.default is None
        assert flag.choices == ()
    elif flag.kind == "int":
        assert flag.default is None or isinstance(flag.default, int)
    elif flag.choices and flag.default is not None:
        assert flag.default in flag.choices
    assert version(name).defaults[flag.name] == flag.default
    assert (flag.kind == "choice") == bool(flag.choices)


@given(names)
def test_what_a_pair_is_built_with_exists_in_every_version(name: str) -> None:
    flags = version(name).flags
    assert flags["speculative_decoding_mode"].choices[0] == "draft_tokens_external"
    needed = (
        *("checkpoint_dir", "output_dir", "max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens"),
        *("max_beam_width", "max_draft_len", "kv_cache_type", "gather_generation_logits", "logits_dtype"),
        *("gemm_plugin", "workers", "input_timing_cache", "output_timing_cache", "log_level", *FLIPPED),
    )
    assert set(needed) <= set(flags)
    assert version(name).must_pass == FLIPPED


def test_the_defaults_that_flipped() -> None:
    old, between, new = (version(name).defaults for name in ("0.17.0", "0.19.0", "1.2.1"))
    assert [old[name] for name in FLIPPED] == ["disable", "disable", 64]
    assert [between[name] for name in FLIPPED] == [None, None, None]
    assert [new[name] for name in FLIPPED] == ["enable", "enable", 32]
    assert version("1.0.0").flags["use_paged_context_fmha"].choices == ENABLE
    assert all(flag.inferred for flag in BUILD_FLAGS if flag.must_pass)


@pytest.mark.parametrize("name", ["auto_parallel", "gpus_per_node", "cluster_key"])
def test_automatic_parallelism_ends(name: str) -> None:
    assert name in version("0.18.2").flags
    assert all(name not in version(later).flags for later in NAMES[NAMES.index("0.19.0") :])


def test_a_flag_that_changed_its_form() -> None:
    assert version("0.17.0").flags["visualize_network"].kind == "switch"
    assert version("1.2.1").flags["visualize_network"].kind == "path"


@given(names)
def test_each_meaning_has_one_name_in_each_version(name: str) -> None:
    assert set(version(name).tensors) == {"min_tokens", "seed", "return_perf_metrics"}
    assert len([row for row in RENAMED if row.span.holds(parse(name))]) == 3


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("0.17.0", {"min_length", "random_seed", "return_kv_cache_reuse_stats"}),
        ("0.18.2", {"min_length", "random_seed", "return_kv_cache_reuse_stats"}),
        ("0.19.0", {"min_length", "random_seed", "return_perf_metrics"}),
        ("0.20.0", {"min_tokens", "seed", "return_perf_metrics"}),
        ("1.2.1", {"min_tokens", "seed", "return_perf_metrics"}),
    ],
)
def test_renamed_tensors(name: str, tensors: set[str]) -> None:
    assert set(version(name).tensors.values()) == tensors


def test_additions() -> None:
    assert not version("0.18.2").has("acceptance_rate", "output")
    assert version("0.19.0").has("acceptance_rate", "output")
    assert version("0.19.0").has("acceptance_rate", "output", "tensorrt_llm_bls")
    assert not version("0.19.0").has("num_nodes", "parameter", "tensorrt_llm_bls")
    assert not version("0.19.0").has("num_nodes", "output")
    assert version("1.2.1").has("return_num_input_tokens", "input")
    assert not version("1.1.0").has("return_num_input_tokens", "input")


@pytest.mark.parametrize(
    ("name", "tensorrt", "modelopt", "transformers", "tags"),
    [
        ("0.17.0", "10.8", "0.23", None, "25.01 25.02"),
        ("0.18.0", "10.9", "0.25", ">=4.47.0,<4.48.0", "25.03"),
        ("0.18.1", "10.9", "0.25", "==4.48.3", ""),
        ("0.19.0", "10.9", "0.27", "==4.51.0", "25.05"),
        ("0.20.0", "10.10", "0.29", "~=4.51.1", "25.06 25.07"),
        ("0.21.0", "10.11", "0.31", "~=4.51.1", "25.08"),
        ("1.0.0", "10.11", "0.33", "==4.53.1", "25.09 25.10"),
        ("1.1.0", "10.13", "0.37", "==4.56.0", "25.12 26.01 26.02"),
        ("1.2.0", "10.14", "0.37", "==4.57.3", "26.03"),
        ("1.2.1", "10.14", "0.37", "==4.57.3", "26.04 26.05 26.06 26.07"),
    ],
)
def test_dependencies_and_containers(
    name: str, tensorrt: str, modelopt: str, transformers: str | None, tags: str
) -> None:
    found = version(name)
    assert (found.tensorrt, found.modelopt, found.transformers) == (tensorrt, modelopt, transformers)
    assert " ".join(container.tag for container in found.containers) == tags
    assert all(c.tensorrt.startswith(f"{tensorrt}.") for c in found.containers)


def test_the_pinned_containers() -> None:
    assert [container.tag for container in PINNED] == ["26.04", "26.05", "26.06", "26.07"]
    assert CONTAINER == "nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3"
    assert [c.tag for c in CONTAINERS] == sorted(c.tag for c in CONTAINERS)


@pytest.mark.parametrize(
    ("name", "engines", "llm_api", "kind", "draft"),
    [
        ("0.21.0", True, False, None, None),
        ("1.0.0", True, True, "DraftTarget", "speculative_model_dir"),
        ("1.0.3.2510", False, True, "DraftTarget", "speculative_model_dir"),
        ("1.1.0", True, True, "DraftTarget", "speculative_model_dir"),
        ("1.2.0rc8", False, True, "DraftTarget", "speculative_model"),
        ("1.2.1", True, True, "DraftTarget", "speculative_model"),
        ("1.3.0rc3", False, True, "DraftTarget", "speculative_model"),
        ("1.3.0rc20", False, True, "Draft_Target", "speculative_model"),
        ("1.3.0rc21", False, True, "Draft_Target", "speculative_model"),
        ("1.4.0rc4", False, True, "Draft_Target", "speculative_model"),
        ("2.0.0", False, True, "Draft_Target", "speculative_model"),
    ],
)
def test_engines_and_llm_api(name: str, engines: bool, llm_api: bool, kind: str | None, draft: str | None) -> None:
    found = version(name)
    assert (found.engines, found.llm_api) == (engines, llm_api)
    assert (bool(found.flags), bool(found.scripts), bool(found.tensors)) == (engines,) * 3
    spelling = found.llmapi
    assert (spelling and spelling.decoding_type, spelling and spelling.draft_model) == (kind, draft)


def test_the_window_fields_changed_their_name_and_unit() -> None:
    assert [
        (row.window, row.threshold) for row in (version(name).llmapi for name in ("1.0.0", "1.2.1", "1.4.0rc4")) if row
    ] == [
        (None, None),
        ("acceptance_window", "acceptance_length_threshold"),
        ("acceptance_rate_window_size", "acceptance_rate_threshold"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.16.0", r"0\.16\.0 is too old .*one of 0\.17\.0.*; upgrade: use the Triton containers 26\.04 - 26\.07"),
        ("0.17.0.dev2024121700", "too old"),
        ("0.19.0rc1", "is a pre-release"),
        ("1.1.7", "was never released"),
        ("0.22.0", "was never released"),
        ("1.0.0rc2", "is a pre-release"),
        ("one", "not a TensorRT-LLM version"),
    ],
)
def test_what_is_no_version_of_ours(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        version(text)


def test_newer_ones_are_refused_for_engines_with_both_ways_out() -> None:
    for text in ("1.3.0rc3", "1.3.0rc22", "1.4.0rc4", "1.2.0rc8"):
        with pytest.raises(ConfigError, match=r"26\.04 - 26\.07 .*or set engine\.backend to pytorch"):
            engine_version(text)
    with pytest.raises(ConfigError, match=r"0\.21\.0 has no stable draft-target.*1\.0\.0 or newer, or engine\.backend"):
        llm_api_version("0.21.0")


@given(names)
def test_post_releases_are_their_release(name: str) -> None:
    assert version(f"{name}.post1").flags == version(name).flags
    assert engine_version(f"{name}+cu130").release == version(name).release


@given(names)
def test_what_a_version_is_cannot_be_changed(name: str) -> None:
    found: TrtLlm = version(name)
    with pytest.raises(TypeError):
        found.flags["x"] = found.flags["workers"]  # type: ignore[index]
    assert str(found) == name


@pytest.mark.parametrize(
    ("name", "architecture", "partial", "builds"),
    [
        ("0.21.0", "Qwen3ForCausalLM", False, False),
        ("1.0.0", "Qwen3ForCausalLM", False, True),
        ("0.18.2", "Gemma3ForCausalLM", False, False),
        ("0.19.0", "Gemma3ForCausalLM", False, True),
        ("0.18.2", "Phi3ForCausalLM", True, False),
        ("0.18.2", "Phi3ForCausalLM", False, True),
        ("0.17.0", "LlamaForCausalLM", False, True),
        ("1.3.0rc22", "LlamaForCausalLM", False, False),
    ],
)
def test_architectures(name: str, architecture: str, partial: bool, builds: bool) -> None:
    assert version(name).builds(architecture, partial_rotary=partial) == builds


def test_the_page_names_everything() -> None:
    page = versions_page()
    for row in (*BUILD_FLAGS, *RENAMED, *ADDED):
        assert row.name in page
    for name in (*NAMES, *(c.tag for c in CONTAINERS), *NEVER_THERE):
        assert name in page


def test_builds_and_servers_use_one_image() -> None:
    assert version("1.2.1").image == CONTAINER
    assert version("0.18.1").image is None

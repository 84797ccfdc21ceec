"""Rules of the build, each with the settings that work; the table of formats × GPU generation × KV cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairing.planning import LLAMA_1B, LLAMA_70B, QWEN_1B, QWEN_72B, by_code, config, facts, model, pair, weights
from trtspec.checkpoint.formats import FORMATS, KV_ALGOS
from trtspec.checkpoint.known import known_ids
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model
from trtspec.pairing.parallel import copied_heads, group_sizes, split_problems, tensor_sizes
from trtspec.pairing.preflight import check_preflight
from trtspec.pairing.quantizing import runs_as_target, target_cells


def found(own: RunConfig, models: tuple[Model, Model] | None = None) -> dict[str, Finding]:
    return by_code(list(check_preflight(*(models or pair()), own)))


def test_the_shipped_setting_builds() -> None:
    ((code, finding),) = found(config()).items()
    assert (code, finding.severity) == ("preflight.builds", "info")
    assert "H100" in finding.message


# --- parallelism ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hub", "tensor", "problem"),
    [
        (LLAMA_70B, 16, None),  # 8 key-value heads, each on two GPUs
        (LLAMA_70B, 3, "64 attention heads are not divisible by 3"),
        (QWEN_1B, 4, None),  # 12 heads, 2 key-value heads on 4 GPUs
        (QWEN_1B, 8, "12 attention heads are not divisible by 8"),
        ("Qwen/Qwen2.5-0.5B-Instruct", 2, None),
        ("Qwen/Qwen2.5-0.5B-Instruct", 7, "2 key-value heads can be neither split nor copied evenly over 7"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 2, "9 attention heads are not divisible by 2"),
    ],
)
def test_heads_over_gpus(hub: str, tensor: int, problem: str | None) -> None:
    problems = split_problems(facts(hub), tensor)
    assert problems == [] if problem is None else problem in problems


def test_copied_heads() -> None:
    assert [copied_heads(facts(LLAMA_70B), t) for t in (1, 8, 16)] == [1, 1, 2]


@pytest.mark.parametrize("hub", known_ids())
def test_sizes_that_work_are_those_without_problems(hub: str) -> None:
    works = tensor_sizes(facts(hub), 16)
    assert 1 in works
    for tensor in works:
        assert facts(hub).num_attention_heads % tensor == 0
        assert facts(hub).intermediate_size % tensor == 0 or facts(hub).moe


def test_a_clash_lists_the_sizes_that_work() -> None:
    finding = found(config(target={"parallelism": {"tensor": 3}}))["preflight.tensor-parallel"]
    assert (finding.severity, finding.subject) == ("error", "target")
    assert finding.fix == "what works: parallelism.tensor 1, 2, 4, 8"


def test_awq_of_qwen_72b_over_four_gpus() -> None:
    """29568 ÷ 4 = 7392 is no multiple of 128 or 64 (TensorRT-LLM issue 2445)."""
    own = config(target=weights("int4_awq") | {"parallelism": {"tensor": 4}}, hardware={"count": 4})
    finding = found(own, pair(QWEN_72B, QWEN_1B))["preflight.groups"]
    assert "29,568 ÷ 4 = 7,392 columns are not whole groups of 128" in finding.message
    assert finding.fix is not None
    assert "parallelism.tensor 1 with group_size 128 or 64" in finding.fix
    assert "parallelism.tensor 2 with group_size 64" in finding.fix
    assert group_sizes(facts(QWEN_72B), 2, "w4a8_awq") == [], "W4A8 has no groups of 64"


def test_pipeline_stages() -> None:
    uneven = found(config(target={"parallelism": {"tensor": 1, "pipeline": 6}}))["preflight.pipeline"]
    assert (uneven.severity, uneven.fix) == ("warning", "pipeline sizes that divide them: 1, 2, 4, 5, 8")
    many = found(config(draft={"parallelism": {"pipeline": 17}}))["preflight.pipeline"]
    assert many.severity == "error"


# --- formats × generation × cache ------------------------------------------------------------------------------------

OK = {
    # (weights, kv): compute capabilities of a draft-target target, from the fact sheet's table
    ("none", "auto"): (80, 86, 89, 90, 100), ("none", "fp8"): (),
    ("fp8", "auto"): (89, 90, 100), ("fp8", "fp8"): (89, 90, 100),
    ("fp8_pc_pt", "auto"): (89, 90), ("fp8_pc_pt", "fp8"): (),
    ("int8_sq", "auto"): (80, 86, 89, 90), ("int8_sq", "fp8"): (),
    ("int8_wo", "auto"): (80, 86, 89, 90), ("int8_wo", "fp8"): (),
    ("int4_wo", "auto"): (80, 86, 89, 90), ("int4_wo", "fp8"): (),
    ("int4_awq", "auto"): (80, 86, 89, 90), ("int4_awq", "fp8"): (),
    ("w4a8_awq", "auto"): (89, 90), ("w4a8_awq", "fp8"): (89, 90),
    ("nvfp4", "auto"): (100,), ("nvfp4", "fp8"): (100,),
}  # fmt: skip


@pytest.mark.parametrize("sm", [75, 80, 86, 89, 90, 100])
@pytest.mark.parametrize(("weight", "kv_cache"), OK, ids="-".join)
def test_the_table_of_targets(weight: str, kv_cache: str, sm: int) -> None:
    assert runs_as_target(weight, kv_cache, sm) == (sm in OK[weight, kv_cache])
    assert not runs_as_target(weight, "int8", sm), "an INT8 cache never keeps its prefix"


@given(st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(KV_ALGOS)), st.integers(70, 125))
def test_what_is_listed_as_working_works(weight: str, kv_cache: str, sm: int) -> None:
    assert ((weight, kv_cache) in target_cells(sm)) == runs_as_target(weight, kv_cache, sm)


@pytest.mark.parametrize(
    ("gpu", "weight", "kv_cache", "code", "said"),
    [
        (
            "a100-80gb",
            "fp8",
            "auto",
            "preflight.weights",
            "fp8 weights need Ada (SM 89) or newer, not on Ampere (SM 80)",
        ),
        ("h100-80gb", "nvfp4", "auto", "preflight.weights", "need Blackwell (SM 100) or newer"),
        ("b200", "int4_awq", "auto", "preflight.weights", "run up to Hopper (SM 90)"),
        ("a100-80gb", "none", "fp8", "preflight.kv-cache", "needs Ada"),
        ("h100-80gb", "none", "fp8", "preflight.kv-cache", "cannot verify drafts"),
        ("h100-80gb", "int8_wo", "int8", "preflight.kv-cache", "an INT8 KV cache has no paged-context attention"),
    ],
)
def test_formats_a_gpu_cannot_run_list_those_it_can(gpu: str, weight: str, kv_cache: str, code: str, said: str) -> None:
    finding = found(config(target=weights(weight, kv_cache), hardware={"gpu": gpu}))[code]
    assert (finding.severity, finding.subject) == ("error", "target")
    assert said in finding.message
    assert finding.fix is not None
    assert finding.fix.startswith("what works on ")
    assert "none" in finding.fix


def test_a_draft_only_loses_its_prefix() -> None:
    finding = found(config(draft=weights("int8_wo", "fp8")))["preflight.draft-kv-cache"]
    assert (finding.severity, finding.subject) == ("warning", "draft")
    assert "preflight.kv-cache" not in found(config(draft=weights("int8_wo", "fp8")))


def test_experts_that_no_format_stores() -> None:
    mixtral = (model("target", "mistralai/Mixtral-8x7B-v0.1"), model("draft", "mistralai/Mistral-7B-v0.1"))
    finding = found(config(target=weights("int8_sq")), mixtral)["preflight.mixture"]
    assert finding.fix is not None
    assert "fp8" in finding.fix


def test_groups_of_64_are_warned_of() -> None:
    assert found(config(target=weights("int4_awq", group_size=64)))["preflight.group-size"].severity == "warning"
    assert "preflight.group-size" not in found(config(target=weights("int4_awq")))


# --- versions, GPUs, room, logits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "version", "hub", "wrong"),
    [
        ("tensorrt", "1.2.1", LLAMA_70B, False),
        ("tensorrt", "0.16.0", LLAMA_70B, True),
        ("tensorrt", "1.3.0rc3", LLAMA_70B, True),
        ("pytorch", "0.21.0", LLAMA_70B, True),
        ("pytorch", "1.4.0rc4", LLAMA_70B, False),
        ("tensorrt", "0.21.0", "Qwen/Qwen3-32B", True),
        ("tensorrt", "1.0.0", "Qwen/Qwen3-32B", False),
        ("tensorrt", "0.18.2", "google/gemma-3-27b-it", True),
        ("tensorrt", "0.18.2", "microsoft/Phi-4-mini-instruct", True),
        ("tensorrt", "0.17.0", "microsoft/phi-4", False),
    ],
)  # fmt: skip
def test_versions(backend: str, version: str, hub: str, wrong: bool) -> None:
    own = config(target={"parallelism": {"tensor": 1}}, engine={"backend": backend, "tensorrt_llm_version": version})
    assert ("preflight.version" in found(own, (model("target", hub), model("draft", LLAMA_1B)))) == wrong


def test_families_that_were_reported_to_fail() -> None:
    own = config(target={"parallelism": {"tensor": 2}}, engine={"tensorrt_llm_version": "1.2.1"})
    gemma = (model("target", "google/gemma-2-27b-it"), model("draft", "google/gemma-2-2b-it"))
    assert found(own, gemma)["preflight.reported"].severity == "warning"


def test_blackwell_is_untested_with_engines() -> None:
    own = {"hardware": {"gpu": "b200"}}
    assert found(config(**own))["preflight.untested-gpu"].severity == "warning"
    assert "preflight.untested-gpu" not in found(config(engine={"backend": "pytorch"}, **own))


@pytest.mark.parametrize(("placement", "needed"), [("shared", 8), ("auto", 8), ("separate", 9)])
def test_gpus_of_the_machine(placement: str, needed: int) -> None:
    enough = config(hardware={"placement": placement, "count": needed})
    assert "preflight.gpu-count" not in found(enough)
    finding = found(config(hardware={"placement": placement, "count": needed - 1}))["preflight.gpu-count"]
    assert finding.message.startswith(f"{needed} GPUs are needed (target 8, draft 1")


def test_the_llm_api_splits_both_alike() -> None:
    assert found(config(engine={"backend": "pytorch"}))["preflight.draft-parallel"].subject == "draft"


def test_without_a_gpu_its_rules_are_not_measured() -> None:
    codes = found(config(hardware={"gpu": "cpu"}))
    assert codes["preflight.not-measured"].severity == "info"
    assert "preflight.builds" in codes


def test_formats_that_are_calibrated_need_prompts(tmp_path: Path) -> None:
    assert "preflight.calibration" not in found(config())
    none = found(config(validation={}))
    finding = none["preflight.calibration"]
    assert (finding.severity, finding.data) == ("warning", {"roles": ["target", "draft"]})
    assert "fp8 of the target and fp8 of the draft" in finding.message
    assert "once calibrated" in none["preflight.builds"].message
    calibration = {"calibration": {"prompts": tmp_path / "p.jsonl"}}
    own = config(target=weights("int4_awq", **calibration), draft=weights("int8_wo"), validation={})
    assert found(own)["preflight.calibration"].data == {"roles": ["target"]}, "the file is not there"
    (tmp_path / "p.jsonl").touch()
    assert "preflight.calibration" not in found(own)


def test_the_reference_backend_uses_no_gpu() -> None:
    assert found(config(engine={"backend": "reference"}))["preflight.gpu-unused"].severity == "warning"
    assert set(found(config(engine={"backend": "reference"}, hardware={"gpu": "cpu"}))) == {"preflight.builds"}


@pytest.mark.parametrize(
    ("engine", "warns"),
    [
        (
            {"max_seq_len": 131072, "max_input_len": 131064},
            True,
        ),  # answers of 8 tokens, and 8 drafts beyond the positions
        ({"max_seq_len": 131072}, True),
        ({"max_seq_len": 131064}, False),
    ],
)
def test_room_for_drafts(engine: dict[str, Any], warns: bool) -> None:
    assert ("preflight.draft-room" in found(config(engine=engine))) == warns


def test_logits_need_equal_padded_widths() -> None:
    logits = {"speculation": {"acceptance": "logits"}}
    assert found(config(**logits))["preflight.logits"].severity == "info"
    # 128,256 rows are a multiple of the 8 ranks, one more is not.
    odd = (model("target", LLAMA_70B, vocab_size=128257), model("draft", LLAMA_1B, vocab_size=128257))
    finding = found(config(**logits), odd)["preflight.logits-width"]
    assert (finding.severity, finding.data) == ("error", {"target": 128264, "draft": 128257})
    assert found(config(engine={"backend": "pytorch"}, **logits))["preflight.logits"].severity == "error"


def test_an_unknown_model_is_not_measured() -> None:
    unknown = model("target", LLAMA_70B)
    unknown.facts = None
    codes = found(config(), (unknown, model("draft", LLAMA_1B)))
    assert set(codes) == {"preflight.not-measured"}

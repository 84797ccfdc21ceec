"""Memory of whole pairs: what fits, what would fit, both load orders, and published figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pairing.planning import (
    LLAMA_1B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_1B,
    QWEN_72B,
    by_code,
    config,
    facts,
    pair,
    weights,
)
from trtspec.analysis.memory import GIB, kv_bytes_per_token
from trtspec.analysis.shape import Format, rank_bytes
from trtspec.config import ROLES, RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.fitting import alternatives
from trtspec.pairing.memory import ORDERS, check_memory
from trtspec.pairing.placement import MemoryPlan, plan_memory, weights_of
from trtspec.pairing.shape import form_of, shape_of

KIB = 1024


def plan(own: RunConfig, target: str = LLAMA_70B, draft: str = LLAMA_1B) -> MemoryPlan:
    found = plan_memory({"target": facts(target), "draft": facts(draft)}, own)
    assert found is not None
    return found


def found(own: RunConfig, target: str = LLAMA_70B, draft: str = LLAMA_1B) -> dict[str, Finding]:
    return by_code(list(check_memory(*pair(target, draft), own)))


# --- published figures: weights ----------------------------------------------------------------------------------

GPTQ_32 = Format(4, group=32, scale_bytes=4)
WEIGHTS: dict[str, tuple[str, Format, float]] = {
    # checkpoint: (facts, format, published bytes). Sources in docs/planning.md.
    "Llama-3-70B bf16": (LLAMA_70B, Format(16), 141107412992),
    "Llama-3-70B fp16, rounded": (LLAMA_70B, Format(16), 140e9),
    "Llama-3-8B bf16": (LLAMA_8B, Format(16), 16060522496),
    "Llama-3.1-405B bf16": ("meta-llama/Llama-3.1-405B", Format(16), 810e9),
    "Llama-3.1-405B fp8, rounded": ("meta-llama/Llama-3.1-405B", Format(8), 405e9),
    "Mixtral-8x7B bf16": ("mistralai/Mixtral-8x7B-v0.1", Format(16), 93405585408),
    "Qwen3-4B bf16 in vLLM": ("Qwen/Qwen3-4B", Format(16), 7.6785 * GIB),
    "Llama-2-70B int4 g32 (gpt-fast)": ("meta-llama/Llama-2-70b-hf", GPTQ_32, 1097.66e9 / 25.25),
    "Llama-2-70B int8 (gpt-fast)": ("meta-llama/Llama-2-70b-hf", Format(8, per_row=2), 1322.58e9 / 19.13),
}  # fmt: skip


@pytest.mark.parametrize(("hub", "form", "published"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_within_5_percent_of_published(hub: str, form: Format, published: float) -> None:
    predicted = rank_bytes(shape_of(facts(hub)), form, 2, share_table=True)[0].total
    assert predicted == pytest.approx(published, rel=0.05)


CACHES: dict[str, tuple[str, float, float]] = {
    # (facts, bytes per value, published bytes per token)
    "Llama-3-70B fp16": (LLAMA_70B, 2, 320 * KIB),
    "Llama-3-8B fp16": (LLAMA_8B, 2, 128 * KIB),
    "Llama-3.1-405B fp16": ("meta-llama/Llama-3.1-405B", 2, 504 * KIB),
    "Llama-2-7B fp16, TensorRT-LLM log": ("meta-llama/Llama-2-7b-hf", 2, 69524783104 / 132608),
    "R1-Distill-Llama-8B, TensorRT-LLM log": ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 2, 26.91 * GIB / 220480),
    "Llama-3.1-8B fp8, TensorRT-LLM log": (LLAMA_8B, 1, 16.05 * GIB / 263008),
    "Qwen2.5-1.5B fp16, TensorRT-LLM log": (QWEN_1B, 2, 7.31 * GIB / 273792),
    "Qwen2.5-0.5B fp16, TensorRT-LLM log": ("Qwen/Qwen2.5-0.5B-Instruct", 2, 2.18 * GIB / 190656),
    "Llama-3.1-70B, 128k tokens": (LLAMA_70B, 2, 39.06 * GIB / 128000),
}  # fmt: skip


@pytest.mark.parametrize(("hub", "value", "published"), CACHES.values(), ids=CACHES)
def test_kv_cache_within_5_percent_of_published(hub: str, value: float, published: float) -> None:
    assert kv_bytes_per_token(shape_of(facts(hub)), value) == pytest.approx(published, rel=0.05)


# --- formats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bits"),
    [("none", 16), ("fp8", 8), ("fp8_pc_pt", 8), ("int8_sq", 8), ("int8_wo", 8), ("int4_wo", 4), ("int4_rtn", 4.125),
     ("int4_awq", 4.125), ("w4a8_awq", 4.125), ("nvfp4", 4.5)],
)  # fmt: skip
def test_bits_per_weight_in_the_engine(name: str, bits: float) -> None:
    shape = shape_of(facts(LLAMA_70B))
    elements = sum(m.elements for m in shape.matrices())
    nbytes = sum(form_of(name, 2).nbytes(m) for m in shape.matrices())
    assert 8 * nbytes / elements == pytest.approx(bits, rel=0.005)


def test_weight_only_formats_are_plain_on_disk() -> None:
    target = facts(LLAMA_8B)
    for name in ("int8_wo", "int4_wo"):
        own = config(target=weights(name) | {"parallelism": {"tensor": 1}})
        stored, loaded = (weights_of(shape_of(target), target, "target", own, stored=s)[0] for s in (True, False))
        assert stored == pytest.approx(2 * shape_of(target).parameters, rel=1e-6)
        assert loaded < 0.65 * stored


# --- placement and verdicts -----------------------------------------------------------------------------------------


def test_the_shipped_setting_fits() -> None:
    codes = found(config())
    assert set(codes) == {"memory.fits", "memory.load-order"}
    data = codes["memory.fits"].data
    assert data["placement"] == "shared"
    assert [sorted(set(gpu) - {"index", "free"}) for gpu in data["gpus"]] == [["draft", "target"], *[["target"]] * 7]
    assert data["gpus"][0]["target"]["kv_bytes_per_token"] == 20 * KIB
    assert data["cache_tokens"] >= data["needed_tokens"] == 32 * 10272


def test_70b_in_16_bit_does_not_fit_one_gpu_and_the_fix_says_what_does() -> None:
    own = config(target=weights("none") | {"parallelism": {"tensor": 1}})
    finding = found(own)["memory.too-large"]
    assert finding.severity == "error"
    assert finding.fix is not None
    assert finding.fix.startswith("what fits: ")
    assert "pair.target.parallelism.tensor 4" in finding.fix
    assert "memory.load-order" not in found(own)


def test_what_is_said_to_fit_fits() -> None:
    own = config(target=weights("none") | {"parallelism": {"tensor": 2}}, hardware={"count": 4})
    for text in alternatives({"target": facts(LLAMA_70B), "draft": facts(LLAMA_1B)}, own):
        assert "tensor 4" in text or "weights" in text
    assert plan(config(target=weights("none") | {"parallelism": {"tensor": 4}}, hardware={"count": 4})).loads_at_all


def test_less_than_a_full_batch_is_a_warning_with_the_largest() -> None:
    own = config(engine={"max_batch_size": 512, "max_seq_len": 32768})
    finding = found(own)["memory.tight"]
    assert finding.severity == "warning"
    largest = plan(own).largest_batch
    assert f"set engine.max_batch_size {largest} or engine.max_seq_len" in (finding.fix or "")
    assert plan(config(engine={"max_batch_size": largest, "max_seq_len": 32768})).fits


def test_the_default_fractions_are_shown_to_starve() -> None:
    finding = found(config())["memory.load-order"]
    assert "target loading second lacks" in finding.message
    default = finding.data["default"]
    assert default["draft first"]["target"]["free"] < 0
    assert finding.data["settings"]["draft first"]["target"]["tokens"] == plan(config()).tokens


def test_auto_moves_the_draft_to_free_gpus_only_where_sharing_does_not_fit() -> None:
    roomy = config(target={"parallelism": {"tensor": 4}})
    assert plan(roomy).placement == "shared"
    tight = config(target={"parallelism": {"tensor": 4}}, engine={"max_batch_size": 64, "max_seq_len": 32768})
    apart = plan(tight)
    assert apart.placement == "separate"
    assert [sorted(gpu.uses) for gpu in apart.gpus] == [["target"]] * 4 + [["draft"]]
    forced = tight.model_copy(update={"hardware": tight.hardware.model_copy(update={"placement": "shared"})})
    assert plan(forced).tokens < apart.tokens


def test_pipeline_ranks_lie_one_after_the_other() -> None:
    own = config(target={"parallelism": {"tensor": 2, "pipeline": 4}})
    gpus = plan(own).gpus
    assert len(gpus) == 8
    assert gpus[0].uses["target"].weights > gpus[2].uses["target"].weights, "the first stage has the embedding"
    assert gpus[0].uses["target"].logits == 0 < gpus[7].uses["target"].logits


def test_windows_are_an_upper_bound_and_said_so() -> None:
    own = config(target={"parallelism": {"tensor": 2}}, engine={"max_seq_len": 8192, "max_input_len": 4096})
    message = found(own, "google/gemma-2-27b-it", "google/gemma-2-2b-it")["memory.fits"].message
    assert "windowed layers need less" in message


def test_without_a_gpu_nothing_is_planned() -> None:
    assert found(config(hardware={"gpu": "cpu"}))["memory.not-measured"].fix


def test_the_reference_engines_on_a_machine() -> None:
    reference = {"engine": {"backend": "reference", "max_batch_size": 8, "max_input_len": 512, "max_seq_len": 1024}}
    assert found(config(hardware={"gpu": "cpu"}, **reference))["memory.fits"].data["memory"] is None
    small = found(config(hardware={"gpu": "cpu", "memory_gib": 16.0}, **reference))
    assert small["memory.too-large"].severity == "error"


def test_a_model_without_facts_is_not_measured() -> None:
    target, draft = pair()
    draft.facts = None
    assert [f.code for f in check_memory(target, draft, config())] == ["memory.not-measured"]


def settled(own: RunConfig) -> Iterator[tuple[MemoryPlan, Any]]:
    found = plan(own)
    for order in ORDERS:
        yield found, found.pools(order, dict(found.settings))


@settings(max_examples=40)
@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from(["none", "fp8", "int4_awq"]), st.sampled_from(["auto", "fp8"]),
    st.integers(1, 256), st.integers(1024, 65536), st.sampled_from(["h100-80gb", "h200", "l40s", "a100-40gb"]),
    st.sampled_from(["shared", "auto"]),
)  # fmt: skip
def test_every_plan_is_safe_in_both_orders(
    tensor: int, weight: str, kv_cache: str, batch: int, length: int, gpu: str, placement: str
) -> None:
    own = config(
        target=weights(weight, kv_cache) | {"parallelism": {"tensor": tensor}},
        engine={"max_batch_size": batch, "max_input_len": 512, "max_seq_len": length},
        hardware={"gpu": gpu, "placement": placement},
    )
    for made, pools in settled(own):
        if made.tokens == 0:
            continue
        assert {role: pools[role].tokens for role in ROLES} == dict.fromkeys(ROLES, made.tokens)
        for gpu_use in made.gpus:
            taken = sum(use.fixed + made.tokens * use.kv_per_token for use in gpu_use.uses.values())
            assert taken <= 0.95 * made.memory + 1


@settings(max_examples=30)
@given(st.integers(1, 256), st.integers(1024, 60000))
def test_more_batch_or_context_never_fits_better(batch: int, length: int) -> None:
    def room(batch: int, length: int) -> tuple[bool, int]:
        made = plan(config(engine={"max_batch_size": batch, "max_input_len": 512, "max_seq_len": length}))
        return made.fits, made.largest_batch

    fits, most = room(batch, length)
    for more in (room(batch + 8, length), room(batch, length + 512)):
        assert fits >= more[0]
        assert most >= more[1]


def test_every_split_of_the_72b_holds_its_weights() -> None:
    target = facts(QWEN_72B)
    for tensor in (1, 2, 4, 8):
        own = config(target=weights("fp8") | {"parallelism": {"tensor": tensor}})
        whole = tensor * weights_of(shape_of(target), target, "target", own)[0]
        # 70.2B in FP8, and twice 152,064 × 8,192 in 16 bits
        assert whole == pytest.approx(70.2e9 + 2 * 2 * 152064 * 8192, rel=0.01)

"""Whatever sizes config.json states, the planning checks give findings, never an exception."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pairing.planning import LLAMA_1B, LLAMA_70B, config, model
from trtspec.checkpoint.formats import FORMATS
from trtspec.hardware import GPUS
from trtspec.pairing.economics import check_economics, economics_facts
from trtspec.pairing.memory import check_memory
from trtspec.pairing.preflight import check_preflight

SIZE = st.integers(1, 2**31 - 1) | st.integers(1, 64)
SIZES = st.fixed_dictionaries({
    "vocab_size": SIZE, "hidden_size": SIZE, "intermediate_size": SIZE, "num_hidden_layers": st.integers(1, 10_000),
    "num_attention_heads": SIZE, "num_key_value_heads": SIZE, "head_dim": SIZE, "max_position_embeddings": SIZE,
    "layer_windows": st.just(()), "tie_word_embeddings": st.booleans(),
})  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    SIZES, SIZES, st.sampled_from([*GPUS, "cpu"]), st.integers(1, 64), st.integers(1, 12), st.integers(1, 12),
    st.sampled_from(sorted(FORMATS)), st.sampled_from(["tensorrt", "pytorch", "reference"]),
    st.sampled_from(["auto", "shared", "separate"]), st.sampled_from(["tokens", "logits"]),
)  # fmt: skip
def test_any_sizes_give_findings(
    target: dict[str, Any], draft: dict[str, Any], gpu: str, count: int, tensor: int, pipeline: int, weight: str,
    backend: str, placement: str, acceptance: str,
) -> None:  # fmt: skip
    source = {"quantization": {"weights": weight}, "parallelism": {"tensor": tensor, "pipeline": pipeline}}
    own = config(
        source, source,
        engine={"backend": backend}, hardware={"gpu": gpu, "count": count, "placement": placement},
        speculation={"acceptance": acceptance},
    )  # fmt: skip
    pair = model("target", LLAMA_70B, **target), model("draft", LLAMA_1B, **draft)
    for check in (check_preflight, check_memory, check_economics):
        assert list(check(*pair, own))
    assert economics_facts(*pair, own)

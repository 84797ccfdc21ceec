"""Checkpoints that modelopt quantized, of every format: each weight lies within the bound of its format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.quantize.conftest import Oracle
from trtspec.checkpoint.claims import broken_scales, wrong_claims
from trtspec.checkpoint.compare import Comparison

pytestmark = pytest.mark.torch

SPLITS = [
    ("none", "auto", 2, 2), ("fp8", "fp8", 2, 1), ("fp8_pc_pt", "auto", 1, 1), ("int8_sq", "auto", 2, 1),
    ("int4_rtn", "auto", 2, 1), ("int4_awq", "fp8", 2, 2), ("w4a8_awq", "auto", 2, 1), ("nvfp4", "auto", 2, 1),
]  # fmt: skip

PADS = ("int4_rtn", "int4_awq", "w4a8_awq")
"""Formats for which modelopt pads the vocabulary to a multiple of 64 and says so: not the model's own size any more."""


@pytest.mark.parametrize(("weights", "kv", "tp", "pp"), SPLITS, ids=str)
def test_every_weight_is_within_its_bound(oracle: Oracle, llama: Path, weights: str, kv: str, tp: int, pp: int) -> None:
    comparison = Comparison.open(llama, oracle(weights, kv, tp, pp))
    found = list(comparison.tensors())
    padded = {"transformer.vocab_embedding.weight", "lm_head.weight"} if weights in PADS else set()
    assert {t.name for t in found if not t.good} == padded, [t for t in found if not t.good]
    rounded = [t for t in found if t.outcome == "rounded"]
    assert len(rounded) == (0 if weights == "none" else 10)
    # Tight as well: rounding to nearest comes close to the bound somewhere in so many elements.
    assert all(t.share > 0.8 for t in rounded)
    # Blockwise INT4 is exported as if inputs were multiplied by vectors, which are then absent: a known defect.
    lost = {said.split()[0].rsplit(".", 1)[1] for said in broken_scales(comparison.checkpoint)}
    assert lost == ({"prequant_scaling_factor"} if weights == "int4_rtn" else set())
    wrong = {claim.key for claim in wrong_claims(comparison.plan.config, comparison.checkpoint.config)}
    assert wrong == ({"vocab_size"} if padded else set())

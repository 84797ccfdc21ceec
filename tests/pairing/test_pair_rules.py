"""Widths, sizes and lengths of the pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.models import CONFIG, save
from tests.pairing.pairs import SPECIALS, check, codes, only, tokenizer, write_pair
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.known import known
from trtspec.checkpoint.spelling import common_names
from trtspec.pairing.counts import parameters_by_config
from trtspec.pairing.lengths import positions
from trtspec.pairing.widths import padded

MOE: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def bare_pair(folder: Path, **changes: Any) -> None:
    """A pair without weights, so that any sizes can be written."""
    write_pair(folder, **changes)
    for role in ("target", "draft"):
        (folder / role / "model.safetensors").unlink()


def test_padding_is_fine_for_tokens_and_an_error_for_logits(tmp_path: Path) -> None:
    write_pair(tmp_path, target={"vocab_size": 64})
    tokens = check(tmp_path)
    assert (tokens.verdict, codes(tokens)["widths.padding"]) == ("pass", "info")
    logits = check(tmp_path, speculation={"acceptance": "logits"})
    finding = only(logits, "widths.logits")
    assert logits.verdict == "fail"
    assert (finding.data["target"], finding.data["draft"], finding.data["target_last_id"]) == (64, 50, 49)
    assert finding.fix is not None
    assert "tokens" in finding.fix


def test_a_wider_draft_may_propose_what_the_target_lacks(tmp_path: Path) -> None:
    write_pair(tmp_path, draft={"vocab_size": 64})
    verdict = check(tmp_path)
    assert (verdict.verdict, codes(verdict)["widths.draft-wider"]) == ("warn", "warning")
    assert codes(check(tmp_path, speculation={"acceptance": "logits"}))["widths.logits"] == "error"


@pytest.mark.parametrize(
    ("rows", "tensor", "wide"), [(50, 1, 50), (50, 4, 52), (52, 4, 52), (32000, 8, 32000), (151665, 8, 151672)]
)
def test_padded_rows(rows: int, tensor: int, wide: int) -> None:
    assert padded(rows, tensor) == wide


@given(st.integers(1, 300_000), st.integers(1, 64))
def test_padding_adds_the_fewest_rows_that_can_be_split(rows: int, tensor: int) -> None:
    wide = padded(rows, tensor)
    assert wide >= rows
    assert wide % tensor == 0
    assert wide - rows < tensor


@pytest.mark.parametrize("weights", ["int4_awq", "w4a8_awq", "int4_rtn"])
def test_four_bit_weights_add_no_rows(tmp_path: Path, weights: str) -> None:
    """NVIDIA ModelOpt's exports have 64 then; what is written here has the model's 50, as its checkpoint tests show."""
    write_pair(tmp_path)
    pair = {
        "target": {"path": tmp_path / "target", "quantization": {"weights": weights}},
        "draft": {"path": tmp_path / "draft"},
    }
    assert only(check(tmp_path, pair=pair), "widths.equal").data["target"] == 50


def test_rows_that_parallelism_adds_are_named(tmp_path: Path) -> None:
    write_pair(tmp_path)
    pair = {
        "target": {"path": tmp_path / "target", "parallelism": {"tensor": 4}},
        "draft": {"path": tmp_path / "draft"},
    }
    finding = only(check(tmp_path, pair=pair), "widths.padding")
    assert (finding.data["target"], finding.data["draft"]) == (52, 50)
    assert "target 2 of them added by tensor parallelism" in finding.message
    assert check(tmp_path, speculation={"acceptance": "logits"}, pair=pair).verdict == "fail"


@pytest.mark.parametrize(("special", "severity"), [(True, "warning"), (False, "error")])
def test_ids_past_the_last_row(tmp_path: Path, special: bool, severity: str) -> None:
    write_pair(tmp_path)
    for role in ("target", "draft"):
        (tmp_path / role / "tokenizer.json").write_text(tokenizer(added=SPECIALS | {"<image>": 50}, special=special))
    findings = [f for f in check(tmp_path).findings if f.code == "widths.last-id"]
    assert [(f.subject, f.severity, f.data["count"]) for f in findings] == [
        ("target", severity, 1),
        ("draft", severity, 1),
    ]


@pytest.mark.parametrize(
    ("band", "code"),
    [
        ({}, "size.ratio"),
        ({"min_size_ratio": 30.0}, "size.ratio-outside"),
        ({"min_size_ratio": 2.0, "max_size_ratio": 9.0}, "size.ratio-outside"),
    ],
)
def test_size_band(tmp_path: Path, band: dict[str, float], code: str) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path, checks=band)
    finding = only(verdict, code)
    assert verdict.verdict == ("pass" if code == "size.ratio" else "warn")
    assert finding.data["ratio"] == 77_344 / 3_568


@pytest.mark.parametrize(
    ("target_layers", "rules"),
    [(6, {"10-50x": True, "at most 15%": True}), (1, {"10-50x": False, "at most 15%": False})],
)
def test_both_rules_of_the_field_are_shown(tmp_path: Path, target_layers: int, rules: dict[str, bool]) -> None:
    write_pair(tmp_path, target={"num_hidden_layers": target_layers})
    found = [f for f in check(tmp_path).findings if f.code.startswith("size.ratio")]
    assert found[0].data["rules"] == rules
    assert "10-50×" in found[0].message
    assert "15 %" in found[0].message


def test_a_large_draft_says_what_it_costs(tmp_path: Path) -> None:
    write_pair(tmp_path, draft={"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 96})
    verdict = check(tmp_path, checks={"cost_ratio": 0.5})
    assert "K=4 drafts costs about 2.00 target steps" in only(verdict, "size.ratio-outside").message
    assert codes(verdict)["economics.draft-too-slow"] == "warning"


def test_a_tiny_draft_says_what_it_costs_too(tmp_path: Path) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path, checks={"max_size_ratio": 9.0, "cost_ratio": 0.05})
    assert "K=4 drafts cost 0.20 target steps" in only(verdict, "size.ratio-outside").message


def test_swapped_roles(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "target").rename(tmp_path / "other")
    (tmp_path / "draft").rename(tmp_path / "target")
    (tmp_path / "other").rename(tmp_path / "draft")
    verdict = check(tmp_path)
    assert verdict.verdict == "fail"
    swapped = only(verdict, "size.swapped")
    assert swapped.severity == "error"
    assert "= 0.046×" in swapped.message, "never 0.0"


def test_a_mixture_says_what_it_reads(tmp_path: Path) -> None:
    bare_pair(tmp_path, target=MOE)
    verdict = check(tmp_path)
    data = only(verdict, "size.active").data
    assert data["active"] < data["parameters"] == verdict.facts["target"]["parameters"]
    assert verdict.facts["target"]["active_parameters"] == data["active"]


def test_falcon_files_may_differ_from_the_count_by_a_norm(tmp_path: Path) -> None:
    falcon = {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": 50, "hidden_size": 16,
              "num_hidden_layers": 2, "num_attention_heads": 4}  # fmt: skip
    write_pair(tmp_path)
    folder = tmp_path / "draft"
    (folder / "config.json").write_text(json.dumps(falcon))
    implied = parameters_by_config(ModelFacts.parse(common_names(falcon), folder))
    assert implied is not None
    for stored, agrees in ((implied, True), (implied + 1, True), (implied * 2, False)):
        save(folder / "model.safetensors", {"x": {"dtype": "F16", "shape": [stored], "data": bytes(2 * stored)}})
        found = codes(check(tmp_path, engine={"backend": "pytorch", "max_input_len": 32, "max_seq_len": 64}))
        assert ("size.config-disagrees" not in found) is agrees


def test_lengths(tmp_path: Path) -> None:
    write_pair(tmp_path, draft={"max_position_embeddings": 70})
    assert check(tmp_path).verdict == "pass"
    write_pair(tmp_path, draft={"max_position_embeddings": 60})
    verdict = check(tmp_path)
    assert (verdict.verdict, codes(verdict)["lengths.draft-short"]) == ("warn", "warning")
    write_pair(tmp_path, target={"max_position_embeddings": 60})
    verdict = check(tmp_path)
    assert (verdict.verdict, codes(verdict)["lengths.target-short"]) == ("fail", "error")
    stretched = {"max_position_embeddings": 60, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    write_pair(tmp_path, target=stretched)
    assert "target 120" in only(check(tmp_path), "lengths.fit").message


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        (None, 1000),
        ({"type": "linear", "factor": 4.0}, 4000),
        ({"type": "dynamic", "factor": 2.0}, 2000),
        # Qwen2.5's card: the file keeps the trained length; Qwen3's: it states the stretched one.
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}, 4000),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250}, 1000),
        ({"type": "yarn", "factor": 4.0}, 4000),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 125}, 1000),
        ({"type": "linear", "factor": "4"}, 1000),
        ({"type": "linear", "factor": 1e300}, 1000),
    ],
)
def test_positions(rope: dict[str, Any] | None, length: int) -> None:
    data = CONFIG | {"max_position_embeddings": 1000, "rope_scaling": rope}
    assert positions(ModelFacts.parse(data, Path("config.json"))) == length


def test_gemma_3_states_the_stretched_length() -> None:
    found = known("google/gemma-3-4b-it")
    assert found is not None
    assert found.facts.rope.parameters["factor"] == 8
    assert positions(found.facts) == 131072

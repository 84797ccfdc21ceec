"""Widths, sizes and lengths of the pair."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkpoint.models import CONFIG, shapes
from tests.pairing.pairs import SPECIALS, check, codes, only, tokenizer, write_pair
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.tensors import TensorSource
from trtspec.pairing.counts import DENSE, human, parameters_by_config, parameters_by_headers
from trtspec.pairing.widths import padded

REAL = os.environ.get("TRTSPEC_REAL_DATA")


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


def test_tensor_parallelism_pads_the_head(tmp_path: Path) -> None:
    assert [padded(n, t) for n, t in ((50, 1), (50, 4), (52, 4))] == [50, 52, 52]
    write_pair(tmp_path)
    pair = {
        "target": {"path": tmp_path / "target", "parallelism": {"tensor": 4}},
        "draft": {"path": tmp_path / "draft"},
    }
    assert codes(check(tmp_path, speculation={"acceptance": "logits"}, pair=pair))["widths.logits"] == "error"


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


def test_a_large_draft_says_what_it_costs(tmp_path: Path) -> None:
    write_pair(tmp_path, draft={"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 96})
    verdict = check(tmp_path, checks={"cost_ratio": 0.5})
    assert "K=4 drafts costs about 2.00 target steps" in only(verdict, "size.ratio-outside").message
    assert codes(verdict)["economics.draft-too-slow"] == "warning"


def test_swapped_roles(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "target").rename(tmp_path / "other")
    (tmp_path / "draft").rename(tmp_path / "target")
    (tmp_path / "other").rename(tmp_path / "draft")
    verdict = check(tmp_path)
    assert verdict.verdict == "fail"
    assert only(verdict, "size.swapped").severity == "error"


def test_lengths(tmp_path: Path) -> None:
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
    "changes",
    [{}, {"tie_word_embeddings": True}, {"head_dim": 8}, {"attention_bias": True, "mlp_bias": True}],
    ids=str,
)
def test_parameters_by_config_equal_the_tensors(tmp_path: Path, changes: dict[str, Any]) -> None:
    from tests.checkpoint.models import write_model

    write_model(tmp_path, **changes)
    facts = ModelFacts.read(tmp_path)
    names = shapes(CONFIG | changes)
    by_hand = sum(s[0] * (s[1] if len(s) > 1 else 1) for s in names.values())
    assert parameters_by_config(facts) == by_hand
    assert parameters_by_headers(TensorSource.open(tmp_path), facts.tie_word_embeddings) == by_hand


@pytest.mark.parametrize(
    ("count", "shown"),
    [(70553706496, "70.6B"), (1235814400, "1.24B"), (5400000, "5.4M"), (999, "999"), (625056, "625K")],
)
def test_human(count: int, shown: str) -> None:
    assert human(count) == shown


@pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with model-facts.yaml")
def test_parameters_of_published_models() -> None:
    models = yaml.safe_load((Path(str(REAL)) / "model-facts.yaml").read_text())["models"]
    dense = [m for m in models if m["architecture"] in DENSE]
    assert len(dense) > 30
    for model in dense:
        data = {k: v for k, v in model.items() if k != "eos_token_id"} | {"architectures": [model["architecture"]]}
        assert parameters_by_config(ModelFacts.parse(data, Path(model["id"]))) == model["num_parameters"], model["id"]


@pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with model-facts.yaml")
@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"),
    ],
)
def test_shipped_pairs_are_inside_the_band(target: str, draft: str) -> None:
    models = {m["id"]: m for m in yaml.safe_load((Path(str(REAL)) / "model-facts.yaml").read_text())["models"]}
    assert 8 <= models[target]["num_parameters"] / models[draft]["num_parameters"] <= 64

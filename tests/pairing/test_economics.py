"""Cost ratio and expected speed-up, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.models import CONFIG
from tests.pairing.pairs import TARGET, check, codes, only, run_config, write_pair
from trtspec.pairing.economics import WEIGHT_BYTES, bytes_per_step
from trtspec.pairing.model import Model


def test_the_worked_example(tmp_path: Path) -> None:
    """Target 100 ms, draft 15 ms, K = 5: a round takes 175 ms, so 1.75 tokens break even."""
    write_pair(tmp_path)
    verdict = check(tmp_path, checks={"cost_ratio": 0.15}, speculation={"draft_len": 5})
    facts = verdict.facts["economics"]
    at = {alpha: row[5 - 1] for alpha, row in zip(facts["alphas"], facts["speedup"], strict=True)}
    assert at[0.8] == pytest.approx(3.69 / 1.75, abs=0.005)
    assert at[0.6] == pytest.approx(1.36, abs=0.005)
    assert at[0.5] == pytest.approx(1.125, abs=0.001)
    assert (facts["ks"], facts["k"], facts["cost_source"]) == (list(range(1, 9)), 5, "given as checks.cost_ratio")
    assert "v = 1, o = 0" in only(verdict, "economics.expected").message


@pytest.mark.parametrize(
    ("cost", "warns"), [(0.24, False), (0.25, True), (3.0, True)], ids=["K·c < 1", "K·c = 1", "K·c = 12"]
)
def test_drafting_longer_than_the_target_steps(tmp_path: Path, cost: float, warns: bool) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path, checks={"cost_ratio": cost})
    assert ("economics.draft-too-slow" in codes(verdict)) == warns
    assert verdict.verdict == ("warn" if warns else "pass")


def test_measured_acceptance_replaces_the_range(tmp_path: Path) -> None:
    write_pair(tmp_path)
    good = check(tmp_path, checks={"cost_ratio": 0.1, "acceptance": 0.8})
    assert good.facts["economics"]["alphas"] == [0.8]
    assert good.verdict == "pass"
    poor = check(tmp_path, checks={"cost_ratio": 0.2, "acceptance": 0.3}, speculation={"draft_len": 8})
    finding = only(poor, "economics.no-gain")
    assert finding.fix == "set speculation.draft_len to 1"
    hopeless = check(tmp_path, checks={"cost_ratio": 0.5, "acceptance": 0.1})
    assert only(hopeless, "economics.no-gain").fix == "serve this pair without speculation"


def cost_of(tmp_path: Path, **changes: Any) -> float:
    source: dict[str, Any] = {"path": tmp_path / "target"}
    config = run_config(tmp_path, pair={"target": source | changes, "draft": {"path": tmp_path / "draft"}},
                        engine={"backend": "tensorrt"})  # fmt: skip
    found = bytes_per_step(Model.read("target", tmp_path / "target", config), config)
    assert found is not None
    return found


def test_bytes_of_a_step(tmp_path: Path) -> None:
    write_pair(tmp_path)
    config = CONFIG | TARGET
    hidden, table = config["hidden_size"], config["vocab_size"] * config["hidden_size"]
    # q and o are square; k and v have half the rows; three MLP matrices; two norms a layer, one at the end.
    layer = hidden * hidden * 3 + 3 * hidden * config["intermediate_size"] + 2 * hidden
    inner = config["num_hidden_layers"] * layer + hidden
    assert cost_of(tmp_path) == 4 * (inner + table)
    assert cost_of(tmp_path, dtype="bfloat16") == 2 * (inner + table)
    assert cost_of(tmp_path, parallelism={"tensor": 2}) == 2 * (inner + table)
    assert cost_of(tmp_path, dtype="bfloat16", quantization={"weights": "fp8"}) == inner + 2 * table
    awq = cost_of(tmp_path, dtype="bfloat16", quantization={"weights": "int4_awq"})
    assert awq == inner * WEIGHT_BYTES["int4_awq"] + 2 * table


def test_a_tied_head_is_read_and_counted_once(tmp_path: Path) -> None:
    write_pair(tmp_path, target={"tie_word_embeddings": True})
    tied = cost_of(tmp_path)
    write_pair(tmp_path)
    assert cost_of(tmp_path) == tied

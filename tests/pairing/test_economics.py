"""Cost ratio, expected speed-up and cost, against figures worked out by hand."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.models import CONFIG
from tests.pairing.pairs import TARGET, check, codes, only, run_config, write_pair
from tests.pairing.planning import LLAMA_1B, LLAMA_70B, by_code, config, model, pair, weights
from trtspec.analysis.acceptance import expected_tokens
from trtspec.hashing import HashMemo
from trtspec.pairing.economics import MOST, check_economics, economics_facts
from trtspec.pairing.measured import ALPHAS, Acceptance, Basis, acceptance_basis, file_hashes
from trtspec.pairing.model import Model
from trtspec.pairing.timing import bytes_per_step, timing

MEASURED = {"target_step_ms": 100.0, "draft_step_ms": 15.0}


@pytest.mark.parametrize("checks", [MEASURED, {"cost_ratio": 0.15}], ids=["step times", "ratio"])
def test_the_worked_example(tmp_path: Path, checks: dict[str, Any]) -> None:
    """Target 100 ms, draft 15 ms, K = 5: a round takes 175 ms, so 1.75 tokens break even."""
    write_pair(tmp_path)
    verdict = check(tmp_path, checks=checks, speculation={"draft_len": 5})
    facts = verdict.facts["economics"]
    assert facts["round_steps"][5 - 1] == pytest.approx(1.75)
    tokens = {a: row[5 - 1] for a, row in zip(facts["alphas"], facts["tokens"], strict=True)}
    gains = {a: row[5 - 1] for a, row in zip(facts["alphas"], facts["speedup"], strict=True)}
    for alpha, emitted, gain in ((0.8, 3.69, 2.11), (0.6, 2.38, 1.36), (0.5, 1.97, 1.125)):
        assert tokens[alpha] == pytest.approx(emitted, abs=0.005)
        assert gains[alpha] == pytest.approx(gain, abs=0.005)
    assert (facts["ks"], facts["k"], facts["alpha_source"]) == (list(range(1, 9)), 5, "range")
    assert "v = 1, o = 0" in only(verdict, "economics.expected").message


def test_measured_step_times_are_in_milliseconds(tmp_path: Path) -> None:
    write_pair(tmp_path)
    facts = check(tmp_path, checks=MEASURED | {"round_overhead_ms": 25.0}).facts["economics"]
    assert facts["target_step_ms"] == pytest.approx(100)
    assert facts["overhead"] == pytest.approx(0.25)
    assert facts["round_steps"][3] == pytest.approx(1 + 4 * 0.15 + 0.25)
    assert facts["concurrency"] == [], "nothing is known about larger batches"


@pytest.mark.parametrize(
    ("cost", "warns"), [(0.24, False), (0.25, True), (3.0, True)], ids=["K·c < 1", "K·c = 1", "K·c = 12"]
)
def test_drafting_longer_than_the_target_steps(tmp_path: Path, cost: float, warns: bool) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path, checks={"cost_ratio": cost})
    assert ("economics.draft-too-slow" in codes(verdict)) == warns


def test_given_acceptance_replaces_the_range(tmp_path: Path) -> None:
    write_pair(tmp_path)
    good = check(tmp_path, checks={"cost_ratio": 0.1, "acceptance": 0.8})
    assert good.facts["economics"]["alphas"] == [0.8]
    assert "economics.no-gain" not in codes(good)
    poor = check(tmp_path, checks={"cost_ratio": 0.2, "acceptance": 0.3}, speculation={"draft_len": 8})
    finding = only(poor, "economics.no-gain")
    assert finding.fix == "set speculation.draft_len to 1"
    hopeless = check(tmp_path, checks={"cost_ratio": 0.5, "acceptance": 0.1})
    assert only(hopeless, "economics.no-gain").fix == "serve this pair without speculation"


# --- acceptance: given, measured, or a range ------------------------------------------------------------------------


GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "k_max": 8}
SAMPLED = GREEDY | {"temperature": 0.8}


def overall(rule: str = "tokens", conditions: object = GREEDY, **figures: Any) -> dict[str, Any]:
    rules = {rule: [{"alpha": None}, figures]}
    return {"overall": {"prompts": 300, "rules": rules}, "conditions": conditions, "created": "2026-11-30T01:02:03"}


def profile(tmp_path: Path, content: object, **sections: Any) -> Any:
    own = run_config(tmp_path, output={"reports": tmp_path / "reports"}, **sections)
    own.report_dir.mkdir(parents=True, exist_ok=True)
    (own.report_dir / "profile.json").write_text(json.dumps(content))
    return own


def basis_of(tmp_path: Path, content: object, **sections: Any) -> Basis:
    """What a profile of whatever files says."""
    return acceptance_basis(profile(tmp_path, content, **sections), {})


def test_a_profile_is_used_position_by_position(tmp_path: Path) -> None:
    content = overall(alpha={"point": 0.7, "low": 0.61, "high": 0.78}, per_position=[0.6, 0.45, 0.36])
    basis = basis_of(tmp_path, content)
    assert basis.known
    assert basis.source == (
        "measured by trtspec profile on 300 prompts (95 %: 0.61-0.78), greedy, K up to 8, 2026-11-30, "
        "positions 1-3 as measured"
    )
    (row,) = basis.rows
    assert row.tokens(2) == pytest.approx(1 + 0.6 + 0.45)
    # Beyond the last measured position: as likely, given the one before, as that one (0.36 ÷ 0.45).
    assert row.tokens(4) == pytest.approx(1 + 0.6 + 0.45 + 0.36 + 0.36 * 0.8)


def test_the_rule_is_that_of_the_deployment(tmp_path: Path) -> None:
    sampled = {"validation": {"temperature": 0.8}}
    content = overall("tokens-independent", SAMPLED, alpha={"point": 0.5}, per_position=[])
    assert basis_of(tmp_path, content, engine={"backend": "tensorrt"}, **sampled).known
    assert basis_of(tmp_path, content, **sampled).known, "every call of either engine has a seed of its own"
    alike = overall("tokens", SAMPLED, alpha={"point": 0.5}, per_position=[])
    assert not basis_of(tmp_path, alike, **sampled).known
    assert not basis_of(tmp_path, content).known, "greedy"
    logits = sampled | {"speculation": {"acceptance": "logits"}}
    assert basis_of(tmp_path, overall("logits", SAMPLED, alpha={"point": 0.5}), **logits).known


@pytest.mark.parametrize(
    ("conditions", "validation", "source"),
    [
        (SAMPLED, {}, "measured for other sampling: temperature 0.8"),
        (GREEDY, {"temperature": 0.8}, "measured for other sampling: greedy"),
        (SAMPLED | {"top_p": 0.9}, {"temperature": 0.8}, "measured for other sampling: temperature 0.8, top-p 0.9"),
        (None, {}, "measured in a way it does not tell"),
        ({"temperature": "0"}, {}, "measured in a way it does not tell"),
    ],
)
def test_a_profile_under_other_sampling_is_left_out(
    tmp_path: Path, conditions: object, validation: dict[str, float], source: str
) -> None:
    content = overall(conditions=conditions, alpha={"point": 0.7})
    basis = basis_of(tmp_path, content, validation=validation)
    assert (basis.known, basis.source) == (False, f"range (profile.json was {source})")


def test_one_token_to_draw_from_is_greedy(tmp_path: Path) -> None:
    assert basis_of(tmp_path, overall(alpha={"point": 0.7}), validation={"temperature": 0.8, "top_k": 1}).known


def test_a_profile_of_other_files_is_left_out(tmp_path: Path) -> None:
    write_pair(tmp_path)
    folders = {role: tmp_path / role for role in ("target", "draft")}
    files = {role: {"files": file_hashes(folder, HashMemo())} for role, folder in folders.items()}
    own = profile(tmp_path, overall(alpha={"point": 0.7}) | files)
    assert acceptance_basis(own, folders).known
    weights = tmp_path / "draft" / "model.safetensors"
    stored = weights.read_bytes()
    weights.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    basis = acceptance_basis(own, folders)
    assert (basis.known, basis.source) == (False, "range (profile.json is not of these files of draft)")
    (tmp_path / "target" / "config.json").unlink()
    assert acceptance_basis(own, folders).source == "range (profile.json is not of these files of target and draft)"


def test_what_is_given_goes_before_a_profile(tmp_path: Path) -> None:
    own = profile(tmp_path, overall(alpha={"point": 0.7}), checks={"acceptance": 0.5})
    assert [row.alpha for row in acceptance_basis(own, {}).rows] == [0.5]


@pytest.mark.parametrize(
    "content",
    [
        *([], {}, {"overall": None}, {"overall": {"rules": []}}, {"overall": {"rules": {"tokens": [3]}}}),
        *(overall(alpha=alpha) for alpha in (None, "0.7", 1.5, True, {"point": -1}, {"point": None})),
    ],
)
def test_a_profile_without_figures_is_a_range(tmp_path: Path, content: object) -> None:
    assert [row.alpha for row in basis_of(tmp_path, content).rows] == list(ALPHAS)


KEYS = st.sampled_from(["overall", "rules", "tokens", "alpha", "point", "per_position", "target", "files",
                        "conditions", "temperature", "top_k", "top_p", "prompts", "created"])  # fmt: skip
SCALARS = st.none() | st.booleans() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_any_json_is_a_profile_or_none(content: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        basis = basis_of(Path(folder), content)
    assert all(0 <= row.alpha <= 1 for row in basis.rows)


def test_positions_that_rise_or_are_missing_end_the_list(tmp_path: Path) -> None:
    own = profile(tmp_path, overall(alpha={"point": 0.7}, per_position=[0.6, 0.5, None, 0.4]))
    assert acceptance_basis(own, {}).rows == (Acceptance(0.7, (0.6, 0.5)),)
    rising = profile(tmp_path, overall(alpha={"point": 0.7}, per_position=[0.6, 0.65]))
    assert acceptance_basis(rising, {}).rows == (Acceptance(0.7, (0.6,)),)


def test_without_positions_acceptance_is_independent() -> None:
    assert Acceptance(0.8).tokens(5) == expected_tokens(0.8, 5)


# --- cost of a step -------------------------------------------------------------------------------------------------


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
    matrices = config["num_hidden_layers"] * (hidden * hidden * 3 + 3 * hidden * config["intermediate_size"])
    norms = (2 * config["num_hidden_layers"] + 1) * hidden
    assert cost_of(tmp_path) == 4 * (matrices + norms + table)
    assert cost_of(tmp_path, dtype="bfloat16") == 2 * (matrices + norms + table)
    assert cost_of(tmp_path, parallelism={"tensor": 2}) == 4 * ((matrices + table) / 2 + norms)
    fp8 = cost_of(tmp_path, dtype="bfloat16", quantization={"weights": "fp8"})
    scales = 8 * 5 * config["num_hidden_layers"]  # two float32 for each of five linears
    assert fp8 == matrices + scales + 2 * (norms + table)


def test_a_tied_head_is_read_and_counted_once(tmp_path: Path) -> None:
    write_pair(tmp_path, target={"tie_word_embeddings": True})
    tied = cost_of(tmp_path)
    write_pair(tmp_path)
    assert cost_of(tmp_path) == tied


def test_without_facts_nothing_is_known() -> None:
    target, draft = pair()
    target.facts = None
    assert economics_facts(target, draft, config()) is None
    assert [f.code for f in check_economics(target, draft, config())] == ["economics.not-measured"]


# --- the roofline ---------------------------------------------------------------------------------------------------


def test_the_roofline_gives_times_for_every_load() -> None:
    facts = economics_facts(*pair(), config())
    assert facts is not None
    assert facts["cost_source"] == "roofline of H100 80GB SXM5, estimated"
    assert facts["context"] == 5120
    rows = facts["concurrency"]
    assert [row["requests"] for row in rows] == [1, 2, 4, 8, 16, 32]
    assert rows[0]["target_step_ms"] == pytest.approx(facts["target_step_ms"])
    assert rows[0]["best"] == facts["best"]
    steps = [row["target_step_ms"] for row in rows]
    assert steps == sorted(steps)
    last = [row["speedup"][-1] for row in rows]
    assert last == sorted(last, reverse=True), "speculation gains less with more requests in flight"
    assert all(v >= 1 for v in facts["verify_cost"])


def test_nvidia_single_stream_speed_ups_need_plausible_acceptance() -> None:
    """Llama-3.3-70B FP8 with a 1B draft on one H200: 51.14 → 181.74 tokens/s, 3.55×, K = 10 (NVIDIA, December 2024)."""
    own = config(
        target={"parallelism": {"tensor": 1}},
        hardware={"gpu": "h200", "count": 1},
        speculation={"max_draft_len": 10, "draft_len": 10},
        engine={"max_seq_len": 4096, "max_input_len": 2048},
    )
    facts = economics_facts(*pair(), own)
    assert facts is not None
    assert facts["target_step_ms"] == pytest.approx(1000 / 51.14, rel=0.05)
    assert facts["speedup"][facts["alphas"].index(0.8)][9] < 3.55 < facts["speedup"][facts["alphas"].index(0.9)][9]


def test_measured_ratio_scales_the_roofline_under_load() -> None:
    plain = timing(*pair(), config())
    dear = timing(*pair(), config(checks={"cost_ratio": 2 * plain.ratio if plain else 0}))
    assert plain
    assert dear
    for batch in (1, 8, 32):
        assert dear.c(batch) == pytest.approx(2 * plain.c(batch))
        assert dear.v(5, batch) == plain.v(5, batch)
    slow = timing(*pair(), config(checks=MEASURED))
    assert slow
    assert slow.step_seconds(8) == pytest.approx(0.1 * (plain.step_seconds(8) or 0) / (plain.step_seconds() or 1))


def test_speculation_stops_paying_where_no_draft_length_gains() -> None:
    facts = economics_facts(*pair(LLAMA_70B, "meta-llama/Llama-3.1-8B-Instruct"), config())
    assert facts is not None
    stops = facts["stops_paying_from"]
    assert stops[0] is not None
    assert all(a is None or b is None or a <= b for a, b in itertools.pairwise(stops)), "later for better α"
    own = config(engine={"max_batch_size": 1024, "max_input_len": 8192, "max_seq_len": 10240})
    found = timing(*pair(LLAMA_70B, "meta-llama/Llama-3.1-8B-Instruct"), own)
    assert found
    alpha = facts["alphas"][0]
    gains = {
        b: max(expected_tokens(alpha, k) / found.round_steps(k, b) for k in range(1, 9))
        for b in (stops[0] - 1, stops[0])
    }
    assert stops[0] == 1 or gains[stops[0] - 1] > 1
    assert gains[stops[0]] <= 1
    assert stops[0] <= MOST


def test_a_known_acceptance_that_does_not_pay_at_the_expected_load_warns() -> None:
    own = config(checks={"acceptance": 0.35}, validation={"concurrency": 32})
    found = by_code(list(check_economics(*pair(LLAMA_70B, "meta-llama/Llama-3.1-8B-Instruct"), own)))
    assert found["economics.stops-paying"].severity == "warning"
    good = by_code(list(check_economics(*pair(), config(checks={"acceptance": 0.8}))))
    assert good["economics.concurrency"].severity == "info"
    assert good["economics.concurrency"].brief is not None
    assert good["economics.concurrency"].brief.endswith(" at α 0.8")


def test_the_short_word_on_load_does_not_take_the_best_of_a_range() -> None:
    target, draft = pair()
    found = by_code(list(check_economics(target, draft, config())))["economics.concurrency"]
    stops = found.data["stops_paying_from"]
    assert stops[0] < (stops[-1] or MOST)
    assert found.brief == (
        f"requests in flight up to which it pays at most: {stops[0] - 1} at α 0.5, {MOST:,} and more at α 0.9"
    )
    same = by_code(list(check_economics(target, replace(target, role="draft"), config(hardware={"count": 16}))))
    assert same["economics.concurrency"].brief == "it pays at no load"


def test_cost_of_a_million_tokens() -> None:
    facts = economics_facts(*pair(), config(hardware={"price_per_hour": 2.0}))
    assert facts is not None
    row = facts["concurrency"][0]
    alone = 8 * 2.0 / 3600 / row["tokens_per_second"]["without"] * 1e6
    assert row["cost_per_million"]["without"] == pytest.approx(alone)
    best = row["best"][-1]["speedup"]
    assert row["cost_per_million"]["with"][-1] == pytest.approx(alone / best)
    apart = economics_facts(*pair(), config(hardware={"price_per_hour": 2.0, "count": 9, "placement": "separate"}))
    assert apart is not None
    assert apart["concurrency"][0]["cost_per_million"]["with"][-1] == pytest.approx(alone / best * 9 / 8)
    free = economics_facts(*pair(), config())
    assert free is not None
    assert free["concurrency"][0]["cost_per_million"] is None


def test_a_mixture_costs_its_active_parameters() -> None:
    own = config(target=weights("none") | {"parallelism": {"tensor": 1}}, draft=weights("none"))
    mixtral = timing(model("target", "mistralai/Mixtral-8x7B-v0.1"), model("draft", LLAMA_1B), own)
    seven = timing(model("target", "mistralai/Mistral-7B-v0.1"), model("draft", LLAMA_1B), own)
    assert mixtral
    assert seven
    assert seven.ratio > mixtral.ratio > seven.ratio / 3, "12.9B of its 46.7B are read"
    assert mixtral.v(4, 1) > seven.v(4, 1), "five positions hit more experts than one"

"""The result document holds what was measured, and nothing that was not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.measurement.fake import FakeClient, Lie, prompts
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.schema import RunConfig
from trtspec.errors import EvidenceError, ServingError
from trtspec.measurement.exactness import compare
from trtspec.measurement.load import measure
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import MODES, Answer, Block, Samples
from trtspec.measurement.result import Estimate, ResultDocument
from trtspec.measurement.resultfile import load_result
from trtspec.measurement.summary import alpha_over, build_result, speedup_over


def config(**validation: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "toy",
            "pair": {"target": {"path": "t"}, "draft": {"path": "d"}},
            "validation": {"concurrency": 2, "warmup": 0} | validation,
        }
    )


def measured(client: FakeClient | None = None, asked: list[Prompt] | None = None, **changes: object) -> ResultDocument:
    client, asked, run = client or FakeClient(), asked or prompts(8) + prompts(6, "law"), config(**changes)
    samples = measure(lambda: client, asked, run.validation, run.speculation.k)
    exact = compare(client, asked, samples, temperature=run.validation.temperature, near_tie=run.gates.near_tie)
    return build_result(run, asked, samples, exact)


def by_hand(walls: list[tuple[float, float]], rounds: list[list[tuple[int, int]]]) -> ResultDocument:
    """Blocks of given (target-only, speculative) wall seconds and 10 tokens, and rounds by prompt."""
    asked = [Prompt(f"p{i}", "code", "x", 20) for i in range(len(rounds))]
    histograms = [RoundHistogram.from_rounds(each) + RoundHistogram.empty(4) for each in rounds]
    answers = [
        Answer(
            p,
            mode,
            text="same",
            spec_mode="speculative" if mode == "speculative" else "",
            output_tokens=h.emitted,
            seconds=1.0 + i,
            histogram=h if mode == "speculative" else None,
            **{n: getattr(h, n) for n in ("rounds", "drafted", "tested", "accepted")},
        )
        for i, (p, h) in enumerate(zip(asked, histograms, strict=True))
        for mode in MODES
    ]
    blocks = [
        Block("code", i, mode, wall, 5, 10)
        for i, pair in enumerate(walls)
        for mode, wall in zip(MODES, pair, strict=True)
    ]
    return build_result(config(), asked, Samples(tuple(answers), tuple(blocks)), None)


WORKED = [[(2, 4), (4, 4)], [(0, 4), (1, 4)]]


def test_worked_example() -> None:
    figures = by_hand([(2.0, 1.0), (4.0, 2.0)], WORKED).domains[0].figures
    assert figures.alpha is not None
    assert figures.alpha.point == pytest.approx(0.7)
    assert figures.alpha.n == 2
    assert figures.alpha_macro == pytest.approx((6 / 7 + 1 / 3) / 2)
    assert figures.draft_acceptance_rate == pytest.approx(0.4375)
    assert figures.acceptance_length == pytest.approx(2.75)
    assert figures.per_position == pytest.approx((0.75, 0.5, 0.25, 0.25))
    assert figures.rounds == RoundHistogram.from_rounds([*WORKED[0], *WORKED[1]])


def test_speed_is_tokens_over_wall_and_its_ratio() -> None:
    figures = by_hand([(2.0, 1.0), (4.0, 1.5)], WORKED).domains[0].figures
    assert figures.target_only is not None
    assert figures.speculative is not None
    assert figures.speedup is not None
    assert figures.target_only.tokens_per_second == pytest.approx(20 / 6)
    assert figures.speculative.tokens_per_second == pytest.approx(20 / 2.5)
    assert (figures.speedup.point, figures.speedup.n) == (pytest.approx(2.4), 2)
    assert figures.target_only.latency is not None
    assert figures.target_only.latency.p50 == pytest.approx(1.5)
    assert figures.target_only.first_token is None


def test_blocks_of_equal_speed_give_no_interval() -> None:
    speedup = by_hand([(2.0, 1.0), (4.0, 2.0)], WORKED).domains[0].figures.speedup
    assert speedup == Estimate(point=2.0, low=None, high=None, n=2)


def test_speed_up_pools_the_blocks_of_domains() -> None:
    one, other = (by_hand([w], WORKED).domains[0].figures for w in ((2.0, 1.0), (4.0, 1.5)))
    pooled = speedup_over([one, other])
    assert pooled is not None
    assert (pooled.point, pooled.n) == (pytest.approx(2.4), 2)


def test_alpha_over_prompts_of_several_domains() -> None:
    result = measured(FakeClient(agrees=0.6))
    rows = [row for d in result.domains for row in d.rows]
    alpha = alpha_over(rows, 0)
    assert alpha is not None
    assert alpha.point == sum(r.accepted or 0 for r in rows) / sum(r.tested or 0 for r in rows)
    assert alpha == result.overall.alpha
    assert alpha_over([], 0) is None


def test_a_whole_measurement_round_trips_through_json(tmp_path: Path) -> None:
    result = measured()
    path = tmp_path / "result.json"
    path.write_text(result.model_dump_json())
    assert load_result(path) == result
    assert [(d.domain, d.prompts, len(d.rows)) for d in result.domains] == [("code", 8, 8), ("law", 6, 6)]
    assert result.problems == ()
    assert all(d.exactness and d.exactness.equal == d.prompts for d in result.domains)
    assert all(row.equal for d in result.domains for row in d.rows)
    assert result.conditions.compute_dtype == "bfloat16"
    assert "K=4, greedy, tokens acceptance, 2 in flight, streamed, reference backend" in result.conditions.summary()


def test_the_rules_of_every_result() -> None:
    result = measured()
    for domain in result.domains:
        counted, rows = domain.figures.rounds, domain.rows
        assert counted is not None
        for name in ("rounds", "drafted", "tested", "accepted", "emitted"):
            assert getattr(counted, name) == sum(getattr(row, name) for row in rows)
        assert domain.figures.draft_acceptance_rate == counted.accepted / counted.drafted
        for mode, speed in (("target_only", domain.figures.target_only), ("speculative", domain.figures.speculative)):
            assert speed is not None
            assert speed.output_tokens == sum(getattr(row, mode).output_tokens for row in rows)


def test_what_was_not_measured_is_null() -> None:
    lie: Lie = lambda model, request, answer: replace(answer, histogram=None)  # noqa: E731
    result = measured(FakeClient(lie=lie), temperature=0.8)
    domain = json.loads(result.model_dump_json())["domains"][0]
    for name in ("histogram", "alpha", "alpha_macro", "draft_acceptance_rate", "acceptance_length", "per_position"):
        assert domain["figures"][name] is None
    assert domain["exactness"] is None
    assert {row["accepted"] for row in domain["rows"]} == {None}
    assert {row["equal"] for row in domain["rows"]} == {None}


def test_failed_requests_are_listed_and_enter_no_figure() -> None:
    def lie(model: str, request: object, answer: object) -> object:
        if "import" in request.prompt and model == "ensemble":  # type: ignore[attr-defined]
            raise ServingError("broken")
        return answer

    domain = measured(FakeClient(lie=lie), prompts(10)).domains[0]  # type: ignore[arg-type]
    assert [(u.prompt, u.mode) for u in domain.unusable] == [("code-1", "target-only"), ("code-6", "target-only")]
    row = domain.rows[1]
    assert row.target_only is None
    assert row.speculative is not None
    assert row.equal is None
    assert domain.exactness is not None
    assert domain.exactness.compared == 8


def test_no_text_of_an_equal_answer_is_kept() -> None:
    client = FakeClient()
    asked = prompts(3)
    text = client.decode(client.token_ids(client.tokens(asked[0].text), 24))
    dumped = measured(client, asked).model_dump_json()
    assert json.dumps(text)[1:-1] not in dumped
    assert asked[0].text not in dumped


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Invalid JSON"),
        ("{}", "missing|required"),
        ('{"version": 2}', "pair: Field required"),
        ("[1]", "an object"),
    ],
)
def test_other_files_are_no_results(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(EvidenceError, match="not a result document") as caught:
        load_result(path)
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize(("version", "fix"), [(1, "measure again"), (3, "a newer one")])
def test_a_document_of_another_version_says_what_to_do(tmp_path: Path, version: int, fix: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(measured(asked=prompts(2)).model_dump_json().replace('"version":2', f'"version":{version}', 1))
    with pytest.raises(EvidenceError, match=rf"another version.*found {version}, expected version 2.*{fix}"):
        load_result(path)


def test_a_missing_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="cannot read"):
        load_result(tmp_path / "none.json")


def test_a_result_is_frozen_and_strict() -> None:
    result = measured(asked=prompts(2))
    with pytest.raises(ValidationError):
        result.pair = "other"
    with pytest.raises(ValidationError):
        ResultDocument.model_validate(result.model_dump() | {"speed": 3})


def test_the_environment_names_versions() -> None:
    found = measured(asked=prompts(2)).environment
    assert {"trtspec", "python", "numpy", "cpus"} <= found.keys()

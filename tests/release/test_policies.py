"""Which K follows from which measurements, and what each server is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from tests.release.full import full, point
from tests.release.made import result
from trtspec.cli._main import run
from trtspec.config.llmapi import PyTorch
from trtspec.config.validation import Gates
from trtspec.errors import EvidenceError
from trtspec.measurement.parts import Cost, StepCosts
from trtspec.measurement.result import Estimate, ProblemRow, ResultDocument
from trtspec.release.gates import judge
from trtspec.release.policies import emit
from trtspec.release.policies.prediction import ALL, predictor
from trtspec.release.policies.study import Study, study
from trtspec.release.policies.table import choices_table, options_table, sentences
from trtspec.release.policy import losing, policy_document
from trtspec.triton.models.tensorrt_llm_bls.policy import parse_policy


def at(k: int, gain: float, load: int = 1, law: float | None = None, **changes: Any) -> ResultDocument:
    """A measurement of K at a load that gained so much; `law`: what that domain gained."""
    made = result({"code": 0.75, "law": 0.35})
    estimate = Estimate(point=gain, low=gain - 0.05, high=gain + 0.05, n=8)
    domains = tuple(
        d.model_copy(update={"figures": d.figures.model_copy(update={"speedup": _around(law or gain)})})
        if d.domain == "law"
        else d.model_copy(update={"figures": d.figures.model_copy(update={"speedup": estimate})})
        for d in made.domains
    )
    conditions = made.conditions.model_copy(update={"k": k, "concurrency": load})
    overall = made.overall.model_copy(update={"speedup": estimate})
    return made.model_copy(update={"conditions": conditions, "domains": domains, "overall": overall} | changes)


def _around(gain: float) -> Estimate:
    return Estimate(point=gain, low=gain - 0.05, high=gain + 0.05, n=8)


def costs(load: int = 1, *, draft: float = 0.001, verify: float = 0.011, k: int = 4) -> StepCosts:
    def cost(seconds: float) -> Cost:
        return Cost(seconds=seconds, n=40, low=0.99 * seconds, high=1.01 * seconds)

    return StepCosts(
        draft_step=cost(draft), target_step=cost(0.010), token=cost(0.010), overhead=cost(0.001),
        verify={n: cost(verify) for n in (1, 2, 4, 8)}, concurrency=load, k=k,
    )  # fmt: skip


def choice(found: Study, domain: str = ALL, load: int = 1) -> Any:
    return next(c for c in found.at(domain) if c.concurrency == load)


def test_the_best_of_what_was_measured_per_domain_and_load() -> None:
    found = study([at(2, 1.5), at(4, 1.8, law=0.8), at(2, 1.2, 8), at(4, 0.9, 8, law=0.6)])
    assert (choice(found).k, choice(found, "code").k, choice(found, "law").k) == (4, 4, 2)
    assert (choice(found, load=8).k, choice(found, "law", 8).k) == (2, 2)
    assert "×1.80 [1.75, 1.85] measured" in choice(found).reason
    assert (found.measured_k, found.concurrencies, found.domains) == ((2, 4), (1, 8), ["code", "law"])


def test_nothing_that_loses_is_chosen_and_of_equals_the_smaller_one_is() -> None:
    found = study([at(2, 1.49), at(4, 1.5), at(2, 0.99, 8), at(4, 0.9, 8)])
    assert choice(found).k == 2
    assert choice(found, load=8).k == 0
    assert "no measured K pays: K=2 ×0.99" in choice(found, load=8).reason
    assert "may be none" in choice(study([at(2, 1.02)])).reason


def test_a_curve_speaks_for_all_domains_where_nothing_better_does() -> None:
    points = [point(m, load, t, 1.0) for load, a, b in ((1, 10, 15), (8, 40, 30)) for m, t in _modes(a, b)]
    found = study([at(4, 1.7, curve=tuple(points))])
    assert choice(found).option(4).measured.point == 1.7
    assert choice(found, load=8).option(4).measured.point == pytest.approx(0.75)
    assert choice(found, load=8).k == 0
    assert found.break_even[0].concurrency == pytest.approx(8 ** (0.7 / 0.95))  # from 1.7 to 0.75
    assert found.break_even[0].says == "pays up to about 4 in flight"


def _modes(alone: float, drafting: float) -> tuple[tuple[str, float], ...]:
    return (("target-only", alone), ("speculative", drafting))


def test_a_k_that_was_not_measured_is_proposed_with_its_interval_and_never_taken_unasked() -> None:
    """Each draft step costs a third of a target step: one token is best, and four lose."""
    found = study([at(4, 0.8, costs=costs(draft=0.003, verify=0.010))])
    own = choice(found)
    assert (own.k, own.proposed) == (0, 1)
    option = own.option(1)
    assert option.measured is None
    assert option.predicted.speedup.low < option.predicted.speedup.point < option.predicted.speedup.high
    assert emit.serving(found)["default"]["draft_len"] == 0
    taken = emit.serving(found, predicted=True)["default"]
    assert taken["draft_len"] == 1
    assert "predicted, not measured" in taken["reason"]


def test_what_was_measured_is_not_proposed_again() -> None:
    found = study([at(1, 1.1), at(4, 1.4, costs=costs(draft=0.005))])
    assert choice(found).k == 4
    assert choice(found).proposed in {None, 2, 3}


def test_predictions_end_where_measurements_do() -> None:
    made = at(4, 1.4, costs=costs())
    found = predictor(made, ALL, costs(), made)
    assert found is not None
    assert found.most == 4
    assert found.predict(5) is None
    assert found.predict(0) is None
    assert study([at(4, 1.4)]).mean_error is None
    assert "not measured" in " ".join(study([at(4, 1.4)]).notes)


def test_the_error_is_that_of_predicted_against_measured() -> None:
    made = at(4, 2.0, costs=costs())
    found = study([made])
    predicted = choice(found).option(4).predicted.speedup.point
    assert found.mean_error == pytest.approx(abs(predicted / 2.0 - 1))
    assert found.compared == 1


def test_a_break_even_may_be_predicted() -> None:
    found = study([at(4, 1.5, costs=costs(), costs_at=(costs(8, verify=0.05),))])
    one = next(b for b in found.break_even if b.k == 4)
    assert (one.source, one.says.startswith("pays up to about")) == ("predicted", True)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"pair": "another"}, "two pairs"),
        ({"environment": {"triton": "1"}}, "not comparable"),
        ({"problems": (ProblemRow(code="x", domain="", message="wrong", count=1),)}, "contradicts itself: x: wrong"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: dict[str, Any], says: str) -> None:
    with pytest.raises(EvidenceError, match=says):
        study([at(2, 1.5), at(4, 1.5, **other)])
    with pytest.raises(EvidenceError, match="no result"):
        study([])


def measured() -> Study:
    """Four tokens alone, two at eight, none at 32; the law gains nothing."""
    loads = {1: (1.5, 1.8), 8: (1.3, 1.1), 32: (0.9, 0.7)}
    return study(
        [at(k, gain, load, law=0.8) for load, gains in loads.items() for k, gain in zip((2, 4), gains, strict=True)]
    )


def test_the_serving_policy_is_what_the_pipeline_reads() -> None:
    made = emit.serving(measured())
    assert made["default"]["draft_len"] == 4
    assert made["tasks"].keys() == {"law"}
    assert made["tasks"]["law"]["draft_len"] == 0
    assert "×0.80" in made["tasks"]["law"]["reason"]
    assert made["by_concurrency"] == [[8, 2], [32, 0]]
    assert "8 in flight: K=2" in made["default"]["reason"]
    parsed = parse_policy(json.loads(json.dumps(made)))
    assert [parsed.draft_len("code", n) for n in (1, 7, 8, 32)] == [4, 4, 2, 0]
    assert parsed.draft_len("law", 1) == 0


def test_the_llm_api_gets_a_schedule_it_takes() -> None:
    made = emit.llmapi(measured())
    assert made == {
        "speculation": {"draft_len": 4},
        "engine": {"pytorch": {"draft_len_schedule": {1: 4, 8: 2, 32: 0}}},
    }
    PyTorch.model_validate(made["engine"]["pytorch"])
    assert emit.llmapi(study([at(4, 1.5)])) == {"speculation": {"draft_len": 4}}
    with pytest.raises(EvidenceError, match="no K pays"):
        emit.llmapi(study([at(4, 0.5)]))


def test_vllm_gets_ranges_without_gaps_that_begin_at_one() -> None:
    made = emit.vllm(measured())
    assert made == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 7, 4], [8, 31, 2], [32, 4096, 0]],
    }
    assert emit.vllm(study([at(4, 1.5, 4)])) == {"num_speculative_tokens": 4}
    with pytest.raises(EvidenceError, match="no K pays"):
        emit.vllm(study([at(4, 0.5)]))


def test_tables_and_sentences() -> None:
    found = study([full()])
    out = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    out.print(choices_table(found))
    out.print(options_table(found))
    text = out.export_text()
    assert "not measured" in text
    assert "measure it" in text
    assert any("mean absolute error" in line for line in sentences(found))


def test_the_verb_writes_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k, gain in ((2, 1.5), (4, 1.8)):
        made = result({"code": 0.75, "law": 0.35}, gain={"code": gain, "law": 0.8}, k=k)
        (tmp_path / f"{k}.json").write_text(made.model_dump_json())
    out = tmp_path / "out"
    assert run(["policy", str(tmp_path / "2.json"), str(tmp_path / "4.json"), "--out", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {p.name for p in out.iterdir()} == {"policy.json", "llmapi.yaml", "vllm.json", "policy.csv"}
    assert json.loads((out / "policy.json").read_text()) == json.loads(shown["files"]["serving"])
    assert yaml.safe_load((out / "llmapi.yaml").read_text()) == {"speculation": {"draft_len": 4}}
    rows = list(csv.DictReader((out / "policy.csv").open()))
    chosen = {(r["domain"], r["k"]) for r in rows if r["chosen"] == "1"}
    assert chosen == {("all", "4"), ("code", "4")}
    assert Study.model_validate(shown["study"]).pair == "toy"


def test_one_format_alone_goes_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(result({"code": 0.75}, gain=1.8).model_dump_json())
    assert run(["policy", str(tmp_path / "r.json"), "--format", "vllm"]) == 0
    assert json.loads(capsys.readouterr().out) == {"num_speculative_tokens": 4}
    (tmp_path / "lost.json").write_text(result({"code": 0.75}, gain=0.5).model_dump_json())
    assert run(["policy", str(tmp_path / "lost.json"), "--format", "vllm"]) == 6
    assert run(["policy", str(tmp_path / "lost.json")]) == 0
    assert "vllm: no K pays" in capsys.readouterr().out


def test_validate_ends_speculation_where_every_larger_load_lost() -> None:
    losses = ((1, 10, 15), (8, 40, 30), (16, 60, 66), (32, 80, 60), (64, 90, 70))
    points = tuple(point(m, load, t, 1.0) for load, a, b in losses for m, t in _modes(a, b))
    made = at(4, 1.7, 4, curve=points)
    assert losing(made) == [32, 64]
    passed = judge(result({"code": 0.75}), Gates())
    assert policy_document(made, passed)["by_concurrency"] == [[32, 0]]
    assert losing(at(4, 1.02, 4)) == []
    assert losing(at(4, 0.97, 4)) == []  # 1 is within its interval
    assert losing(at(4, 0.9, 4)) == [4]

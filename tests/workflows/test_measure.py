"""`measure` on real servers: both transports, both kinds of repository, and what a document then holds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.triton import llmapirepo
from tests.triton.throwaway import serving
from tests.workflows.pair import outputs, own_pair
from trtspec.cli._main import run
from trtspec.config import RunConfig
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.result import ResultDocument
from trtspec.measurement.resultfile import load_result
from trtspec.triton.server import TritonServer
from trtspec.workflows.build import build
from trtspec.workflows.measure import Asked, Running, measured_at
from trtspec.workflows.reporter import Silent
from trtspec.workflows.serve import serving as started

pytestmark = pytest.mark.triton

FEW = "validation.datasets=[{path: %s/api-reference.jsonl, domain: api-reference, limit: 6}]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a copy of the shipped pair, built."""
    found = tmp_path_factory.mktemp("measured")
    build(own_pair(found))
    return found


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[TritonServer]:
    with started(own_pair(folder), lambda _: None) as running:
        yield running


def words(folder: Path, *more: str) -> list[str]:
    chosen = [*outputs(folder), FEW % (folder / "tiny/prompts"), "validation.warmup=1", *more]
    return [str(folder / "tiny.yaml"), *(word for text in chosen for word in ("--set", text))]


def metrics(server: TritonServer) -> str:
    return server.metrics_url.removeprefix("http://").removesuffix("/metrics")


@pytest.mark.torch
def test_a_running_server_over_grpc(folder: Path, server: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Document, schema, counters, environment, a curve: everything a later judgement reads."""
    out = folder / "grpc.json"
    where = ["--url", server.grpc_url, "--metrics-url", metrics(server), "--out", str(out)]
    loads = ["--concurrency", "1,2", "--rate", "3", "--window", "1", "--slo", "ttft=30,tpot=30"]
    assert run(["measure", *words(folder), *where, *loads, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = load_result(out)
    assert ResultDocument.model_validate(shown) == found
    assert found.counters is not None
    assert found.counters.outcome == "agree"
    assert {row.name for row in found.counters.rows} >= {"rounds", "emitted", "requests of ensemble"}
    assert found.memory is not None
    assert 0.0 < found.memory.headroom < 1.0
    assert {"triton", "model config ensemble", "tokenizer", "repository key", "target engine key", "cpu"} <= {
        *found.environment
    }
    assert (found.datasets[0].prompts, found.datasets[0].available, found.datasets[0].random_tokens) == (6, 120, 0)
    assert len(found.curve) == 6
    speed = found.overall.speculative
    assert speed is not None
    assert speed.per_token is not None
    assert speed.inter_chunk is not None
    assert speed.goodput is not None
    assert speed.goodput.good == 6
    assert found.domains[0].exactness is not None
    assert found.domains[0].exactness.equal == 6
    assert [p for p in found.problems if p.severity != "note"] == []


@pytest.mark.torch
def test_the_same_over_http(folder: Path, server: TritonServer) -> None:
    out = folder / "http.json"
    where = ["--url", server.http_url, "--http", "--metrics-url", metrics(server), "--out", str(out)]
    assert run(["measure", *words(folder), *where]) == 0
    found, grpc = load_result(out), load_result(folder / "grpc.json")
    assert found.conditions.transport == "http"
    # What was accepted is a fact about the pair: the wire changes nothing of it.
    assert [d.figures.histogram for d in found.domains] == [d.figures.histogram for d in grpc.domains]
    assert [row.sha256 for d in found.domains for row in d.rows] == [r.sha256 for d in grpc.domains for r in d.rows]
    assert found.counters is not None
    assert found.counters.outcome == "agree"


@pytest.mark.torch
def test_answers_behind_the_end_are_measured_and_not_released(folder: Path, server: TritonServer) -> None:
    out = folder / "eos.json"
    where = ["--url", server.grpc_url, "--metrics-url", metrics(server), "--out", str(out), "--max-prompts", "2"]
    assert run(["measure", *words(folder, "validation.ignore_eos=true"), *where]) == 0
    found = load_result(out)
    assert not found.release_valid
    assert "dataset.ignore-eos" in {p.code for p in found.problems if p.severity == "release"}
    rows = [a for row in found.domains[0].rows for a in (row.target_only, row.speculative)]
    assert {a.output_tokens for a in rows if a} == {96}
    assert {a.finish_reason for a in rows if a} <= {"length", ""}


@pytest.mark.torch
def test_ctrl_c_keeps_what_was_measured(folder: Path, server: TritonServer) -> None:
    out = folder / "stopped.json"
    where = ["--url", server.grpc_url, "--metrics-url", metrics(server), "--out", str(out)]
    # An arrival rate that would take minutes: the measurement itself is whole by then.
    command = [sys.executable, "-m", "trtspec", "measure", *words(folder), *where, "--rate", "1", "--window", "300"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    while "more loads" not in child.stdout.readline():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.stdout.read()
    assert child.wait(60) == 130
    found = load_result(out)
    assert found.interrupted
    assert not found.release_valid
    assert sum(d.prompts for d in found.domains) == 6


def test_options_that_make_no_sense_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, message in (
        (["--slo", "speed=3"], "ttft=S, tpot=S"),
        (["--concurrency", "many"], "not numbers"),
        (["--metrics-url", "x:1"], "belongs to --url"),
        (["--url", "x:1", "--target-only-url", "y:1"], "belongs to the LLM API"),
    ):
        assert run(["measure", *words(folder), *given]) == 2
        assert message in capsys.readouterr().err


def test_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    for document, key in (("result", "domains"), ("profile", "domains"), ("report", "judgement"), ("config", "pair")):
        assert run(["schema", "--of", document]) == 0
        assert key in json.loads(capsys.readouterr().out)["properties"]


WORDS = "one two three four five six seven eight nine ten"


@pytest.mark.torch
def test_several_k_without_the_policy_in_force_and_the_policy_that_follows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step times included. The policy that is served forbids drafts, and must not decide what is measured."""
    served = folder / "model_repo/tiny/tensorrt_llm_bls/1/policy.json"
    before = served.read_text()
    served.write_text(json.dumps({"version": 1, "default": {"draft_len": 0}, "by_concurrency": [[1, 0]]}))
    out = folder / "several"
    try:
        asked = words(folder, "validation.costs=true", "validation.concurrency=2", "validation.sweep=[1]")
        assert run(["measure", *asked, "--k", "6,2", "--window", "0.5", "--out", str(out), "--json"]) == 0
    finally:
        served.write_text(before)
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["results"]) == {"2", "6"}
    for k in (2, 6):
        found = load_result(out / f"k{k}.json")
        rounds = found.overall.rounds
        assert rounds is not None
        assert int(rounds.to_wire().sum(axis=(0, 2))[k]) > 0  # whole rounds of K were drafted, and none longer
        assert rounds.k >= k
        assert not rounds.to_wire()[:, k + 1 :].any()
        assert found.costs is not None
        assert found.costs.concurrency == 2
        assert [c.concurrency for c in found.costs_at] == [1]
        assert found.costs.target_step is not None
        assert found.costs.target_step.seconds > 0
        assert set(found.costs.verify) <= {1, 2, 4, 8}
    assert run(["policy", str(out), "--out", str(out), "--format", "serving", "--format", "table", "--json"]) == 0
    study = json.loads(capsys.readouterr().out)["study"]
    assert (study["measured_k"], study["concurrencies"]) == ([2, 6], [1, 2])
    made = json.loads((out / "policy.json").read_text())
    assert made["default"]["draft_len"] in {0, 2, 6}
    assert "measured" in made["default"]["reason"]


@pytest.mark.torch
@pytest.mark.parametrize("given", ["0", "9", "2,x", ""])
def test_a_k_that_cannot_be_drafted_is_refused_at_once(given: str, folder: Path) -> None:
    assert run(["measure", *words(folder), "--k", given]) == 2


def llm_api(folder: Path, **validation: object) -> RunConfig:
    given = {"concurrency": 2, "warmup": 1, "datasets": ()} | validation
    return llmapirepo.config(folder).model_copy(
        update={"validation": llmapirepo.config(folder).validation.model_copy(update=given)}
    )


def test_the_llm_apis_model_has_totals_and_one_mode(tmp_path: Path) -> None:
    """On a stand-in for TensorRT-LLM: its figures mean nothing, its tensors are those of the real model."""
    repository = llmapirepo.with_standin(llmapirepo.written(tmp_path))
    asked = Asked(tuple(Prompt(str(i), "words", f"{WORDS} {i}", 64) for i in range(8)), (), None)
    with (
        TritonServer.start(repository, serving(), tmp_path / "triton.log") as server,
        TritonServer.start(repository, serving(), tmp_path / "other.log") as other,
    ):
        where = Running(server.grpc_url, metrics=metrics(server))
        alone = measured_at(llm_api(tmp_path), where, asked, Silent())
        both = measured_at(
            llm_api(tmp_path),
            Running(server.http_url, http=True, target_only=other.http_url, metrics=metrics(server)),
            asked,
            Silent(),
        )
    assert alone.conditions.modes == ("speculative",)
    assert alone.overall.alpha is None
    assert alone.overall.alpha_bound is not None
    # Eleven words in four rounds: 7 accepted of 16 drafted.
    assert alone.overall.alpha_bound.point == pytest.approx(7 / 11)
    assert alone.overall.draft_acceptance_rate == pytest.approx(7 / 16)
    assert alone.overall.acceptance_length == pytest.approx(11 / 4)
    assert alone.overall.speedup is None
    assert alone.counters is not None
    assert alone.counters.outcome == "agree"
    assert {p.code for p in alone.problems} == {"modes.one"}
    row = alone.domains[0].rows[0]
    assert (row.accepted, row.drafted, row.tested, row.rounds, row.emitted) == (7, 16, None, 4, 11)
    assert both.conditions.modes == ("target-only", "speculative")
    assert both.domains[0].exactness is not None
    assert both.domains[0].exactness.equal == 8
    assert both.overall.speedup is not None
    assert both.counters is not None
    assert both.counters.outcome == "agree"

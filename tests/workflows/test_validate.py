"""The whole road on the shipped pair through a real Triton server, by the command line's own door."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

import pytest

from tests.processes import eventually, mentioning
from tests.release.made import result as made
from tests.workflows.pair import outputs, own_pair
from trtspec.cli._main import run
from trtspec.hashing import HashMemo
from trtspec.measurement.result import ProblemRow
from trtspec.measurement.resultfile import load_result
from trtspec.release.record import load_record
from trtspec.release.report import FILES, load_report
from trtspec.store import verify_folder
from trtspec.triton import leftovers
from trtspec.workflows.build import build

pytestmark = [pytest.mark.torch, pytest.mark.triton]

FEW = "validation.datasets=[{path: %s/api-reference.jsonl, domain: api-reference, limit: %d}]"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the shipped pair, built."""
    folder = tmp_path_factory.mktemp("road")
    build(own_pair(folder))
    return folder


def left_by(owner: int) -> list[object]:
    """Processes, shared memory and private folders of servers that process `owner` started."""
    name = re.sub(r"-\d+-[0-9a-f]+$", f"-{owner}-", leftovers.new_name())
    places = (leftovers.SHARED_MEMORY, Path(tempfile.gettempdir()))
    return [*mentioning(name), *(path for place in places for path in place.glob(f"{name}*"))]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert left_by(os.getpid()) == []


def arguments(folder: Path, verb: str, *overrides: str, prompts: int = 16) -> list[str]:
    chosen = [*outputs(folder), FEW % (folder / "tiny/prompts", prompts), *overrides]
    return [verb, str(folder / "tiny.yaml"), *(word for text in chosen for word in ("--set", text))]


def test_validate_passes_reports_and_writes_the_policy(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = built / "model_repo/tiny/tensorrt_llm_bls/1/policy.json"
    assert run([*arguments(built, "validate"), "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    report = json.loads(Path(document["report"]).read_text())
    domain = report["result"]["domains"][0]
    assert document["verdict"] == "pass"
    assert domain["exactness"]["equal"] == domain["exactness"]["compared"] == 16
    assert domain["figures"]["alpha"]["point"] > 0.65
    assert "PASS" in captured.err
    assert json.loads(policy.read_text())["default"] == {"draft_len": 4}
    # The policy is the one file that may change; everything else is still what was published.
    assert verify_folder(built / "model_repo/tiny", HashMemo()) == []
    home = built / "reports/tiny"
    assert {*FILES, "record.json", "provenance.json"} <= {p.name for p in home.iterdir()}
    record = load_record(home / "record.json")
    assert (record.verdict, record.gaps, record.policy and record.policy.written) == ("pass", (), True)
    assert document["record"] == str(home / "record.json")
    assert run(["verify", str(home)]) == 0
    assert run(["report", str(home), "--out", str(built / "again")]) == 0
    assert (built / "again/report.html").read_bytes() == (home / "report.html").read_bytes()


def test_validate_fails_below_the_floor_and_keeps_the_policy(built: Path) -> None:
    policy = built / "model_repo/tiny/tensorrt_llm_bls/1/policy.json"
    before = policy.read_text()
    strict = arguments(built, "validate", "gates.release_alpha=0.99", "gates.domain_alpha=0.98")
    assert run([*strict, "--baseline", str(built / "reports/tiny")]) == 1
    assert policy.read_text() == before
    rows = load_report(built / "reports/tiny/report.json").judgement.rows
    assert [row.outcome for row in rows if row.rule == "baseline.comparable"] == ["pass"]
    assert [row.rule for row in rows if row.rule == "regression.alpha"]
    record = load_record(built / "reports/tiny/record.json")
    assert (record.verdict, record.policy and record.policy.written) == ("fail", False)
    policy.write_text('{"version": 1, "default": {"draft_len": 1}}')
    assert run(["verify", str(built / "reports/tiny")]) == 1
    assert run(["verify", str(built / "model_repo/tiny")]) == 0
    policy.write_text(before)


def test_refused_before_a_server_starts(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    datasets = f"validation.datasets=[{{path: {empty}, domain: a}}]"
    assert run(arguments(built, "validate", datasets)) == 2
    assert f"{empty}: the file holds no prompts" in capsys.readouterr().err
    assert run(arguments(built, "validate", "validation.datasets=[]")) == 2
    assert run(arguments(built, "validate", "engine.max_batch_size=2")) == 2
    assert "out of date" in capsys.readouterr().err
    assert run(arguments(built, "validate", "name=other")) == 2
    assert "trtspec build" in capsys.readouterr().err


def test_serving_without_torch_is_told_before_a_server_starts(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert run(arguments(built, "serve", prompts=1)) == 3
    said = capsys.readouterr().err
    assert "the reference engine needs torch" in said
    assert "Starting Triton" not in said


def test_a_signer_that_is_not_there_is_told_before_a_server_starts(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert run([*arguments(built, "validate", prompts=1), "--sign", "cosign"]) == 3
    assert "no cosign on PATH" in capsys.readouterr().err
    assert run([*arguments(built, "validate", prompts=1), "--key", "key.pem"]) == 2
    assert "without --sign" in capsys.readouterr().err


def test_an_interrupted_measurement_is_kept_beside_the_release(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = built / "reports/tiny"
    before = {p.name: p.read_bytes() for p in home.glob("*.json")}
    told = ProblemRow(code="interrupted", domain="", message="interrupted", count=1, severity="release")
    whole = made({"code": 0.75})
    ended = {"interrupted": True, "problems": (*whole.problems, told), "release_valid": False}
    partly = whole.model_copy(update=ended)
    monkeypatch.setattr("trtspec.workflows.validate.measured_serving", lambda *_: nullcontext())
    monkeypatch.setattr("trtspec.workflows.validate.measured_on", lambda *_, **__: partly)
    assert run(arguments(built, "validate", prompts=1)) == 130
    assert "what was measured is in" in " ".join(capsys.readouterr().out.split())
    assert load_result(home / "interrupted.json").interrupted
    assert {name: (home / name).read_bytes() for name in before} == before


def test_port_in_use(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(arguments(built, "validate", f"serving.grpc_port={port}")) == 3
    assert f"serving.grpc_port: port {port} is in use" in capsys.readouterr().err


def test_killed_validate_leaves_nothing_and_the_next_passes(built: Path) -> None:
    command = [sys.executable, "-m", "trtspec", *arguments(built, "validate", prompts=60)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    while "Measuring" not in child.stdout.readline():
        assert child.poll() is None
    time.sleep(1.0)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert eventually(lambda: left_by(child.pid) == [], 20)
    assert run(arguments(built, "validate")) == 0


def test_serve_answers_until_it_is_told_to_stop(built: Path) -> None:
    from trtspec.triton.client import GenerateRequest, TritonClient

    command = [sys.executable, "-m", "trtspec", *arguments(built, "serve"), "--json"]
    # Python buffers a pipe; the addresses must come out while the server runs all the same.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = child.stdout.readline()
            assert line, child.stderr.read() if child.stderr else ""
            text += line
        with TritonClient(json.loads(text)["grpc"]) as client:
            answer = client.generate("tensorrt_llm_bls", GenerateRequest("def f(", 16, draft_len=4))
        assert answer.mode == "speculative"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.communicate()

"""The environment that calibrates: asked first, run beside us, watched through its log."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checkpoint.madefamilies import write_family
from tests.checkpoint.quantize.conftest import token_prompts
from tests.checkpoint.quantize.made import calibration
from tests.fakes import FakeRunner
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.quantize import separate
from trtspec.checkpoint.quantize.calibration import Calibration
from trtspec.errors import BuildError, MissingError

GOOD: dict[str, str | None] = {
    "python": "3.11.7", "nvidia-modelopt": "0.47.0", "torch": "2.13.0", "transformers": "4.57.6",
    "safetensors": "0.8.0", "accelerate": "1.15.0", "requests": "2.34.2",
}  # fmt: skip


@pytest.fixture
def facts(tmp_path: Path) -> ModelFacts:
    write_family(tmp_path / "model", "llama")
    return ModelFacts.read(tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nvidia-modelopt": None}, "no nvidia-modelopt"),
        ({"requests": None}, "no requests"),  # modelopt imports it without declaring it
        ({"nvidia-modelopt": "0.37.0"}, r"0\.45 - 0\.47"),  # what TensorRT-LLM 1.2.1 pins
        ({"nvidia-modelopt": "0.48.1"}, r"0\.45 - 0\.47"),
        ({"transformers": "4.55.0"}, r"at least 4\.57, below 5\.15"),
        ({"transformers": "5.24.0"}, r"at least 4\.57, below 5\.15"),
        ({"nvidia-modelopt": "0.45.0", "transformers": "5.12.0"}, r"below 5\.10"),
    ],
)
def test_an_environment_that_cannot_calibrate_is_refused(
    facts: ModelFacts, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], message: str
) -> None:
    monkeypatch.setattr(separate, "versions", lambda python: GOOD | changes)
    with pytest.raises(MissingError, match=message):
        separate.require(facts)


def test_transformers_5_is_fine_but_not_for_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate, "versions", lambda python: GOOD | {"transformers": "5.14.1"})
    write_family(tmp_path / "plain", "llama")
    write_family(tmp_path / "experts", "mixtral")
    assert separate.require(ModelFacts.read(tmp_path / "plain"))["transformers"] == "5.14.1"
    with pytest.raises(MissingError, match="experts in one tensor"):
        separate.require(ModelFacts.read(tmp_path / "experts"))


def test_a_python_that_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"tools\.modelopt_python"):
        separate.versions(tmp_path / "python")


def test_another_python_is_asked() -> None:
    assert separate.versions(Path(sys.executable)) == separate.versions()


def job(folder: Path) -> separate.Job:
    return separate.Job(folder / "model", "fp8", "auto", ((1, 2), (3,)), seed=4)


def test_progress_and_notes_are_read_from_the_log(tmp_path: Path) -> None:
    told: list[object] = []
    text = "chatter\nprogress 1 2\nnote almost there\nprogress 2 2\nprogress x y\n"
    calibration(tmp_path, {})
    runner = FakeRunner([(0, text)])
    separate.calibrate(
        job(tmp_path), tmp_path, tmp_path / "log", runner=runner, about={"method": "modelopt"},
        progress=lambda done, total: told.append((done, total)), note=told.append,
    )  # fmt: skip
    assert told == [(1, 2), "almost there", (2, 2)]
    assert runner.started[0].command == [sys.executable, separate.worker.__file__, str(tmp_path / "job.json")]
    assert json.loads((tmp_path / "calibration.json").read_text()) == {"method": "modelopt"}
    assert not (tmp_path / "job.json").exists()  # it holds the user's prompts


def test_the_environment_of_the_configuration_runs_it(tmp_path: Path) -> None:
    runner = FakeRunner([(0, "")])
    calibration(tmp_path, {})
    separate.calibrate(
        job(tmp_path), tmp_path, tmp_path / "log", python=Path("/opt/modelopt/bin/python"), runner=runner
    )
    assert runner.started[0].command[0] == "/opt/modelopt/bin/python"


def test_what_the_worker_says_is_the_error(tmp_path: Path) -> None:
    runner = FakeRunner([(3, "loading\nerror its experts are in one tensor\nTraceback")])
    with pytest.raises(BuildError, match=r"calibration failed: .* exit code 3 \(found its experts") as caught:
        separate.calibrate(job(tmp_path), tmp_path, tmp_path / "log", runner=runner)
    assert caught.value.context["log"] == str(tmp_path / "log")


def test_a_worker_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("$ an earlier run\nerror of that run\n$ this run\n")
    with pytest.raises(BuildError, match=r"failed: its process was ended by SIGKILL \(found no output"):
        separate.calibrate(job(tmp_path), tmp_path, tmp_path / "log", runner=FakeRunner([(-9, "")]))


def test_a_result_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    """Published, it would be used again and again."""
    (tmp_path / "calibration.safetensors").write_bytes(b"nonsense")
    with pytest.raises(BuildError, match="result cannot be read: impossible header length"):
        separate.calibrate(job(tmp_path), tmp_path, tmp_path / "log", runner=FakeRunner([(0, "")]))


def test_a_python_that_answers_nonsense(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 42\n")
    python.chmod(0o755)
    with pytest.raises(MissingError, match="it said '42"):
        separate.versions(python)


def test_a_crash_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="CUDA out of memory"):
        separate.calibrate(
            job(tmp_path), tmp_path, tmp_path / "log", runner=FakeRunner([(1, "RuntimeError: CUDA out of memory")])
        )


def test_success_without_a_result_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="without a result"):
        separate.calibrate(job(tmp_path), tmp_path, tmp_path / "log", runner=FakeRunner([(0, "")]))


def test_a_stop_stops_the_worker(tmp_path: Path) -> None:
    runner = FakeRunner([(None, "progress 1 2\n")])

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        separate.calibrate(job(tmp_path), tmp_path, tmp_path / "log", runner=runner, progress=interrupt)
    assert runner.processes[0].stops == 1


@pytest.mark.torch
@pytest.mark.slow
def test_a_real_process_calibrates(llama: Path, tmp_path: Path) -> None:
    """By file path and from another folder: what stands beside the script must not hide packages of its name."""
    pytest.importorskip("modelopt")
    done: list[tuple[int, int]] = []
    real = replace(job(tmp_path), model=llama, kv_cache="fp8", prompts=tuple(map(tuple, token_prompts(2))))
    separate.calibrate(
        real, tmp_path, tmp_path / "log.txt", about=separate.versions(), progress=lambda *at: done.append(at)
    )
    found = Calibration.open(tmp_path)
    assert done == [(1, 2), (2, 2)]
    assert found.about["nvidia-modelopt"]
    assert found.inputs(["model.layers.1.mlp.down_proj"]).shape == (1,)
    assert min(found.cache("model.layers.0.self_attn.q_proj")) > 0

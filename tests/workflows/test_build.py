"""The walk over the stages: what is built, what is reused, what a fault leaves behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workflows.pair import outputs, own_pair
from trtspec.cli._main import run
from trtspec.errors import BuildError, CheckFailed, ConfigError, MissingError, ModelFileError
from trtspec.store import read_manifest, verify_folder
from trtspec.triton import repository
from trtspec.workflows.build import Build, build

pytestmark = pytest.mark.torch


def actions(done: Build) -> dict[str, str]:
    return {o.stage.title: o.action for o in done.outcomes}


def results(folder: Path) -> dict[str, str]:
    """SHA-256 of every published file, as the manifests hold them, by path below `folder`."""
    found = {}
    for manifest in folder.rglob("trtspec-manifest.json"):
        files = json.loads(manifest.read_text())["files"]
        found.update({f"{manifest.parent.relative_to(folder)}/{name}": f["sha256"] for name, f in files.items()})
    return found


def written(folder: Path) -> list[Path]:
    """Files below the result folders that are no lock."""
    every = [p for d in ("engines", "model_repo") for p in (folder / d).rglob("*")]
    return [p for p in every if p.is_file() and p.suffix != ".lock"]


def test_first_builds_everything_second_nothing_and_reads_nothing(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    first = build(config)
    assert set(actions(first).values()) == {"built"}
    assert len(actions(first)) == 6
    second = build(config)
    assert second.did_nothing
    assert second.stages.memo.bytes_read == 0


def test_changed_draft_rebuilds_only_what_follows_it(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    build(config)
    generation = tmp_path / "tiny/draft/config.json"
    changed = json.loads(generation.read_text()) | {"rms_norm_eps": 2e-5}
    generation.write_text(json.dumps(changed))
    assert actions(build(config)) == {
        "check": "built",
        "checkpoint of the draft": "built",
        "checkpoint of the target": "reused",
        "engine of the draft": "built",
        "engine of the target": "reused",
        "model repository": "built",
    }


def test_changed_limit_rebuilds_engines_not_checkpoints(tmp_path: Path) -> None:
    build(own_pair(tmp_path))
    again = actions(build(own_pair(tmp_path, "engine.max_batch_size=4")))
    assert again["checkpoint of the target"] == again["checkpoint of the draft"] == "reused"
    assert again["engine of the target"] == again["engine of the draft"] == "built"


def test_changed_serving_default_rebuilds_only_the_repository(tmp_path: Path) -> None:
    build(own_pair(tmp_path))
    again = actions(build(own_pair(tmp_path, "speculation.draft_len=2")))
    assert {title for title, action in again.items() if action == "built"} == {"check", "model repository"}


def test_damaged_result_is_mended(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    build(config)
    (config.engine_dir("draft") / "config.json").write_text("{}")
    done = build(config)
    outcome = next(o for o in done.outcomes if o.stage.title == "engine of the draft")
    assert (outcome.action, outcome.reason) == ("built", outcome.reason)
    assert "config.json" in outcome.reason
    assert verify_folder(config.engine_dir("draft"), done.stages.memo) == []


def test_misfit_pair_stops_before_anything_is_converted(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    tokenizer = tmp_path / "tiny/draft/tokenizer.json"
    document = json.loads(tokenizer.read_text())
    vocab = document["model"]["vocab"]
    first, second = list(vocab)[300:302]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    tokenizer.write_text(json.dumps(document))
    with pytest.raises(CheckFailed, match="does not fit"):
        build(config)
    assert written(tmp_path) == []


@pytest.mark.parametrize("keep", [0, 7, 100, 5000, -1])
def test_truncated_weights_are_refused_before_anything_is_written(tmp_path: Path, keep: int) -> None:
    config = own_pair(tmp_path)
    weights = tmp_path / "tiny/target/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(CheckFailed):
        build(config)
    with pytest.raises(ModelFileError) as caught:
        build(config, until="convert", check=False, roles=("target",))
    assert caught.value.context == {"stage": "convert", "role": "target"}
    assert written(tmp_path) == []


def test_weights_that_disagree_with_the_config_are_refused(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    path = tmp_path / "tiny/target/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 680}))
    with pytest.raises(ModelFileError, match="mlp"):
        build(config, check=False)
    assert not config.checkpoint_dir("target").exists()
    assert not config.repository_dir.exists()


def test_missing_folder_and_unpinned_hub_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such model folder"):
        build(own_pair(tmp_path, f"pair.draft.path={tmp_path / 'absent'}"))
    hub = "pair.draft={hub: someone/model}"
    with pytest.raises(MissingError, match="--download"):
        build(own_pair(tmp_path, hub))
    with pytest.raises(ConfigError, match="revision"):
        build(own_pair(tmp_path, hub), download=True)
    assert written(tmp_path) == []


def test_a_format_that_the_model_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[quantize target\].*688 columns"):
        build(own_pair(tmp_path, "pair.target.quantization.weights=int4_rtn"), until="convert", check=False)
    assert written(tmp_path) == []


def test_a_repository_that_would_not_load_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = own_pair(tmp_path)
    monkeypatch.setattr(repository, "_copy_tokenizer", lambda source, out: out.mkdir())
    with pytest.raises(BuildError, match="would not load: preprocessing"):
        build(config)
    assert not config.repository_dir.exists()


@pytest.mark.parametrize("backend", ["tensorrt"])
def test_gpu_backends_end_in_exit_3_and_say_what_is_missing(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own_pair(tmp_path)
    arguments = ["build", str(tmp_path / "tiny.yaml"), "--set", f"engine.backend={backend}"]
    for override in outputs(tmp_path):
        arguments += ["--set", override]
    assert run(arguments) == 3
    assert backend in capsys.readouterr().err
    assert written(tmp_path) == []


@pytest.mark.slow
def test_killed_anywhere_ends_in_the_same_bytes(tmp_path: Path) -> None:
    """kill -9 at random moments of a build; the next finishes it, byte for byte what an undisturbed one makes."""
    build(own_pair(tmp_path))
    calm = results(tmp_path)
    for folder in ("engines", "model_repo"):
        shutil.rmtree(tmp_path / folder)
    command = [sys.executable, "-m", "trtspec", "build", str(tmp_path / "tiny.yaml")]
    for override in outputs(tmp_path):
        command += ["--set", override]
    moments = random.Random(5)
    for _ in range(6):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.3, 1.2))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        for manifest in tmp_path.rglob("trtspec-manifest.json"):
            assert ".partial-" in str(manifest) or read_manifest(manifest.parent) is not None
    assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0
    assert results(tmp_path) == calm
    assert not list(tmp_path.rglob("*.partial-*"))

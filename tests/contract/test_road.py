"""The whole road on a machine with nothing: configs/llama70b.yaml, toy models of its layer counts, and stand-ins."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.conftest import Road
from tests.contract.synthetic import CONFIGS, overrides, write_pair

pytestmark = pytest.mark.torch


def test_from_two_model_folders_to_a_clean_repository(road: Road) -> None:
    assert road.done.returncode == 0, road.done.stdout + road.done.stderr
    assert road.seconds < 180  # half a minute on two idle cores
    for role, ranks in (("target", 8), ("draft", 1)):
        engine = road.folder / "engines/llama70b" / role / "engine"
        assert len(list(engine.glob("rank*.engine"))) == ranks
        quantization = json.loads((engine / "config.json").read_text())["pretrained_config"]["quantization"]
        assert (quantization["quant_algo"], quantization["kv_cache_quant_algo"]) == ("FP8", "FP8")
    models = {p.name for p in (road.folder / "model_repo/llama70b").iterdir() if p.is_dir()}
    assert {"preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_bls", "ensemble"} <= models
    assert not list(road.folder.rglob("*.partial-*"))
    assert len(road.machine.built()) == 2


def test_the_result_is_lint_clean(road: Road) -> None:
    done = road.trtspec("lint")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout


def test_a_second_walk_builds_nothing(road: Road) -> None:
    done = road.trtspec("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(road.machine.built()) == 2


def test_without_tensorrt_llm_it_says_what_to_do(tmp_path: Path) -> None:
    write_pair(tmp_path, "llama70b")
    given = [word for change in overrides(tmp_path) for word in ("--set", change)]
    command = [sys.executable, "-m", "trtspec", "build", str(CONFIGS / "llama70b.yaml"), *given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "tensorrt_llm" in done.stderr
    assert not (tmp_path / "engines").exists()


def test_an_engine_of_another_build_is_not_lint_clean(road: Road, tmp_path: Path) -> None:
    """As if someone had rebuilt the target by hand with the defaults of an early release."""
    engine = tmp_path / "engine"
    shutil.copytree(road.folder / "engines/llama70b/target/engine", engine)
    document = json.loads((engine / "config.json").read_text())
    document["build_config"]["plugin_config"]["use_paged_context_fmha"] = False
    (engine / "config.json").write_text(json.dumps(document))
    done = road.trtspec("lint", "--target-engine", str(engine))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "paged" in done.stdout + done.stderr

"""TensorRT engines in the workflows: interrupted builds, the plan's commands, engines of another machine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.backends.tensorrt.pairs import environment, pair
from tests.conftest import PROJECT
from trtspec.backends.tensorrt import machine
from trtspec.config import Role, load_config
from trtspec.errors import MissingError
from trtspec.hashing import HashMemo
from trtspec.store import MANIFEST
from trtspec.versions import NAMES
from trtspec.workflows.build import Build
from trtspec.workflows.plan import plan_config
from trtspec.workflows.reporter import Silent
from trtspec.workflows.serve import current_repository
from trtspec.workflows.stages import Stages


def test_an_interrupt_reaches_both_builds(tmp_path: Path) -> None:
    config = pair(tmp_path)
    walk = Build(config, Stages(config, {}, HashMemo(tmp_path / "memo")), Silent())
    ended: list[Role] = []

    def work(role: Role) -> None:
        deadline = time.monotonic() + 20
        while not walk.stop.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        ended.append(role)

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        walk._each(("target", "draft"), "engine", work)
    assert sorted(ended) == ["draft", "target"]
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("release", NAMES)
@pytest.mark.parametrize("name", ["llama70b", "qwen2.5"])
def test_the_plan_shows_the_commands_of_every_version(name: str, release: str, tmp_path: Path) -> None:
    wanted = [f"engine.tensorrt_llm_version={release}", f"output.engines={tmp_path}/e"]
    document = plan_config(load_config(PROJECT / "configs" / f"{name}.yaml", wanted)).as_dict()
    shown = {stage["title"]: stage for stage in json.loads(json.dumps(document, default=str))["stages"]}
    (target,), (draft,) = (shown[f"engine of the {role}"]["commands"] for role in ("target", "draft"))
    assert target[0] == draft[0] == "trtllm-build"
    assert "--speculative_decoding_mode" in target
    assert "--speculative_decoding_mode" not in draft
    assert shown["engine of the draft"]["runs"] == f"TensorRT-LLM {release} (planned)"


def test_a_plan_without_a_command_says_why(tmp_path: Path) -> None:
    for name in ("t", "d"):
        (tmp_path / name).mkdir()
    document = plan_config(pair(tmp_path, engine={"tensorrt": {"flags": {"max_draft_len": 9}}})).as_dict()
    (stage,) = [stage for stage in document["stages"] if stage["title"] == "engine of the target"]
    assert stage["commands"] == ()
    assert "set speculation.max_draft_len instead" in stage["note"]
    assert document["check"]["verdict"] == "fail"


def test_engines_of_another_gpu_are_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pair(tmp_path)
    for folder in (config.repository_dir, config.engine_dir("target")):
        folder.mkdir(parents=True)
        inputs = {"engine settings": {"machine": {"sm": 80, "tensorrt": "10.14.1.48", "tensorrt_llm": "1.2.1"}}}
        (folder / MANIFEST).write_text(json.dumps({"files": {}, "inputs": inputs}))
    monkeypatch.setattr(machine, "detected", lambda config: environment())
    with pytest.raises(MissingError, match="built for SM 80, the GPUs here are SM 90") as caught:
        current_repository(config, print)
    assert caught.value.context["stage"] == "serve"

"""plan: what build would do, without doing any of it."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.conftest import PROJECT
from tests.workflows.pair import outputs, own_pair
from trtspec.config import RunConfig, load_config
from trtspec.pairing.plan_report import print_plan
from trtspec.workflows import planned_stages
from trtspec.workflows.build import build
from trtspec.workflows.plan import Planned, PlannedStage, plan_config

HUB = ("llama70b", "qwen2.5")


def shipped(name: str, tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config(PROJECT / "configs" / f"{name}.yaml", [*outputs(tmp_path), *overrides], environ={})


def printed(config: RunConfig, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_plan(console, plan_config(config).as_dict())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def tree(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
        for p in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("name", HUB)
def test_hub_pairs_are_planned_on_a_bare_machine(name: str, tmp_path: Path) -> None:
    document = plan_config(shipped(name, tmp_path)).as_dict()
    assert document["check"]["verdict"] != "fail"
    assert document["memory"]["fits"]
    assert document["economics"]["concurrency"]
    stages = {stage["title"]: stage for stage in document["stages"]}
    assert all(stage["action"] == "build" for stage in stages.values())
    target = stages["checkpoint of the target"]
    assert len(target["files"]) == {"llama70b": 8, "qwen2.5": 4}[name]
    # One byte a weight, embedding and head in 16 bits; all ranks together.
    assert target["bytes"] == pytest.approx({"llama70b": 72.7e9, "qwen2.5": 75.2e9}[name], rel=0.01)
    assert json.loads(json.dumps(document, default=str))["name"] == name


def test_calibrated_formats_have_their_stage(tmp_path: Path) -> None:
    titles = {s["title"]: s for s in plan_config(shipped("llama70b", tmp_path)).as_dict()["stages"]}
    assert titles["calibration of the draft"]["note"] == "needs prompts: none are configured"
    plain = ["pair.draft.quantization.weights=int8_wo", "pair.draft.quantization.kv_cache=auto"]
    stages = plan_config(shipped("llama70b", tmp_path, *plain)).stages
    assert "calibration of the draft" not in [stage.title for stage in stages]
    assert all("calibration" not in stage.title for stage in plan_config(own_pair(tmp_path)).stages)


def test_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRTSPEC_CACHE", str(cache))
    own = own_pair(tmp_path)
    before = tree(tmp_path)
    plan_config(own)
    assert tree(tmp_path) == before
    build(own, until="convert")
    before = tree(tmp_path)
    plan_config(own)
    assert tree(tmp_path) == before


def actions(config: RunConfig) -> dict[str, str]:
    return {stage.title: stage.action for stage in plan_config(config).stages}


def test_what_is_up_to_date_and_what_would_be_rebuilt(tmp_path: Path) -> None:
    own = own_pair(tmp_path)
    assert set(actions(own).values()) == {"build"}
    build(own, until="engine")
    here = actions(own)
    assert {title for title, action in here.items() if action == "up to date"} == set(here) - {"model repository"}
    changed = own_pair(tmp_path, "engine.max_batch_size=4")
    assert actions(changed)["engine of the target"].startswith("rebuild: changed")
    assert actions(changed)["checkpoint of the target"] == "up to date"
    (own.checkpoint_dir("draft") / "trtspec-manifest.json").unlink()
    assert actions(own)["checkpoint of the draft"] == "rebuild: it has no readable manifest"


def test_predicted_bytes_are_those_that_build_writes(tmp_path: Path) -> None:
    own = own_pair(tmp_path)
    planned = {stage.title: stage for stage in plan_config(own).stages}
    build(own, until="convert")
    for role in ("target", "draft"):
        predicted = planned[f"checkpoint of the {role}"].nbytes
        written = sum(p.stat().st_size for p in own.checkpoint_dir(role).glob("*.safetensors"))
        assert predicted == pytest.approx(written, rel=0.01)


def test_config_json_alone_is_enough(tmp_path: Path) -> None:
    own = own_pair(tmp_path)
    with_weights = plan_config(own).as_dict()
    for role in ("target", "draft"):
        for path in (tmp_path / "tiny" / role).glob("*.safetensors"):
            path.unlink()
    without = plan_config(own).as_dict()
    assert without["stages"] == with_weights["stages"]
    assert without["memory"] == with_weights["memory"]


def test_an_unknown_model_leaves_question_marks(tmp_path: Path) -> None:
    own = shipped("llama70b", tmp_path, "pair.draft.hub=nobody/nothing")
    document = plan_config(own).as_dict()
    assert document["memory"] is None
    assert document["economics"] is None
    (draft,) = [s for s in document["stages"] if s["title"] == "checkpoint of the draft"]
    assert draft["bytes"] is None
    assert "?" in printed(own, 100)


def test_the_llm_api_needs_no_checkpoints(tmp_path: Path) -> None:
    own = shipped("llama70b", tmp_path, "engine.backend=pytorch", "pair.draft.parallelism.tensor=8")
    stages = plan_config(own).stages
    assert not [stage for stage in stages if stage.title.startswith("checkpoint of")]
    assert [stage.note for stage in stages if stage.title.startswith("engine of")] == [
        "no engine: which weights the LLM API reads"
    ] * 2


def test_a_part_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def more(planned: Planned) -> Any:
        yield PlannedStage("more", None, planned.config.report_dir, "build", commands=(("trtllm-build", "--help"),))

    monkeypatch.setattr(planned_stages, "PARTS", (*planned_stages.PARTS, more))
    (found,) = [s for s in plan_config(shipped("llama70b", tmp_path)).as_dict()["stages"] if s["title"] == "more"]
    assert found["commands"] == (("trtllm-build", "--help"),)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", HUB)
def test_the_report_fits_the_page(name: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = printed(shipped(name, tmp_path, "hardware.price_per_hour=2.5"), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text, "no cell is cut"
    assert text.count("only)") == 2, "nor any word"
    assert len(lines) < 120
    for said in (f"engines/{name}/target/checkpoint", "KV cache", "max_tokens_in_paged_kv_cache", "K=", "1M alone"):
        assert said in text
    assert "Nothing was written" in text


def test_the_reference_pair_is_planned_for_this_machine(tmp_path: Path) -> None:
    text = printed(own_pair(tmp_path), 100)
    assert "(CPU)" in text
    assert "links to the checkpoint's weights" in text

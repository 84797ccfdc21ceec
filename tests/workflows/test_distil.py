"""Distilling a draft from beginning to end on a target that fits in a test."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.distil.tiny import write_prompts, write_target
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.plan import plan_conversion
from trtspec.distil.recipe import Recipe, Scratch
from trtspec.errors import ConfigError, TrtspecError
from trtspec.workflows.distil import distil

pytestmark = pytest.mark.torch
RECIPE = Recipe(keep_layers=(0, 2), tokens=600, steps=6, batch=8, eval_every=3, precision="float32", draft_len=3)
SCRATCH = Scratch(layers=1, hidden=16, intermediate=24, heads=2, kv_heads=1, head_dim=8)

FROM_NOTHING = replace(RECIPE, keep_layers=(), scratch=SCRATCH)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target") / "model")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("prompts") / "words.jsonl")


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_draft_is_published_measured_and_can_be_used(target: Path, prompts: Path, tmp_path: Path) -> None:
    done = distil(target, tmp_path / "draft", [prompts], RECIPE)
    found = done.measured.as_dict()
    assert found["all"]["prompts"] == 4
    assert 0.0 <= found["all"]["alpha"] <= 1.0
    assert [e.step for e in done.history] == [0, 3, 6]
    assert done.tokens >= 600
    draft = ModelFacts.read(tmp_path / "draft")
    assert (draft.num_hidden_layers, draft.vocab_size) == (2, ModelFacts.read(target).vocab_size)
    assert plan_conversion(tmp_path / "draft").tensors
    assert (tmp_path / "draft" / "tokenizer.json").read_bytes() == (target / "tokenizer.json").read_bytes()
    readme = (tmp_path / "draft" / "README.md").read_text()
    assert f"{found['all']['alpha']:.3f}" in readme
    assert "held out from training" in readme


def test_what_training_watched_is_what_is_measured_afterwards(target: Path, prompts: Path, tmp_path: Path) -> None:
    done = distil(target, tmp_path / "draft", [prompts], RECIPE)
    best = max(done.history, key=lambda e: e.alpha)
    assert done.measured.as_dict()["all"]["alpha"] == pytest.approx(best.alpha)


@pytest.mark.parametrize("recipe", [RECIPE, FROM_NOTHING], ids=["layers", "scratch"])
def test_a_killed_run_resumes_to_the_same_bytes(
    recipe: Recipe, target: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trtspec.distil.objective import Objective

    distil(target, tmp_path / "whole", [prompts], recipe, work=tmp_path / "a")
    good = Objective.loss

    def killed(self: Objective, step: int) -> object:
        if step == 4:
            raise KeyboardInterrupt
        return good(self, step)

    monkeypatch.setattr(Objective, "loss", killed)
    with pytest.raises(KeyboardInterrupt):
        distil(target, tmp_path / "again", [prompts], recipe, work=tmp_path / "b")
    assert not (tmp_path / "again").exists()
    monkeypatch.setattr(Objective, "loss", good)
    with pytest.raises(ConfigError, match="an earlier run"):
        distil(target, tmp_path / "again", [prompts], recipe, work=tmp_path / "b")
    shards = {p: p.stat().st_mtime_ns for p in (tmp_path / "b").rglob("texts-*.safetensors")}
    distil(target, tmp_path / "again", [prompts], recipe, work=tmp_path / "b", resume=True)
    assert weights(tmp_path / "again") == weights(tmp_path / "whole")
    assert shards == {p: p.stat().st_mtime_ns for p in (tmp_path / "b").rglob("texts-*.safetensors")}


def test_training_gains_on_its_own_target(target: Path, prompts: Path, tmp_path: Path) -> None:
    others = write_prompts(tmp_path / "others.jsonl", 20, seed=7)
    recipe = replace(RECIPE, steps=60, eval_every=20, tokens=1500, rate=3e-3)
    done = distil(target, tmp_path / "draft", [prompts], recipe, held_out=[others])
    losses = [e.loss for e in done.history if e.loss is not None]
    assert losses[-1] < losses[0]
    assert max(e.alpha for e in done.history) > done.history[0].alpha
    assert done.measured.as_dict()["all"]["prompts"] == 20


@pytest.mark.parametrize("change", [{"top": 0}, {"temperature": 0.8}, {"optimizer": "muon"}], ids=str)
def test_every_way_of_training_runs(change: dict[str, object], target: Path, prompts: Path, tmp_path: Path) -> None:
    done = distil(target, tmp_path / "draft", [prompts], replace(RECIPE, steps=2, eval_every=2, **change))
    losses = [e.loss for e in done.history if e.loss is not None]
    assert losses
    assert all(0.0 < loss < 100.0 for loss in losses)


def test_a_draft_like_its_target_from_nothing(target: Path, prompts: Path, tmp_path: Path) -> None:
    recipe = replace(RECIPE, keep_layers=(), scratch=replace(SCRATCH, like_target=True), steps=2)
    distil(target, tmp_path / "draft", [prompts], recipe)
    draft = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert (draft["model_type"], draft["hidden_size"], draft["tie_word_embeddings"]) == ("llama", 16, True)


def test_what_cannot_be_distilled_is_said_before_anything_is_written(target: Path, tmp_path: Path) -> None:
    few = write_prompts(tmp_path / "few.jsonl", count=5)
    enough = write_prompts(tmp_path / "enough.jsonl", count=12)
    cases: list[tuple[Path, Recipe, str]] = [
        (few, RECIPE, "too few prompts"),
        (enough, replace(RECIPE, keep_layers=()), "starts either"),
        (enough, replace(RECIPE, scratch=SCRATCH), "starts either"),
        (enough, replace(RECIPE, keep_layers=(0, 9)), "not layers of this model"),
        (tmp_path / "absent.jsonl", RECIPE, "absent.jsonl"),
    ]
    for prompts, recipe, said in cases:
        with pytest.raises((TrtspecError, OSError), match=said):
            distil(target, tmp_path / "draft", [prompts], recipe)
    assert not (tmp_path / "draft").exists()


def test_a_draft_never_replaces_its_target(target: Path, prompts: Path, tmp_path: Path) -> None:
    shutil.copytree(target, tmp_path / "model")
    with pytest.raises(ConfigError, match="would replace its target"):
        distil(tmp_path / "model", tmp_path / "model", [prompts], RECIPE)


@pytest.mark.gpu
def test_a_gpu_distils_as_well(target: Path, prompts: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device that torch can use")
    done = distil(target, tmp_path / "draft", [prompts], replace(RECIPE, device="cuda", precision="bfloat16"))
    assert done.history[-1].step == 6
    assert done.measured.conditions["target device"] != "cpu"

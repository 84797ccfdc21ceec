"""build, plan and serve with `backend: pytorch` on a machine that has neither a GPU nor TensorRT-LLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.workflows.pair import own_pair
from trtspec.checkpoint.quantize import separate
from trtspec.config import RunConfig
from trtspec.errors import ConfigError, MissingError
from trtspec.workflows.build import Build, build
from trtspec.workflows.plan import plan_config
from trtspec.workflows.serve import serving
from trtspec.workflows.validate import validate


def pair(tmp_path: Path, *more: str) -> RunConfig:
    return own_pair(tmp_path, "engine.backend=pytorch", "engine.tensorrt_llm_version=1.2.1", *more)


def made(done: Build) -> dict[str, str]:
    return {o.stage.title: o.action for o in done.outcomes}


def test_build_goes_to_the_repository_and_then_does_nothing(tmp_path: Path) -> None:
    config = pair(tmp_path)
    first = build(config)
    assert made(first) == dict.fromkeys(
        ("check", "engine of the draft", "engine of the target", "model repository"), "built"
    )
    assert not config.checkpoint_dir("draft").exists()
    options = yaml.safe_load((config.repository_dir / "tensorrt_llm/1/model.yaml").read_text())
    assert options["model"] == str(tmp_path / "tiny/target")
    assert options["speculative_config"]["speculative_model"] == str(tmp_path / "tiny/draft")
    second = build(config)
    assert second.did_nothing


def test_a_changed_draft_is_noticed(tmp_path: Path) -> None:
    config = pair(tmp_path)
    build(config)
    path = tmp_path / "tiny/draft/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rms_norm_eps": 2e-5}))
    assert made(build(config)) == {
        "check": "built", "engine of the draft": "built", "engine of the target": "reused", "model repository": "built"
    }  # fmt: skip


def test_another_setting_rewrites_the_repository_only(tmp_path: Path) -> None:
    build(pair(tmp_path))
    done = build(pair(tmp_path, "engine.pytorch={max_concurrency: 4}"), check=False)
    assert made(done) == {
        "engine of the draft": "reused", "engine of the target": "reused", "model repository": "built"
    }  # fmt: skip


def test_quantized_roles_need_modelopt_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise MissingError("no nvidia-modelopt")

    monkeypatch.setattr(separate, "require", absent)
    config = pair(tmp_path, "pair.draft.quantization={weights: fp8_pc_pt}")
    with pytest.raises(MissingError, match="modelopt"):
        build(config, check=False)
    assert not config.output.engines.exists() or not list(config.output.engines.rglob("*.json"))


def test_a_quantized_role_is_exported_and_its_copy_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    from trtspec.workflows import quantize

    def export(recipe: quantize.Recipe, to: Path, *_: object) -> None:
        shutil.copytree(recipe.model, to, dirs_exist_ok=True)
        (to / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}}')

    monkeypatch.setattr(quantize, "_export", export)
    monkeypatch.setattr(separate, "require", lambda *_: {})
    monkeypatch.setattr(separate, "versions", lambda *_: {"nvidia-modelopt": "0.47.0"})
    config = pair(tmp_path, "pair.draft.quantization={weights: fp8_pc_pt}")
    done = build(config, check=False)
    assert made(done)["Hugging Face checkpoint of the draft"] == "built"
    assert "checkpoint of the target" not in made(done)
    block = yaml.safe_load((config.repository_dir / "llm_options.yaml").read_text())["speculative_config"]
    assert block["speculative_model"] == str(config.checkpoint_dir("draft"))
    stored = json.loads((config.engine_dir("draft") / "model.json").read_text())
    assert stored["quantization"] == {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}
    assert build(config, check=False).did_nothing


@pytest.mark.parametrize("weights", ["int8_sq", "int4_rtn"])
def test_formats_without_a_recipe_are_refused_first(tmp_path: Path, weights: str) -> None:
    config = pair(tmp_path, f"pair.target.quantization.weights={weights}")
    with pytest.raises(ConfigError, match="no recipe"):
        build(config)
    assert not config.output.engines.exists()


def test_serve_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = pair(tmp_path)
    build(config)
    with pytest.raises(MissingError, match="LLM API cannot run here") as caught, serving(config, print):
        pass
    assert caught.value.exit_code == 3
    assert caught.value.context["stage"] == "serve"


def test_validate_says_that_it_does_not_measure_this_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the LLM API has one mode to a server"):
        validate(pair(tmp_path))


def test_plan_lists_the_same_folders(tmp_path: Path) -> None:
    config = pair(tmp_path, "pair.draft.quantization={weights: fp8_pc_pt}")
    titles = [stage.title for stage in plan_config(config).stages]
    assert titles == [
        "check", "Hugging Face checkpoint of the draft", "engine of the target", "engine of the draft",
        "model repository",
    ]  # fmt: skip

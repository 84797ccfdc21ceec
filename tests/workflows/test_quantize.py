"""quantize as a stage of build and on bare folders: what is made, kept, reused and refused."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.quantize.made import calibration
from tests.fakes import FakeProcess, FakeRunner
from tests.workflows.pair import SHIPPED, own_pair
from trtspec.checkpoint.compare import Comparison
from trtspec.checkpoint.quantize import separate
from trtspec.config import RunConfig
from trtspec.config.quantization import Quantization
from trtspec.errors import BuildError, ConfigError, MissingError
from trtspec.hashing import HashMemo
from trtspec.workflows.build import Build, build
from trtspec.workflows.quantize import export_folder, quantize_folder, quantize_pair
from trtspec.workflows.recipe import Recipe
from trtspec.workflows.stages import Stages

PROMPTS = SHIPPED / "tiny" / "prompts" / "api-reference.jsonl"
FP8 = "{weights: fp8, kv_cache: fp8, method: layerwise, calibration: {samples: 2, max_tokens: 16}}"
pytestmark = pytest.mark.torch


def fp8_draft(tmp_path: Path, *more: str) -> RunConfig:
    return own_pair(tmp_path, f"pair.draft.quantization={FP8}", *more)


def made(done: Build) -> list[tuple[str, str]]:
    return [(o.stage.title, o.action) for o in done.outcomes]


def converted(config: RunConfig) -> Build:
    return build(config, until="convert", roles=("draft",), check=False)


@pytest.fixture(autouse=True)
def _needs_accelerate() -> None:
    pytest.importorskip("accelerate")


def test_calibrate_convert_and_reuse(tmp_path: Path) -> None:
    config = fp8_draft(tmp_path)
    first = converted(config)
    assert made(first) == [("calibration of the draft", "built"), ("checkpoint of the draft", "built")]
    comparison = Comparison.open(config.pair.draft.path, config.checkpoint_dir("draft"))  # type: ignore[arg-type]
    assert [c.name for c in comparison.tensors() if not c.good] == []
    assert (
        json.loads((config.checkpoint_dir("draft") / "config.json").read_text())["quantization"]["quant_algo"] == "FP8"
    )
    assert made(converted(config)) == [("checkpoint of the draft", "reused")]

    split = fp8_draft(tmp_path, "pair.draft.parallelism.tensor=2")
    assert made(converted(split)) == [("calibration of the draft", "reused"), ("checkpoint of the draft", "built")]

    # An up-to-date checkpoint needs no calibration any more.
    shutil.rmtree(config.output.engines / "tiny" / "draft" / "calibration")
    assert made(converted(split)) == [("checkpoint of the draft", "reused")]


def test_enough_tokens_and_formats_without_calibration_are_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtspec.workflows.recipe.LEAST_TOKENS", 32)
    assert quantize_folder(recipe(tmp_path), tmp_path / "out")[1] == []
    assert quantize_folder(recipe(tmp_path, "int4_wo"), tmp_path / "none")[1] == []


def test_a_killed_conversion_does_not_calibrate_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = fp8_draft(tmp_path)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trtspec.workflows.recipe.write_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            converted(config)
    assert made(converted(config)) == [("calibration of the draft", "reused"), ("checkpoint of the draft", "built")]


def keys(config: RunConfig) -> tuple[str, str]:
    """Keys of the draft's calibration and checkpoint."""
    sources = {role: config.pair[role].path for role in ("draft", "target")}
    stages = Stages(config, sources, HashMemo())  # type: ignore[arg-type]
    calibration = stages.calibration("draft")
    assert calibration is not None
    return calibration.key, stages.checkpoint("draft").key


@pytest.mark.parametrize(
    ("override", "calibration", "checkpoint"),
    [
        ("pair.draft.quantization.calibration.samples=3", True, True),
        ("pair.draft.quantization.calibration.seed=1", True, True),
        ("pair.draft.quantization.method=modelopt", True, True),
        ("pair.draft.quantization.weights=nvfp4", True, True),
        ("pair.draft.parallelism.pipeline=2", False, True),
        ("pair.target.quantization.weights=fp8_pc_pt", False, False),
        ("validation.max_tokens=3", False, False),
    ],
)
def test_what_the_keys_depend_on(tmp_path: Path, override: str, calibration: bool, checkpoint: bool) -> None:
    one, two = keys(fp8_draft(tmp_path)), keys(fp8_draft(tmp_path, override))
    assert (one[0] != two[0], one[1] != two[1]) == (calibration, checkpoint)


def test_keys_depend_on_prompts_and_on_modelopt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = fp8_draft(tmp_path, "pair.draft.quantization.method=modelopt")
    before = keys(config)
    with (tmp_path / "tiny" / "prompts" / "api-reference.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "another"}) + "\n")
    changed = keys(config)
    assert before[0] != changed[0]
    monkeypatch.setattr(separate, "versions", lambda python: {"nvidia-modelopt": "0.46.1"})
    assert keys(config)[1] != changed[1]


def test_both_roles_are_checked_before_one_is_calibrated(tmp_path: Path) -> None:
    config = fp8_draft(tmp_path, "pair.target.quantization.weights=int4_rtn")
    with pytest.raises(ConfigError, match="688 columns"):
        build(config, until="convert", check=False)
    assert not (config.output.engines / "tiny" / "draft").exists()


def test_an_environment_without_modelopt_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate, "versions", lambda python: dict.fromkeys(separate.worker.PACKAGES))
    config = fp8_draft(tmp_path, "pair.draft.quantization.method=modelopt")
    with pytest.raises(MissingError, match=r"\[quantize draft\].*nvidia-modelopt"):
        converted(config)


def test_a_pair_that_is_not_quantized(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to quantize"):
        quantize_pair(own_pair(tmp_path))
    outcomes, _ = quantize_pair(own_pair(tmp_path, "pair.draft.quantization.weights=fp8_pc_pt"))
    assert [o.stage.title for o in outcomes] == ["checkpoint of the draft"]


# Bare folders.


def recipe(tmp_path: Path, weights: str = "fp8", **changes: Any) -> Recipe:
    calibration = {"prompts": PROMPTS, "samples": 2, "max_tokens": 16}
    own = {key: changes.pop(key) for key in ("kv_cache", "method") if key in changes}
    quantization = Quantization.model_validate(
        {"weights": weights, "method": "layerwise", "calibration": calibration} | own
    )
    return Recipe(SHIPPED / "tiny" / "draft", quantization, tmp_path / "seen", **changes)


def test_a_folder(tmp_path: Path) -> None:
    outcomes, warnings = quantize_folder(recipe(tmp_path), tmp_path / "out")
    assert [(o.stage.out.name, o.action) for o in outcomes] == [("seen", "built"), ("out", "built")]
    assert [line.partition(":")[0] for line in warnings] == ["calibrated on 32 tokens"]
    again, _ = quantize_folder(recipe(tmp_path), tmp_path / "out")
    assert [o.action for o in again] == ["reused"]


def test_prompts_are_drawn_and_cut(tmp_path: Path) -> None:
    found = recipe(tmp_path).tokens()
    assert len(found) == 2
    assert all(0 < len(ids) <= 16 for ids in found)
    assert found == recipe(tmp_path).tokens()


def test_without_prompts_nothing_is_calibrated(tmp_path: Path) -> None:
    quantization = Quantization(weights="fp8", method="layerwise")
    bare = Recipe(SHIPPED / "tiny" / "draft", quantization, tmp_path / "seen")
    with pytest.raises(ConfigError, match=r"no prompts.*fp8_pc_pt"):
        quantize_folder(bare, tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Exporting(FakeRunner):
    """A worker that writes what a real one would, with an edited config.json."""

    def __init__(self, **config: Any) -> None:
        super().__init__([(0, "progress 2 2")])
        self.config = config

    def start(
        self, command: Sequence[str | Path], *, log: Path, grace: float = 5.0, remove: Sequence[str] = (),
        cwd: Path | None = None, environment: Mapping[str, str] | None = None,
    ) -> FakeProcess:  # fmt: skip
        job = json.loads(Path(command[-1]).read_text())
        self.job = job
        out = Path(job["hf_out"])
        out.mkdir()
        given = json.loads((Path(job["model"]) / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(given | self.config))
        (out / "model.safetensors").write_bytes(b"weights")
        calibration(Path(job["out"]), {})
        return super().start(command, log=log, grace=grace, remove=remove, cwd=cwd, environment=environment)


@pytest.fixture
def _modelopt(monkeypatch: pytest.MonkeyPatch) -> None:
    versions: dict[str, str | None] = dict.fromkeys(separate.worker.PACKAGES, "1.0")
    found = versions | {"nvidia-modelopt": "0.47.0", "transformers": "4.57.6"}
    monkeypatch.setattr(separate, "versions", lambda python: found)


@pytest.mark.usefixtures("_modelopt")
def test_the_hugging_face_export(tmp_path: Path) -> None:
    runner = Exporting()
    outcomes, _ = export_folder(recipe(tmp_path, method="modelopt", kv_cache="fp8", runner=runner), tmp_path / "hf")
    assert [o.action for o in outcomes] == ["built"]
    assert runner.job["format"] == "fp8"
    assert runner.job["kv_cache"] == "fp8"
    names = {path.name for path in (tmp_path / "hf").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not {"hf", "seen", "job.json"} & names


@pytest.mark.usefixtures("_modelopt")
def test_an_export_with_another_rope_is_not_published(tmp_path: Path) -> None:
    """What transformers 5 leaves out, 4.57 would read as 10000."""
    runner = Exporting(rope_theta=123.0)
    with pytest.raises(BuildError, match="changed rope"):
        export_folder(recipe(tmp_path, method="modelopt", runner=runner), tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(("weights", "kv"), [("int4_wo", "auto"), ("int8_wo", "int8")])
def test_formats_that_hugging_face_folders_have_not(tmp_path: Path, weights: str, kv: str) -> None:
    with pytest.raises(ConfigError, match="not written as a Hugging Face checkpoint"):
        export_folder(recipe(tmp_path, weights, kv_cache=kv), tmp_path / "hf")


def test_a_reused_checkpoint_is_quick(tmp_path: Path) -> None:
    quantize_folder(recipe(tmp_path, "int8_wo"), tmp_path / "out")
    began = time.perf_counter()
    quantize_folder(recipe(tmp_path, "int8_wo"), tmp_path / "out")
    assert time.perf_counter() - began < 5

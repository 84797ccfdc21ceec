"""Calibration with one layer in memory: equal to modelopt's, resumable, and honest about what it cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.models import load
from tests.checkpoint.quantize import families
from tests.checkpoint.quantize.conftest import Oracle, token_prompts
from trtspec.checkpoint.quantize import layerwise
from trtspec.errors import BuildError

pytestmark = pytest.mark.torch


def seen(folder: Path) -> dict[str, np.ndarray]:
    return {n: np.frombuffer(bytes(t["data"]), "<f4") for n, t in load(folder / "calibration.safetensors").items()}


@pytest.fixture(scope="module")
def whole(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """A calibration of `llama` that nothing interrupted."""
    pytest.importorskip("accelerate")
    out = tmp_path_factory.mktemp("whole")
    layerwise.calibrate(llama, token_prompts(), out)
    return seen(out)


@pytest.mark.parametrize("weights", ["int8_sq", "fp8"])
def test_the_figures_are_modelopts(whole: dict[str, np.ndarray], calibrations: Oracle, weights: str) -> None:
    """int8_sq keeps every channel's largest input; fp8 the largest of all."""
    wanted = seen(calibrations(weights, "fp8"))
    assert {n for n in wanted if "prequant" not in n} == set(whole)
    for name, value in whole.items():
        expected = wanted[name]
        assert np.array_equal(value if len(expected) > 1 else value.max(keepdims=True), expected), name


def test_a_killed_run_goes_on_where_it_stopped(llama: Path, whole: dict[str, np.ndarray], tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    done: list[int] = []

    def stop_in_the_second_layer(at: int, total: int) -> None:
        assert total == 6
        if at == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layerwise.calibrate(llama, token_prompts(), out, work=work, progress=stop_in_the_second_layer)
    assert list(out.iterdir()) == []
    layerwise.calibrate(llama, token_prompts(), out, work=work, progress=lambda at, _: done.append(at))
    assert done == [4, 5, 6]  # the first layer was not run again
    found = seen(out)
    assert set(found) == set(whole)
    assert all(np.array_equal(found[name], whole[name]) for name in whole)
    assert not work.exists()


def test_experts_that_saw_no_token_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    model = families.write(tmp_path / "model", "mixtral", num_local_experts=8, num_experts_per_tok=1)
    layerwise.calibrate(model, [[5]], tmp_path)
    names = [name for name in seen(tmp_path) if "layers.0" in name and name.endswith("w1.input_amax")]
    assert len(names) == 1


def test_weights_that_are_not_the_configs_are_named(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    model = families.write(tmp_path / "model", "qwen3")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "intermediate_size": 128}))
    with pytest.raises(BuildError, match="layer 0 does not fit"):
        layerwise.calibrate(model, [[1, 2]], tmp_path)


def test_a_model_that_transformers_has_not(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    model = families.write(tmp_path / "model", "qwen3")
    (model / "config.json").write_text(json.dumps({"model_type": "nothing", "architectures": ["NothingForCausalLM"]}))
    with pytest.raises(BuildError, match="transformers cannot make this model"):
        layerwise.calibrate(model, [[1, 2]], tmp_path)

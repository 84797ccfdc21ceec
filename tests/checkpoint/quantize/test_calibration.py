"""What a calibration answers, and when it says that it does not know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.models import save
from tests.checkpoint.quantize.made import calibration, entry
from trtspec.checkpoint.quantize.calibration import TENSORS, Calibration, Promised, key_of, write_about
from trtspec.errors import BuildError, ModelFileError

Q, K, V = (f"model.layers.3.self_attn.{p}_proj" for p in "qkv")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("model.layers.3.mlp.up_proj", "layers.3.mlp.up_proj"),
        ("language_model.model.layers.3.mlp.up_proj", "layers.3.mlp.up_proj"),
        ("model.language_model.layers.3.mlp.up_proj", "layers.3.mlp.up_proj"),
        ("vision_tower.encoder.layers.3.mlp.fc1", "vision_tower.encoder.layers.3.mlp.fc1"),
        ("lm_head", "lm_head"),
    ],
)
def test_wrappers_call_a_layer_by_other_names(name: str, key: str) -> None:
    assert key_of(name) == key


def test_the_largest_of_all_parts_counts(tmp_path: Path) -> None:
    found = calibration(tmp_path, {f"{Q}.input_amax": [1, 5], f"{K}.input_amax": [2, 3], f"{V}.input_amax": [4.0]})
    assert list(found.inputs([Q, K])) == [2, 5]
    assert list(found.inputs([Q, K, V])) == [4, 5]


def test_the_vector_of_a_fused_matrix_is_the_mean(tmp_path: Path) -> None:
    found = calibration(tmp_path, {f"{Q}.prequant": [1, 4], f"{K}.prequant": [3, 2]})
    vector = found.prequant([Q, K])
    assert vector is not None
    assert list(vector) == [2, 3]
    assert list(found.prequant([Q, Q])) == [1, 4]  # type: ignore[arg-type]
    assert found.prequant([Q, V]) is None


def test_a_linear_that_was_never_run(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="never invented"):
        calibration(tmp_path, {f"{Q}.input_amax": [1]}).inputs([K])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inputs_that_are_not_finite(tmp_path: Path, bad: float) -> None:
    with pytest.raises(BuildError, match="NaN or infinite inputs"):
        calibration(tmp_path, {f"{Q}.input_amax": [1, bad]}).inputs([Q])


def test_a_vector_of_zeros(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not positive"):
        calibration(tmp_path, {f"{Q}.prequant": [1, 0]}).prequant([Q])


def test_the_cache_of_an_attention(tmp_path: Path) -> None:
    attention = Q.removesuffix(".q_proj")
    found = calibration(tmp_path / "one", {f"{attention}.k_amax": [7], f"{attention}.v_amax": [3]})
    assert found.cache(Q) == (7, 3)
    with pytest.raises(BuildError, match="no keys and values"):
        calibration(tmp_path / "two", {f"{attention}.k_amax": [7]}).cache(Q)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=TENSORS):
        Calibration.open(tmp_path)
    save(tmp_path / TENSORS, {f"{Q}.input_amax": entry(np.ones(2, np.float16))})
    write_about(tmp_path)
    with pytest.raises(ModelFileError, match="not float32"):
        Calibration.open(tmp_path).inputs([Q])


def test_a_promise_answers_for_everything(tmp_path: Path) -> None:
    promise = Promised(tmp_path, {}, {})
    assert list(promise.inputs([Q])) == [1]
    assert promise.cache(Q) == (0, 0)

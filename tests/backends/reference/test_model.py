"""Logits equal transformers' on the same weights; runs, batches and rewinds do not change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.models import all_logits, engine_folder, oracle  # noqa: E402
from trtspec.backends.reference import forward  # noqa: E402
from trtspec.backends.reference.builder import ReferenceBuilder  # noqa: E402
from trtspec.backends.reference.core import Core  # noqa: E402
from trtspec.backends.reference.model import Feed  # noqa: E402
from trtspec.checkpoint.convert import convert  # noqa: E402
from trtspec.config import RunConfig  # noqa: E402

pytestmark = pytest.mark.torch
IDS = tuple(int(i) for i in np.random.default_rng(3).integers(0, 61, 40))
TOLERANCE = 1e-4
LONG = {"max_input_len": 400, "max_seq_len": 410}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def step(core: Core, *feeds: Feed) -> np.ndarray:
    with torch.inference_mode():
        return core.step(feeds).copy()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"tie_word_embeddings": True},
        {"head_dim": 16},
        {"head_dim": 4},
        {"rope_scaling": LLAMA3, "rope_theta": 500.0},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"attention_bias": True},
        {"mlp_bias": True, "attention_bias": True},
        {"rms_norm_eps": 0.1},
        {"num_hidden_layers": 1},
    ],
    ids=lambda changes: "-".join(changes) or "gqa",
)
@pytest.mark.parametrize("linear", [None, "torch-linear"])
def test_float32_logits_equal_transformers(tmp_path: Path, changes: dict[str, Any], linear: Any) -> None:
    model = oracle(5, **changes)
    core = Core(engine_folder(tmp_path / "e", model), threads=1, linear=linear)
    np.testing.assert_allclose(step(core, Feed(0, 0, IDS, 40)), all_logits(model, IDS), rtol=0, atol=TOLERANCE)


def test_logits_through_the_projects_own_conversion(tmp_path: Path) -> None:
    model = oracle(6)
    model.save_pretrained(tmp_path / "hf")
    for name in ("checkpoint", "engine"):
        (tmp_path / name).mkdir()
    convert(tmp_path / "hf", tmp_path / "checkpoint")
    config = RunConfig.model_validate(
        {
            "name": "x",
            "pair": {"target": {"path": tmp_path / "hf"}, "draft": {"path": tmp_path / "hf"}},
            "engine": {"compute_dtype": "float32", "max_input_len": 64, "max_seq_len": 128},
        }
    )
    ReferenceBuilder().build(config, "target", tmp_path / "checkpoint", tmp_path / "engine")
    core = Core(tmp_path / "engine", threads=1)
    np.testing.assert_allclose(step(core, Feed(0, 0, IDS, 40)), all_logits(model, IDS), rtol=0, atol=TOLERANCE)


@pytest.fixture(scope="module")
def core(folders: dict[str, Path]) -> Core:
    return Core(folders["target"], threads=1)


@pytest.fixture(scope="module")
def whole(target_model: Any) -> np.ndarray:
    return all_logits(target_model, IDS)


@pytest.mark.parametrize("runs", [[1] * 40, [40], [7, 1, 1, 9, 22], [39, 1], [33, 5, 2]])
def test_any_cut_into_runs_gives_the_same_logits(core: Core, whole: np.ndarray, runs: list[int]) -> None:
    start, got = 0, []
    for length in runs:
        got.append(step(core, Feed(1, start, IDS[start : start + length], length)))
        start += length
    np.testing.assert_allclose(np.concatenate(got), whole, atol=TOLERANCE)


def test_a_ragged_batch_of_prompts_verify_runs_and_single_tokens(core: Core, whole: np.ndarray) -> None:
    step(core, *(Feed(slot, 0, IDS[:20], 0) for slot in (0, 2, 3)))
    got = step(
        core,
        Feed(2, 20, IDS[20:21], 1),
        Feed(1, 0, IDS[:30], 2),
        Feed(0, 20, IDS[20:25], 5),
        Feed(3, 20, IDS[20:28], 0),
    )
    np.testing.assert_allclose(got, whole[[20, 28, 29, 20, 21, 22, 23, 24]], atol=TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tokens_logits_are_the_same_bits_however_it_is_computed(tmp_path: Path, dtype: str) -> None:
    """Alone, in a verify run, in a prompt, beside others: what makes speculation exact in bfloat16 too."""
    core = Core(engine_folder(tmp_path / "e", oracle(4, head_dim=16, max_position_embeddings=512), dtype, **LONG), 1)
    if core.config.linear_kind != "mkldnn-prepacked" or not torch.backends.mkl.is_available():
        pytest.skip("known of oneDNN's packed linears and MKL only")
    ids = tuple(int(i) for i in np.random.default_rng(5).integers(0, 61, 300))
    prompt = step(core, Feed(0, 0, ids, 300))
    for length in (1, 2, 3, 5, 9, 64):
        runs = [Feed(1, at, ids[at : at + length], len(ids[at : at + length])) for at in range(0, 300, length)]
        got = np.concatenate([step(core, run) for run in runs])
        np.testing.assert_array_equal(got, prompt, err_msg=f"runs of {length}")
    beside = step(core, Feed(2, 0, ids[:70], 1), Feed(1, 200, ids[200:205], 5), Feed(3, 0, ids[:1], 1))
    np.testing.assert_array_equal(beside, prompt[[69, 200, 201, 202, 203, 204, 0]])


def test_the_position_can_move_back(core: Core, whole: np.ndarray) -> None:
    step(core, Feed(0, 0, IDS[:10], 1))
    step(core, Feed(0, 10, (60, 60, 60, 60), 4))  # rejected drafts
    np.testing.assert_allclose(step(core, Feed(0, 10, IDS[10:15], 5)), whole[10:15], atol=TOLERANCE)


def test_a_copied_prefix_is_as_good_as_the_original(core: Core, whole: np.ndarray) -> None:
    step(core, Feed(0, 0, IDS[:25], 1))
    with torch.inference_mode():
        core.model.cache.copy_prefix(0, 3, 25)
    np.testing.assert_allclose(step(core, Feed(3, 25, IDS[25:], 15)), whole[25:], atol=TOLERANCE)


def test_no_wanted_rows_is_an_empty_answer(core: Core) -> None:
    assert step(core, Feed(0, 0, IDS[:5], 0)).shape == (0, 61)


def test_bfloat16_is_close_and_stays_close_over_runs(tmp_path: Path, whole: np.ndarray, target_model: Any) -> None:
    core = Core(engine_folder(tmp_path / "e", target_model, "bfloat16"), threads=1)
    got = step(core, Feed(0, 0, IDS, 40))
    scale = np.abs(whole).max()
    assert np.abs(got - whole).max() < 0.06 * scale
    single = np.concatenate([step(core, Feed(1, i, (token,), 1)) for i, token in enumerate(IDS)])
    assert np.abs(got - single).max() < 0.06 * scale


def test_the_step_is_compiled_here_and_reported(core: Core) -> None:
    assert core.config.compiled


def test_without_torchscript_the_plain_form_gives_the_same(
    folders: dict[str, Path], whole: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError("no TorchScript here")

    monkeypatch.setattr(forward.torch.jit, "script", refuse)
    core = Core(folders["target"], threads=1)
    assert not core.config.compiled
    np.testing.assert_allclose(step(core, Feed(0, 0, IDS, 40)), whole, atol=TOLERANCE)

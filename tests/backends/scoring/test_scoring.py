"""Two ways to run a model say the same; and what neither can run is told in one line."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtspec.backends.reference.request import Sampling
from trtspec.backends.scoring import Scorer, engine_for, is_checkpoint, open_scorer
from trtspec.errors import ConfigError, MissingError, ModelFileError

SHIPPED = Path(__file__).parents[3] / "configs" / "tiny"
DRAFT, TARGET = SHIPPED / "draft", SHIPPED / "target"
PROMPTS = [[0, *range(10, 10 + n)] for n in (3, 17, 1, 40, 8)]
SAMPLED = Sampling(temperature=0.8, top_k=50, top_p=0.9)


def test_engine_for_a_folder(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps({"architecture": "LlamaForCausalLM"}))
    assert is_checkpoint(checkpoint)
    assert not is_checkpoint(TARGET)
    assert not is_checkpoint(tmp_path)
    assert engine_for(TARGET, "cpu") == "reference"
    assert engine_for(TARGET, "cuda") == "transformers"
    assert engine_for(checkpoint, "cpu") == "reference"
    with pytest.raises(ConfigError, match="computes on a CPU"):
        engine_for(checkpoint, "cuda")
    with pytest.raises(ModelFileError, match="no such model folder"):
        engine_for(tmp_path / "absent", "cpu")


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, Scorer]]:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    with (
        open_scorer(DRAFT, engine="reference", max_len=256, batch=2) as one,
        open_scorer(DRAFT, engine="transformers", max_len=256, batch=2) as other,
    ):
        yield {"reference": one, "transformers": other}


@pytest.mark.torch
def test_capped_attention_scores_are_capped_in_both(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.backends.reference.families import IDS, oracle

    oracle("gemma2").save_pretrained(tmp_path)
    with (
        open_scorer(tmp_path, engine="reference", dtype="float32") as one,
        open_scorer(tmp_path, engine="transformers", dtype="float32") as other,
    ):
        assert np.abs(one.logits(IDS, 0) - other.logits(IDS, 0)).max() < 1e-4


@pytest.mark.torch
@pytest.mark.parametrize("sampling", [Sampling(top_k=1), SAMPLED], ids=["greedy", "sampled"])
def test_both_write_the_same_answers(scorers: dict[str, Scorer], sampling: Sampling) -> None:
    most = [12, 3, 20, 7, 12]
    answers = [s.generate(PROMPTS, most, sampling, seed=5, end_ids=(1,)) for s in scorers.values()]
    assert answers[0] == answers[1]
    assert all(0 < len(ids) <= n for ids, n in zip(answers[0], most, strict=True))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["reference", "transformers"])
def test_an_answer_depends_on_its_own_seed_alone(scorers: dict[str, Scorer], name: str) -> None:
    scorer = scorers[name]
    together = scorer.generate(PROMPTS, 8, SAMPLED, seed=[7] * 5)
    assert together == [scorer.generate([ids], 8, SAMPLED, seed=7)[0] for ids in PROMPTS]
    assert together != scorer.generate(PROMPTS, 8, SAMPLED, seed=[8] * 5)
    assert scorer.generate(PROMPTS, 8, SAMPLED, seed=7)[3] == scorer.generate([PROMPTS[3]], 8, SAMPLED, seed=10)[0]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["reference", "transformers"])
def test_an_end_id_ends_an_answer_and_is_no_part_of_it(scorers: dict[str, Scorer], name: str) -> None:
    scorer = scorers[name]
    whole = scorer.generate(PROMPTS, 10)
    end = whole[1][4]
    cut = scorer.generate(PROMPTS, 10, end_ids=(end, 3))
    assert cut == [ids[: ids.index(end)] if end in ids else ids for ids in whole]
    assert len(cut[1]) <= 4


@pytest.mark.torch
@pytest.mark.parametrize("first", [0, 5, 40])
def test_logits_are_equal_and_of_the_right_places(scorers: dict[str, Scorer], first: int) -> None:
    ids = PROMPTS[3]
    rows = [s.logits(ids, first) for s in scorers.values()]
    assert rows[0].shape == rows[1].shape == (len(ids) - first, 2048)
    assert rows[0].dtype == np.float32
    np.testing.assert_allclose(rows[0], rows[1], atol=2e-4)
    if first == 40:
        assert scorers["reference"].generate([ids], 1) == [[int(rows[0][-1].argmax())]]


@pytest.mark.torch
def test_long_texts_are_read_in_pieces() -> None:
    ids = [0, *(np.random.default_rng(0).integers(6, 2048, 700).tolist())]
    with open_scorer(DRAFT, max_len=1024) as one, open_scorer(DRAFT, engine="transformers", max_len=1024) as other:
        for first in (0, 255, 256, 400, 700):
            np.testing.assert_allclose(one.logits(ids, first), other.logits(ids, first), atol=5e-4)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["reference", "transformers"])
def test_conditions_and_limits_are_told(scorers: dict[str, Scorer], name: str) -> None:
    scorer = scorers[name]
    assert scorer.conditions == {"engine": name, "dtype": "float32", "device": "cpu"}
    assert (scorer.vocab_size, scorer.max_len) == (2048, 256)
    for prompts, most, message in (([[]], 4, "0 tokens"), ([[1] * 250], 7, "too long"), ([[1]], 0, "asks for 0")):
        with pytest.raises(ConfigError, match=message):
            scorer.generate(prompts, most)
    with pytest.raises(ValueError):
        scorer.logits([1, 2], 2)
    assert scorer.generate([], 4) == []


@pytest.mark.torch
def test_a_checkpoint_scores_as_the_folder_it_came_from(tmp_path: Path, scorers: dict[str, Scorer]) -> None:
    from trtspec.checkpoint.convert import convert

    out = tmp_path / "checkpoint"
    out.mkdir()
    convert(DRAFT, out)
    with open_scorer(out, max_len=256) as scorer:
        np.testing.assert_array_equal(scorer.logits(PROMPTS[1], 2), scorers["reference"].logits(PROMPTS[1], 2))
        kept: Any = scorer
        scratch = Path(kept._scratch.name)
        assert scratch.is_dir()
    assert not scratch.exists()
    scorer.close()  # twice is once
    assert {p.name for p in out.iterdir()} >= {"config.json", "rank0.safetensors"}
    with pytest.raises(ConfigError, match="cannot run a TensorRT-LLM checkpoint"):
        open_scorer(out, engine="transformers")


@pytest.mark.torch
def test_bfloat16_is_another_condition() -> None:
    for engine in ("reference", "transformers"):
        with open_scorer(DRAFT, engine=engine, dtype="bfloat16", max_len=64) as scorer:  # type: ignore[arg-type]
            assert scorer.conditions["dtype"] == "bfloat16"
            assert scorer.logits([1, 2, 3], 0).dtype == np.float32


@pytest.mark.torch
@pytest.mark.parametrize("engine", ["reference", "transformers"])
@pytest.mark.parametrize("dtype", ["int8", "float64"])
def test_other_types_are_refused(engine: Any, dtype: str) -> None:
    with pytest.raises(ConfigError, match=dtype):
        open_scorer(DRAFT, engine=engine, dtype=dtype)


@pytest.mark.torch
@pytest.mark.parametrize("engine", ["reference", "transformers"])
def test_broken_folders_are_one_line(tmp_path: Path, engine: Any) -> None:
    before = set(Path(tempfile.gettempdir()).glob("trtspec-scoring-*"))
    with pytest.raises(ModelFileError, match="no such model folder"):
        open_scorer(tmp_path / "absent", engine=engine)
    broken = tmp_path / "broken"
    shutil.copytree(DRAFT, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ModelFileError) as caught:
        open_scorer(broken, engine=engine)
    assert "\n" not in str(caught.value)
    weights.unlink()
    (broken / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelFileError):
        open_scorer(broken, engine=engine)
    assert set(Path(tempfile.gettempdir()).glob("trtspec-scoring-*")) == before


@pytest.mark.torch
def test_a_gpu_that_is_not_there_is_missing() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(MissingError, match="no CUDA device"):
        open_scorer(DRAFT, device="cuda")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for engine in ("reference", "transformers"):
        with pytest.raises(MissingError, match=r"trtspec\[local\]"):
            open_scorer(DRAFT, engine=engine)  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.torch
def test_a_gpu_says_what_the_cpu_says() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with open_scorer(TARGET, dtype="float32") as cpu, open_scorer(TARGET, device="cuda", dtype="float32") as gpu:
        np.testing.assert_allclose(cpu.logits(PROMPTS[3], 0), gpu.logits(PROMPTS[3], 0), atol=2e-3)
        assert cpu.generate(PROMPTS, 16) == gpu.generate(PROMPTS, 16)

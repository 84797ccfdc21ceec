"""An early exit from beginning to end: published, measured, and told plainly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distil.tiny import write_prompts, write_target
from trtspec.errors import ConfigError, MissingError
from trtspec.workflows import drafted
from trtspec.workflows.early_exit import early_exit

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target") / "model")


def test_it_is_published_and_measured(target: Path, tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "words.jsonl", 10)
    cut = early_exit(target, tmp_path / "draft", (0, 1), [prompts], k=3)
    assert cut.outcome.action == "built"
    assert cut.measured is not None
    found = cut.measured.as_dict()
    assert found["all"]["prompts"] == 10
    assert set(found["domains"]) == {"words"}
    assert found["cost_ratio"] == pytest.approx(drafted.cost_ratio(target, tmp_path / "draft"))
    readme = (tmp_path / "draft" / "README.md").read_text()
    assert "usually poor" in readme
    assert f"{found['all']['alpha']:.3f}" in readme
    again = early_exit(target, tmp_path / "draft", (0, 1), [prompts], k=3)
    assert again.outcome.action == "reused"
    assert early_exit(target, tmp_path / "draft", (0, 2), [prompts]).outcome.action == "built"


def test_without_torch_the_draft_is_there_and_not_measured_is_said(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object, **__: object) -> None:
        raise MissingError("running models in process needs torch")

    monkeypatch.setattr(drafted, "open_scorer", without)
    cut = early_exit(target, tmp_path / "draft", (0,), [write_prompts(tmp_path / "p.jsonl", 3)])
    assert cut.measured is None
    assert "Not measured: running models in process needs torch" in (tmp_path / "draft" / "README.md").read_text()


def test_something_else_at_the_place_is_left_alone(target: Path, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="did not make"):
        early_exit(target, tmp_path / "draft", (0,))
    assert [p.name for p in (tmp_path / "draft").iterdir()] == ["mine.txt"]


def test_the_card_carries_the_licence_on(target: Path, tmp_path: Path) -> None:
    from trtspec.workflows.card import card

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: llama3.1\nlanguage: [en]\npipeline_tag: x\n---\nlicense: no\n")
    text = card(folder, "A draft", ["made"], None, "no torch")
    head = text.split("---")[1]
    assert "license: llama3.1" in head
    assert "pipeline_tag" not in head
    assert "license: no" not in text


def test_words_say_what_a_draft_would_need() -> None:
    from trtspec.analysis.simulation import Trace
    from trtspec.measurement.offline import OfflineAcceptance
    from trtspec.measurement.reading import Reading, Setting

    def measured(outcomes: str, cost: float | None) -> list[str]:
        readings = tuple(
            Reading(str(i), "d", 3, len(outcomes), len(outcomes), False, {"tokens": Trace(outcomes, len(outcomes))})
            for i in range(40)
        )
        return drafted.words(drafted.Measured(OfflineAcceptance(readings, Setting()), {}, cost, 4))

    poor = " ".join(measured("-" * 20 + "+-" * 2, 0.75))
    assert "No K makes decoding faster" in poor
    assert "breaks even at α 0.89" in poor
    good = " ".join(measured("+" * 24, 0.1))
    assert "It pays with K = " in good
    assert "is not known" in " ".join(measured("+-" * 12, None))
    assert "few" not in good
    assert "no acceptance pays" in " ".join(measured("+-" * 12, 1.1))


def test_a_model_without_words_is_cut_and_not_measured(target: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((target / name).read_bytes())
    cut = early_exit(bare, tmp_path / "draft", (0,))
    assert cut.measured is None
    assert "no tokenizer.json" in cut.why_not


def test_prompts_that_are_none_are_said_before_anything_is_written(target: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"prompt": 7}\n')
    with pytest.raises(ConfigError, match="`prompt`"):
        early_exit(target, tmp_path / "draft", (0,), [tmp_path / "bad.jsonl"])
    assert not (tmp_path / "draft").exists()

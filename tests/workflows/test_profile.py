"""profile on the shipped pair: exactly what the engines measure, resumable, and never on token ids that clash."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.pair import own_pair
from trtspec.analysis.simulation import histogram
from trtspec.errors import CheckFailed, ConfigError, EvidenceError, ModelFileError
from trtspec.measurement.profile_result import ProfileDocument, profile_path, read_profile
from trtspec.workflows.profile import ProfileOptions, profile
from trtspec.workflows.reporter import Silent

pytestmark = pytest.mark.torch
QUICK = ProfileOptions(limit=2, max_tokens=20)


class Notes(Silent):
    """Keeps what was said; can stop a run."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.lines: list[str] = []
        self._stop_at = stop_at

    def note(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, title: str, done: int, total: int) -> None:
        if self._stop_at is not None and done >= self._stop_at:
            raise KeyboardInterrupt


def without_time(document: ProfileDocument) -> dict[str, Any]:
    return document.model_dump(exclude={"created"})


@pytest.mark.parametrize("acceptance", ["tokens", "sampled"])
def test_it_counts_what_the_speculative_engine_counts(tmp_path: Path, acceptance: str) -> None:
    """Round for round, for every K: drafted, accepted and how each round ended."""
    from trtspec.analysis.acceptance import RoundHistogram
    from trtspec.backends.reference import Request, Sampling
    from trtspec.backends.reference.core import Core
    from trtspec.backends.reference.speculation import SpeculativePair
    from trtspec.backends.scoring.reference import ReferenceScorer
    from trtspec.measurement.offline import measure
    from trtspec.measurement.reading import Setting, TokenPrompt

    sampling = Sampling(top_k=1) if acceptance == "tokens" else Sampling(0.8, top_p=0.95)
    config = own_pair(tmp_path)
    prompts = [TokenPrompt(str(i), "d", (0, 7 * i + 9, 40, 300 + i), 24, i) for i in range(6)]
    models = config.pair.target.path, config.pair.draft.path
    with ReferenceScorer(models[0], max_len=128) as target, ReferenceScorer(models[1], max_len=128) as draft:  # type: ignore[arg-type]
        # The engine proposes the draft's end token; the served pipeline does not.
        setting = Setting(8, sampling, (1,), frozenset())
        readings = measure(target, draft, prompts, setting).readings
        core: Core = target._core
        core.config = replace(core.config, max_draft_len=8)
        for k in (1, 4, 8):
            with SpeculativePair(core, draft._core, k) as pair:
                for prompt, reading in zip(prompts, readings, strict=True):
                    how = sampling if sampling.greedy else replace(sampling, seed=prompt.seed)
                    made = pair.generate(Request("r", prompt.ids, 24, how, frozenset({1})))
                    assert made.histogram is not None
                    assert histogram([reading.traces["tokens"]], k) == RoundHistogram.from_wire(made.histogram)


def test_the_document_and_where_it_lies(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    notes = Notes()
    done = profile(config, notes, QUICK)
    assert done.path == profile_path(config) == tmp_path / "reports" / "tiny" / "profile.json"
    assert read_profile(done.path) == done.document
    document = done.document
    assert [d.domain for d in document.domains] == ["api-reference", "type-stubs", "python-source"]
    assert document.overall.prompts == 6
    assert document.conditions.k_max == 8
    assert document.target.conditions == {"engine": "reference", "dtype": "float32", "device": "cpu"}
    assert set(document.target.files) == {"config.json", "model.safetensors"}
    assert document.conditions.end_ids == (1,)
    assert not document.left_out
    assert list(document.overall.rules) == ["tokens"]
    alpha = document.alpha(4)
    assert alpha is not None
    assert 0.4 < alpha.point < 1.0
    assert [p.name for p in config.report_dir.iterdir() if p.suffix == ".json"] == ["profile.json"]
    assert any("Measuring 6 prompts, greedy, K up to 8" in line for line in notes.lines)


def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    options = replace(QUICK, limit=6, max_tokens=6)
    config = own_pair(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        profile(config, Notes(stop_at=16), options)
    assert not profile_path(config).exists()
    left = list(config.report_dir.glob(".profile-*.json"))
    assert len(left) == 1
    notes = Notes()
    resumed = profile(config, notes, options)
    assert any("Going on with 16 of 18" in line for line in notes.lines)
    assert not left[0].exists()
    again = profile(own_pair(tmp_path / "other"), options=replace(options, fresh=True))
    same = without_time(resumed.document) | {"target": 0, "draft": 0}
    assert same == without_time(again.document) | {"target": 0, "draft": 0}


def test_a_pair_whose_ids_clash_is_refused_before_anything_runs(tmp_path: Path) -> None:
    config = own_pair(tmp_path)
    path = tmp_path / "tiny" / "draft" / "tokenizer.json"
    document = json.loads(path.read_text())
    vocab = document["model"]["vocab"]
    first, second = list(vocab)[300:302]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    path.write_text(json.dumps(document))
    notes = Notes()
    with pytest.raises(CheckFailed, match=r"same token ids: vocab\.") as caught:
        profile(config, notes, QUICK)
    assert caught.value.exit_code == 1
    assert notes.lines == []
    assert not config.report_dir.exists()


def test_another_candidate_lies_apart(tmp_path: Path) -> None:
    config = own_pair(tmp_path, "pair.draft.path=tiny/target")
    done = profile(config, options=replace(QUICK, limit=1, max_tokens=8, candidate=True))
    assert done.path.parent == config.report_dir / "profiles"
    assert done.path.name.startswith("target-")
    alpha = done.document.alpha(4)
    assert alpha is not None
    assert alpha.point == 1.0  # the target drafting for itself


def test_sampling_measures_three_rules(tmp_path: Path) -> None:
    logits = ("speculation.acceptance=logits", "speculation.acceptance_threshold=0.5")
    config = own_pair(tmp_path, "validation.temperature=0.8", "validation.top_p=0.95", *logits)
    notes = Notes()
    document = profile(config, notes, replace(QUICK, max_tokens=10)).document
    assert any("Not measured: speculation.acceptance_threshold" in line for line in notes.lines)
    assert list(document.overall.rules) == ["tokens", "tokens-independent", "logits"]
    assert (document.conditions.temperature, document.conditions.top_p) == (0.8, 0.95)
    expected = [document.at(4, rule).alpha_expected for rule in ("tokens-independent", "logits")]  # type: ignore[union-attr,arg-type]
    assert expected[0] < expected[1]


def test_built_checkpoints_are_measured_where_asked(tmp_path: Path) -> None:
    from trtspec.workflows.build import build

    config = own_pair(tmp_path)
    options = replace(QUICK, limit=1, checkpoints=True)
    with pytest.raises(ConfigError, match="no checkpoint of the draft"):
        profile(config, options=options)
    build(config, until="convert")
    built = profile(config, options=options).document
    assert built.target.checkpoint is not None
    assert "rank0.safetensors" in built.target.checkpoint
    plain = profile(config, options=replace(options, checkpoints=False)).document
    assert plain.target.checkpoint is None
    assert plain.belongs_to(built.target.files, built.draft.files)
    assert built.key != plain.key
    assert built.overall == plain.overall


def test_prompts_that_cannot_be_measured_are_listed(tmp_path: Path) -> None:
    config = own_pair(tmp_path, "engine.max_input_len=24", "engine.max_seq_len=64")
    notes = Notes()
    document = profile(config, notes, ProfileOptions(limit=6, max_tokens=6)).document
    assert document.left_out
    assert "at most 24 are served" in document.left_out[0].reason
    assert document.overall.prompts + len(document.left_out) == 18
    assert any(line.startswith(f"Left out: {len(document.left_out)} of 18") for line in notes.lines)
    with pytest.raises(EvidenceError, match="no prompt can be measured"):
        profile(own_pair(tmp_path, "engine.max_input_len=1", "engine.max_seq_len=64"), options=QUICK)


def test_models_that_come_without_a_tokenizer(tmp_path: Path) -> None:
    from trtspec.checkpoint.convert import convert

    config = own_pair(tmp_path)
    for role in ("target", "draft"):
        (tmp_path / f"{role}-checkpoint").mkdir()
        convert(tmp_path / "tiny" / role, tmp_path / f"{role}-checkpoint")
    given = [f"pair.{role}.path={tmp_path}/{role}-checkpoint" for role in ("target", "draft")]
    bare = own_pair(tmp_path, *given)
    with pytest.raises(ConfigError, match="--tokenizer"):
        profile(bare, options=QUICK)
    found = profile(bare, options=replace(QUICK, tokenizer=tmp_path / "tiny" / "target")).document
    assert found.overall == profile(config, options=QUICK).document.overall


def test_a_model_that_the_reference_engine_does_not_run(tmp_path: Path) -> None:
    """The way out is named; with it, transformers runs what it can."""
    config = own_pair(tmp_path)
    path = tmp_path / "tiny" / "draft" / "config.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}))
    with pytest.raises(ModelFileError) as caught:
        profile(config, options=QUICK)
    assert "--engine transformers" in str(caught.value)


def test_there_must_be_prompts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to validate with"):
        profile(own_pair(tmp_path, "validation.datasets=[]"), options=QUICK)


def test_transformers_measures_the_same(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = own_pair(tmp_path)
    ours = profile(config, options=QUICK).document
    theirs = profile(config, options=replace(QUICK, engine="transformers", dtype="float32")).document
    assert theirs.target.conditions["engine"] == "transformers"
    assert theirs.overall == ours.overall

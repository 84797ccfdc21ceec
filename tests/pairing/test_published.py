"""Hub models that are not on this machine: their published facts, and never a pass without comparing token ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.pairing.pairs import codes, only, run_config, tokenizer, write_pair
from trtspec.config import load_config
from trtspec.pairing.check import check_pair
from trtspec.pairing.findings import Verdict


def verdict_of(target: str, draft: str, folder: Path) -> Verdict:
    """An id or a folder below `folder` for each model."""
    pair, folders = {}, []
    for role, name in (("target", target), ("draft", draft)):
        pair[role] = {"hub": name} if "/" in name else {"path": folder / name}
        folders.append(Path("hub") / name if "/" in name else folder / name)
    return check_pair(folders[0], folders[1], run_config(folder, pair=pair))


@pytest.mark.parametrize(
    ("target", "draft", "severity", "said"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", "warning", "128,256 token ids of"),
        ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Meta-Llama-3-8B", "warning", "special tokens differ"),
        ("Qwen/Qwen3-32B", "Qwen/Qwen2.5-0.5B-Instruct", "warning", "special tokens differ"),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen3-0.6B", "error", "4 token ids that the target lacks"),
        ("meta-llama/Llama-2-70b-hf", "mistralai/Mistral-7B-v0.1", "error", "mistral-v1"),
    ],
)
def test_published_token_spaces(tmp_path: Path, target: str, draft: str, severity: str, said: str) -> None:
    verdict = verdict_of(target, draft, tmp_path)
    finding = only(verdict, "vocab.published")
    assert (finding.severity, said in finding.message) == (severity, True)
    assert verdict.verdict == ("fail" if severity == "error" else "warn")
    assert codes(verdict)["config.published"] == "info"
    assert verdict.facts["target"]["source"] == "published"
    lacking = only(verdict, "vocab.not-measured").message
    assert lacking == "token ids are not compared: the tokenizer of target and draft is not on this machine"


def test_one_tokenizer_broken_and_one_elsewhere(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "target" / "tokenizer.json").write_text("{")
    message = only(verdict_of("target", "meta-llama/Llama-3.2-1B-Instruct", tmp_path), "vocab.not-measured").message
    assert message.endswith("the target's tokenizer could not be read and the draft's tokenizer is not on this machine")


def test_ids_in_any_case_and_what_no_source_states(tmp_path: Path) -> None:
    verdict = verdict_of("META-LLAMA/llama-3.3-70b-instruct", "meta-llama/Llama-3.2-1B-Instruct", tmp_path)
    first = next(f for f in verdict.findings if f.code == "config.published")
    assert first.data["unconfirmed"] == ["torch_dtype", "bos_token_id", "eos_token_id"]
    assert "litgpt" in first.message


def test_an_unknown_id_cannot_pass_and_names_the_near_one(tmp_path: Path) -> None:
    verdict = verdict_of("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.2-1B-Instruct", tmp_path)
    assert verdict.verdict == "fail"
    assert codes(verdict)["tokenizer.missing"] == "error"
    unknown = next(f for f in verdict.findings if f.code == "config.not-measured")
    assert "did you mean meta-llama/Llama-3.3-70B-Instruct" in unknown.message


@pytest.mark.parametrize("here", ["target", "draft"])
def test_one_model_here_and_one_published(tmp_path: Path, here: str) -> None:
    write_pair(tmp_path)
    names = {"target": "meta-llama/Llama-2-70b-hf", "draft": "meta-llama/Llama-2-7b-hf"} | {here: here}
    verdict = verdict_of(names["target"], names["draft"], tmp_path)
    # 50 tokens here: the published draft has more than such a target, a published target has enough of them.
    severity = "error" if here == "target" else "warning"
    assert only(verdict, "vocab.published").severity == severity
    assert verdict.verdict != "pass"


def test_a_broken_tokenizer_beside_a_published_model_is_still_an_error(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "draft" / "tokenizer.json").write_text("{")
    verdict = verdict_of("meta-llama/Llama-2-70b-hf", "draft", tmp_path)
    assert codes(verdict)["tokenizer.broken"] == "error"


def test_a_published_model_that_is_here_is_read(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "target" / "tokenizer.json").write_text(tokenizer())
    pair = {"target": {"hub": "meta-llama/Llama-2-70b-hf"}, "draft": {"path": tmp_path / "draft"}}
    verdict = check_pair(tmp_path / "target", tmp_path / "draft", run_config(tmp_path, pair=pair))
    assert verdict.facts["target"]["source"] == "files"
    assert verdict.facts["target"]["vocab_size"] == 50


@pytest.mark.parametrize(("name", "ratio"), [("llama70b", 57.1), ("qwen2.5", 47.1)])
def test_shipped_pairs_of_hub_models_are_inside_the_band(name: str, ratio: float) -> None:
    config = load_config(PROJECT / "configs" / f"{name}.yaml", environ={})
    verdict = check_pair(Path("hub/target"), Path("hub/draft"), config)
    assert round(only(verdict, "size.ratio").data["ratio"], 1) == ratio
    assert verdict.verdict == "warn"

"""What names tell: families, versions, base and instruct, and models trained on by others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.checkpoint.known import known_ids
from trtspec.pairing.origin import CARD, Name, Origin, read_origin


@pytest.mark.parametrize(
    ("text", "line", "version", "tuning"),
    [
        ("meta-llama/Meta-Llama-3-8B", "llama", "3", "base"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama", "3.3", "instruct"),
        ("google/gemma-3-270m", "gemma", "3", "base"),
        ("google/gemma-7b-it", "gemma", None, "instruct"),
        ("Qwen/Qwen3-8B", "qwen", "3", "instruct"),
        ("Qwen/Qwen3-8B-Base", "qwen", "3", "base"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama", None, "instruct"),
        ("microsoft/phi-4", "phi", "4", "instruct"),
        ("mistralai/Mixtral-8x7B-v0.1", "mistral", None, "base"),
        ("acme/support-llama-3-70b", "llama", "3", None),
        ("target", None, None, None),
    ],
)
def test_names_taken_apart(text: str, line: str | None, version: str | None, tuning: str | None) -> None:
    name = Name.parse(text)
    assert (name.line, name.tuning) == (line, tuning)
    if text != "mistralai/Mixtral-8x7B-v0.1":
        assert name.version == version


@pytest.mark.parametrize("hub_id", known_ids())
def test_published_names_are_understood_wholly(hub_id: str) -> None:
    name = Name.parse(hub_id)
    assert name.line is not None
    assert name.tuning is not None
    assert not name.words


@pytest.mark.parametrize(
    ("text", "branches"),
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", {"R1 distillation"}),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", {"code"}),
        ("Qwen/Qwen2.5-Math-7B", {"mathematics"}),
        ("Qwen/Qwen2.5-7B-Instruct", set()),
    ],
)
def test_branches(text: str, branches: set[str]) -> None:
    assert Name.parse(text).branches == branches


@pytest.mark.parametrize(
    ("name", "derived"),
    [
        ("acme/support-llama-3-70b", True),
        ("NousResearch/Hermes-3-Llama-3.1-70B", True),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", False),
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", False),
    ],
)
def test_words_of_its_own_tell_a_fine_tune_from_a_copy(name: str, derived: bool) -> None:
    assert Origin(Name.parse(name)).derived is derived


def card(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).write_text(f"---\n{text}\n---\n# A model\n")


@pytest.mark.parametrize(
    ("front", "name", "derived"),
    [
        ("base_model: meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", False),  # the owner's own card
        ("base_model: meta-llama/Llama-3.1-8B", "acme/Llama-3.1-8B", True),
        ("base_model: [meta-llama/Llama-3.1-8B]", "acme/Llama-3.1-8B", True),
        ("base_model: meta-llama/Llama-3.1-8B\nbase_model_relation: quantized", "acme/Llama-3.1-8B-FP8", False),
        ("base_model: meta-llama/Llama-3.1-8B\nbase_model_relation: merge", "meta-llama/Llama-3.1-8B", True),
        ("license: mit", "meta-llama/Llama-3.1-8B", False),
        ("base_model: [a/b, c/d]", "meta-llama/Llama-3.1-8B", False),
        ("base_model: {x: 1}", "meta-llama/Llama-3.1-8B", False),
        ("base_model: [", "meta-llama/Llama-3.1-8B", False),
    ],
)
def test_model_card(tmp_path: Path, front: str, name: str, derived: bool) -> None:
    card(tmp_path, front)
    assert read_origin(tmp_path, name, {}).derived is derived


def test_adapter_is_a_fine_tune(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "meta-llama/Llama-3.1-8B"}')
    found = read_origin(tmp_path, None, {})
    assert found.derived
    assert found.base == Name.parse("meta-llama/Llama-3.1-8B")


def test_name_of_a_folder(tmp_path: Path) -> None:
    cached = tmp_path / "models--meta-llama--Llama-3.1-8B" / "snapshots" / "0123"
    named = read_origin(cached, None, {}).name
    assert named is not None
    assert named.text == "meta-llama/Llama-3.1-8B"
    assert read_origin(tmp_path / "Llama-3.1-8B", None, {}).name == Name.parse("Llama-3.1-8B")
    assert read_origin(tmp_path / "big", None, {}) == Origin()


def test_name_or_path_names_an_unnamed_folder_and_the_base_of_a_named_one(tmp_path: Path) -> None:
    config = {"_name_or_path": "meta-llama/Llama-3.1-8B"}
    assert read_origin(tmp_path / "big", None, config).name == Name.parse("meta-llama/Llama-3.1-8B")
    named = read_origin(tmp_path / "widget", "acme/widget", config)
    assert named.known == named.base == Name.parse("meta-llama/Llama-3.1-8B")
    for odd in ("/home/me/llama", 7, None, ["a/b"]):
        assert read_origin(tmp_path / "big", None, {"_name_or_path": odd}) == Origin()


@given(st.binary(max_size=200))
def test_any_card_is_survived(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("card")
    (folder / CARD).write_bytes(b"---\nbase_model: x\n" + data + b"\n---\n")
    (folder / "adapter_config.json").write_bytes(data)
    read_origin(folder, None, {})


@given(st.text(max_size=40))
def test_any_name_is_survived(text: str) -> None:
    Name.parse(text)

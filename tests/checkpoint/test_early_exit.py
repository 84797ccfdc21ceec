"""Drafts cut out of a model: the bytes of the layers that stay, and a config.json that still means the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.madefamilies import CONFIGS, arrays, config_of, stored, write_family
from tests.checkpoint.models import load, write_weights
from trtspec.checkpoint.early_exit import layers_named, plan_early_exit, write_early_exit
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.traits import TRAITS, traits_of
from trtspec.errors import ConfigError, ModelFileError

MULTIMODAL = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 7]}


def cut(source: Path, out: Path, keep: list[int]) -> dict[str, Any]:
    """Cut, write, and read the weights back through the safetensors library."""
    plan = plan_early_exit(source, keep)
    out.mkdir()
    write_early_exit(plan, out)
    return load(out / "model.safetensors")


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("keep", [[0], [0, 2], [1, 2]], ids=str)
def test_every_family_keeps_the_bytes_of_its_layers(family: str, keep: list[int], tmp_path: Path) -> None:
    values = write_family(tmp_path / "model", family)
    weights = cut(tmp_path / "model", tmp_path / "draft", keep)
    place = {f"model.layers.{old}.": f"model.layers.{new}." for new, old in enumerate(keep)}
    wanted = {}
    for name, value in values.items():
        prefix = next((p for p in place if name.startswith(p)), None)
        if prefix or not name.startswith("model.layers."):
            wanted[name.replace(prefix, place[prefix]) if prefix else name] = value
    assert {name: bytes(weights[name]["data"]) for name in weights} == {n: v.tobytes() for n, v in wanted.items()}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_draft_converts_and_means_the_same_in_each_layer(family: str, tmp_path: Path) -> None:
    write_family(tmp_path / "model", family)
    keep = [0, 2]
    cut(tmp_path / "model", tmp_path / "draft", keep)
    whole, draft = ModelFacts.read(tmp_path / "model"), ModelFacts.read(tmp_path / "draft")
    assert draft.num_hidden_layers == 2
    assert draft.layer_windows == tuple(whole.layer_windows[i] for i in keep)
    if whole.moe and draft.moe:
        assert draft.moe.layers == tuple(whole.moe.layers[i] for i in keep)
    assert plan_conversion(tmp_path / "draft").tensors


@settings(max_examples=40)
@given(keep=st.sets(st.integers(0, 11), min_size=1, max_size=11), pattern=st.integers(2, 7))
def test_gemma_3_says_the_windows_of_any_layers(keep: set[int], pattern: int, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("gemma3")
    write_family(folder, "gemma3", num_hidden_layers=12, sliding_window_pattern=pattern)
    chosen = sorted(keep)
    windows = ModelFacts.read(folder).layer_windows
    plan = plan_early_exit(folder, chosen)
    after = ModelFacts.parse(plan.config, folder / "config.json")
    assert after.layer_windows == tuple(windows[i] for i in chosen)


@settings(max_examples=40)
@given(keep=st.sets(st.integers(0, 7), min_size=1, max_size=7), first=st.integers(0, 8))
def test_qwen_2_counts_the_full_layers_that_stay(keep: set[int], first: int, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("qwen2")
    more = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": first}
    write_family(folder, "qwen2", num_hidden_layers=8, **more)
    chosen = sorted(keep)
    config = plan_early_exit(folder, chosen).config
    assert config["max_window_layers"] == sum(i < first for i in chosen)


def test_a_pattern_that_only_the_family_s_rule_can_say_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A rule of our own making: every other layer, said by the family alone and by nothing in config.json.
    monkeypatch.setitem(TRAITS, "gemma2", replace(traits_of("gemma2"), layer_types=False))
    write_family(tmp_path, "gemma2")
    assert plan_early_exit(tmp_path, [0, 1])
    with pytest.raises(ModelFileError, match="cannot say which of the kept layers"):
        plan_early_exit(tmp_path, [0, 2])


def test_a_value_for_each_layer_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    write_family(tmp_path, "llama", layer_scales=[1.0, 2.0, 3.0])
    with pytest.raises(ModelFileError, match="layer_scales has a value for each layer"):
        plan_early_exit(tmp_path, [0])


def test_three_end_tokens_of_a_model_with_three_layers_are_no_layers(tmp_path: Path) -> None:
    write_family(tmp_path, "llama", eos_token_id=[1, 2, 3])
    assert plan_early_exit(tmp_path, [0]).config["eos_token_id"] == [1, 2, 3]


def test_of_a_multimodal_model_the_text_part_is_cut(tmp_path: Path) -> None:
    text = {k: v for k, v in config_of("gemma3").items() if k not in ("architectures", "torch_dtype")}
    config = {**MULTIMODAL, "torch_dtype": "float32", "text_config": text, "vision_config": {}}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    prefix = "model.language_model."
    values = arrays(config_of("gemma3"), prefix=prefix)
    images = {"model.vision_tower.vision_model.encoder.layers.0.weight": np.zeros((2, 2), np.float32)}
    write_weights(tmp_path / "model", stored(values | images))
    weights = cut(tmp_path / "model", tmp_path / "draft", [0, 1])
    assert not [name for name in weights if "vision" in name or "language_model" in name]
    assert bytes(weights["model.layers.1.mlp.up_proj.weight"]["data"]) == (
        values[f"{prefix}layers.1.mlp.up_proj.weight"].tobytes()
    )
    draft = ModelFacts.read(tmp_path / "draft")
    assert (draft.architecture, draft.multimodal, draft.eos_ids) == ("Gemma3ForCausalLM", False, (1, 7))
    assert "left out" in plan_early_exit(tmp_path / "model", [0]).warnings[0]


def test_shards_and_bfloat16_are_copied_as_they_are(tmp_path: Path) -> None:
    write_family(tmp_path / "model", "llama", stored_as="BF16", shards=3, torch_dtype="bfloat16")
    weights = cut(tmp_path / "model", tmp_path / "draft", [2])
    assert {w["dtype"] for w in weights.values()} == {"BF16"}


def test_words_and_licence_come_along_and_weights_of_others_do_not(tmp_path: Path) -> None:
    write_family(tmp_path / "model", "llama")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "LICENSE.txt", "notes.txt"):
        (tmp_path / "model" / name).write_text(name)
    cut(tmp_path / "model", tmp_path / "draft", [0])
    there = {p.name for p in (tmp_path / "draft").iterdir()}
    assert there == {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json",
                     "generation_config.json", "LICENSE.txt"}  # fmt: skip


@pytest.mark.parametrize("keep", [[], [0, 0], [2, 1], [3], [0, 1, 2]], ids=str)
def test_lists_that_are_no_draft_are_refused(keep: list[int], tmp_path: Path) -> None:
    write_family(tmp_path, "llama")
    with pytest.raises(ConfigError):
        plan_early_exit(tmp_path, keep)


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    write_family(tmp_path, "llama", quantization_config={"quant_method": "gptq"})
    with pytest.raises(ModelFileError, match="quantized already"):
        plan_early_exit(tmp_path, [0])


def test_a_model_that_lacks_a_tensor_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    values = arrays(config_of("llama"))
    del values["model.layers.1.mlp.up_proj.weight"]
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama")))
    write_weights(tmp_path, stored(values))
    with pytest.raises(ModelFileError, match="up_proj"):
        plan_early_exit(tmp_path, [1])


def test_lists_of_layers() -> None:
    assert layers_named("0-2, 28,29") == (0, 1, 2, 28, 29)
    for wrong in ("", "a", "1-", "-1", "1,,2", "1;2"):
        with pytest.raises(ConfigError):
            layers_named(wrong)

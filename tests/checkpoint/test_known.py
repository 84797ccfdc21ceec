"""The shipped facts of published models: complete, counted right, found by any spelling, quickly read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from trtspec.checkpoint import known as module
from trtspec.checkpoint.known import KnownModel, known, known_ids, near
from trtspec.pairing.counts import active_parameters, parameters_by_config

REAL = os.environ.get("TRTSPEC_REAL_DATA")
NOT_CONFIG = {
    *("id", "architecture", "tokenizer_vocab", "note", "source", "num_parameters", "num_parameters_non_embedding"),
    *("vocab_pad_rows", "unconfirmed", "rope_scaling"),
}


def model(hub_id: str) -> KnownModel:
    found = known(hub_id)
    assert found is not None, hub_id
    return found


def published() -> list[dict[str, Any]]:
    if REAL is None:
        pytest.skip("TRTSPEC_REAL_DATA names no folder with model-facts.yaml")
    rows: list[dict[str, Any]] = yaml.safe_load((Path(REAL) / "model-facts.yaml").read_text())["models"]
    return rows


@pytest.mark.parametrize("hub_id", known_ids())
def test_parameters_follow_from_the_shipped_config(hub_id: str) -> None:
    found = model(hub_id)
    counted = parameters_by_config(found.facts)
    assert counted is not None
    assert abs(counted - found.parameters) <= 0.001 * found.parameters
    active = active_parameters(found.facts)
    assert active is not None
    assert (active < counted) == (found.facts.moe is not None)


def test_a_mixture_reads_what_its_paper_says() -> None:
    # Mixtral of Experts (arXiv:2401.04088): 47B parameters, 13B of them active.
    assert round((active_parameters(model("mistralai/Mixtral-8x7B-v0.1").facts) or 0) / 1e9) == 13


def test_every_published_row_is_shipped_as_it_is() -> None:
    rows = published()
    assert {row["id"] for row in rows} == set(known_ids())
    for row in rows:
        found = model(row["id"])
        assert (found.parameters, found.tokens) == (row["num_parameters"], row["tokenizer_vocab"]), row["id"]
        assert len(found.unconfirmed) == len(row.get("unconfirmed") or ())
        assert len(found.sources) == len(row["source"])
        shipped = next(r for r in module._document()["models"] if r["id"] == row["id"])["config"]
        for key, value in row.items():
            if key not in NOT_CONFIG:
                assert shipped.get(key) == value, (row["id"], key)


def test_facts_come_through_the_reader_of_config_files() -> None:
    small = model("meta-llama/Llama-3.2-1B-Instruct").facts
    assert (small.rope.type, small.rope.parameters["factor"], small.tie_word_embeddings) == ("llama3", 32.0, True)
    assert model("mistralai/Mistral-7B-v0.1").facts.sliding_window == 4096
    assert model("mistralai/Mistral-7B-Instruct-v0.3").facts.sliding_window is None
    assert model("EleutherAI/gpt-j-6b").facts.rotary_dim == 64


def test_every_token_space_has_a_source_and_a_model() -> None:
    spaces = module._document()["tokenizers"]
    assert all(space["source"] and space["text"] for space in spaces.values())
    assert {model(hub_id).tokenizer for hub_id in known_ids()} == set(spaces)


def test_spaces_that_agree_on_text() -> None:
    texts = {hub_id.split("/")[1]: model(hub_id).text for hub_id in known_ids()}
    assert texts["Meta-Llama-3-8B"] == texts["Llama-3.3-70B-Instruct"] == texts["DeepSeek-R1-Distill-Llama-8B"]
    assert texts["Qwen2.5-72B-Instruct"] == texts["Qwen3-0.6B"]
    # Equal sizes, no equal ids: Llama 2 and Mistral v0.1.
    assert texts["Llama-2-7b-hf"] == texts["TinyLlama-1.1B-Chat-v1.0"] != texts["Mistral-7B-v0.1"]
    assert texts["Mistral-7B-v0.1"] != texts["Mistral-7B-Instruct-v0.3"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"),
        ("qwen/qwen2.5-72b-instruc", "Qwen/Qwen2.5-72B-Instruct"),
        ("acme/widget", None),
    ],
)
def test_did_you_mean(given: str, meant: str | None) -> None:
    assert known(given) is None
    assert near(given) == meant


def test_ids_are_alike_in_any_case() -> None:
    assert model("META-LLAMA/llama-3.3-70b-INSTRUCT").id == "meta-llama/Llama-3.3-70B-Instruct"


def test_sources_are_written_out() -> None:
    assert model("meta-llama/Llama-2-7b-hf").sources[0] == "PyPI litgpt 0.5.13, litgpt/config.py: Llama-2-7b-hf"


def test_the_file_is_read_in_a_blink() -> None:
    module._document.cache_clear()
    start = time.process_time()
    module._document()
    assert time.process_time() - start < 0.2  # 0.01 with the C loader, 0.06 without

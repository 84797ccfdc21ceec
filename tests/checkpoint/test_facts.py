"""config.json in both spellings, and everything that is not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoint.models import CONFIG
from trtspec.checkpoint.facts import ModelFacts
from trtspec.errors import ModelFileError

PATH = Path("m/config.json")
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def parse(**changes: Any) -> ModelFacts:
    """Facts of the sample config with changes; None removes a key."""
    return ModelFacts.parse({k: v for k, v in (CONFIG | changes).items() if v is not None}, PATH)


def test_transformers_4_and_5_say_the_same() -> None:
    four = parse(torch_dtype="bfloat16", rope_theta=500000.0, rope_scaling={"rope_type": "llama3", **LLAMA3})
    legacy = parse(torch_dtype="bfloat16", rope_theta=500000.0, rope_scaling={"type": "llama3", **LLAMA3})
    parameters = {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}
    five = parse(torch_dtype=None, dtype="bfloat16", rope_theta=None, rope_parameters=parameters)
    assert four == legacy == five
    assert (five.dtype, five.rope.theta, five.rope.type) == ("bfloat16", 500000.0, "llama3")
    assert five.rope.parameters == LLAMA3


def test_defaults_are_those_of_transformers() -> None:
    facts = parse(num_key_value_heads=None, rms_norm_eps=None, hidden_act=None, rope_theta=None,
                  tie_word_embeddings=None, torch_dtype=None, eos_token_id=None)  # fmt: skip
    assert (facts.num_key_value_heads, facts.head_dim, facts.norm_epsilon, facts.hidden_act) == (4, 4, 1e-6, "silu")
    assert (facts.rope.theta, facts.rope.type, facts.dtype, facts.eos_ids) == (10000.0, "default", None, ())
    assert not facts.tie_word_embeddings
    assert parse(model_type="gemma2", tie_word_embeddings=None).tie_word_embeddings


def test_several_end_ids() -> None:
    assert parse(eos_token_id=[128001, 128008, 128009]).eos_ids == (128001, 128008, 128009)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": "16"}, "hidden_size"),
    ({"hidden_size": 16.0}, "hidden_size"),
    ({"hidden_size": True}, "hidden_size"),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"vocab_size": -1}, "vocab_size"),
    ({"vocab_size": 0}, "vocab_size"),
    ({"vocab_size": 10**30}, "vocab_size"),
    ({"num_hidden_layers": 10**8}, "num_hidden_layers"),
    ({"num_key_value_heads": 3}, "num_key_value_heads does not divide the 4"),
    ({"hidden_size": 18}, "hidden_size is not divisible"),
    ({"head_dim": 5}, "head_dim is odd"),
    ({"rms_norm_eps": "1e-5"}, "rms_norm_eps"),
    ({"rms_norm_eps": 0}, "rms_norm_eps"),
    ({"rope_theta": -1.0}, "rope_theta"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
    ({"tie_word_embeddings": 0}, "tie_word_embeddings"),
    ({"torch_dtype": "float8"}, "torch_dtype is not a known type"),
    ({"dtype": "bfloat16"}, "dtype disagrees with torch_dtype 'float32'"),
    ({"architectures": None}, "architectures"),
    ({"architectures": []}, "architectures"),
    ({"architectures": ["A", "B"]}, "architectures"),
    ({"architectures": "LlamaForCausalLM"}, "architectures"),
    ({"model_type": 7}, "model_type"),
    ({"rope_scaling": []}, "rope_scaling is not an object"),
    ({"rope_scaling": {"type": "linear", "rope_type": "llama3"}}, "rope_type disagrees"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, "rope_theta disagrees"),
    ({"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ({"eos_token_id": "2"}, "eos_token_id"),
    ({"eos_token_id": [1, None]}, "eos_token_id"),
    ({"quantization_config": "fp8"}, "quantization_config"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=str)
def test_wrong_values_name_file_and_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=f"^m/config.json: .*{message}"):
        parse(**changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b'{"a": 1, "a": 2}', "'a' is given 2 times"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b" " * (17 << 20), "too large"),
    ],
    ids=["empty", "list", "nan", "twice", "utf8", "deep", "digits", "huge"],
)
def test_files_that_are_not_a_config(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        ModelFacts.read(tmp_path)


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such model folder"):
        ModelFacts.read(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match=r"config.json: no such file"):
        ModelFacts.read(tmp_path)
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ModelFileError, match="not a regular file"):
        ModelFacts.read(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from([*CONFIG, "dtype", "rope_scaling", "rope_parameters", "head_dim", "quantization_config"])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(KEYS, JSON, min_size=1, max_size=3))
def test_any_values_are_facts_or_one_error(changes: dict[str, Any]) -> None:
    data = json.loads(json.dumps(CONFIG | changes))
    try:
        facts = ModelFacts.parse(data, PATH)
    except ModelFileError:
        return
    assert facts.num_attention_heads % facts.num_key_value_heads == 0
    assert all(size > 0 for size in (facts.vocab_size, facts.hidden_size, facts.head_dim, facts.norm_epsilon))

"""config.json, generation_config.json and weight headers from a stranger: never a traceback, never a wrong pass."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoint.models import CONFIG
from tests.pairing.pairs import check, write_pair
from trtspec.pairing.findings import Verdict

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**30, 0.5])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads")  # fmt: skip
"""Keys whose value the weights decide."""
OTHERS = ("rope_theta", "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "head_dim", "dtype",
          "torch_dtype", "bos_token_id", "eos_token_id", "quantization_config", "hidden_act", "rms_norm_eps",
          "max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias", "_name_or_path",
          "text_config", "architectures", "model_type", "partial_rotary_factor", "num_local_experts",
          "use_sliding_window", "original_max_position_embeddings")  # fmt: skip
FAMILIES = [("LlamaForCausalLM", "llama"), ("MixtralForCausalLM", "mixtral"), ("Qwen3MoeForCausalLM", "qwen3_moe"),
            ("Gemma3ForConditionalGeneration", "gemma3"), ("Gemma2ForCausalLM", "gemma2"), ("Phi3ForCausalLM", "phi3"),
            ("GPT2LMHeadModel", "gpt2"), ("GPTJForCausalLM", "gptj"), ("FalconForCausalLM", "falcon"),
            ("MambaForCausalLM", "mamba")]  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair that passes; copied, never changed."""
    folder = tmp_path_factory.mktemp("sound")
    write_pair(folder)
    assert check(folder).verdict == "pass"
    return folder


def checked(sound: Path, folder: Path, name: str, content: bytes, **sections: Any) -> Verdict:
    """The verdict with one file of the draft replaced; a document that JSON can hold."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    (folder / "draft" / name).write_bytes(content)
    verdict = check(folder, **sections)
    json.dumps(verdict.as_dict(), default=str)
    return verdict


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


@FEW
@given(key=st.sampled_from(SIZES), value=VALUES)
def test_sizes_that_are_not_those_of_the_weights_never_pass(sound: Path, tmp_path: Path, key: str, value: Any) -> None:
    config = CONFIG | {"num_hidden_layers": 1}
    if value == config[key] and type(value) is int:
        return
    # num_key_value_heads may be absent: then it is the number of attention heads, and the weights say otherwise.
    assert checked(sound, tmp_path / "p", "config.json", as_json(config | {key: value})).verdict == "fail"


@FEW
@given(family=st.sampled_from(FAMILIES), changes=st.dictionaries(st.sampled_from(SIZES + OTHERS), VALUES, max_size=4),
       bare=st.booleans(), backend=st.sampled_from(["reference", "tensorrt", "pytorch"]))  # fmt: skip
def test_any_config_is_survived(
    sound: Path, tmp_path: Path, family: tuple[str, str], changes: dict[str, Any], bare: bool, backend: str
) -> None:
    architecture, model_type = family
    config = CONFIG | {"architectures": [architecture], "model_type": model_type, "num_experts_per_tok": 2}
    shutil.rmtree(tmp_path / "q", ignore_errors=True)
    shutil.copytree(sound, tmp_path / "q")
    if bare:
        (tmp_path / "q" / "draft" / "model.safetensors").unlink()
    engine = {"backend": backend, "max_input_len": 32, "max_seq_len": 64}
    hardware = {"gpu": "cpu" if backend == "reference" else "l4"}
    verdict = checked(tmp_path / "q", tmp_path / "p", "config.json", as_json(config | changes), engine=engine,
                      hardware=hardware)  # fmt: skip
    assert verdict.verdict in ("pass", "warn", "fail")


@FEW
@given(st.dictionaries(st.sampled_from(["eos_token_id", "bos_token_id", "pad_token_id", "x"]), VALUES) | VALUES)
def test_any_generation_config_is_survived(sound: Path, tmp_path: Path, value: Any) -> None:
    verdict = checked(sound, tmp_path / "p", "generation_config.json", as_json(value))
    if not isinstance(value, dict):
        assert verdict.verdict == "fail"


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
BROKEN = [b"", b"\xff\xfe{}", b"[]", b"null", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', DEEP, b"[" * 200_000,
          b'{"vocab_size": 1' + b"0" * 10_000 + b"}"]  # fmt: skip


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_sound_json_object_fails(sound: Path, tmp_path: Path, name: str, content: bytes) -> None:
    if name != "config.json" and content == BROKEN[-1]:
        return  # a huge number under a key that nobody reads
    assert checked(sound, tmp_path / "p", name, content).verdict == "fail"


def header_of(folder: Path) -> tuple[dict[str, Any], bytes]:
    data = (folder / "draft" / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(header: bytes, data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


ENTRY = st.fixed_dictionaries({"dtype": VALUES | st.sampled_from(["F32", "F16", "I32"]), "shape": VALUES,
                               "data_offsets": VALUES})  # fmt: skip


@FEW
@given(data=st.data())
def test_a_header_with_a_changed_entry_never_passes(sound: Path, tmp_path: Path, data: st.DataObject) -> None:
    header, body = header_of(sound)
    name = data.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))
    entry = data.draw(ENTRY | VALUES)
    if entry == header[name]:
        return
    content = with_header(as_json(header | {name: entry}), body)
    assert checked(sound, tmp_path / "p", "model.safetensors", content).verdict == "fail"


@FEW
@given(data=st.data())
def test_a_header_with_renamed_or_missing_tensors_never_passes(
    sound: Path, tmp_path: Path, data: st.DataObject
) -> None:
    header, body = header_of(sound)
    name = data.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))
    entry = header.pop(name)
    if data.draw(st.booleans()):
        header[data.draw(st.text(max_size=12).filter(lambda t: t != name))] = entry
    content = with_header(as_json(header), body)
    assert checked(sound, tmp_path / "p", "model.safetensors", content).verdict == "fail"


@FEW
@given(length=st.sampled_from([0, 1, 1 << 30, (1 << 64) - 1]) | st.integers(0, (1 << 64) - 1), cut=st.floats(0, 1))
def test_impossible_lengths_and_cut_files_never_pass(sound: Path, tmp_path: Path, length: int, cut: float) -> None:
    header, body = header_of(sound)
    whole = with_header(as_json(header), body, length)
    if length == len(as_json(header)):
        return
    content = whole[: int(len(whole) * cut)]
    assert checked(sound, tmp_path / "p", "model.safetensors", content).verdict == "fail"


@pytest.mark.parametrize("header", [DEEP, b"\xff" * 64, b"[]", b"{}", b'{"a": ' + b"[" * 50_000])
def test_headers_that_are_no_table_of_tensors_fail(sound: Path, tmp_path: Path, header: bytes) -> None:
    assert checked(sound, tmp_path / "p", "model.safetensors", with_header(header, b"")).verdict == "fail"


@FEW
@given(st.binary(max_size=300))
def test_any_bytes_in_the_place_of_weights_fail(sound: Path, tmp_path: Path, content: bytes) -> None:
    assert checked(sound, tmp_path / "p", "model.safetensors", content).verdict == "fail"


@FEW
@given(VALUES | st.dictionaries(st.text(max_size=8), st.text(max_size=20)))
def test_any_index_is_survived(sound: Path, tmp_path: Path, weight_map: Any) -> None:
    content = as_json({"weight_map": weight_map})
    assert checked(sound, tmp_path / "p", "model.safetensors.index.json", content).verdict == "fail"


FILES = {"config.json": "config.broken", "tokenizer.json": "tokenizer.broken", "model.safetensors": "weights.broken",
         "model.safetensors.index.json": "weights.broken", "generation_config.json": "stops.broken",
         "tokenizer_config.json": "tokenizer.config-broken", "chat_template.jinja": "template.broken",
         "chat_template.json": "template.broken", "special_tokens_map.json": "tokenizer.config-broken"}  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "loop", "dangling", "folder", "device"])
def test_what_is_no_file_is_never_taken_for_an_absent_one(sound: Path, tmp_path: Path, kind: str) -> None:
    for name, code in FILES.items():
        shutil.rmtree(tmp_path / "p", ignore_errors=True)
        shutil.copytree(sound, tmp_path / "p")
        path = tmp_path / "p" / "draft" / name
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to({"loop": name, "dangling": "nowhere", "device": "/dev/zero"}[kind])
        errors = {f.code for f in check(tmp_path / "p").findings if f.severity == "error"}
        assert code in errors or (name == "tokenizer.json" and "tokenizer.missing" in errors), name

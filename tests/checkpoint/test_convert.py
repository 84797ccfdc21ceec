"""The converter against tensors put together independently, and against broken models."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.models import CONFIG, Tensors, load, random_tensors, save, write_model, write_weights
from trtspec.checkpoint import pieces
from trtspec.checkpoint.convert import convert
from trtspec.checkpoint.plan import plan_conversion
from trtspec.errors import BuildError, ConfigError, ModelFileError

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def expected(source: Tensors, layers: int, head: str) -> dict[str, bytes]:
    """The checkpoint's bytes by the layout table: qkv row after row, fc = gate_proj, gate = up_proj."""
    found = {
        "transformer.vocab_embedding.weight": source["model.embed_tokens.weight"]["data"],
        "transformer.ln_f.weight": source["model.norm.weight"]["data"],
        "lm_head.weight": source[head]["data"],
    }
    for i in range(layers):
        ours, theirs = f"transformer.layers.{i}.", f"model.layers.{i}."
        for kind in ("weight", "bias"):
            q = [source.get(f"{theirs}self_attn.{x}_proj.{kind}") for x in "qkv"]
            if q[0] is not None:
                found[f"{ours}attention.qkv.{kind}"] = b"".join(t["data"] for t in q if t)
        for a, b in (
            ("attention.dense", "self_attn.o_proj"),
            ("mlp.fc", "mlp.gate_proj"),
            ("mlp.gate", "mlp.up_proj"),
            ("mlp.proj", "mlp.down_proj"),
            ("input_layernorm", "input_layernorm"),
            ("post_layernorm", "post_attention_layernorm"),
        ):
            for kind in ("weight", "bias"):
                if f"{theirs}{b}.{kind}" in source:
                    found[f"{ours}{a}.{kind}"] = source[f"{theirs}{b}.{kind}"]["data"]
    return found


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize(
    ("shards", "changes"),
    [
        (1, {}),
        (3, {}),
        (1, {"tie_word_embeddings": True}),
        (1, {"head_dim": 8}),
        (2, {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}),
    ],
    ids=["single", "sharded", "tied", "head_dim", "biases"],
)
def test_every_byte_is_where_the_layout_says(
    tmp_path: Path, out: Path, dtype: str, shards: int, changes: dict[str, Any]
) -> None:
    source = write_model(tmp_path / "m", dtype, shards, **changes)
    head = "model.embed_tokens.weight" if changes.get("tie_word_embeddings") else "lm_head.weight"
    seen: list[tuple[int, int]] = []

    result = convert(tmp_path / "m", out, progress=lambda done, total: seen.append((done, total)))

    written = load(out / "rank0.safetensors")
    wanted = expected(source, CONFIG["num_hidden_layers"], head)
    assert {name: bytes(t["data"]) for name, t in written.items()} == wanted
    assert {t["dtype"] for t in written.values()} == {dtype}
    assert result.tensors == len(wanted)
    assert result.bytes_written == (out / "rank0.safetensors").stat().st_size
    assert seen[-1] == (result.bytes_written, result.bytes_written)
    assert sorted(os.listdir(out)) == ["config.json", "rank0.safetensors"]


def test_config_fields(tmp_path: Path, out: Path) -> None:
    write_model(tmp_path / "m", "BF16", rope_scaling=LLAMA3_ROPE, rope_theta=500000.0, torch_dtype="bfloat16")
    result = convert(tmp_path / "m", out)
    config = json.loads((out / "config.json").read_text())
    assert config == result.config
    wanted = {
        "architecture": "LlamaForCausalLM", "dtype": "bfloat16", "logits_dtype": "float32", "vocab_size": 50,
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_size": 4, "hidden_act": "silu", "norm_epsilon": 1e-5,
        "position_embedding_type": "rope_gpt_neox", "max_position_embeddings": 128, "rotary_base": 500000.0,
        "rotary_scaling": LLAMA3_ROPE, "use_parallel_embedding": False, "attn_bias": False, "mlp_bias": False,
    }  # fmt: skip
    assert {key: config[key] for key in wanted} == wanted
    assert config["quantization"] == {"quant_algo": None, "kv_cache_quant_algo": None}
    assert (config["mapping"]["world_size"], config["mapping"]["tp_size"], config["mapping"]["pp_size"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("rope", "scaling"),
    [
        (None, None),
        ({"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        ({"rope_type": "default"}, None),
    ],
)
def test_rope_types(tmp_path: Path, rope: dict[str, Any] | None, scaling: dict[str, Any] | None) -> None:
    write_model(tmp_path, rope_scaling=rope)
    assert plan_conversion(tmp_path).config["rotary_scaling"] == scaling


def test_computed_buffers_may_stay_behind(tmp_path: Path, out: Path) -> None:
    tensors = write_model(tmp_path / "m")
    frequencies = {"dtype": "F32", "shape": [2], "data": bytes(8)}
    write_weights(tmp_path / "m", tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": frequencies})
    assert convert(tmp_path / "m", out).tensors == len(expected(tensors, 2, "lm_head.weight"))


def test_tied_head_in_the_file_must_equal_the_embedding(tmp_path: Path, out: Path) -> None:
    tensors = write_model(tmp_path / "m", tie_word_embeddings=True)
    embedding = tensors["model.embed_tokens.weight"]
    write_weights(tmp_path / "m", tensors | {"lm_head.weight": dict(embedding)})
    convert(tmp_path / "m", out)
    other = embedding | {"data": embedding["data"][:-1] + b"\x01"}
    write_weights(tmp_path / "m", tensors | {"lm_head.weight": other})
    with pytest.raises(ModelFileError, match="differs from the embedding"):
        plan_conversion(tmp_path / "m")


def change(folder: Path, name: str, **fields: Any) -> None:
    """Rewrite the weights with one tensor changed; no fields removes it."""
    tensors = random_tensors(CONFIG)
    kept = {k: v for k, v in tensors.items() if k != name}
    write_weights(folder, kept | ({name: tensors.get(name, {}) | fields} if fields else {}))


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)


def past_the_end(folder: Path) -> None:
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header["model.norm.weight"]["data_offsets"][1] += 1 << 40
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def set_key(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))


Q = "model.layers.0.self_attn.q_proj.weight"
BROKEN: dict[str, tuple[Any, str]] = {
    "truncated": (truncate, "past the end of the file"),
    "past the end": (past_the_end, "'model.norm.weight' lies past the end"),
    "missing": (lambda f: change(f, Q), f"'{Q}' is missing"),
    "no head": (lambda f: change(f, "lm_head.weight"), "'lm_head.weight' is missing.*tie_word_embeddings"),
    "shape": (lambda f: change(f, Q, shape=[8, 32]), f"'{Q}' does not fit config.json.*8, 32.*16, 16"),
    "unmapped": (
        lambda f: change(f, "model.extra", dtype="F32", shape=[1], data=bytes(4)),
        "'model.extra' has no place",
    ),
    "integer": (lambda f: change(f, Q, dtype="I32"), f"'{Q}' has type I32"),
    "mixed": (lambda f: change(f, Q, dtype="F16", data=bytes(512)), "several types.*set the model's dtype"),
    "rows": (lambda f: set_key(f, vocab_size=64), r"does not fit config.json.*\[50, 16\].*\[64, 16\]"),
    "fewer layers": (lambda f: set_key(f, num_hidden_layers=1), "'model.layers.1.*has no place"),
    "quantized": (
        lambda f: set_key(f, quantization_config={"quant_method": "hqq"}),
        "cannot be converted exactly.*hqq",
    ),
    "architecture": (lambda f: set_key(f, architectures=["GPT2LMHeadModel"]), "GPT2LMHeadModel.*LlamaForCausalLM"),
    "activation": (lambda f: set_key(f, hidden_act="gelu"), "hidden_act"),
    "rope type": (lambda f: set_key(f, rope_scaling={"rope_type": "ntk", "factor": 2.0}), "'ntk' is not.*llama3"),
    "rope keys": (
        lambda f: set_key(f, rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        "low_freq_factor is missing",
    ),
    "rope factor": (
        lambda f: set_key(f, rope_scaling={"type": "linear", "factor": "2"}),
        r"rope_scaling.factor is not",
    ),
}


@pytest.mark.parametrize(("break_it", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_models_are_refused_before_anything_is_written(
    tmp_path: Path, out: Path, break_it: Any, message: str
) -> None:
    write_model(tmp_path / "m")
    break_it(tmp_path / "m")
    with pytest.raises(ModelFileError, match=message):
        convert(tmp_path / "m", out)
    assert not list(out.iterdir())


def test_other_architecture_is_named_even_when_its_config_has_other_keys(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BloomForCausalLM"], "n_layer": 2}')
    with pytest.raises(ModelFileError, match="BloomForCausalLM cannot be converted"):
        plan_conversion(tmp_path)


def test_unknown_dtype(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="int8"):
        plan_conversion(tmp_path, dtype="int8")


def test_output_folder_must_be_empty(tmp_path: Path, out: Path) -> None:
    write_model(tmp_path / "m")
    (out / "old").touch()
    with pytest.raises(BuildError, match="empty"):
        convert(tmp_path / "m", out)


def test_full_disk_is_foreseen(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(BuildError, match=r"no room.*1000 bytes free"):
        convert(tmp_path / "m", out)
    assert not list(out.iterdir())


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_stays_when_writing_fails(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    write_model(tmp_path / "m")

    def fail(*args: Any) -> int:
        raise error

    monkeypatch.setattr(os, "copy_file_range", fail)
    with pytest.raises((BuildError, KeyboardInterrupt)):
        convert(tmp_path / "m", out)
    assert not list(out.iterdir())


def test_file_systems_without_kernel_copy(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "m", shards=2)

    def refuse(*args: Any) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(pieces, "BLOCK", 100)
    convert(tmp_path / "m", out)
    written = load(out / "rank0.safetensors")
    assert {n: bytes(t["data"]) for n, t in written.items()} == expected(source, 2, "lm_head.weight")


def test_source_that_shrinks_meanwhile(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m")
    monkeypatch.setattr(os, "copy_file_range", lambda *args: 0)
    with pytest.raises(ModelFileError, match="ended inside tensor"):
        convert(tmp_path / "m", out)
    assert not list(out.iterdir())


@pytest.mark.torch
@pytest.mark.parametrize("tied", [False, True])
def test_against_transformers(tmp_path: Path, out: Path, tied: bool) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    config = transformers.LlamaConfig(**{k: v for k, v in CONFIG.items() if k != "tie_word_embeddings"})
    config.tie_word_embeddings = tied
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "m")
    convert(tmp_path / "m", out)

    theirs, ours = model.state_dict(), load_file(out / "rank0.safetensors")
    attention = "model.layers.1.self_attn"
    qkv = torch.cat([theirs[f"{attention}.{x}_proj.weight"] for x in "qkv"])
    assert torch.equal(ours["transformer.layers.1.attention.qkv.weight"], qkv)
    assert torch.equal(ours["transformer.layers.0.mlp.fc.weight"], theirs["model.layers.0.mlp.gate_proj.weight"])
    assert torch.equal(ours["transformer.layers.0.mlp.gate.weight"], theirs["model.layers.0.mlp.up_proj.weight"])
    assert torch.equal(ours["lm_head.weight"], theirs["lm_head.weight"])
    assert sum(t.numel() for t in ours.values()) == model.num_parameters() + (
        theirs["lm_head.weight"].numel() if tied else 0
    )


def test_casting_converts_every_tensor(tmp_path: Path, out: Path) -> None:
    source = write_model(tmp_path / "m", "BF16")
    result = convert(tmp_path / "m", out, dtype="float32")
    written = load(out / "rank0.safetensors")
    assert result.config["dtype"] == "float32"
    norm = source["model.norm.weight"]["data"]
    # A bfloat16 is the upper half of the float32 of equal value.
    wide = b"".join(b"\0\0" + norm[i : i + 2] for i in range(0, len(norm), 2))
    assert bytes(written["transformer.ln_f.weight"]["data"]) == wide


def test_overflow_names_the_tensor(tmp_path: Path, out: Path) -> None:
    tensors = write_model(tmp_path / "m")
    tensors["model.norm.weight"]["data"] = struct.pack("<16f", *([1e6] * 16))
    save(tmp_path / "m" / "model.safetensors", tensors)
    with pytest.raises(BuildError, match=r"'model.norm.weight' is too large for float16.*bfloat16"):
        convert(tmp_path / "m", out, dtype="float16")
    assert not list(out.iterdir())


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_memory_does_not_grow_with_the_model(tmp_path: Path, out: Path, dtype: str) -> None:
    rows = 1 << 20
    tensors = write_model(tmp_path / "m", "BF16", vocab_size=rows, tie_word_embeddings=True)
    nbytes = len(tensors["model.embed_tokens.weight"]["data"])
    del tensors
    tracemalloc.start()
    convert(tmp_path / "m", out, dtype=dtype)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (out / "rank0.safetensors").stat().st_size > 2 * nbytes
    assert peak < (nbytes // 4 if dtype == "float32" else nbytes // 8), f"{peak} bytes held for a tensor of {nbytes}"

"""The stand-ins themselves: what each release accepts and refuses, what it reads and writes.

Every expected value below stands in the fact sheet (sections in README.md); none is taken from the stand-ins' tables.
"""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.contract.made import EVERY, TARGET, built, call, checkpoint, places
from tests.contract.standins import versions
from tests.contract.standins.build import recorded
from tests.contract.standins.install import install
from tests.contract.standins.versions import EARLY, LABEL, LATE, VERSIONS, generations

FLIPPED = [version for version in VERSIONS if len(generations(version)) > 1]

# The rule that makes the suite worth something.


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "standins").glob("*.py")), ids=lambda p: p.name)
def test_standins_know_nothing_of_the_package(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] in ("trtspec", "tests", "numpy", "torch") for name in names)


def test_every_program_says_that_it_is_a_stand_in(tmp_path: Path) -> None:
    made = install(tmp_path / "machine", "1.2.1")
    programs = [p for p in made.root.rglob("*") if p.is_file() and p.stat().st_mode & 0o100]
    assert len(programs) == 6  # builder, three converters, quantize, nvidia-smi
    assert all("STAND-IN" in p.read_text() for p in programs)
    checkpoint(tmp_path / "checkpoint")
    words = [str(made.bin / "trtllm-build"), "--checkpoint_dir", "checkpoint", "--output_dir", "engine"]
    done = subprocess.run(words, cwd=tmp_path, env=made.environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == LABEL
    assert (tmp_path / "engine/rank0.engine").read_bytes().startswith(LABEL.encode())
    assert recorded(tmp_path / "engine")["pretrained_config"]["stand_in"] == LABEL
    assert made.built() == [words[1:]]


# What each release accepts.


@pytest.mark.parametrize(("version", "generation"), EVERY)
def test_defaults(tmp_path: Path, version: str, generation: str) -> None:
    checkpoint(tmp_path / "checkpoint")
    made = built(tmp_path, [], version, generation)
    assert (made["max_batch_size"], made["max_input_len"], made["max_beam_width"]) == (2048, 512, 1)  # 1024, clipped
    assert (made["max_seq_len"], made["max_num_tokens"], made["opt_num_tokens"]) == (512, 8192, 2048)
    assert (made["max_draft_len"], made["speculative_decoding_mode"]) == (0, 1)
    assert made["kv_cache_type"].lower() == "paged"
    plugins = made["plugin_config"]
    flipped = plugins["tokens_per_block"], plugins["use_paged_context_fmha"]
    assert flipped == ((64, False) if generation == EARLY else (32, True))


def test_defaults_flip_at_0_20_at_the_latest() -> None:
    assert FLIPPED == ["0.17.0.post1", "0.18.2", "0.19.0"]
    assert all(generations(version) == (LATE,) for version in VERSIONS[3:])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "wrong",
    [
        ["--tp_size", "2"],  # parallelism comes from the checkpoint
        ["--max_output_len", "8"],  # removed before 0.17; issue TRT#2049
        ["--strongly_typed"],
        ["--use_embedding_sharing"],
        ["--version"],
        ["--max_batch", "4"],  # abbreviated
        ["--max_batch_size", "four"],
        ["--logits_dtype", "bfloat16"],
        ["--kv_cache_type", "blocked"],
        ["--speculative_decoding_mode", "draft_target"],
        ["--use_paged_context_fmha", "true"],
        ["--use_paged_context_fmha"],
        ["--gemm_plugin", "int8"],
        ["--profiling_verbosity", "loud"],
        ["surplus"],
    ],
    ids=" ".join,
)
def test_what_no_release_accepts(
    tmp_path: Path, version: str, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["--checkpoint_dir", "x", "--output_dir", tmp_path / "engine", *wrong], version) == 2
    assert wrong[0] in capsys.readouterr().err
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        (["--auto_parallel", "1"], "0.17.0.post1", "0.18.2"),
        (["--gpus_per_node", "8"], "0.17.0.post1", "0.18.2"),
        (["--visualize_network"], "0.17.0.post1", "0.18.2"),
        (["--visualize_network", "onnx"], "1.2.0", "1.2.1"),
        (["--norm_quant_fusion", "disable"], "1.2.0", "1.2.1"),
        (["--fuse_fp4_quant", "disable"], "1.2.0", "1.2.1"),
        (["--gemm_allreduce_plugin", "disable"], "1.2.0", "1.2.1"),
        (["--gather_generation_logits"], "0.17.0.post1", "1.2.1"),
        (["--max_decoder_seq_len", "64"], "0.17.0.post1", "1.2.1"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else v,
)
def test_what_some_releases_accept(tmp_path: Path, version: str, words: list[str], first: str, last: str) -> None:
    checkpoint(tmp_path / "checkpoint")
    given = [*places(tmp_path), *words]
    has = VERSIONS.index(first) <= VERSIONS.index(version) <= VERSIONS.index(last)
    assert call(given, version) == (0 if has else 2)


def test_unknown_release() -> None:
    with pytest.raises(ValueError, match="no stand-in"):
        versions.known("1.3.0rc21")


# What is read and written.


def test_engine_folder_has_a_file_per_rank_and_the_timing_cache_goes_where_it_is_told(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint", tp=2, pp=2)
    built(tmp_path, ["--workers", "4"])
    names = sorted(p.name for p in (tmp_path / "engine").iterdir())
    assert names == ["config.json", *(f"rank{rank}.engine" for rank in range(4))]
    assert (tmp_path / "model.cache").exists()
    document = recorded(tmp_path / "engine")
    assert set(document) == {"version", "pretrained_config", "build_config"}
    assert document["version"] == "1.2.1"


def test_equal_calls_write_equal_bytes(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint")
    built(tmp_path, TARGET)
    before = {p.name: p.read_bytes() for p in (tmp_path / "engine").iterdir()}
    built(tmp_path, TARGET)
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "engine").iterdir()}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"architecture": "FalconForCausalLM"}, "Unsupported model architecture"),
        ({"hidden_size": 96}, "has shape"),
        ({"num_hidden_layers": 3}, "required but not provided"),
        ({"num_hidden_layers": 1}, "provided but not expected"),
        ({"vocab_size": 51}, "has shape"),
        ({"quantization": {"quant_algo": "FP8"}}, "required but not provided"),
        ({"quantization": {"kv_cache_quant_algo": "FP8"}}, "kv_cache_scaling_factor"),
        ({"quantization": {"quant_algo": "FP3"}}, "unknown to this release"),
        ({"mapping": {"tp_size": 2, "pp_size": 1, "world_size": 1}}, "world_size"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_a_checkpoint_that_does_not_hold_what_it_says_is_refused(
    tmp_path: Path, change: dict[str, object], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "checkpoint")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert call(places(tmp_path)) == 1
    assert text in capsys.readouterr().err


def test_a_cut_or_missing_rank_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path / "checkpoint", tp=2)
    rank = folder / "rank1.safetensors"
    rank.write_bytes(rank.read_bytes()[:-1])
    assert call(places(tmp_path)) == 1
    assert "was cut off" in capsys.readouterr().err
    rank.unlink()
    assert call(places(tmp_path)) == 1
    assert "no such file" in capsys.readouterr().err


def test_layers_are_divided_evenly_in_early_releases_only(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint", pp=2, num_hidden_layers=3)
    given = places(tmp_path)
    assert call(given, "0.17.0.post1", EARLY) == 1
    assert call(given, "1.2.1") == 0

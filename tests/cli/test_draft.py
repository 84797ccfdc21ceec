"""`trtspec draft` and `trtspec verify-checkpoint`: flags, exit codes, one JSON document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkpoint.madefamilies import write_family
from tests.distil.tiny import write_prompts, write_target
from trtspec.checkpoint.convert import convert
from trtspec.cli._main import run


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    write_family(tmp_path / "model", "qwen2")
    (tmp_path / "checkpoint").mkdir()
    convert(tmp_path / "model", tmp_path / "checkpoint")
    return tmp_path / "model", tmp_path / "checkpoint"


@pytest.mark.parametrize("flags", [[], ["--layers", "1", "--keep", "0"], ["--keep", "x"], ["--keep", "9"]], ids=str)
def test_wrong_layers_are_usage_errors(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_family(tmp_path / "model", "llama")
    arguments = ["draft", "early-exit", "--target", str(tmp_path / "model"), "--out", str(tmp_path / "draft"), *flags]
    assert run(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "draft").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--layers", "2"],
        ["--layers", "2", "--hidden", "16", "--intermediate", "24", "--heads", "4", "--kv-heads", "3"],
        ["--keep-layers", "0", "--layers", "1", "--hidden", "16", "--intermediate", "24", "--heads", "2"],
        [],
    ],
    ids=str,
)
def test_wrong_sizes_are_usage_errors(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl")
    arguments = ["draft", "distill", "--target", str(tmp_path), "--out", str(tmp_path / "d"), "--prompts", str(prompts)]
    assert run([*arguments, *flags]) == 2
    assert "trtspec: " in capsys.readouterr().err


@pytest.mark.torch
def test_early_exit_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_target(tmp_path / "model")
    prompts = write_prompts(tmp_path / "p.jsonl", 6)
    arguments = ["draft", "early-exit", "--target", str(target), "--out", str(tmp_path / "d"), "--layers", "1"]
    assert run([*arguments, "--prompts", str(prompts), "--json"]) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document["layers"] == [0]
    assert document["acceptance"]["all"]["prompts"] == 6
    assert "usually poor" in output.err


@pytest.mark.torch
def test_distill_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_target(tmp_path / "model")
    prompts = write_prompts(tmp_path / "p.jsonl", 12)
    arguments = ["draft", "distill", "--target", str(target), "--out", str(tmp_path / "d"), "--prompts", str(prompts)]
    flags = ["--keep-layers", "0,2", "--steps", "2", "--tokens", "100", "--eval-every", "1", "--json"]
    assert run([*arguments, *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [e["step"] for e in document["history"]] == [0, 1, 2]
    assert document["recipe"]["keep_layers"] == [0, 2]


def test_a_good_checkpoint_ends_with_0_and_a_damaged_one_with_1(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, checkpoint = made
    arguments = ["verify-checkpoint", str(model), str(checkpoint), "--tensors-only"]
    assert run(arguments) == 0
    assert "verdict: good, as far as it was looked at" in capsys.readouterr().out
    path = checkpoint / "rank0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert run([*arguments, "--json"]) == 1
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document["verdict"] == "does not hold"
    assert [t["name"] for t in document["tensors"] if t["outcome"] == "differs"] == ["lm_head.weight"]
    assert "lm_head.weight: differs: 1 of" in " ".join(output.err.split())


def test_a_broken_checkpoint_ends_with_4(made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model, checkpoint = made
    (checkpoint / "rank0.safetensors").unlink()
    assert run(["verify-checkpoint", str(model), str(checkpoint), "--tensors-only"]) == 4
    assert "rank0.safetensors" in capsys.readouterr().err


def test_tensors_only_needs_neither_torch_nor_transformers(made: tuple[Path, Path]) -> None:
    from tests.cli.test_main import heavy_modules_after

    model, checkpoint = made
    loaded = heavy_modules_after(["verify-checkpoint", str(model), str(checkpoint), "--tensors-only"])
    assert not loaded & {"torch", "transformers", "tritonclient"}

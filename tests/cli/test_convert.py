"""trtspec convert on bare folders: what people see, and that nothing half-written stays, whatever the input."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.madefamilies import arrays, config_of, stored, write_family
from tests.checkpoint.models import load, save, write_weights
from trtspec.cli._main import run

SHARD, INDEX = "model-00001-of-00002.safetensors", "model.safetensors.index.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_family(tmp_path / "m", "llama", shards=2)
    return tmp_path / "m"


def convert(model: Path, *more: str) -> tuple[int, Path]:
    """(exit code, where the checkpoint is or would be)"""
    out = model.parent / "out"
    return run(["convert", "--model", str(model), "--out", str(out), *more]), out


def test_ranks_and_document(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = convert(model, "--tensor-parallel", "2", "--pipeline-parallel", "3", "--dtype", "bfloat16", "--json")
    assert code == 0
    assert sorted(p.name for p in out.glob("rank*")) == [f"rank{r}.safetensors" for r in range(6)]
    document = json.loads(capsys.readouterr().out)
    assert [(s["stage"], s["action"]) for s in document["stages"]] == [("checkpoint", "built")]
    assert document["warnings"] == []
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"


def test_second_run_does_nothing_and_a_changed_one_does(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert(model)
    assert convert(model)[0] == 0
    assert "Nothing to do" in capsys.readouterr().out
    convert(model, "--tensor-parallel", "2")
    assert "changed: parallelism" in capsys.readouterr().out


def test_strangers_folder_is_left_alone(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "out").mkdir()
    (model.parent / "out" / "thesis.tex").write_text("x")
    assert convert(model)[0] == 2
    assert "something stands here" in capsys.readouterr().err
    assert (model.parent / "out" / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "CONFIG, or --model"),
        (["--model", "m"], "--out"),
        (["c.yaml", "--model", "m"], "--model belongs"),
        (["--model", "nowhere", "--out", "o"], "no such model folder"),
        (["--model", "m", "--out", "o", "--role", "draft"], "belong to a configuration"),
        (["c.yaml", "--tensor-parallel", "2"], "--tensor-parallel belongs to --model"),
        (["c.yaml", "--tensorrt-llm", "1.2.1"], "--tensorrt-llm belongs to --model"),
        (["--model", "m", "--out", "o", "--tensor-parallel", "0"], "tensor-parallel"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_version_that_asserts_even_stages(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(model, "--pipeline-parallel", "2", "--tensorrt-llm", "0.18.0")[0] == 2
    assert "which TensorRT-LLM 0.18.0 demands" in capsys.readouterr().err
    assert convert(model, "--pipeline-parallel", "2", "--tensorrt-llm", "1.2.1")[0] == 0


def truncated(model: Path) -> None:
    os.truncate(model / SHARD, (model / SHARD).stat().st_size - 10)


def missing(model: Path) -> None:
    (model / SHARD).unlink()


def reindex(model: Path, change: Callable[[dict[str, str]], None]) -> None:
    data = json.loads((model / INDEX).read_text())
    change(data["weight_map"])
    (model / INDEX).write_text(json.dumps(data))


def absent_file(model: Path) -> None:
    reindex(model, lambda names: names.update({"model.norm.weight": "model-00009.safetensors"}))


def escaping(model: Path) -> None:
    reindex(model, lambda names: names.update({"model.norm.weight": "../../secret.safetensors"}))


def duplicate(model: Path) -> None:
    other = model / "model-00002-of-00002.safetensors"
    tensors, more = load(other), load(model / SHARD)
    name = next(iter(more))
    save(other, {n: {**t, "data": bytes(t["data"])} for n, t in {**tensors, name: more[name]}.items()})


def rewrite(model: Path, **changes: Any) -> None:
    tensors = stored(arrays(config_of("llama")))
    for name, fields in changes.items():
        tensors[name.replace("__", ".")] |= fields
    write_weights(model, tensors, 2)


def wrong_type(model: Path) -> None:
    rewrite(model, model__norm__weight={"dtype": "I32"})


def wrong_shape(model: Path) -> None:
    rewrite(model, model__norm__weight={"shape": [2, 16]})


def pickled(model: Path) -> None:
    for path in model.glob("*safetensors*"):
        path.unlink()
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04.")


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated shard": (truncated, "past the end of the file"),
    "missing shard": (missing, "a shard named by the index is absent"),
    "index names an absent file": (absent_file, "model-00009.safetensors: a shard named by the index is absent"),
    "path out of the folder": (escaping, "is not in a plain .safetensors file of this folder"),
    "duplicate tensor": (duplicate, "is also in"),
    "wrong type": (wrong_type, "'model.norm.weight' has type I32"),
    "wrong shape": (wrong_shape, "'model.norm.weight' does not fit config.json"),
    "pickled": (pickled, "unpickling a file can run any code"),
}


@pytest.mark.parametrize(("break_it", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_models_exit_4_and_leave_nothing(
    model: Path, break_it: Callable[[Path], None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(model)
    code, out = convert(model, "--tensor-parallel", "2")
    assert code == 4
    assert message in capsys.readouterr().err
    assert not out.exists()
    assert not list(model.parent.glob(".out.partial*"))


def test_pickled_weights_come_with_the_safe_way(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pickled(model)
    convert(model)
    assert "safe_serialization=True" in capsys.readouterr().err


def test_full_disk_in_the_middle(tmp_path: Path) -> None:
    """A process that may write 40 kB to a file: the weights of a rank do not fit."""
    write_family(tmp_path / "m", "llama", hidden_size=64, vocab_size=300)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    command = [sys.executable, "-m", "trtspec", "convert", "--model", "m", "--out", "out", "--tensor-parallel", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, preexec_fn=limit, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "rank0.safetensors: writing failed: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out.partial*"))


def poison(model: Path) -> None:
    values = arrays(config_of("llama"))
    values["model.norm.weight"][3] = np.nan
    values["model.layers.1.mlp.down_proj.weight"][0, :2] = np.inf
    write_weights(model, stored(values), 2)


def test_weights_that_are_not_finite(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    poison(model)
    assert convert(model, "--strict")[0] == 4
    error = capsys.readouterr().err
    assert "model.norm.weight (1)" in error
    assert "model.layers.1.mlp.down_proj.weight (2)" in error
    assert not (model.parent / "out").exists()
    for _ in range(2):  # a checkpoint that is reused says it again
        assert convert(model)[0] == 0
        assert "warning: NaN or infinite weights" in capsys.readouterr().out
    assert convert(model, "--strict")[0] == 4, "nor may one be reused that was made without --strict"


def test_strict_for_a_configuration_that_was_converted_before(model: Path, tmp_path: Path) -> None:
    poison(model)
    config = tmp_path / "c.yaml"
    config.write_text(
        f"name: n\npair: {{target: {{path: {model}}}, draft: {{path: {model}}}}}\n"
        f"output: {{engines: {tmp_path}/engines}}\n"
    )
    assert run(["convert", str(config), "--role", "draft"]) == 0
    assert run(["convert", str(config), "--role", "draft", "--strict"]) == 4
    assert run(["convert", str(config), "--role", "target", "--strict"]) == 4
    assert not (tmp_path / "engines" / "n" / "target" / "checkpoint").exists()

"""trtspec quantize on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workflows.pair import SHIPPED, outputs
from trtspec.cli._main import run

DRAFT = str(SHIPPED / "tiny" / "draft")


def test_a_bare_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantize", "--model", DRAFT, "--out", str(tmp_path / "out"), "--format", "fp8_pc_pt",
             "--tensor-parallel", "2", "--json"]  # fmt: skip
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert [stage["action"] for stage in document["stages"]] == ["built"]
    assert {p.name for p in (tmp_path / "out").glob("rank*")} == {"rank0.safetensors", "rank1.safetensors"}
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["stages"][0]["action"] == "reused"


def test_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [word for override in [*outputs(tmp_path), "pair.target.quantization.weights=int8_wo"]
            for word in ("--set", override)]  # fmt: skip
    assert run(["quantize", str(SHIPPED / "tiny.yaml"), "--role", "target", *sets]) == 0
    config = json.loads((tmp_path / "engines" / "tiny" / "target" / "checkpoint" / "config.json").read_text())
    assert config["quantization"]["quant_algo"] == "W8A16"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to quantize"),
        (["--model", DRAFT, "--out", "o"], "nothing to quantize"),
        (["--model", DRAFT, "--out", "o", "--format", "fp8"], "no prompts"),
        (["--model", DRAFT, "--out", "o", "--format", "int4_rtn", "--group-size", "16"], "--group-size: "),
        (["--model", DRAFT, "--out", "o", "--format", "int4_rtn", "--group-size", "32"], "no kernel"),
        (["--model", "absent", "--out", "o", "--format", "fp8_pc_pt"], "no such model folder"),
        ([str(SHIPPED / "tiny.yaml"), "--tensor-parallel", "2"], "--tensor-parallel belongs to --model"),
        (["--model", DRAFT, "--out", "o", "--role", "draft"], "belong to a configuration"),
        (["--model", DRAFT, "--out", "o", "--format", "fp7"], "fp7"),
    ],
)
def test_bad_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                   monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["quantize", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

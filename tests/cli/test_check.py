"""trtspec check: a file, flags, or both; its document, its exit codes and what it says about bad usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.pairs import write_pair
from trtspec.cli._main import run
from trtspec.cli._pair import pair_config
from trtspec.errors import ConfigError

L33, L32 = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A sound pair in target/ and draft/ with 128 positions, and a file that names it."""
    write_pair(tmp_path)
    (tmp_path / "pair.yaml").write_text(
        "name: t\npair:\n  target: {path: target, dtype: float16}\n  draft: {path: draft}\n"
        "engine: {max_input_len: 32, max_seq_len: 64}\n"
    )
    return tmp_path


SHORT = ["--set", "engine.max_seq_len=64", "--set", "engine.max_input_len=32"]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["check", *arguments, "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return code, found


def test_json_is_one_document_with_the_documented_keys(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, str(pair / "pair.yaml"))
    assert (code, found["verdict"]) == (0, "pass")
    assert set(found) == {"verdict", "not_measured", "findings", "facts"}
    keys = {"code", "severity", "subject", "message", "fix", "data"}
    assert all(set(finding) == keys for finding in found["findings"])
    assert {"target", "draft", "memory", "economics"} <= set(found["facts"])
    expected = {
        "parameters": 77_344, "active_parameters": 77_344, "architecture": "LlamaForCausalLM", "positions": 128,
        "vocab_size": 50, "tied": False, "quantization": None, "windows": "none", "source": "files",
    }  # fmt: skip
    assert found["facts"]["target"].items() >= expected.items()


def test_a_pair_without_a_file(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--target", str(pair / "target"), "--draft", str(pair / "draft")]
    code, found = document(capsys, *flags, *SHORT)
    assert (code, found["verdict"]) == (0, "pass")
    assert found["facts"]["target"]["folder"] == str(pair / "target")


def test_paths_on_the_command_line_are_relative_to_the_current_folder(
    pair: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = pair / "elsewhere"
    elsewhere.mkdir()
    (pair / "pair.yaml").rename(elsewhere / "pair.yaml")
    monkeypatch.chdir(pair)
    flags = ["--target", "target", "--draft", "./draft"]
    assert document(capsys, *flags, *SHORT)[1]["verdict"] == "pass"
    assert document(capsys, "elsewhere/pair.yaml", *flags)[1]["verdict"] == "pass"


def test_hub_ids_of_known_models_need_no_files(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--target", L33, "--draft", L32.lower(), "--gpu", "h100-80gb", "--count", "8"]
    code, found = document(capsys, *flags, "--set", "pair.target.parallelism.tensor=8")
    assert (code, found["verdict"]) == (0, "warn")
    assert found["facts"]["target"]["source"] == "published"
    assert found["facts"]["memory"] is not None
    assert run(["check", *flags, "--strict", "--set", "pair.target.parallelism.tensor=8"]) == 1


def test_exit_1_on_an_error(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(pair, target={"vocab_size": 64})
    assert run(["check", str(pair / "pair.yaml")]) == 0
    assert run(["check", str(pair / "pair.yaml"), "--acceptance", "logits"]) == 1
    assert "widths.logits" in capsys.readouterr().out


def test_verbose_lists_every_finding(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(pair / "pair.yaml")])
    short = capsys.readouterr().out
    run(["check", str(pair / "pair.yaml"), "-v"])
    assert "lineage.alike" in capsys.readouterr().out
    assert "lineage.alike" not in short


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--target and --draft"),
        (["--target", "T"], "no draft"),
        (["--draft", "T"], "no target"),
        (["--target", "/nowhere/at/all", "--draft", "T"], "no such folder for the target"),
        (["--target", "not-a-hub-id", "--draft", "T"], "or a hub id"),
        (["--target", "T", "--draft", "T", "--acceptance", "maybe"], "acceptance"),
        (["--target", "T", "--draft", "T", "--gpu", "h100-80gp"], "h100-80gb"),
        (["--target", "T", "--draft", "T", "--count", "0"], "hardware.count"),
        (["--target", "T", "--draft", "T", "--set", "speculation.draft_lenn=3"], "draft_len"),
        (["nowhere.yaml"], "no such configuration file"),
    ],
)
def test_bad_usage_is_exit_2_and_one_helpful_line(
    pair: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["check", *[str(pair / "target") if a == "T" else a for a in arguments]])
    captured = capsys.readouterr()
    assert code == 2
    assert said in captured.err
    assert "Traceback" not in captured.err


def test_flags_win_over_the_file_and_set_over_flags(pair: Path) -> None:
    (pair / "other").mkdir()
    given = pair_config(
        pair / "pair.yaml", ("hardware.count=4",), target=str(pair / "other"), draft=L32, acceptance="logits",
        gpu="l4", count=2,
    )  # fmt: skip
    assert (given.pair.target.path, given.pair.target.dtype) == (pair / "other", "float16")
    assert (given.pair.draft.path, given.pair.draft.hub) == (None, L32)
    assert (given.speculation.acceptance, given.hardware.gpu, given.hardware.count) == ("logits", "l4", 4)


def test_a_gpu_alone_plans_tensorrt_engines(pair: Path) -> None:
    target, draft = str(pair / "target"), str(pair / "draft")
    assert pair_config(None, (), target=target, draft=draft).engine.backend == "reference"
    assert pair_config(None, (), target=target, draft=draft, gpu="l4").engine.backend == "tensorrt"
    named = pair_config(None, ("engine.backend=pytorch",), target=target, draft=draft, gpu="l4")
    assert named.engine.backend == "pytorch"


def test_a_replaced_hub_model_loses_its_revision(pair: Path) -> None:
    (pair / "hub.yaml").write_text(
        f"name: t\npair:\n  target: {{hub: {L33}, revision: {'0' * 40}}}\n  draft: {{path: draft}}\n"
    )
    assert pair_config(pair / "hub.yaml", (), target=L32).pair.target.revision is None
    assert pair_config(pair / "hub.yaml", (), target=str(pair / "draft")).pair.target.path == pair / "draft"


def test_the_environment_overrides_a_pair_without_a_file(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRTSPEC_SET_speculation__draft_len", "2")
    target, draft = str(pair / "target"), str(pair / "draft")
    assert pair_config(None, (), target=target, draft=draft).speculation.k == 2
    monkeypatch.setenv("TRTSPEC_SET_speculation__draft_len", "0")
    with pytest.raises(ConfigError, match="draft_len"):
        pair_config(None, (), target=target, draft=draft)


def test_without_a_file_the_target_is_cut_over_the_gpus(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--target", L33, "--draft", L32, "--gpu", "h100-80gb", "--count", "8"]
    code, found = document(capsys, *flags)
    assert (code, found["verdict"]) == (0, "warn")
    cut = next(f for f in found["findings"] if f["code"] == "preflight.cut")
    assert (cut["severity"], cut["data"]) == ("info", {"tensor": 2})
    assert "target" in found["facts"]["memory"]["gpus"][1]
    code, found = document(capsys, *flags, "--set", "pair.target.parallelism.tensor=1")
    assert (code, found["verdict"]) == (1, "fail"), "what is given stays"
    one = document(capsys, *flags[:-1], "1")[1]
    assert "preflight.cut" not in {f["code"] for f in one["findings"]}
    (tmp_path / "pair.yaml").write_text(
        f"name: t\npair:\n  target: {{hub: {L33}}}\n  draft: {{hub: {L32}}}\n"
        "engine: {backend: tensorrt}\nhardware: {gpu: h100-80gb, count: 8}\n"
    )
    assert document(capsys, str(tmp_path / "pair.yaml"))[0] == 1, "what a file leaves out has its default"


def test_a_misspelt_hub_id_is_told_the_known_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "--target", L33.replace("Instruct", "Instrct"), "--draft", L32)
    missing = next(f for f in found["findings"] if f["code"] == "tokenizer.missing")
    assert code == 1
    assert missing["message"].startswith("meta-llama/Llama-3.3-70B-Instrct: not on this machine")
    assert f"did you mean {L33}" in missing["fix"]
    assert found["facts"]["target"]["folder"] is None


@pytest.mark.parametrize("width", [80, 130])
def test_a_piped_report_takes_the_width_it_is_given(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run(["check", "--target", L33, "--draft", L32, "--gpu", "l4", "--acceptance", "logits"])
    assert width - 20 < max(map(len, capsys.readouterr().out.splitlines())) <= width

"""trtspec generate: what it shows, writes and refuses, against a real Triton whose models speak the wire."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import eventually
from tests.triton.throwaway import add_a_pair, serving
from trtspec.cli._answers import Screen, mode_in_words
from trtspec.cli._main import run
from trtspec.triton.server import TritonServer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("generate")
    with TritonServer.start(add_a_pair(folder / "repository"), serving(), folder / "triton.log") as server:
        yield server


@pytest.fixture
def line(tiny_config: Path, tmp_path: Path) -> list[str]:
    return ["generate", str(tiny_config), "--set", f"output.model_repo={tmp_path / 'nothing'}"]


@pytest.fixture
def asking(line: list[str], running: TritonServer) -> list[str]:
    return [*line, "--url", running.grpc_url]


@pytest.mark.triton
@pytest.mark.parametrize("over_http", [False, True])
def test_text_on_stdout_and_figures_on_stderr(
    line: list[str], running: TritonServer, over_http: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--http", "--url", running.http_url] if over_http else ["--url", running.grpc_url]
    assert run([*line, *where, "--prompt", "say one| two"]) == 0
    said = capsys.readouterr()
    assert said.out == "one two\n"
    assert "2 tokens in" in said.err
    assert "first text after" in said.err
    assert run([*line, *where, "--prompt", "speculate", "--draft-len", "3", "--no-stream"]) == 0
    said = capsys.readouterr()
    assert said.out == "done\n"
    assert "speculative: 9 tokens" in said.err
    assert "α 1.000 (7 of 7 tested), 3.00 tokens a round (3 rounds), 7 of 9 drafted tokens accepted" in said.err


@pytest.mark.triton
def test_options_become_inputs(asking: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    how = ["--temperature", "0.5", "--top-k", "4", "--top-p", "0.5", "--seed", "7", "--stop", "a", "--stop", "b"]
    assert run([*asking, "--prompt", "inputs_are", *how, "--task", "code", "--target-only", "--max-tokens", "9"]) == 0
    seen = json.loads(capsys.readouterr().out)
    values = {name: entry[2] for name, entry in seen.items() if isinstance(entry, list)}
    assert (values["temperature"], values["top_k"], values["top_p"], values["seed"]) == ([0.5], [4], [0.5], [7])
    assert (values["stop_words"], values["task"], values["num_draft_tokens"]) == (["a", "b"], ["code"], [0])
    assert (values["max_tokens"], values["stream"]) == ([9], [True])


@pytest.mark.triton
def test_one_document(asking: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("speculate"))
    assert run([*asking, "-", "--draft-len", "3", "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["text"], document["mode"], document["alpha"]) == ("done", "speculative", 1.0)
    assert document["per_position"] == pytest.approx([1.0, 1.0, 1.0])
    assert "done" in said.err


def write(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.triton
def test_a_file_of_prompts(asking: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"p{i}", "prompt": f"say {i}|{i}", "max_tokens": 2} for i in range(20)]
    file, out = write(tmp_path / "prompts.jsonl", *rows), tmp_path / "out" / "answers.jsonl"
    assert run([*asking, "--file", file, "--out", str(out), "--concurrency", "8"]) == 0
    answers = [json.loads(text) for text in out.read_text().splitlines()]
    assert [(a["id"], a["text"], a["output_tokens"]) for a in answers] == [(f"p{i}", f"{i}{i}", 2) for i in range(20)]
    assert os.listdir(out.parent) == ["answers.jsonl"]
    assert "20 answers: 40 tokens in" in capsys.readouterr().err
    assert run([*asking, "--file", file]) == 0
    assert [json.loads(text)["text"] for text in capsys.readouterr().out.splitlines()] == [a["text"] for a in answers]


@pytest.mark.triton
def test_a_prompt_that_fails_does_not_stop_the_others(
    asking: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "p.jsonl", {"prompt": "say a"}, {"prompt": "mute"}, {"prompt": "say b"})
    assert run([*asking, "--file", file, "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert [a.get("text") for a in document["answers"]] == ["a", None, "b"]
    assert "the answer lacks" in document["answers"][1]["error"]["what"]
    assert (document["summary"]["answered"], document["summary"]["failed"]) == (2, 1)


@pytest.mark.triton
def test_what_the_server_refuses_is_bad_usage(asking: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*asking, "--prompt", "fail"]) == 2
    assert "trtspec: [generate] model tensorrt_llm_bls: the prompt is too long" in capsys.readouterr().err


@pytest.mark.triton
def test_ctrl_c_cancels_the_request(asking: list[str], tmp_path: Path) -> None:
    mark = tmp_path / "cancelled"
    command = [sys.executable, "-m", "trtspec", *asking, "--prompt", f"hang {mark}"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert eventually((tmp_path / "cancelled.began").exists, 30)
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        assert eventually(mark.exists)
        _, said = child.communicate()
        assert said.strip() == "trtspec: interrupted"
    finally:
        child.kill()
        child.communicate()


def test_a_server_that_is_not_there(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--http"]):
        assert run([*line, "--url", "127.0.0.1:1", "--prompt", "x", *more]) == 5
        assert "the server cannot be reached" in (said := capsys.readouterr().err)
        assert "trtspec serve CONFIG" in said
    assert run([*line, "--set", "serving.grpc_port=1", "--prompt", "x"]) == 5  # the configuration's own port


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "what is to be answered?"),
        (["--prompt", "x", "-"], "what is to be answered?"),
        (["--prompt", "x", "--out", "y"], "--out and --concurrency belong to --file"),
        (["--prompt", "x", "--draft-len", "3", "--target-only"], "--target-only is --draft-len 0"),
        (["--prompt", "x", "--top-p", "7"], "top_p is out of range"),
        (["--file", "/nowhere/prompts.jsonl"], "no such prompts file"),
        (["--file", "x", "--chat"], "--chat belongs to --prompt"),
        (["--prompt", "x", "--url", "nonsense", "--http"], "not an address"),
    ],
)
def test_bad_usage(line: list[str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*line, *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.triton
@pytest.mark.torch
@pytest.mark.slow
def test_a_server_is_started_where_none_is_named(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"output.{what}={tmp_path / what}" for what in ("engines", "model_repo", "reports")]
    settings = [*places, "serving.stop_timeout=3"]
    config = [str(tiny_config), *(word for setting in settings for word in ("--set", setting))]
    assert run(["build", *config]) == 0
    capsys.readouterr()
    assert run(["generate", *config, "--prompt", "x " * 600]) == 2  # before any server
    assert "found 602 tokens, expected at most 512" in capsys.readouterr().err
    assert run(["generate", *config, "--chat", "--prompt", "What does os.path.join do?", "--max-tokens", "12"]) == 0
    said = capsys.readouterr()
    assert "starting a server for this call alone" in said.err
    assert "speculative: " in said.err
    assert said.out.strip()


def test_modes_in_words() -> None:
    assert mode_in_words("speculative") == "speculative"
    assert mode_in_words("target-only:guard") == "target only, the guard saw too few drafts accepted (guard)"
    assert mode_in_words("target-only:new") == "target only, new (new)"


def test_a_terminal_is_not_steered_by_a_model() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), "a\ufffd[2Jé\n"), (io.StringIO(), "a\x1b[2Jé\n")):
        screen = Screen(stream)
        screen.write("a\x1b[2Jé")
        screen.end()
        screen.end()
        assert stream.getvalue() == shown

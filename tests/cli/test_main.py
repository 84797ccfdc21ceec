"""Exit codes, one line per error, nothing heavy imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from trtspec import errors
from trtspec.cli import _main
from trtspec.cli._main import run
from trtspec.cli._verbs import VERBS, verb

HEAVY = ("torch", "transformers", "tritonclient", "scipy", "numpy", "pydantic", "huggingface_hub")


def heavy_modules_after(arguments: list[str]) -> set[str]:
    code = (
        "import sys; from trtspec.cli._main import run; "
        f"code = run({arguments!r}); "
        f"print('HEAVY', code, *[m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    _, code_text, *found = done.stdout.strip().splitlines()[-1].split()
    assert code_text == "0", done.stderr
    return set(found)


def test_help_imports_nothing_heavy() -> None:
    assert heavy_modules_after(["--help"]) == set()


def test_help_of_every_verb_imports_nothing_heavy() -> None:
    for name in VERBS:
        assert heavy_modules_after([name, "--help"]) == set(), name


def test_check_imports_neither_torch_nor_tritonclient(tiny_config: Path) -> None:
    assert not heavy_modules_after(["check", str(tiny_config)]) & {"torch", "transformers", "tritonclient"}


def test_help_teaches_the_first_minute(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert "trtspec build configs/tiny.yaml" in text
    assert "Exit codes" in text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.MissingError("x"), 3),
        (errors.CheckFailed("x"), 1),
        (errors.BuildError("x"), 4),
        (errors.ModelFileError("x"), 4),
        (errors.ServingError("x"), 5),
        (errors.EvidenceError("x"), 6),
        (KeyboardInterrupt(), 130),
        (_main.Terminated(), 143),
        (RuntimeError("bug"), 70),
        (click.UsageError("x"), 2),
    ],
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(_main.cli, "main", fail)
    assert run(["build"]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out


def test_error_document_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", str(tmp_path / "absent.yaml"), "--json"]) == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["error"] == "ConfigError"
    assert document["exit_code"] == 2
    assert captured.err.count("\n") == 1


def test_every_failure_has_a_document(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise errors_to_raise.pop()

    errors_to_raise: list[BaseException] = [RuntimeError("bug"), KeyboardInterrupt(), _main.Terminated()]
    monkeypatch.setattr(_main.cli, "main", fail)
    for code in (143, 130, 70):
        assert run(["build", "--json"]) == code
        assert json.loads(capsys.readouterr().out)["exit_code"] == code
    monkeypatch.undo()
    assert run(["build", "--json", "--nonsense"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_where_the_table_says(name: str) -> None:
    assert verb(name).name == name
    assert len(VERBS[name].help) <= 57  # one line on a terminal of 80 columns


def test_the_way_out_is_short() -> None:
    """Python's last look for garbage costs 0.1 s of a processor: on a busy machine seconds after the last server."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 1000)); "
    code += "import sys; sys.argv = ['trtspec', '--version']; from trtspec.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_help_loads_no_verb() -> None:
    code = (
        "import sys; from trtspec.cli._main import run; run(['--help']);"
        "print(sorted(m for m in sys.modules if m.startswith('trtspec.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "['trtspec.cli._main', 'trtspec.cli._verbs']"
    assert all(f"  {name} " in done.stdout for name in VERBS)


def test_a_misspelt_verb_brings_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chekc"]) == 2
    assert "Did you mean 'check'?" in capsys.readouterr().err


def test_unknown_verb_and_option_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bild"]) == 2
    assert run(["build", "--nonsense"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_config_prints_every_key(tiny_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", str(tiny_config), "--json", "--set", "speculation.draft_len=2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["speculation"]["draft_len"] == 2
    assert document["gates"]["release_alpha"] == 0.65


def test_schema_is_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["additionalProperties"] is False
    assert {"name", "pair"} <= set(document["required"])

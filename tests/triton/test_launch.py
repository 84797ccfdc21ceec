"""How a server with TensorRT engines is started. `mpirun` and `tritonserver` are stand-ins that print what they get."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from trtspec.errors import ConfigError
from trtspec.triton import launch
from trtspec.triton.devices import Devices
from trtspec.triton.launch import Ports

PORTS = Ports("127.0.0.1", 8000, 8001, 8002)
SPAWNS = Devices("orchestrator", True, 1, {"target": (0, 1), "draft": (0,)}, "sizes differ")
FAST = Devices("orchestrator", False, 4, {"target": (1, 2), "draft": (0,)}, "fast logits",
               {"draft": (1,), "target": (2, 3)})  # fmt: skip
LEADER = Devices("leader", False, 2, {"target": (0, 1), "draft": (0, 1)}, "as configured")


def parts(devices: Devices) -> list[list[str]]:
    """The command of each process, without mpirun's own words."""
    words = " ".join(launch.planned_command(devices, "/repo", PORTS))
    head, *ranks = words.split(" -n 1 ")
    assert head == "mpirun --allow-run-as-root"
    return [rank.removesuffix(" :").split() for rank in ranks]


def test_an_orchestrator_that_starts_its_processes_is_one_process() -> None:
    (server,) = parts(SPAWNS)
    assert server[0] == "/opt/tritonserver/bin/tritonserver"
    assert "--disable-auto-complete-config" in server
    assert "--model-repository=/repo" in server
    assert server[-4:] == ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false",
                           "--cuda-memory-pool-byte-size=0:0", "--cuda-memory-pool-byte-size=1:0"]  # fmt: skip
    assert launch.environment(SPAWNS) == {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}


def test_fast_logits_start_the_server_and_every_rank() -> None:
    server, *ranks = parts(FAST)
    assert len(ranks) == 3
    assert not any("memory-pool" in word or "load-model" in word for word in server)
    for i, rank in enumerate(ranks, 1):
        assert rank[-3:] == ["--model-control-mode=explicit", "--load-model=tensorrt_llm",
                             "--load-model=tensorrt_llm_draft"]  # fmt: skip
        assert f"--backend-config=python,shm-region-prefix-name=prefix{i}_" in rank
    assert launch.environment(FAST)["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] == "0"


def test_leader_mode_is_no_orchestrator() -> None:
    assert len(parts(LEADER)) == 2
    assert launch.environment(LEADER) == {}


@pytest.mark.parametrize("devices", [SPAWNS, FAST, LEADER])
def test_the_script_runs_that_line_from_anywhere(devices: Devices, tmp_path: Path) -> None:
    folder = tmp_path / "a repository"
    folder.mkdir()
    script = folder / launch.SCRIPT
    script.write_text(launch.script(devices, PORTS))
    tools = tmp_path / "bin"
    tools.mkdir()
    standin = tools / "mpirun"
    says = ("ulimit -c; ulimit -s; umask", 'for word; do printf "%s\\n" "$word"; done', 'env | grep "^TRTLLM" | sort')
    standin.write_text("\n".join(["#!/bin/sh", *says, ""]))
    standin.chmod(0o755)
    environ = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", str(script)], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    core, stack, mask, *said = done.stdout.splitlines()
    assert (core, stack, int(mask, 8)) == ("0", "65536", 0o077)
    keys = {word.partition(":closed=")[2] for word in said if ":closed=" in word}
    (key,) = keys  # one for all ranks and both protocols, and another at every start
    assert re.fullmatch("[0-9a-f]{32}", key)
    expected = [*launch.planned_command(devices, str(folder), PORTS, key)[1:]]
    assert said == expected + [f"{k}={v}" for k, v in sorted(launch.environment(devices).items())]


STANDIN = """#!/bin/sh
touch "$TRTSPEC_DRAIN_DIR/serving.7"
trap 'ls "$TRTSPEC_DRAIN_DIR" | tr "\\n" " "; exit 5' TERM
echo started
while :; do
    sleep 0.1
    [ -e "$TRTSPEC_DRAIN_DIR/drain" ] && [ ! -e "$TRTSPEC_DRAIN_DIR/drained.7" ] && {
        sleep 0.5; touch "$TRTSPEC_DRAIN_DIR/drained.7"; }
done
"""


def test_the_script_lets_requests_end_before_the_server_hears_of_it(tmp_path: Path) -> None:
    script = tmp_path / launch.SCRIPT
    script.write_text(launch.script(SPAWNS, PORTS))
    (tmp_path / "mpirun").write_text(STANDIN)
    (tmp_path / "mpirun").chmod(0o755)
    drain = tmp_path / "drain"
    drain.mkdir()
    environ = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TRTSPEC_DRAIN_DIR": str(drain)}
    with subprocess.Popen(["sh", str(script)], env=environ, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "started\n"
        running.terminate()
        assert running.stdout.read().split() == ["drain", "drained.7", "serving.7"]
    assert running.returncode == 5


ABORTS = """#!/bin/sh
echo again >>"$COUNTED"
[ "$(wc -l <"$COUNTED")" -lt "$LASTS" ] || exit 5
[ -z "$LOADS" ] || touch "$TRTSPEC_DRAIN_DIR/serving.7"
kill -ABRT $$
"""


@pytest.mark.parametrize(
    ("lasts", "loads", "starts", "code"),
    [(1, "", 1, 5), (2, "", 2, 5), (3, "", 3, 5), (9, "", 3, 134), (9, "yes", 1, 134)],
    ids=["no fault", "once", "twice", "for ever", "when the pipeline was loaded"],
)
def test_the_script_starts_a_server_again_that_aborts_while_it_loads(
    tmp_path: Path, lasts: int, loads: str, starts: int, code: int
) -> None:
    (tmp_path / launch.SCRIPT).write_text(launch.script(SPAWNS, PORTS))
    (tmp_path / "mpirun").write_text(ABORTS)
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "drain").mkdir()
    environ = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TRTSPEC_DRAIN_DIR": str(tmp_path / "drain"),
        "COUNTED": str(tmp_path / "starts"), "LASTS": str(lasts), "LOADS": loads,
    }  # fmt: skip
    done = subprocess.run(["sh", str(tmp_path / launch.SCRIPT)], env=environ, capture_output=True, text=True)
    assert done.returncode == code
    assert (tmp_path / "starts").read_text().count("again") == starts
    assert done.stderr.count("starting it again") == starts - 1


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
@pytest.mark.parametrize("devices", [SPAWNS, FAST, LEADER])
def test_shellcheck_has_nothing_to_say(devices: Devices, tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(launch.script(devices, PORTS))
    subprocess.run(["shellcheck", str(tmp_path / "launch.sh")], check=True)


@pytest.mark.parametrize("devices", [SPAWNS, FAST, LEADER])
def test_the_record_gives_the_devices_back(devices: Devices, tmp_path: Path) -> None:
    document = launch.record(devices, "1.2.1", "/repo", PORTS, {"gpu": "l4"})
    (tmp_path / launch.RECORD).write_text(json.dumps(document))
    assert launch.recorded(tmp_path) == devices
    assert document["command"] == list(launch.planned_command(devices, "/repo", PORTS))


def test_without_a_record_nothing_is_guessed(tmp_path: Path) -> None:
    for text in (None, "{}", "[]", "x"):
        if text is not None:
            (tmp_path / launch.RECORD).write_text(text)
        with pytest.raises(ConfigError, match="how to start it"):
            launch.recorded(tmp_path)

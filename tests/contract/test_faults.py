"""What each injected fault leaves behind when nothing catches it: the builds' tests show that trtspec does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.contract.made import call, checkpoint, places
from tests.contract.standins.install import install


def given(folder: Path) -> list[str]:
    return [*places(folder), "--max_seq_len", "128"]


def left(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in sorted((folder / "engine").glob("*"))}


@pytest.mark.parametrize(("percent", "files"), [(10, 0), (50, 2), (90, 3)])
@pytest.mark.parametrize("kind", ["crash", "enospc"])
def test_a_crash_leaves_half_an_engine(
    tmp_path: Path, kind: str, percent: int, files: int, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint(tmp_path / "checkpoint", tp=2)
    assert call(given(tmp_path), environment={"STANDIN_FAULT": f"{kind}@{percent}"}) == 1
    assert len(left(tmp_path)) == files
    assert ("No space left on device" in capsys.readouterr().err) is (kind == "enospc")


def test_sigkill_and_hang_end_by_a_signal(tmp_path: Path) -> None:
    made = install(tmp_path / "machine", "1.2.1")
    checkpoint(tmp_path / "checkpoint")
    words = [str(made.bin / "trtllm-build"), *given(tmp_path)]
    environment = made.environment(STANDIN_FAULT="sigkill@50")
    killed = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -9
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            words, env=made.environment(STANDIN_FAULT="hang@90"), capture_output=True, timeout=1, check=False
        )


@pytest.mark.parametrize(
    ("fault", "files"),
    [
        ("no-files", {}),
        ("empty-engine", {"rank0.engine": 4096, "rank1.engine": 0}),
        ("traceback-exit-0", {"rank0.engine": 4096}),
        ("other-limits", {"rank0.engine": 4096, "rank1.engine": 4096}),
    ],
)
def test_what_looks_like_success(tmp_path: Path, fault: str, files: dict[str, int]) -> None:
    checkpoint(tmp_path / "checkpoint", tp=2)
    assert call(given(tmp_path), environment={"STANDIN_FAULT": fault}) == 0
    found = left(tmp_path)
    assert bool(found.pop("config.json", 0)) is bool(files)
    assert found == files
    if fault == "other-limits":
        limits = json.loads((tmp_path / "engine/config.json").read_text())["build_config"]
        assert limits["max_seq_len"] == 64


def test_a_truncated_config_is_no_json(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint")
    assert call(given(tmp_path), environment={"STANDIN_FAULT": "truncated-config"}) == 0
    with pytest.raises(json.JSONDecodeError):
        json.loads((tmp_path / "engine/config.json").read_text())


def test_a_fault_can_be_meant_for_one_role(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint")
    fault = {"STANDIN_FAULT": "crash@10", "STANDIN_FAULT_WHEN": "target"}
    assert call(given(tmp_path), environment=fault) == 0
    assert call([*given(tmp_path), "--log_level", "info"], environment=fault | {"STANDIN_FAULT_WHEN": "log_level"}) == 1

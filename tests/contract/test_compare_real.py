"""The comparison with a real installation: its reading of a help text, tried on the stand-ins; and the comparison."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.contract import compare_real
from tests.contract.compare_real import Option, compare, read_help
from tests.contract.standins.install import install
from tests.contract.standins.versions import VERSIONS

HELP = """usage: trtllm-build [-h] [--a A]

options:
  -h, --help            show this help message and exit
  --max_seq_len MAX_SEQ_LEN, --max_decoder_seq_len MAX_SEQ_LEN
                        Longest. (default: None)
  --dry_run             Run without building. (default: False)

Plugin config arguments:
  --gemm_plugin {auto,fp8,disable}
                        Only for -sq and
                        others. (default: disable)
"""


def test_reading_a_help_text() -> None:
    assert read_help(HELP) == {
        "--help": Option(("-h", "--help"), (), None),
        "--max_seq_len": Option(("--max_seq_len", "--max_decoder_seq_len"), (), "None"),
        "--dry_run": Option(("--dry_run",), (), "False"),
        "--gemm_plugin": Option(("--gemm_plugin",), ("auto", "fp8", "disable"), "disable"),
    }


@pytest.mark.parametrize("release", [VERSIONS[0], VERSIONS[-1]])
def test_a_stand_in_does_not_differ_from_its_own_table(tmp_path: Path, release: str) -> None:
    assert compare(str(install(tmp_path, release).bin / "trtllm-build"), release) == []


def test_another_release_differs(tmp_path: Path) -> None:
    found = "\n".join(compare(str(install(tmp_path, "0.17.0.post1").bin / "trtllm-build"), "1.2.1"))
    assert "--auto_parallel: in the program, not in the table" in found
    assert "--fuse_fp4_quant: in the table, not in the program" in found
    assert "--tokens_per_block: default 64, in the table 32" in found


@pytest.mark.gpu
def test_the_installed_trtllm_build_is_as_the_table_says() -> None:
    program = shutil.which("trtllm-build")
    assert program is not None
    assert compare_real.compare(program, version("tensorrt_llm")) == []

"""The stand-ins themselves: conversion scripts, quantize.py, package metadata, nvidia-smi.

Every expected value below stands in the fact sheet (sections in README.md); none is taken from the stand-ins' tables.
"""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from tests.checkpoint.madefamilies import write_family
from tests.contract.made import PAGED, TARGET, built, call, places
from tests.contract.standins.install import Installed, install
from tests.contract.standins.versions import VERSIONS


def script(made: Installed, name: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    path = next(made.examples.rglob(name))
    command = [str(path), *map(str, words)]
    return subprocess.run(command, env=made.environment(**environment), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("0.17.0.post1", ["examples/llama"]),
        ("0.19.0", ["examples/llama", "examples/models/core/llama"]),
        ("0.20.0", ["examples/models/core/llama"]),
        ("1.2.1", ["examples/models/core/llama"]),
    ],
)
def test_scripts_lie_where_the_release_has_them(tmp_path: Path, version: str, found: list[str]) -> None:
    made = install(tmp_path, version)
    paths = sorted(str(p.parent.relative_to(made.examples)) for p in made.examples.rglob("convert_checkpoint.py"))
    assert [path for path in paths if path.endswith("llama")] == found
    assert (made.examples / "examples/quantization/quantize.py").exists()


@pytest.mark.parametrize(("family", "model"), [("llama", "llama"), ("llama", "mistral"), ("qwen", "qwen2")])
def test_what_a_converter_writes_can_be_built(tmp_path: Path, family: str, model: str) -> None:
    made = install(tmp_path / "machine", "1.2.1")
    write_family(tmp_path / "hf", model)
    words = ("--model_dir", tmp_path / "hf", "--output_dir", tmp_path / "checkpoint", "--tp_size", 2)
    done = script(made, f"{family}/convert_checkpoint.py", *words)
    assert done.returncode == 0, done.stderr
    built(tmp_path, TARGET)
    assert script(made, f"{family}/convert_checkpoint.py", "--model-dir", tmp_path / "hf").returncode == 2


def test_gemma_takes_hyphens_only_at_0_17(tmp_path: Path) -> None:
    write_family(tmp_path / "hf", "gemma2")
    for version, code in (("0.17.0.post1", 2), ("1.2.1", 0)):
        made = install(tmp_path / version, version)
        out = tmp_path / f"out-{version}"
        done = script(made, "gemma/convert_checkpoint.py", "--ckpt-type", "hf", "--model_dir", tmp_path / "hf",
                      "--output_dir", out)  # fmt: skip
        assert done.returncode == code
        hyphens = ("--ckpt-type", "hf", "--model-dir", tmp_path / "hf", "--output-model-dir", out, "--dtype", "float16")
        assert script(made, "gemma/convert_checkpoint.py", *hyphens).returncode == 0
        given = [*places(tmp_path)[2:], "--checkpoint_dir", str(out)]
        assert call(given, version) == 0


def test_quantize(tmp_path: Path) -> None:
    write_family(tmp_path / "hf", "llama", torch_dtype="bfloat16")
    made = install(tmp_path / "machine", "1.2.1")
    words = ("--model_dir", tmp_path / "hf", "--output_dir", tmp_path / "checkpoint")
    done = script(made, "quantize.py", *words, "--qformat", "fp8", "--kv_cache_dtype", "fp8", "--tp_size", 2)
    assert done.returncode == 0, done.stderr
    # modelopt's float16 logits of a bfloat16 model: §2.4
    assert json.loads((tmp_path / "checkpoint/config.json").read_text())["logits_dtype"] == "float16"
    assert built(tmp_path, [*TARGET, *PAGED])["plugin_config"]["use_fp8_context_fmha"] is True
    assert script(made, "quantize.py", *words, "--qformat", "nvfp4").returncode == 0
    assert script(made, "quantize.py", *words, "--qformat", "fp4").returncode == 2
    old = install(tmp_path / "old", "0.17.0.post1")
    assert script(old, "quantize.py", *words, "--qformat", "nvfp4").returncode == 2
    assert script(old, "quantize.py", *words, "--quantize_lm_head").returncode == 2
    assert script(made, "quantize.py", *words, "--qformat", "fp8", STANDIN_GPUS="0").returncode == 1


# The machine.


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_names_the_release(tmp_path: Path, version: str) -> None:
    made = install(tmp_path, version, packages={"nvidia-modelopt": "0.37.0"})
    found = {d.metadata["Name"]: d.version for d in map(PathDistribution, made.site.glob("*.dist-info"))}
    assert found["tensorrt_llm"] == version
    assert found["nvidia-modelopt"] == "0.37.0"
    assert found["tensorrt"].startswith(
        {"0.17": "10.8", "0.18": "10.9", "0.19": "10.9", "0.20": "10.10", "0.21": "10.11", "1.0.": "10.11",
         "1.1.": "10.13.3.9", "1.2.": "10.14.1.48"}[version[:4]]
    )  # fmt: skip


def test_nvidia_smi(tmp_path: Path) -> None:
    smi = str(install(tmp_path, "1.2.1").bin / "nvidia-smi")
    query = [smi, "--query-gpu=index,name,compute_cap,memory.total", "--format=csv,noheader,nounits"]

    def ask(words: list[str], **environment: str) -> tuple[int, list[str]]:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    assert ask(query, STANDIN_GPUS="2", STANDIN_SM="89", STANDIN_GPU="NVIDIA L40S") == (
        0, ["0, NVIDIA L40S, 8.9, 81559", "1, NVIDIA L40S, 8.9, 81559"],
    )  # fmt: skip
    assert ask(query, STANDIN_GPUS="0") == (6, ["No devices were found"])
    assert ask([smi, "--query-gpu=sm", "--format=csv"])[0] == 2
    assert ask(query, STANDIN_SMI="broken")[0] == 9

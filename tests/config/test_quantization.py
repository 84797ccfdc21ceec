"""The quantization block of a model: what goes together."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtspec.config import load_config
from trtspec.config.quantization import Quantization
from trtspec.errors import ConfigError

PAIR = "name: x\npair:\n  target: {path: a}\n  draft: {path: b}\n"


def configured(tmp_path: Path, *overrides: str) -> Quantization:
    (tmp_path / "pair.yaml").write_text(PAIR)
    return load_config(tmp_path / "pair.yaml", overrides, environ={}).pair.target.quantization


def block(text: str) -> str:
    return f"pair.target.quantization={{{text}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weights: fp4", "pair.target.quantization.weights"),
        ("weights: fp8, group_size: 64", "group_size belongs to int4_rtn, int4_awq, w4a8_awq"),
        ("weights: int4_awq, group_size: 32", "no kernel"),
        ("weights: w4a8_awq, group_size: 64", "w4a8_awq with group_size 128 only"),
        ("weights: fp8, kv_cache: int8", "int8 KV cache does not go with fp8"),
        ("weights: int4_awq, method: layerwise", "searched by modelopt"),
        ("weights: fp8, calibration: {samples: 0}", "samples"),
        ("weights: fp8, calibration: {prompt: p}", "did you mean 'prompts'"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, block(text))


@pytest.mark.parametrize("text", ["weights: int4_rtn, group_size: 64", "weights: int8_wo, kv_cache: int8",
                                  "weights: nvfp4, method: layerwise", "kv_cache: fp8, method: layerwise"])  # fmt: skip
def test_what_does(tmp_path: Path, text: str) -> None:
    assert not configured(tmp_path, block(text)).plain


@pytest.mark.parametrize(
    ("text", "calibrates"),
    [("weights: none", False), ("weights: fp8_pc_pt", False), ("weights: fp8", True), ("kv_cache: fp8", True)],
)
def test_who_needs_calibration(tmp_path: Path, text: str, calibrates: bool) -> None:
    assert configured(tmp_path, block(text)).calibrates is calibrates


def test_paths_are_against_the_file(tmp_path: Path) -> None:
    found = configured(tmp_path, block("weights: fp8, calibration: {prompts: data/p.jsonl}"))
    assert found.calibration.prompts == tmp_path / "data" / "p.jsonl"
    tools = load_config(tmp_path / "pair.yaml", ["tools.modelopt_python=venv/bin/python"], environ={}).tools
    assert tools.modelopt_python == tmp_path / "venv" / "bin" / "python"


def test_nothing_is_quantized_by_default(tmp_path: Path) -> None:
    found = configured(tmp_path)
    assert found.plain
    assert found.calibration.prompts is None

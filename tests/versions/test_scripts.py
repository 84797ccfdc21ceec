"""Where converters and quantizer are, by version and family."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtspec.versions import version
from trtspec.versions.scripts import found


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("0.17.0", ["llama"]),
        ("0.18.2", ["llama"]),
        ("0.19.0", ["llama", "models/core/llama"]),
        ("0.20.0", ["models/core/llama"]),
        ("1.2.1", ["models/core/llama"]),
    ],
)
def test_the_converter_moved(tmp_path: Path, name: str, places: list[str]) -> None:
    for place in ("llama", "models/core/llama"):
        make(tmp_path / place / "convert_checkpoint.py")
    here = list(found(version(name).scripts, "convert", "llama", tmp_path))
    assert here == [tmp_path / place / "convert_checkpoint.py" for place in places]


def test_families_share_converters_and_the_quantizer_has_no_family(tmp_path: Path) -> None:
    scripts = version("1.2.1").scripts
    script = make(tmp_path / "models/core/llama/convert_checkpoint.py")
    assert [*found(scripts, "convert", "mistral", tmp_path)] == [script]
    assert [*found(scripts, "convert", "mixtral", tmp_path)] == [script]
    assert [*found(scripts, "convert", "qwen", tmp_path)] == []
    assert [*found(scripts, "quantize", "qwen", tmp_path)] == []
    quantizer = make(tmp_path / "quantization/quantize.py")
    assert [*found(scripts, "quantize", "qwen", tmp_path)] == [quantizer]


def test_versions_without_engines_have_none() -> None:
    assert version("1.3.0rc21").scripts == ()

"""An engine that was built for another machine is recognised by its manifest, with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.tensorrt.pairs import environment, pair
from trtspec.backends.tensorrt.fits import built_for, misfit, require_fit, same_tensorrt
from trtspec.errors import MissingError
from trtspec.store import MANIFEST

FACTS = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48", "sm": 90}


def published(folder: Path, **facts: Any) -> None:
    folder.mkdir(parents=True)
    inputs = {"engine settings": {"machine": FACTS | facts}}
    (folder / MANIFEST).write_text(json.dumps({"files": {}, "inputs": inputs}))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, None),
        ({"sm": 80}, "built for SM 80, the GPUs here are SM 90"),
        ({"tensorrt": "10.13.3.9"}, "built with TensorRT 10.13.3.9, here is 10.14.1.48"),
        ({"tensorrt_llm": "1.1.0"}, "built with TensorRT-LLM 1.1.0, here is 1.2.1"),
        ({"tensorrt": "10.14", "tensorrt_llm": "1.2.1.post1"}, None),
        ({"sm": None, "tensorrt": None, "tensorrt_llm": None}, None),
    ],
)
def test_why_an_engine_does_not_fit(facts: dict[str, Any], message: str | None) -> None:
    found = misfit(FACTS | facts, environment())
    assert found is None if message is None else message in str(found)


def test_both_engines_are_looked_at(tmp_path: Path) -> None:
    config = pair(tmp_path)
    published(config.engine_dir("target"))
    published(config.engine_dir("draft"), sm=89)
    with pytest.raises(MissingError, match="the draft's engine does not fit this machine") as caught:
        require_fit(config, environment())
    assert "trtspec build" in str(caught.value.fix)
    assert built_for(config.engine_dir("draft"))["sm"] == 89


def test_engines_need_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="need an NVIDIA GPU"):
        require_fit(pair(tmp_path), environment(gpus=0))


def test_a_folder_without_a_manifest_says_nothing(tmp_path: Path) -> None:
    require_fit(pair(tmp_path), environment())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("10.14", "10.14.1.48", True), ("10.14.1.48", "10.14.1.48+cuda13", True), ("10.14.1", "10.14.0", False),
     ("10.1", "10.14", False)],
)  # fmt: skip
def test_versions_of_tensorrt(one: str, other: str, same: bool) -> None:
    assert same_tensorrt(one, other) == same_tensorrt(other, one) == same

"""Configured, installed, default: which holds, and which clashes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.errors import ConfigError, MissingError
from trtspec.versions import NAMES, Backend, choose

GPU_BACKENDS: tuple[Backend, ...] = ("tensorrt", "pytorch")


@pytest.mark.parametrize(
    ("configured", "installed", "backend", "chosen", "why"),
    [
        (None, None, "tensorrt", "1.2.1", "default"),
        (None, None, "pytorch", "1.2.1", "default"),
        ("0.18.2", None, "tensorrt", "0.18.2", "configured"),
        (None, "1.1.0", "tensorrt", "1.1.0", "installed"),
        (None, "1.3.0rc22", "pytorch", "1.3.0rc22", "installed"),
        ("1.2.1", "1.2.1+cu130", "tensorrt", "1.2.1", "configured"),
        ("0.17.0", "0.17.0.post1", "tensorrt", "0.17.0.post1", "configured"),
    ],
)
def test_who_decides(configured: str | None, installed: str | None, backend: Backend, chosen: str, why: str) -> None:
    found = choose(configured, installed, backend)
    assert (str(found.version), found.why) == (chosen, why)


def test_the_reference_backend_asks_for_no_version() -> None:
    assert choose("0.1.0", "junk", "reference").why == "default"


@given(st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_two_different_releases_clash(configured: str, installed: str) -> None:
    if configured == installed:
        assert choose(configured, installed, "tensorrt").why == "configured"
        return
    with pytest.raises(MissingError, match="the installed TensorRT-LLM is not the configured one") as error:
        choose(configured, installed, "tensorrt")
    assert f"set engine.tensorrt_llm_version to {installed}" in str(error.value.fix)
    assert "container" in str(error.value.fix)


@pytest.mark.parametrize(
    ("installed", "backend", "said"),
    [
        ("1.3.0rc22", "tensorrt", r"does not fit engine\.backend tensorrt.*26\.04 - 26\.07.*backend to pytorch"),
        ("0.16.0", "tensorrt", r"0\.16\.0 is too old.*0\.16\.0 installed.*upgrade"),
        ("0.21.0", "pytorch", r"no stable draft-target.*or set engine\.backend to tensorrt"),
        ("unknown", "tensorrt", "not a TensorRT-LLM version"),
    ],
)
def test_an_installation_that_cannot_serve_the_backend(installed: str, backend: Backend, said: str) -> None:
    with pytest.raises(MissingError, match=said):
        choose(None, installed, backend)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_a_configured_version_that_cannot_is_bad_configuration(backend: Backend) -> None:
    text = "1.3.0rc22" if backend == "tensorrt" else "0.20.0"
    for installed in (None, "1.2.1"):
        with pytest.raises(ConfigError, match=r"^engine\.tensorrt_llm_version: "):
            choose(text, installed, backend)

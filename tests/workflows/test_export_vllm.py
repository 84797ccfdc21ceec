"""vLLM's words for a pair, by version; what vLLM cannot do is refused."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.conftest import PROJECT
from tests.pairing import planning
from trtspec.config import load_config
from trtspec.errors import ConfigError
from trtspec.workflows.export_vllm import export_vllm

LLAMA = load_config(PROJECT / "configs" / "llama70b.yaml", environ={})


def test_golden() -> None:
    found = export_vllm(LLAMA)
    assert found.speculative_config == {
        "model": "meta-llama/Llama-3.2-1B-Instruct",
        "num_speculative_tokens": 5,
        "method": "draft_model",
        "draft_tensor_parallel_size": 1,
        "max_model_len": 10240,
        "quantization": "fp8",
    }
    words = found.command
    assert words[:3] == ("vllm", "serve", "meta-llama/Llama-3.3-70B-Instruct")
    assert words[words.index("--tensor-parallel-size") + 1] == "8"
    assert words[words.index("--kv-cache-dtype") + 1] == "fp8"
    assert json.loads(words[words.index("--speculative-config") + 1]) == found.speculative_config


def test_the_script_is_the_command() -> None:
    found = export_vllm(LLAMA)
    line = found.text().splitlines()[-1]
    assert shlex.split(line) == ["exec", *found.command]
    assert "was not run" in found.text()


def test_older_versions_have_no_method() -> None:
    assert "method" not in export_vllm(LLAMA, "0.9.1").speculative_config


@pytest.mark.parametrize(
    ("text", "says"), [("0.7.0", "no speculative_config"), ("0.11.0", "may refuse draft models"), ("new", "not a vLLM")]
)
def test_versions_that_cannot_or_may_not(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        export_vllm(LLAMA, text)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"draft": {"parallelism": {"tensor": 2}}}, "pair.draft.parallelism.tensor"),
        ({"target": {"parallelism": {"tensor": 4, "pipeline": 2}}}, "pair.target.parallelism.pipeline"),
        ({"target": {"quantization": {"weights": "int4_awq"}}}, "pair.target.quantization"),
        ({"speculation": {"acceptance": "logits", "acceptance_threshold": 0.4}}, "speculation.acceptance_threshold"),
    ],
)
def test_what_vllm_cannot_do(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        export_vllm(planning.config(**changes))
    assert caught.value.where == where


def test_revisions_are_pinned_for_both() -> None:
    commit = "a" * 40
    found = export_vllm(planning.config({"revision": commit}, {"revision": commit}))
    assert found.speculative_config["revision"] == commit
    assert found.command[found.command.index("--revision") + 1] == commit

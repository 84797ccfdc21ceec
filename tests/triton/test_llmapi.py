"""The repository of the LLM API: what is written, that both ways to serve agree, and what lint finds."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.triton.llmapirepo import FOLDERS, config, written
from trtspec.triton import pbtxt
from trtspec.triton.lint import lint
from trtspec.triton.llmapi import key_facts, plan_llmapi, readme, serve_command

UPSTREAM_INPUTS = ["text_input", "streaming", *(f"sampling_param_{n}" for n in (
    "best_of", "temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "stop", "seed",
    "exclude_input_from_output", "return_perf_metrics")),
    "return_finish_reason", "return_stop_reason", "return_cumulative_logprob", "stop"]  # fmt: skip
UPSTREAM_OUTPUTS = {
    "text_output": "STRING", "finish_reason": "STRING", "stop_reason": "STRING", "cumulative_logprob": "FP32",
    "kv_cache_hit_rate": "FP32", "acceptance_rate": "FP32", "total_accepted_draft_tokens": "INT32",
    "total_draft_tokens": "INT32", "arrival_time_ns": "INT64",
}  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return written(tmp_path)


def model_yaml(repository: Path) -> Path:
    return repository / "tensorrt_llm" / "1" / "model.yaml"


def test_a_written_repository_is_sound(repository: Path) -> None:
    assert lint(repository) == ()
    assert [p.name for p in repository.iterdir() if p.is_dir()] == ["tensorrt_llm"]  # every folder is a model to Triton


def test_config_is_complete_and_has_upstreams_tensors(repository: Path) -> None:
    from tritonclient.grpc.model_config_pb2 import DataType

    found = pbtxt.read(repository / "tensorrt_llm" / "config.pbtxt")
    assert found.model_transaction_policy.decoupled
    assert (found.backend, found.max_batch_size) == ("python", 0)
    assert [tensor.name for tensor in found.input][: len(UPSTREAM_INPUTS)] == UPSTREAM_INPUTS
    assert [tensor.name for tensor in found.input if not tensor.optional] == ["text_input"]
    types = {tensor.name: DataType.Name(tensor.data_type).removeprefix("TYPE_") for tensor in found.output}
    assert {name: types[name] for name in UPSTREAM_OUTPUTS} == UPSTREAM_OUTPUTS
    assert found.output[0].name == "text_output"


def test_both_ways_to_serve_have_the_same_options(repository: Path) -> None:
    triton = yaml.safe_load(model_yaml(repository).read_text())
    served = yaml.safe_load((repository / "llm_options.yaml").read_text())
    assert triton.pop("triton_config")["decoupled"] is True
    assert {k: v for k, v in triton.items() if k not in ("model", "backend")} == served


def test_the_serve_command_says_what_the_file_says(tmp_path: Path) -> None:
    plan = plan_llmapi(config(tmp_path, tensorrt_llm_version="1.2.1"), FOLDERS)
    words = serve_command(plan)
    assert words[:4] == ("trtllm-serve", str(FOLDERS["target"]), "--backend", "pytorch")
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    assert flags["--max_seq_len"] == "1024"
    assert flags["--extra_llm_api_options"] == str(plan.final_dir / "llm_options.yaml")
    shown = readme(plan).replace("\\\n", " ")
    assert list(words) in [shlex.split(line) for line in shown.splitlines() if line.startswith("trtllm-serve")]


@pytest.mark.parametrize("text", ["1.0.0", "1.2.1", "1.4.0rc4"])
def test_every_version_is_sound_in_its_own_spelling(tmp_path: Path, text: str) -> None:
    assert lint(written(tmp_path, tensorrt_llm_version=text)) == ()


def test_key_changes_with_options_and_version(tmp_path: Path) -> None:
    def key(**engine: Any) -> object:
        return key_facts(plan_llmapi(config(tmp_path, **engine), FOLDERS))

    assert key() == key()
    assert key() != key(max_batch_size=2)
    assert key() != key(tensorrt_llm_version="1.0.0")


def change(repository: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit both option files alike, as someone who means it."""
    for path in (model_yaml(repository), repository / "llm_options.yaml"):
        document = yaml.safe_load(path.read_text())
        edit(document)
        path.write_text(yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda o: o.pop("speculative_config"), "nothing would be drafted"),
        (lambda o: o["speculative_config"].update(decoding_type="Draft_Target"), "says DraftTarget"),
        (lambda o: o["speculative_config"].update(speculative_model="/nowhere"), "no model folder"),
        (lambda o: o["speculative_config"].pop("speculative_model"), "calls it speculative_model"),
        (lambda o: o["speculative_config"].update(max_draft_len=0), "max_draft_len is 0"),
        (lambda o: o["speculative_config"].update(acceptance_rate_threshold=0.3), "takes no such field"),
        (lambda o: o["kv_cache_config"].update(free_gpu_memory_fraction=0), "leaves no room"),
    ],
)
def test_options_that_would_not_start_or_not_speculate(
    repository: Path, edit: Callable[[dict[str, Any]], Any], says: str
) -> None:
    change(repository, edit)
    assert says in " ".join(map(str, lint(repository)))


def test_lint_finds_files_that_disagree_or_are_broken(repository: Path) -> None:
    path = repository / "llm_options.yaml"
    path.write_text(path.read_text().replace("max_batch_size: 8", "max_batch_size: 9"))
    assert "disagree on max_batch_size" in str(lint(repository)[0])
    path.write_text("{")
    assert "cannot read" in str(lint(repository)[0])
    model_yaml(repository).write_text("- 1")
    assert "not a mapping" in str(lint(repository)[0])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("decoupled: true", "decoupled: false", "neither stream nor be stopped"),
        ('name: "tensorrt_llm"', 'name: "other"', "expects the folder's name"),
        ('backend: "python"', 'backend: "pytorch"', "not python"),
        ('name: "streaming"', 'name: "stream"', "has no input streaming"),
        ('name: "text_output"', 'name: "text"', "first output is not text_output"),
    ],
)
def test_lint_finds_a_changed_config(repository: Path, old: str, new: str, says: str) -> None:
    path = repository / "tensorrt_llm" / "config.pbtxt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert says in " ".join(map(str, lint(repository)))


def test_lint_finds_what_is_absent(repository: Path) -> None:
    (repository / "tensorrt_llm" / "1" / "asking.py").unlink()
    assert "there is no 1/asking.py" in str(lint(repository)[0])
    (repository / "tensorrt_llm" / "config.pbtxt").unlink()
    assert "cannot read" in str(lint(repository)[0])

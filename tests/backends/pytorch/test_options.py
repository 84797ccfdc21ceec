"""The arguments of LLM(): golden, from the memory plan, and what no machine could serve."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.pairing import planning
from tests.triton.llmapirepo import FOLDERS
from trtspec.backends.pytorch import options
from trtspec.backends.pytorch.memory import DEFAULT, as_served, free_fraction, plan
from trtspec.config import RunConfig
from trtspec.errors import ConfigError, MissingError

LLAMA: dict[Any, Any] = {"target": planning.facts(planning.LLAMA_70B), "draft": planning.facts(planning.LLAMA_1B)}


def config(**changes: Any) -> RunConfig:
    """The shipped pair on the LLM API of 1.2.1; dicts replace keys of their block."""
    document: dict[str, Any] = {
        "name": "t",
        "pair": {role: {"path": FOLDERS[role]} | changes.pop(role, {}) for role in ("target", "draft")},
        "engine": {"backend": "pytorch", "tensorrt_llm_version": "1.2.1"} | changes.pop("engine", {}),
    }
    return RunConfig.model_validate(document | changes)


def test_golden_options() -> None:
    found = options.llm_options(config(target={"parallelism": {"tensor": 4}}, speculation={"draft_len": 3}), FOLDERS)
    assert found == {
        "model": str(FOLDERS["target"]),
        "backend": "pytorch",
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 1,
        "dtype": "auto",
        "max_batch_size": 8,
        "max_seq_len": 1024,
        "max_num_tokens": 8192,
        "enable_chunked_prefill": False,
        "disable_overlap_scheduler": True,
        "kv_cache_config": {"enable_block_reuse": True, "free_gpu_memory_fraction": 0.9},
        "speculative_config": {
            "decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model": str(FOLDERS["draft"])
        },
    }  # fmt: skip
    assert list(found)[:2] == ["model", "backend"]


def test_further_options_are_passed_on_and_join_the_cache() -> None:
    given = {"attn_backend": "FLASHINFER", "kv_cache_config": {"max_tokens": 4096}}
    found = options.llm_options(config(engine={"pytorch": {"options": given}}), FOLDERS)
    assert found["attn_backend"] == "FLASHINFER"
    assert found["kv_cache_config"]["max_tokens"] == 4096
    assert found["kv_cache_config"]["enable_block_reuse"] is True
    with pytest.raises(ConfigError, match="block of keys"):
        options.llm_options(config(engine={"pytorch": {"options": {"kv_cache_config": 1}}}), FOLDERS)


def test_one_step_holds_a_prompt_and_a_round() -> None:
    def tokens(**engine: Any) -> int:
        return options.num_tokens(config(engine=engine, speculation={"draft_len": 4, "max_draft_len": 8}))

    assert tokens() == 8192
    assert tokens(max_input_len=20_000, max_seq_len=21_000) == 20_000
    assert tokens(max_batch_size=2000) == 10_000
    assert tokens(max_input_len=20_000, max_seq_len=21_000, pytorch={"chunked_prefill": True}) == 8192
    assert tokens(max_num_tokens=600) == 600
    with pytest.raises(ConfigError, match="whole prompt") as caught:
        tokens(max_num_tokens=511)
    assert caught.value.expected == "at least 512"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"target": {"parallelism": {"tensor": 2}}, "draft": {"parallelism": {"tensor": 1}}}, "pair.draft.parallelism"),
        ({"hardware": {"placement": "separate"}}, "hardware.placement"),
        ({"speculation": {"acceptance": "logits"}}, "speculation.acceptance"),
        ({"target": {"quantization": {"weights": "int8_sq"}}}, "pair.target.quantization"),
        ({"draft": {"quantization": {"weights": "int4_rtn"}}}, "pair.draft.quantization"),
        ({"draft": {"quantization": {"kv_cache": "int8"}}}, "pair.draft.quantization"),
        ({"engine": {"tensorrt_llm_version": "0.21.0"}}, "engine.tensorrt_llm_version"),
        ({"engine": {"pytorch": {"draft_len_schedule": {1: 2}}}}, "engine.pytorch.draft_len_schedule"),
    ],
)
def test_what_no_machine_could_serve(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options.require_possible(config(**changes))
    assert caught.value.where == where


def test_an_unset_draft_split_is_the_targets() -> None:
    options.require_possible(config(target={"parallelism": {"tensor": 8}}))
    options.require_possible(config(target={"parallelism": {"tensor": 8}}, draft={"parallelism": {"tensor": 8}}))


def test_configured_version_wins_over_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "installed", lambda: "1.4.0rc4")
    assert str(options.version_of(config())) == "1.2.1"
    assert str(options.version_of(config(engine={"tensorrt_llm_version": None}))) == "1.4.0rc4"
    monkeypatch.setattr(options, "installed", lambda: "0.20.0")
    with pytest.raises(MissingError, match="does not fit"):
        options.version_of(config(engine={"tensorrt_llm_version": None}))


def test_fraction_leaves_the_reserve_of_the_memory_plan() -> None:
    wanted = planning.config(engine={"backend": "pytorch"})
    assert as_served(wanted).pair.draft.parallelism.tensor == 8
    found = plan(LLAMA, wanted)
    assert found is not None
    assert len(found.gpus) == 8
    assert all(set(gpu.uses) == {"target", "draft"} for gpu in found.gpus)
    fraction = free_fraction(LLAMA, wanted)
    left = min(found.memory - sum(u.fixed for u in gpu.uses.values()) for gpu in found.gpus)
    assert 0.5 < fraction < 1
    assert left * (1 - fraction) >= found.memory * 0.02


def test_unknown_gpu_and_no_room_leave_tensorrt_llms_default() -> None:
    assert free_fraction(LLAMA, planning.config(engine={"backend": "pytorch"}, hardware={"gpu": "cpu"})) == DEFAULT
    small = planning.config(
        {"parallelism": {"tensor": 1}}, engine={"backend": "pytorch"}, hardware={"gpu": "l4", "count": 1}
    )
    assert free_fraction(LLAMA, small) == DEFAULT


def test_builder_writes_what_will_be_read(tmp_path: Path) -> None:
    from trtspec.backends.pytorch import PyTorchBuilder
    from trtspec.errors import ModelFileError

    model = tmp_path / "model"
    shutil.copytree(FOLDERS["draft"], model)
    quantization = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    (model / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    out = tmp_path / "out"
    out.mkdir()
    PyTorchBuilder().build(config(), "draft", model, out)
    found = json.loads((out / "model.json").read_text())
    assert found["model"] == str(model)
    assert found["quantization"] == quantization
    assert found["bytes"] == (model / "model.safetensors").stat().st_size
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelFileError):
        PyTorchBuilder().build(config(), "draft", model, out)


def test_serving_says_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from trtspec.backends.pytorch import builder

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingError) as caught:
        builder.require_runtime(config())
    assert caught.value.found == "no tensorrt_llm package, no NVIDIA driver (nvidia-smi)"
    assert "tritonserver:26.04-trtllm-python-py3" in str(caught.value.fix)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(builder, "installed", lambda: "1.0.0")
    with pytest.raises(MissingError, match="not the configured one"):
        builder.require_runtime(config())
    monkeypatch.setattr(builder, "installed", lambda: "1.2.1.post1")
    builder.require_runtime(config())

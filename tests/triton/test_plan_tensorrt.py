"""A repository's plan for TensorRT engines: memory, GPUs, windows, version and logits, from configuration and facts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.known import known
from trtspec.config import Role, RunConfig, load_config
from trtspec.errors import ConfigError
from trtspec.pairing.model import Model
from trtspec.pairing.placement import plan_memory
from trtspec.triton.check import check_serving
from trtspec.triton.plan import logits_of, plan_for, plan_tensorrt
from trtspec.versions import version

CONFIGS = Path(__file__).parents[2] / "configs"


def facts(hub: str) -> ModelFacts:
    found = known(hub)
    assert found is not None
    return found.facts


LLAMA: dict[Role, ModelFacts] = {
    "target": facts("meta-llama/Llama-3.3-70B-Instruct"),
    "draft": facts("meta-llama/Llama-3.2-1B-Instruct"),
}


def config(tmp_path: Path, *changes: str) -> RunConfig:
    """configs/llama70b.yaml with results below `tmp_path`."""
    places = [f"output.{name}={tmp_path / name}" for name in ("engines", "model_repo", "reports")]
    return load_config(CONFIGS / "llama70b.yaml", [*places, *changes], environ={})


def planned(
    tmp_path: Path, *changes: str, models: dict[Role, ModelFacts] = LLAMA, name: str = "1.2.1"
) -> dict[str, Any]:
    return plan_tensorrt(config(tmp_path, *changes), models, version(name))


def test_caches_are_those_of_the_memory_plan(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    memory = plan_memory(LLAMA, config(tmp_path))
    assert memory is not None
    for role in ("target", "draft"):
        given = plan["parameters"][role]
        fraction, tokens = memory.settings[role]  # type: ignore[index]
        assert float(given["kv_cache_free_gpu_mem_fraction"]) == pytest.approx(fraction, abs=1e-6)
        assert given["max_tokens_in_paged_kv_cache"] == str(tokens)
    assert plan["parameters"]["target"]["gpu_device_ids"] == "0,1,2,3,4,5,6,7"
    assert plan["parameters"]["draft"]["gpu_device_ids"] == "0"
    assert plan["memory"]["placement"] == "shared"


def test_without_a_gpu_the_caches_are_not_planned_and_it_is_said(tmp_path: Path) -> None:
    plan = planned(tmp_path, "hardware.gpu=cpu")
    assert "hardware.gpu names no GPU" in plan["memory"]["note"]
    for role in ("target", "draft"):
        assert plan["parameters"][role]["kv_cache_free_gpu_mem_fraction"] == "0.45"
        assert "max_tokens_in_paged_kv_cache" not in plan["parameters"][role]
    apart = planned(tmp_path, "hardware.gpu=cpu", "hardware.placement=separate")
    assert apart["parameters"]["draft"]["gpu_device_ids"] == "8"
    assert apart["parameters"]["draft"]["kv_cache_free_gpu_mem_fraction"] == "0.9"


def test_a_pair_that_does_not_fit_is_no_repository(tmp_path: Path) -> None:
    small = ("hardware.gpu=l4", "hardware.count=8", "pair.target.quantization={weights: none}")
    with pytest.raises(ConfigError, match="does not fit"):
        planned(tmp_path, *small)
    own = "={kv_cache_free_gpu_mem_fraction: 0.4, max_tokens_in_paged_kv_cache: 2048}"
    plan = planned(tmp_path, *small, f"serving.target_parameters{own}", f"serving.draft_parameters{own}")
    assert plan["parameters"]["target"]["max_tokens_in_paged_kv_cache"] == "2048"


def test_fast_logits_and_separate_gpus(tmp_path: Path) -> None:
    plan = planned(
        tmp_path, "speculation.acceptance=logits", "speculation.fast_logits=true", "hardware.placement=separate",
        "pair.target.parallelism.tensor=4",
    )  # fmt: skip
    target, draft = plan["parameters"]["target"], plan["parameters"]["draft"]
    assert (target["participant_ids"], draft["participant_ids"]) == ("2,3,4,5", "1")
    assert (target["gpu_device_ids"], draft["gpu_device_ids"]) == ("0,1,2,3", "4")
    assert {given["speculative_decoding_fast_logits"] for given in (target, draft)} == {"true"}
    assert plan["devices"].world_size == 6


def test_windows_are_the_models(tmp_path: Path) -> None:
    draft = replace(LLAMA["draft"], layer_windows=(512, None) * 8)
    plan = planned(tmp_path, models={**LLAMA, "draft": draft})
    assert plan["parameters"]["draft"]["max_attention_window_size"] == "512,10240"
    assert "max_attention_window_size" not in plan["parameters"]["target"]


def test_a_parameter_that_the_version_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"TensorRT-LLM 0\.18\.2 has no parameter lora_prefetch_dir"):
        planned(tmp_path, "serving.draft_parameters.lora_prefetch_dir=/l", name="0.18.2")


@pytest.mark.parametrize(
    ("target", "draft", "found"),
    [(None, None, "FP32"), ("float16", None, "FP16"), ("float16", "float16", "FP16"), ("float32", "float32", "FP32")],
)
def test_logits_have_the_built_engines_type(tmp_path: Path, target: str | None, draft: str | None, found: str) -> None:
    given = config(tmp_path)
    recorded: dict[Role, str | None] = {"target": target, "draft": draft}
    for role, dtype in recorded.items():
        if dtype is not None:
            given.engine_dir(role).mkdir(parents=True)
            document = {"pretrained_config": {"logits_dtype": dtype}}
            (given.engine_dir(role) / "config.json").write_text(json.dumps(document))
    assert logits_of(given) == found


def test_engines_with_different_logits_are_no_pair(tmp_path: Path) -> None:
    given = config(tmp_path)
    recorded: dict[Role, str] = {"target": "float16", "draft": "float32"}
    for role, dtype in recorded.items():
        given.engine_dir(role).mkdir(parents=True)
        (given.engine_dir(role) / "config.json").write_text(json.dumps({"pretrained_config": {"logits_dtype": dtype}}))
    with pytest.raises(ConfigError, match="no type that a repository can declare"):
        logits_of(given)


def test_the_drafts_folder_is_needed(tmp_path: Path, tiny_config: Path) -> None:
    given = load_config(tiny_config, ["engine.backend=tensorrt"])
    assert given.pair.target.path is not None
    with pytest.raises(TypeError):
        plan_for(given, given.pair.target.path)


def findings(given: RunConfig, models: dict[Role, ModelFacts]) -> dict[str, Any]:
    """Findings by code."""
    read = {role: replace(Model.read(role, Path("/nowhere"), given), facts=models[role]) for role in models}
    return {found.code: found for found in check_serving(read["target"], read["draft"], given)}


def test_check_says_where_everything_goes(tmp_path: Path) -> None:
    found = findings(config(tmp_path), LLAMA)
    assert list(found) == ["serving.placement"]
    assert found["serving.placement"].data["gpus"] == {"draft": [0], "target": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert findings(config(tmp_path, "engine.backend=reference"), LLAMA) == {}


def test_check_refuses_what_the_repository_would(tmp_path: Path) -> None:
    found = findings(config(tmp_path, "serving.mode=leader"), LLAMA)["serving.refused"]
    assert (found.severity, found.message.split(":")[0]) == ("error", "serving.mode")
    # That there are too few GPUs, or too little memory, is said by other checks.
    assert "serving.refused" not in findings(config(tmp_path, "hardware.count=4"), LLAMA)


def test_check_warns_of_windows(tmp_path: Path) -> None:
    draft = replace(LLAMA["draft"], layer_windows=(512, None) * 8)
    found = findings(config(tmp_path), {**LLAMA, "draft": draft})["serving.windows"]
    assert (found.severity, found.subject) == ("warning", "draft")
    assert "reuses no block" in found.message
    short = config(tmp_path, "engine.max_input_len=256", "engine.max_seq_len=512")
    assert "serving.windows" not in findings(short, {**LLAMA, "draft": draft})

"""trtspec builds against the stand-ins: every shipped configuration for every release, and nothing that cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Converted, Machine, linked
from tests.contract.made import EVERY
from tests.contract.standins.build import recorded
from tests.contract.standins.install import Installed
from tests.contract.standins.versions import VERSIONS
from tests.contract.synthetic import PAIRS, config_of
from tests.workflows.pair import outputs, own_pair
from trtspec.cli._main import run
from trtspec.config import RunConfig
from trtspec.workflows.build import build

pytestmark = pytest.mark.torch
GPU = ("engine.backend=tensorrt", "hardware.gpu=h100-80gb", "hardware.count=8")


def tool(made: Installed) -> tuple[str, ...]:
    """Overrides that name the stand-in and its release."""
    return f"engine.tools.trtllm_build={made.bin / 'trtllm-build'}", f"engine.tensorrt_llm_version={made.version}"


def check_pair(config: RunConfig, version: str) -> None:
    """Both engine folders record what the configuration asks for."""
    draft_len = config.speculation.max_draft_len
    for role, mode, longer in (("target", 2, draft_len), ("draft", 1, 0)):
        document = recorded(config.output.engines / config.name / role / "engine")
        limits: dict[str, Any] = document["build_config"]
        assert document["version"] == version
        assert (limits["speculative_decoding_mode"], limits["max_draft_len"]) == (mode, longer)
        assert limits["max_seq_len"] == config.engine.max_seq_len + longer
        assert limits["max_batch_size"] == config.engine.max_batch_size
        assert limits["plugin_config"]["use_paged_context_fmha"] is True
        assert limits["kv_cache_type"].lower() == "paged"
        fp8 = config.pair.target.quantization.kv_cache == "fp8"
        assert limits["plugin_config"]["use_fp8_context_fmha"] is fp8


@pytest.mark.parametrize(("version", "generation"), EVERY)
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_shipped_configurations_build(
    name: str, version: str, generation: str, converted: Converted, machine: Machine, tmp_path: Path
) -> None:
    folder = converted(name)
    linked(folder, tmp_path)
    made = machine(version, STANDIN_GENERATION=generation)
    config = config_of(name, folder, tmp_path, *tool(made))
    build(config, until="engine", check=False)
    assert len(made.built()) == 2
    check_pair(config, version)
    assert not list(tmp_path.rglob("model.cache"))  # kept where the next build finds it, nowhere else
    if version == VERSIONS[-1]:
        assert build(config, until="engine", check=False).did_nothing


@pytest.mark.parametrize("acceptance", ["tokens", "logits"])
def test_tiny_pair_builds(acceptance: str, machine: Machine, tmp_path: Path) -> None:
    made = machine("1.2.1")
    config = own_pair(tmp_path, *GPU, *tool(made), f"speculation.acceptance={acceptance}")
    build(config, until="engine", check=False)
    check_pair(config, "1.2.1")
    found = [recorded(config.engine_dir(role)) for role in ("target", "draft")]
    assert len({document["pretrained_config"]["logits_dtype"] for document in found}) == 1
    if acceptance == "logits":
        assert all(document["build_config"]["gather_generation_logits"] for document in found)


TARGET = "pair.target.quantization={{weights: {}, kv_cache: {}}}"
FLAGS = "engine.tensorrt.flags={{{}}}"
NEWER = "engine.tensorrt_llm_version={}"
WRONG: dict[str, tuple[int, str, list[str]]] = {
    "int8 cache": (2, "INT8 KV cache", [TARGET.format("none", "int8")]),
    "fp8 cache, plain weights": (2, "FP8 KV cache", [TARGET.format("none", "fp8")]),
    "fp8 cache, row-wise weights": (2, "FP8 KV cache", [TARGET.format("fp8_pc_pt", "fp8")]),
    "int8 on Blackwell": (2, "SM 100", [TARGET.format("int8_wo", "auto"), "hardware.gpu=b200"]),
    "nvfp4 on Hopper": (1, "weights", [TARGET.format("nvfp4", "auto")]),
    "fp8 on Ampere": (1, "weights", [TARGET.format("fp8", "auto"), "hardware.gpu=a100-80gb"]),
    "unknown flag": (2, "use_embedding_sharing", [FLAGS.format("use_embedding_sharing: true")]),
    "flag of another release": (2, "auto_parallel", [FLAGS.format("auto_parallel: 2")]),
    "flag with a wrong value": (2, "gemm_plugin", [FLAGS.format("gemm_plugin: int8")]),
    "flag that ends reuse": (2, "streamingllm", [FLAGS.format("streamingllm: enable")]),
    "context logits": (2, "gather_context_logits", [FLAGS.format("gather_context_logits: true")]),
    "parallelism as a flag": (2, "tp_size", [FLAGS.format("tp_size: 2")]),
    "heads that cannot be split": (1, "tensor-parallel", ["pair.target.parallelism={tensor: 3}"]),
    "a release without engines": (2, "1.2.1", [NEWER.format("1.3.0")]),
    "another release than installed": (3, "1.1.0", [NEWER.format("1.1.0")]),
    "an unknown release": (2, "too old", [NEWER.format("0.16.0")]),
}
"""Exit code, what the message must name, overrides of the tiny pair. 1 is the pair's check, 2 the engine's plan: a
format that a GPU does not run is known to both, and either may come first."""


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_what_cannot_work_is_refused_before_anything_is_started(
    wrong: str, machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, changes = WRONG[wrong]
    sm = {"hardware.gpu=b200": "100", "hardware.gpu=a100-80gb": "80"}.get(changes[-1], "90")
    made = machine("1.2.1", STANDIN_SM=sm)
    own_pair(tmp_path)
    prompts = tmp_path / "tiny/prompts/type-stubs.jsonl"
    given = [*GPU, *tool(made), *changes, *outputs(tmp_path)]
    given += [f"pair.{role}.quantization.calibration.prompts={prompts}" for role in ("target", "draft")]
    ended = run(["build", str(tmp_path / "tiny.yaml"), *(word for each in given for word in ("--set", each))])
    assert ended == code or {ended, code} == {1, 2}
    assert text in capsys.readouterr().err
    assert made.built() == []
    assert not list(tmp_path.glob("engines/*/*/checkpoint")), "weights were converted first"


def test_gpus_found_count_more_than_those_configured(machine: Machine, tmp_path: Path) -> None:
    """FP8 planned for Hopper, on a machine with Ampere GPUs."""
    made = machine("1.2.1", STANDIN_SM="80", STANDIN_GPU="NVIDIA A100-SXM4-80GB")
    own_pair(tmp_path)
    given = [*GPU, *tool(made), TARGET.format("fp8_pc_pt", "auto"), *outputs(tmp_path)]
    words = [word for each in given for word in ("--set", each)]
    assert run(["build", str(tmp_path / "tiny.yaml"), *words]) in (1, 2, 3)
    assert made.built() == []


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_plan_needs_no_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    configs = Path(__file__).parents[2] / "configs"
    assert run(["plan", str(configs / f"{name}.yaml")]) in (0, 1)
    said = capsys.readouterr().out
    assert said.count("trtllm-build") >= 2
    assert "--speculative_decoding_mode draft_tokens_external" in said
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_an_engine_for_another_gpu_or_release_is_built_again(
    converted: Converted, machine: Machine, tmp_path: Path
) -> None:
    folder = converted("qwen2.5")
    linked(folder, tmp_path)
    for version, sm in (("1.2.1", "90"), ("1.2.0", "90"), ("1.2.0", "89")):
        made = machine(version, STANDIN_SM=sm, **({"STANDIN_GPU": "NVIDIA L40S"} if sm == "89" else {}))
        build(config_of("qwen2.5", folder, tmp_path, *tool(made)), until="engine", check=False)
        assert len(made.built()) == 2

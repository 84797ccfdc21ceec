"""The script that runs beside modelopt: recipes, spellings, and what it says before it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checkpoint.quantize import families
from tests.checkpoint.quantize.conftest import calibrate_here
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.quantize import worker
from trtspec.checkpoint.quantize.calibration import Calibration

JOB = {"format": "int4_awq", "kv_cache": "fp8", "group_size": 64}
BLOCK = {"num_bits": 4, "block_sizes": {-1: 128, "type": "static"}}


def modelopt(quant_cfg: Any) -> Any:
    return SimpleNamespace(INT4_AWQ_CFG={"quant_cfg": quant_cfg, "algorithm": "awq_lite"})


def test_a_recipe_from_a_list_of_entries() -> None:
    given = [{"quantizer_name": "*weight_quantizer", "cfg": BLOCK}]
    recipe = worker.recipe_for(modelopt(given), JOB)
    assert recipe["quant_cfg"] == [
        {"quantizer_name": "*weight_quantizer", "cfg": {"num_bits": 4, "block_sizes": {-1: 64, "type": "static"}}},
        {"quantizer_name": "*[kv]_bmm_quantizer", "cfg": {"num_bits": (4, 3), "axis": None}},
    ]
    assert given[0]["cfg"] is BLOCK
    assert BLOCK["block_sizes"] == {-1: 128, "type": "static"}


def test_a_recipe_from_a_mapping() -> None:
    """modelopt 0.43 and older."""
    recipe = worker.recipe_for(modelopt({"*weight_quantizer": BLOCK}), {**JOB, "kv_cache": "int8"})
    assert recipe["quant_cfg"]["*[kv]_bmm_quantizer"] == {"num_bits": 8, "axis": None, "enable": True}
    assert recipe["quant_cfg"]["*weight_quantizer"]["block_sizes"][-1] == 64


def test_a_cache_alone_quantizes_no_weights() -> None:
    recipe = worker.recipe_for(modelopt([]), {**JOB, "format": "none"})
    assert recipe["quant_cfg"][0] == {"quantizer_name": "*", "enable": False}
    assert recipe["quant_cfg"][1]["quantizer_name"] == "*[kv]_bmm_quantizer"


def test_experts_in_one_tensor_are_refused() -> None:
    class Fused:
        config = SimpleNamespace(num_local_experts=8)

        def named_modules(self) -> list[tuple[str, object]]:
            return [("model.layers.0.mlp.experts", self)]

    with pytest.raises(worker.Refused, match=r"one tensor.*4\.57"):
        worker.check_experts(Fused())


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
ROPES = {
    "plain": ("LlamaConfig", {"rope_theta": 500000.0, "rope_type": "default"}),
    "llama3": ("LlamaConfig", {"rope_theta": 500000.0, "rope_type": "llama3", **LLAMA3}),
    "partial": ("Phi3Config", {"rope_theta": 2e4, "rope_type": "default", "partial_rotary_factor": 0.5}),
}


@pytest.mark.torch
@pytest.mark.parametrize("case", ROPES)
def test_transformers_4_reads_what_5_wrote(tmp_path: Path, case: str) -> None:
    """As 5 writes it, 4.57 takes 10000 for the base and no scaling, in silence."""
    transformers = pytest.importorskip("transformers")
    kind, rope = ROPES[case]
    made = getattr(transformers, kind)(hidden_size=64, num_attention_heads=4, vocab_size=100, pad_token_id=0).to_dict()
    five = {k: v for k, v in made.items() if k not in ("rope_theta", "rope_scaling", "partial_rotary_factor")}
    five |= {"rope_parameters": rope, "architectures": [kind.replace("Config", "ForCausalLM")]}
    (tmp_path / "config.json").write_text(json.dumps(five))
    source = ModelFacts.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(worker.both_spellings(five)))
    read = transformers.AutoConfig.from_pretrained(tmp_path)
    assert read.rope_theta == rope["rope_theta"]
    assert (read.rope_scaling or {}).get("rope_type") == ("llama3" if case == "llama3" else None)
    assert getattr(read, "partial_rotary_factor", 1.0) == rope.get("partial_rotary_factor", 1.0)
    assert ModelFacts.read(tmp_path).rope == source.rope


@pytest.mark.torch
def test_gemma_3_has_two_bases(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }
    found = worker.both_spellings({"rope_parameters": rope})
    read = transformers.Gemma3TextConfig(**{k: v for k, v in found.items() if k != "rope_parameters"})
    assert (read.rope_theta, read.rope_local_base_freq) == (1e6, 2e4)
    assert read.rope_scaling["factor"] == 8.0


def test_the_older_spelling_is_left_alone() -> None:
    old = {"rope_theta": 5e5, "rope_scaling": None, "text_config": {"rope_theta": 1e4}}
    assert worker.both_spellings(old) == old


def test_versions_are_told_without_importing_anything() -> None:
    command = [sys.executable, "-X", "importtime", worker.__file__, "--versions"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found) == {"python", *worker.PACKAGES}
    assert " torch" not in done.stderr.replace("trtspec", "")


@pytest.mark.torch
def test_modelopt_shows_every_token_to_every_expert(tmp_path: Path) -> None:
    pytest.importorskip("modelopt.torch.quantization")
    model = families.write(tmp_path / "model", "mixtral", num_local_experts=8, num_experts_per_tok=1)
    calibrate_here(model, tmp_path, "fp8", prompts=[[5, 6]])
    found = Calibration.open(tmp_path)
    experts = [name for name in found.tensors if name.startswith("layers.0") and name.endswith("w1.input_amax")]
    assert len(experts) == 8

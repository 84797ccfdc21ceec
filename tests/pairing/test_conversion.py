"""What would stop the conversion is found by the check, with weights and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.models import CONFIG, random_tensors, save
from tests.pairing.pairs import check, codes, only, write_pair

ROOM = {"max_input_len": 32, "max_seq_len": 64}
SQUARE = {"rope_scaling": {"rope_type": "mystery", "factor": 2.0}}


def split(folder: Path, **sizes: int) -> dict[str, Any]:
    return {"target": {"path": folder / "target", "parallelism": sizes}, "draft": {"path": folder / "draft"}}


@pytest.mark.parametrize("weights", [True, False])
def test_a_config_that_the_family_cannot_express(tmp_path: Path, weights: bool) -> None:
    write_pair(tmp_path, draft=SQUARE)
    if not weights:
        (tmp_path / "draft" / "model.safetensors").unlink()
    verdict = check(tmp_path)
    finding = only(verdict, "config.unsupported")
    assert (verdict.verdict, finding.severity, finding.subject) == ("fail", "error", "draft")
    assert "mystery" in finding.message


def test_what_is_not_converted_is_not_judged(tmp_path: Path) -> None:
    write_pair(tmp_path, draft=SQUARE)
    assert "config.unsupported" not in codes(check(tmp_path, engine={"backend": "pytorch", **ROOM}))


def test_a_split_that_the_preflight_explains_is_told_once(tmp_path: Path) -> None:
    write_pair(tmp_path)
    errors = [f.code for f in check(tmp_path, pair=split(tmp_path, tensor=3)).findings if f.severity == "error"]
    assert errors
    assert "weights.uncut" not in errors


def test_a_split_that_only_the_converter_refuses_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtspec.pairing.conversion.split_problems", lambda *_: [])
    write_pair(tmp_path)
    finding = only(check(tmp_path, pair=split(tmp_path, tensor=3)), "weights.uncut")
    assert (finding.severity, finding.subject) == ("error", "target")


def quantized(folder: Path, **quantization: Any) -> dict[str, Any]:
    return {"target": {"path": folder / "target", "quantization": quantization}, "draft": {"path": folder / "draft"}}


@pytest.mark.parametrize("weights", ["fp8", "int8_sq", "int8_wo", "nvfp4"])
def test_a_format_that_fits_is_planned_without_a_calibration(tmp_path: Path, weights: str) -> None:
    write_pair(tmp_path)
    pair = quantized(tmp_path, weights=weights)
    pair["target"]["dtype"] = "float16"
    verdict = check(tmp_path, pair=pair)
    assert not [f.code for f in verdict.findings if f.severity == "error"]


def test_a_format_that_this_model_cannot_be_written_in(tmp_path: Path) -> None:
    # Its weights are float32, and AWQ multiplies inputs in 16 bits: no rule of the preflight, found by the plan.
    write_pair(tmp_path, target={"hidden_size": 512, "intermediate_size": 512})
    verdict = check(tmp_path, pair=quantized(tmp_path, weights="int4_awq"))
    assert only(verdict, "weights.uncut").severity == "error"


def test_weights_that_are_quantized_already(tmp_path: Path) -> None:
    write_pair(tmp_path)
    path = tmp_path / "draft" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": {"quant_method": "mystery"}}))
    assert "mystery" in only(check(tmp_path), "weights.broken").message


def test_what_tensorrt_llm_does_not_read_is_a_warning_there(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0, 1.0], "long_factor": [2.0, 2.0], "original_max_position_embeddings": 64}
    write_pair(tmp_path, draft={"rope_scaling": {"rope_type": "longrope", **factors}})
    assert "config.caution" not in codes(check(tmp_path))
    verdict = check(tmp_path, engine={"backend": "tensorrt", **ROOM}, hardware={"gpu": "l4"})
    assert only(verdict, "config.caution").severity == "warning"


def test_images_are_left_out(tmp_path: Path) -> None:
    gemma = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": TEXT}
    write_pair(tmp_path)
    folder = tmp_path / "draft"
    (folder / "config.json").write_text(json.dumps(gemma))
    tensors = {f"language_model.{name}": t for name, t in gemma_tensors().items()}
    tensors["vision_tower.patch.weight"] = {"dtype": "F32", "shape": [4], "data": bytes(16)}
    save(folder / "model.safetensors", tensors)
    verdict = check(tmp_path)
    assert only(verdict, "weights.left-out").severity == "info"
    assert "size.config-disagrees" not in codes(verdict)


TEXT = {
    "model_type": "gemma3_text", "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 128,
    "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 32, "query_pre_attn_scalar": 4,
}  # fmt: skip


def gemma_tensors() -> dict[str, Any]:
    """Llama's tensors and the norms that Gemma 3 has besides."""
    tensors = random_tensors(CONFIG | TEXT | {"tie_word_embeddings": True})
    layer = "model.layers.0"
    ones = {
        f"{layer}.pre_feedforward_layernorm": 16, f"{layer}.post_feedforward_layernorm": 16,
        f"{layer}.self_attn.q_norm": 4, f"{layer}.self_attn.k_norm": 4,
    }  # fmt: skip
    norms = {f"{n}.weight": {"dtype": "F32", "shape": [size], "data": bytes(4 * size)} for n, size in ones.items()}
    return tensors | norms

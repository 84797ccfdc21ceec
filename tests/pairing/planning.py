"""Pairs of well-known models for the planning checks: their published facts, and nothing on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.known import known
from trtspec.config import Role, RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model

PROMPTS = next((Path(__file__).parents[2] / "configs/tiny/prompts").glob("*.jsonl"))
"""Something to calibrate with."""
LLAMA_70B, LLAMA_1B = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
QWEN_72B, QWEN_1B = "Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"


def facts(hub: str, **changes: Any) -> ModelFacts:
    """Published facts, some replaced."""
    found = known(hub)
    assert found is not None, hub
    return replace(found.facts, **changes)


def model(role: Role, hub: str, **changes: Any) -> Model:
    """A model of which only the facts are known."""
    return Model(role, Path(hub), here=False, facts=facts(hub, **changes))


def pair(target: str = LLAMA_70B, draft: str = LLAMA_1B) -> tuple[Model, Model]:
    """Target and draft."""
    return model("target", target), model("draft", draft)


def config(
    target: dict[str, Any] | None = None,
    draft: dict[str, Any] | None = None,
    *,
    engine: dict[str, Any] | None = None,
    hardware: dict[str, Any] | None = None,
    **sections: Any,
) -> RunConfig:
    """70B with 1B on eight H100, FP8, TP 8 and 1, unless said otherwise; dicts replace keys of their block."""
    fp8 = {"dtype": "bfloat16", "quantization": {"weights": "fp8", "kv_cache": "fp8"}}
    document = {
        "name": "t",
        "pair": {
            "target": {"hub": "a/t", **fp8, "parallelism": {"tensor": 8}} | (target or {}),
            "draft": {"hub": "a/d", **fp8} | (draft or {}),
        },
        "engine": {"backend": "tensorrt", "max_batch_size": 32, "max_input_len": 8192, "max_seq_len": 10240}
        | (engine or {}),
        "hardware": {"gpu": "h100-80gb", "count": 8} | (hardware or {}),
        "validation": {"datasets": [{"path": PROMPTS, "domain": "any"}]},
    }
    return RunConfig.model_validate(document | sections)


def weights(name: str, kv_cache: str = "auto", **more: Any) -> dict[str, Any]:
    """A quantization block."""
    return {"quantization": {"weights": name, "kv_cache": kv_cache} | more}


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    """Code → finding; of a code said of both models the target's, which comes first."""
    return {finding.code: finding for finding in reversed(findings)}

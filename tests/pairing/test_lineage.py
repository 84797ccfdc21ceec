"""Training by names is a warning to measure; what differs inside is said and held against nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pairing.pairs import check, codes, only, write_pair
from trtspec.pairing.lineage import _training
from trtspec.pairing.origin import Name, Origin

L33, L32 = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"
R1 = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"


def trained(target: str, draft: str, **target_base: str) -> dict[str, str]:
    base = Name.parse(target_base["base"]) if "base" in target_base else None
    origin = Origin(Name.parse(target), base, target_base.get("relation"))
    return {f.code: f.severity for f in _training(origin, Origin(Name.parse(draft)))}


@pytest.mark.parametrize(
    ("target", "draft", "code"),
    [
        (L33, L32, "lineage.family"),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct", "lineage.family"),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-0.6B", "lineage.family"),
        ("meta-llama/Llama-3.1-405B", L32, "lineage.tuning-differs"),
        (L33, "meta-llama/Llama-3.2-1B", "lineage.tuning-differs"),
        (R1, "Qwen/Qwen2.5-0.5B-Instruct", "lineage.tuned-away"),
        (R1, "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "lineage.family"),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-Coder-1.5B-Instruct", "lineage.tuned-away"),
        ("acme/support-llama-3-70b", L32, "lineage.tuned-away"),
        ("acme/support-llama-3-70b", "acme/support-llama-3-1b", "lineage.family"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", L32, "lineage.family"),
        ("meta-llama/Llama-2-70b-chat-hf", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "lineage.tuned-away"),
        ("target", L32, "lineage.unnamed"),
    ],
)
def test_training(target: str, draft: str, code: str) -> None:
    assert trained(target, draft) == {code: "warning" if code in WARNINGS else "info"}


WARNINGS = ("lineage.tuned-away", "lineage.tuning-differs")


def test_a_base_named_elsewhere_counts() -> None:
    away = {"lineage.tuned-away": "warning"}
    assert trained("acme/widget", L32, base="meta-llama/Llama-3.3-70B-Instruct") == away
    # A distillation's base tells what it was trained towards, too.
    assert trained("deepseek-ai/X-Qwen-1.5B", "Qwen/Qwen2.5-0.5B", base="Qwen/Qwen2.5-Math-1.5B") == away
    copy = {"base": "meta-llama/Llama-3.3-70B-Instruct", "relation": "quantized"}
    assert trained("acme/widget", L32, **copy) == {"lineage.family": "info"}


def test_equal_insides_are_one_finding(tmp_path: Path) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path)
    assert verdict.verdict == "pass"
    assert "rotary embedding (θ 10000)" in only(verdict, "lineage.alike").message


@pytest.mark.parametrize(
    ("code", "changes", "shown"),
    [
        ("lineage.attention", {"num_key_value_heads": 1}, "MQA 4:1"),
        ("lineage.rope", {"rope_theta": 5e5}, "θ 500000"),
        ("lineage.rope", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "θ 10000 linear ×2"),
        ("lineage.tied", {"tie_word_embeddings": True}, "tied"),
        ("lineage.architecture", {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}, "Mistral"),
        (
            "lineage.window",
            {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 16},
            "16 tokens in 1 of 1 layers",
        ),
    ],
)
def test_differences_inside_are_no_fault(tmp_path: Path, code: str, changes: dict[str, Any], shown: str) -> None:
    write_pair(tmp_path, draft=changes)
    found = [f for f in check(tmp_path).findings if f.code == code]
    assert [(f.severity, f.fix) for f in found] == [("info", None)]
    assert shown in found[0].data["draft"]


def test_without_a_config_nothing_inside_is_compared(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "draft" / "config.json").unlink()
    found = codes(check(tmp_path))
    assert found["lineage.not-measured"] == "info"
    assert "lineage.alike" not in found

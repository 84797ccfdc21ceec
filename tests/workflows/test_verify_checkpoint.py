"""verify-checkpoint from beginning to end: a good checkpoint is good, a damaged one is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.distil.tiny import write_prompts, write_target
from trtspec.checkpoint.convert import convert, write_checkpoint
from trtspec.checkpoint.header import read_header
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.quantize.plan import quantized
from trtspec.errors import ConfigError, ModelFileError
from trtspec.workflows import verify_checkpoint as story
from trtspec.workflows.verify_checkpoint import verify_checkpoint

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("model") / "m", rope_theta=500000.0)


@pytest.fixture
def checkpoint(model: Path, tmp_path: Path) -> Path:
    (tmp_path / "c").mkdir()
    convert(model, tmp_path / "c", tensor=2)
    return tmp_path / "c"


def rewrite(checkpoint: Path, **changes: object) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_good_checkpoint_is_good(model: Path, checkpoint: Path) -> None:
    found = verify_checkpoint(model, checkpoint)
    assert found.holds
    assert found.logits is not None
    assert found.limit == ("relative_typical", 1e-4)
    assert found.logits.relative < 1e-5
    assert found.logits.top1 == 1.0
    assert found.as_dict()["verdict"] == "good"
    wrong = replace(found.logits, difference=2e-3 * found.logits.largest)
    assert not replace(found, logits=wrong).holds, "one position far off is a fault, not rounding"


def test_a_model_without_words_is_compared_on_random_tokens(model: Path, checkpoint: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((model / name).read_bytes())
    found = verify_checkpoint(bare, checkpoint)
    assert found.holds
    assert found.logits is not None
    assert found.logits.positions == 8 * 24 + 127


@pytest.mark.parametrize("damage", ["byte", "rope", "ranks"])
def test_damage_is_found_and_the_model_is_not_even_run(damage: str, model: Path, checkpoint: Path) -> None:
    if damage == "byte":
        info = read_header(checkpoint / "rank1.safetensors")["transformer.layers.1.mlp.proj.weight"]
        data = bytearray(info.path.read_bytes())
        data[info.begin + 5] ^= 4
        info.path.write_bytes(bytes(data))
    elif damage == "rope":
        rewrite(checkpoint, rotary_base=10000.0)
    else:
        one, other = (checkpoint / f"rank{i}.safetensors" for i in (0, 1))
        a, b = one.read_bytes(), other.read_bytes()
        one.write_bytes(b)
        other.write_bytes(a)
    found = verify_checkpoint(model, checkpoint)
    assert not found.holds
    assert found.logits is None
    assert bool(found.claims) == (damage == "rope")


def test_a_fault_that_tensors_do_not_show_shows_in_the_logits(
    model: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the rule for config.json were wrong on both sides: converter and comparison say the same.
    rewrite(checkpoint, rotary_base=10000.0)
    monkeypatch.setattr(story, "wrong_claims", lambda *_: [])
    found = verify_checkpoint(model, checkpoint, [write_prompts(tmp_path / "p.jsonl", 12)])
    assert all(t.good for t in found.tensors)
    assert found.logits_hold is False
    assert not found.holds


def test_tensors_only_runs_nothing(model: Path, checkpoint: Path) -> None:
    found = verify_checkpoint(model, checkpoint, tensors_only=True)
    assert found.holds
    assert found.logits is None
    assert found.not_measured


@pytest.mark.parametrize("weights", ["int4_rtn", "fp8_pc_pt", "int8_wo"])
def test_quantized_weights_are_judged_by_kl_and_acceptance_is_told(weights: str, model: Path, tmp_path: Path) -> None:
    out, draft = tmp_path / "q", tmp_path / "draft"
    out.mkdir()
    write_checkpoint(quantized(plan_conversion(model, dtype="bfloat16"), weights, group_size=16), out)
    write_target(draft, seed=3)
    found = verify_checkpoint(
        model, out, [write_prompts(tmp_path / "p.jsonl", 9)], draft=draft, max_kl=100.0, k=2, limit=6
    )
    assert found.holds
    assert found.logits is not None
    assert found.logits.kl_mean > 0
    change = found.as_dict()["acceptance"]
    assert (change["prompts"], change["role"], change["k"]) == (6, "target", 2)
    assert change["difference"] == pytest.approx(change["after"]["alpha"] - change["before"]["alpha"])
    low, high = change["difference_interval"]
    assert low <= change["difference"] <= high
    strict = verify_checkpoint(model, out, max_kl=1e-9)
    assert not strict.holds
    assert all(t.good for t in strict.tensors)


def test_limits_follow_from_what_was_done_to_the_weights(model: Path, tmp_path: Path) -> None:
    from trtspec.checkpoint.compare import Comparison

    (tmp_path / "half").mkdir()
    convert(model, tmp_path / "half", dtype="bfloat16")
    assert story.judged(Comparison.open(model, tmp_path / "half"), None) == ("relative_typical", 0.05)
    assert story.judged(Comparison.open(model, tmp_path / "half"), 0.3) == ("kl_mean", 0.3)
    assert verify_checkpoint(model, tmp_path / "half").holds


def test_broken_folders_and_wrong_usage_are_errors(model: Path, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one model of the pair"):
        verify_checkpoint(model, checkpoint, draft=model, target=model)
    (checkpoint / "rank1.safetensors").write_bytes(b"short")
    with pytest.raises(ModelFileError):
        verify_checkpoint(model, checkpoint)
    with pytest.raises(ModelFileError):
        verify_checkpoint(model, tmp_path / "absent")

"""What trtspec predicts of a build against what the stand-in then records, for random engines of every release.

Where a release may behave in two ways, a prediction has to hold for both, or refuse.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.contract.made import EVERY, call, checkpoint
from tests.contract.standins.build import recorded
from trtspec.backends.tensorrt.commands import build_command
from trtspec.backends.tensorrt.flags import engine_flags
from trtspec.backends.tensorrt.readback import check_engine
from trtspec.backends.tensorrt.rewrites import predict
from trtspec.backends.tensorrt.subject import Subject, of_checkpoint
from trtspec.config import Role, RunConfig
from trtspec.versions import version

ALGOS = {"none": None, "fp8": "FP8", "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN", "int8_sq": "W8A8_SQ_PER_CHANNEL",
         "int8_wo": "W8A16", "int4_wo": "W4A16", "int4_awq": "W4A16_AWQ", "w4a8_awq": "W4A8_AWQ",
         "nvfp4": "NVFP4"}  # fmt: skip
KV = {"auto": None, "fp8": "FP8", "int8": "INT8"}
SMS = {"a100-80gb": 80, "l40s": 89, "h100-80gb": 90, "b200": 100}


def run_config(**choices: Any) -> RunConfig:
    """A pair of hub models: no file of theirs is read here."""
    quantization = {"weights": choices["weights"], "kv_cache": choices["kv"]}
    model = {"hub": "a/b", "quantization": quantization, "parallelism": {"tensor": choices["tensor"]}}
    try:
        return RunConfig.model_validate({
            "name": "t",
            "pair": {"target": model, "draft": model},
            "speculation": {"max_draft_len": choices["draft_len"], "acceptance": choices["acceptance"]},
            "engine": {"backend": "tensorrt", "max_batch_size": choices["batch"], "max_input_len": 64,
                       "max_seq_len": choices["length"], "tokens_per_block": choices["block"]},
            "hardware": {"gpu": choices["gpu"], "count": 8},
        })  # fmt: skip
    except ValidationError:
        assume(False)
        raise


@functools.cache
def made(weights: str, kv: str, tensor: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
    return checkpoint(folder, weights=ALGOS[weights], kv=KV[kv], tp=tensor)


def build(subject: Subject, config: RunConfig, folder: Path, generation: str, release: str) -> tuple[int, Path]:
    """Run the stand-in with trtspec's command line, in this process."""
    where = made(
        config.pair.target.quantization.weights, config.pair.target.quantization.kv_cache,
        config.pair.target.parallelism.tensor,
    )  # fmt: skip
    out = folder / generation
    command = build_command(config, subject.role, where, out, version(release), subject=subject)
    environment = {"STANDIN_SM": str(subject.sm), "STANDIN_GPUS": "8"}
    return call(command[1:], release, generation, environment), out


@settings(max_examples=300)
@given(
    release=st.sampled_from(EVERY),
    role=st.sampled_from(("target", "draft")),
    weights=st.sampled_from(sorted(ALGOS)),
    kv=st.sampled_from(sorted(KV)),
    gpu=st.sampled_from(sorted(SMS)),
    tensor=st.sampled_from((1, 2)),
    batch=st.sampled_from((1, 4, 64, 2048)),
    length=st.sampled_from((65, 100, 512)),
    block=st.sampled_from((32, 128)),
    draft_len=st.sampled_from((1, 8, 100)),
    acceptance=st.sampled_from(("tokens", "logits")),
)
def test_a_build_records_what_was_predicted(release: tuple[str, str], role: Role, gpu: str, **choices: Any) -> None:
    config, (number, generation) = run_config(gpu=gpu, **choices), release
    where = made(choices["weights"], choices["kv"], choices["tensor"])
    subject = of_checkpoint(where, role, version(number), sm=SMS[gpu], gpus=8)
    asked = engine_flags(config, subject)
    prediction = predict(asked, subject)
    if prediction.refused:
        return
    with tempfile.TemporaryDirectory() as folder:
        code, out = build(subject, config, Path(folder), generation, number)
        assert code == 0, "started a build that raises"
        check_engine(out, asked, prediction, subject)
        plugins = recorded(out)["build_config"]["plugin_config"]
        assert plugins["use_paged_context_fmha"] or role == "draft"


@pytest.mark.parametrize(("number", "generation"), EVERY)
@pytest.mark.parametrize(
    ("weights", "kv", "gpu"),
    [("none", "auto", "a100-80gb"), ("fp8", "auto", "h100-80gb"), ("fp8", "fp8", "h100-80gb"),
     ("int8_sq", "auto", "a100-80gb"), ("int4_awq", "auto", "h100-80gb"), ("w4a8_awq", "fp8", "l40s")],
)  # fmt: skip
def test_what_can_be_a_target_is_not_refused(
    number: str, generation: str, weights: str, kv: str, gpu: str, tmp_path: Path
) -> None:
    choices = {"tensor": 1, "batch": 4, "length": 512, "block": 32, "draft_len": 8, "acceptance": "tokens"}
    config, release = run_config(weights=weights, kv=kv, gpu=gpu, **choices), version(number)
    subject = of_checkpoint(made(weights, kv, 1), "target", release, sm=SMS[gpu], gpus=8)
    assert predict(engine_flags(config, subject), subject).refused == ()
    assert build(subject, config, tmp_path, generation, number)[0] == 0


@pytest.mark.parametrize("number", [number for number, _ in EVERY])
@pytest.mark.parametrize(
    ("weights", "kv", "gpu"),
    [("none", "fp8", "h100-80gb"), ("none", "int8", "a100-80gb"), ("fp8_pc_pt", "fp8", "h100-80gb"),
     ("int4_awq", "fp8", "h100-80gb"), ("int8_wo", "int8", "h100-80gb"), ("int8_wo", "auto", "b200"),
     ("int4_awq", "auto", "b200"), ("int8_sq", "auto", "b200"), ("fp8_pc_pt", "auto", "b200")],
)  # fmt: skip
def test_what_cannot_be_a_target_is_refused(number: str, weights: str, kv: str, gpu: str) -> None:
    choices = {"tensor": 1, "batch": 4, "length": 512, "block": 32, "draft_len": 8, "acceptance": "tokens"}
    config, release = run_config(weights=weights, kv=kv, gpu=gpu, **choices), version(number)
    subject = of_checkpoint(made(weights, kv, 1), "target", release, sm=SMS[gpu], gpus=8)
    assert predict(engine_flags(config, subject), subject).refused


@pytest.mark.parametrize(("number", "refused"), [("0.17.0.post1", True), ("0.19.0", True), ("0.20.0", False)])
def test_nvfp4_is_refused_where_a_release_may_not_know_it(number: str, refused: bool) -> None:
    subject = of_checkpoint(made("nvfp4", "fp8", 1), "target", version(number), sm=100, gpus=8)
    choices = {"tensor": 1, "batch": 4, "length": 512, "block": 32, "draft_len": 8, "acceptance": "tokens"}
    config = run_config(weights="nvfp4", kv="fp8", gpu="b200", **choices)
    assert bool(predict(engine_flags(config, subject), subject).refused) is refused

"""The serving block: what it refuses, and that the pipeline is told all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.triton.modelfolder import small_plan
from trtspec.config.serving import Guard, Limits, Serving
from trtspec.triton import pipeline


@pytest.mark.parametrize("recover", [0.5, 0.4])
def test_a_guard_without_a_band_would_flap(recover: float) -> None:
    with pytest.raises(ValidationError, match=r"recover is 0\.\d; it must be above floor \(0\.5\)"):
        Guard(floor=0.5, recover=recover)


@pytest.mark.parametrize(
    "wrong",
    [{"draft_timeout": 0.0}, {"request_timeout": -1.0}, {"max_concurrent_requests": 0}, {"max_waiting_requests": -1},
     {"pipeline": "both"}, {"log_requests": "yes please"}, {"guard": {"window": 0}}, {"limits": {"stop_words": 0}}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Serving.model_validate(wrong)


def test_concurrency_follows_the_engines_batch_unless_it_is_given() -> None:
    assert Serving().concurrent(8) == 16
    assert Serving(max_concurrent_requests=3).concurrent(8) == 3


@pytest.mark.parametrize("backend", ["reference", "tensorrt"])
def test_the_pipeline_is_told_the_same_for_every_backend(tmp_path: Path, backend: str) -> None:
    serving = Serving(
        max_concurrent_requests=5,
        max_waiting_requests=0,
        request_timeout=1.5,
        draft_timeout=0.25,
        adaptive_draft_len=True,
        guard=Guard(enabled=True, floor=0.25, recover=0.75, window=9, probe_every=2),
        limits=Limits(prompt_bytes=1000, max_tokens=7),
        log_requests=False,
    )
    models = {model.name: model for model in pipeline.models(small_plan(tmp_path, backend=backend, serving=serving))}
    told = models[pipeline.BLS].parameters
    expected = {
        "max_concurrent_requests": "5", "max_waiting_requests": "0", "request_timeout": "1.5", "draft_timeout": "0.25",
        "adaptive_draft_len": "true", "guard_enabled": "true", "guard_floor": "0.25", "guard_recover": "0.75",
        "guard_window": "9", "guard_probe_every": "2", "limit_prompt_bytes": "1000", "limit_max_tokens": "7",
        "limit_stop_words": "64", "limit_stop_word_bytes": "1024", "log_requests": "false", "log_prompts": "false",
    }  # fmt: skip
    assert {key: told[key] for key in expected} == expected
    assert models[pipeline.PREPROCESSING].parameters["limit_prompt_bytes"] == "1000"

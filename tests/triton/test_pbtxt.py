"""config.pbtxt: written, read back, and refused when it is not one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.errors import ModelFileError
from trtspec.triton.pbtxt import Model, Queue, Step, parameters, parse, render
from trtspec.triton.tables import Tensor

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
TENSORS = st.builds(
    Tensor,
    name=st.from_regex(r"\A[a-z_]{1,12}\Z"),
    dtype=st.sampled_from(["INT32", "FP32", "STRING", "BOOL", "UINT64"]),
    dims=st.lists(st.integers(-1, 9).filter(bool), min_size=1, max_size=4).map(tuple),
    optional=st.booleans(),
    ragged=st.booleans(),
    scalar=st.booleans(),
)


@given(st.lists(TENSORS, max_size=5), st.dictionaries(NAMES, NAMES, max_size=4), st.booleans(), st.integers(0, 64))
def test_whatever_is_written_reads_back(
    tensors: list[Tensor], given_parameters: dict[str, str], decoupled: bool, batch: int
) -> None:
    model = Model(
        "m", "python", batch, tuple(tensors), (), given_parameters, decoupled, Queue(preferred=4, delay=7, length=9)
    )
    config = parse(render(model), "m")
    assert parameters(config) == given_parameters
    assert config.model_transaction_policy.decoupled is decoupled
    assert config.max_batch_size == batch
    assert config.instance_group[0].count == 1
    batching = config.dynamic_batching
    assert (list(batching.preferred_batch_size), batching.max_queue_delay_microseconds) == ([4], 7)
    assert batching.default_queue_policy.max_queue_size == 9
    for tensor, entry in zip(tensors, config.input, strict=True):
        assert (entry.name, tuple(entry.dims)) == (tensor.name, tensor.dims)
        assert entry.optional is tensor.optional
        assert entry.allow_ragged_batch is tensor.ragged
        assert entry.HasField("reshape") is tensor.scalar
        assert not entry.reshape.shape


def test_an_ensemble_has_steps_and_no_instances() -> None:
    step = Step("inner", {"theirs": "ours"}, {"out": "result"})
    config = parse(render(Model("e", None, 8, (), (), steps=(step,))), "e")
    assert (config.platform, config.backend, len(config.instance_group)) == ("ensemble", "", 0)
    (read,) = config.ensemble_scheduling.step
    assert (read.model_name, dict(read.input_map), dict(read.output_map)) == (
        "inner",
        {"theirs": "ours"},
        {"out": "result"},
    )


def test_a_key_without_value_stays_a_key() -> None:
    assert parameters(parse(render(Model("m", "python", 1, (), (), {"must_exist": ""})), "m")) == {"must_exist": ""}


@pytest.mark.parametrize("text", ["max_batch_size: ${size}", "nonsense: 1", "input { data_type: TYPE_X }", "{"])
def test_an_unfilled_or_unknown_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        parse(text, "models/x/config.pbtxt")
    assert str(caught.value).startswith("models/x/config.pbtxt: not a Triton model configuration")
    assert "\n" not in str(caught.value)


def test_protobuf_is_imported_only_when_it_is_needed() -> None:
    code = "import sys, trtspec.triton.repository, trtspec.triton.lint; print('google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

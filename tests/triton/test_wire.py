"""Tensors in and out: packing of words, single values, and what is refused."""

from __future__ import annotations

import json
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton import fakepb

WORDS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), max_size=4)


@given(rows=st.lists(WORDS, min_size=1, max_size=3))
def test_words_survive_packing(bls: dict[str, ModuleType], rows: list[list[list[int]]]) -> None:
    wire = bls["wire"]
    packed = wire.pack_words(rows)
    assert packed.dtype == np.int32
    for row, words in zip(packed, rows, strict=True):
        assert wire.unpack_words(row if row.size else None) == tuple(map(tuple, words))


def test_packing_is_upstreams_layout(bls: dict[str, ModuleType]) -> None:
    packed = bls["wire"].pack_words([[[5, 6], [7]], [[8]]])
    assert packed.tolist() == [[[5, 6, 7], [2, 3, -1]], [[8, 0, 0], [1, -1, -1]]]
    assert bls["wire"].pack_words([[], []]).shape == (2, 2, 0)


def test_inputs_are_copies_and_empty_tensors_are_absent(bls: dict[str, ModuleType]) -> None:
    shared = np.array([[7]], dtype=np.int32)
    request = fakepb.Request({"a": shared, "empty": np.zeros((1, 0), dtype=np.int32)})
    inputs = bls["wire"].Inputs.of(request)
    shared[0, 0] = 9
    assert inputs.integer("a") == 7
    assert inputs.names() == {"a"}
    assert inputs.integer("empty", 3) == 3
    assert inputs.flag("absent") is False


def test_more_than_one_value_is_refused_by_name(bls: dict[str, ModuleType]) -> None:
    wire = bls["wire"]
    inputs = wire.Inputs({"seed": np.array([[1], [2]])})
    with pytest.raises(wire.Refused, match="seed has 2 values"):
        inputs.integer("seed")
    assert inputs.row(1).integer("seed") == 2


def test_text_that_is_not_utf8_is_refused(bls: dict[str, ModuleType]) -> None:
    wire = bls["wire"]
    with pytest.raises(wire.Refused, match="prompt is not UTF-8"):
        wire.Inputs({"prompt": np.array([[b"\xff"]], dtype=np.object_)}).words("prompt")


def test_parameters_know_what_unset_means(bls: dict[str, ModuleType]) -> None:
    values = {"a": "1", "empty": "", "unfilled": "${x}", "yes": "True", "no": "0", "ids": "3, 4"}
    config = {
        "name": "m",
        "output": [{"name": "out"}],
        "parameters": {key: {"string_value": value} for key, value in values.items()},
    }
    given_parameters = bls["wire"].Parameters({"model_config": json.dumps(config)})
    assert given_parameters.number("a") == 1
    assert [given_parameters.text(n, "default") for n in ("empty", "unfilled", "gone")] == ["default"] * 3
    assert (given_parameters.flag("yes", False), given_parameters.flag("no", True)) == (True, False)
    assert given_parameters.ids("ids") == (3, 4)
    with pytest.raises(KeyError):
        given_parameters.number("gone")


def test_numpy_2_is_refused(bls: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    bls["wire"].refuse_numpy_2()
    monkeypatch.setattr(np, "__version__", "2.1.0")
    with pytest.raises(RuntimeError, match=r"numpy 2\.1\.0 .* install 'numpy>=1\.26,<2'"):
        bls["wire"].refuse_numpy_2()


def test_an_error_is_one_line(bls: dict[str, ModuleType]) -> None:
    wire = bls["wire"]
    assert wire.refusal("first\n  second").error().message() == "first"
    assert wire.first_line(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("cannot open /opt/models/a b/rank0.engine", "cannot open a b/rank0.engine"),
        ("Assertion failed: x (/home/jenkins/TensorRT-LLM/cpp/kv.cpp:123)", "Assertion failed: x (kv.cpp:123)"),
        ("'/srv/.cache/x.json' is broken", "'x.json' is broken"),
        ("1/2 or 3/4 of them; and/or", "1/2 or 3/4 of them; and/or"),
        ("see http://host/v2/models", "see http://host/v2/models"),
        ("/v2", "/v2"),
    ],
)
def test_an_error_names_files_without_their_folders(bls: dict[str, ModuleType], said: str, kept: str) -> None:
    assert bls["wire"].first_line(said) == kept


def test_a_fault_of_ours_tells_the_client_its_kind_and_the_log_its_place(bls: dict[str, ModuleType]) -> None:
    def fails() -> None:
        raise KeyError("/home/ada/prompt of a client")

    with pytest.raises(KeyError) as caught:
        fails()
    answer = bls["wire"].internal_error("preprocessing", caught.value)
    assert answer.error().message() == "internal error (KeyError); see the server's log"
    event = json.loads(bls["pb"].Logger.lines[-1])
    assert event.pop("where").startswith("fails:")
    assert event == {"event": "internal-error", "model": "preprocessing", "kind": "KeyError"}

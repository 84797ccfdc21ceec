"""preprocessing and postprocessing by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.triton import fakepb
from tests.triton.modelfolder import BOS, EOS, EOT, PAD, ids_of, small_repository, started
from tests.triton.scripted import tensor


def _ask(repository: Path, **inputs: Any) -> fakepb.InferenceResponse:
    model, _ = started(repository / "preprocessing")
    given = {"QUERY": "ab", "REQUEST_OUTPUT_LEN": 5} | inputs
    (response,) = model.execute([fakepb.Request({name: tensor(v) for name, v in given.items()})])
    assert isinstance(response, fakepb.InferenceResponse)
    return response


@pytest.mark.parametrize("prompt", ["ab", "<bos>ab"])
def test_one_bos_however_the_prompt_begins(repository: Path, prompt: str) -> None:
    found = _ask(repository, QUERY=prompt).tensors()
    assert found["INPUT_ID"].tolist() == [[BOS, *ids_of("ab")]]
    assert found["REQUEST_INPUT_LEN"].tolist() == [[3]]


def test_no_bos_where_the_parameter_says_so(tmp_path: Path) -> None:
    from trtspec.triton import pbtxt

    repository = small_repository(tmp_path)
    path = repository / "preprocessing" / pbtxt.FILE
    path.write_text(
        path.read_text().replace(
            'key: "add_special_tokens"\n  value {\n    string_value: "true"',
            'key: "add_special_tokens"\n  value {\n    string_value: "false"',
        )
    )
    assert _ask(repository).tensors()["INPUT_ID"].tolist() == [ids_of("ab")]


def test_further_end_ids_are_stop_words_of_one_token(repository: Path) -> None:
    found = _ask(repository, STOP_WORDS_DICT=["ab", "c"]).tensors()
    assert found["OUT_END_ID"].tolist() == [[EOS]]
    assert found["OUT_PAD_ID"].tolist() == [[PAD]]
    assert found["STOP_WORDS_IDS"].tolist() == [[[*ids_of("abc"), EOT], [2, 3, 4, -1]]]
    given = _ask(repository, END_ID=9).tensors()
    assert (given["OUT_END_ID"].tolist(), given["STOP_WORDS_IDS"].size) == ([[9]], 0)


def test_a_batch_is_padded_on_the_right(repository: Path) -> None:
    model, _ = started(repository / "preprocessing")
    tensors = {
        "QUERY": np.array([[b"abc"], [b"d"]], dtype=np.object_),
        "REQUEST_OUTPUT_LEN": np.array([[5], [6]], dtype=np.int32),
    }
    (response,) = model.execute([fakepb.Request(tensors)])
    found = response.tensors()
    assert found["INPUT_ID"].tolist() == [[BOS, *ids_of("abc")], [BOS, *ids_of("d"), PAD, PAD]]
    assert found["REQUEST_INPUT_LEN"].tolist() == [[4], [2]]
    assert {len(array) for array in found.values()} == {2}


def test_embedding_bias_has_the_models_width(repository: Path) -> None:
    found = _ask(repository, EMBEDDING_BIAS_WORDS=["a", "b"], EMBEDDING_BIAS_WEIGHTS=[2.0, -1.0]).tensors()
    bias = found["EMBEDDING_BIAS"]
    assert bias.shape == (1, 260)
    assert bias[0, ids_of("ab")].tolist() == [2.0, -1.0]
    assert np.count_nonzero(bias) == 2


def test_a_bias_beyond_the_models_vocabulary_is_refused(tmp_path: Path) -> None:
    """A tokenizer may have more ids than the model has rows."""
    (last,) = ids_of("a")
    narrow = small_repository(tmp_path, vocab_size=last)
    error = _ask(narrow, EMBEDDING_BIAS_WORDS=["a"], EMBEDDING_BIAS_WEIGHTS=[1.0]).error()
    assert error is not None
    assert error.message() == f"an embedding_bias_word has a token beyond the model's vocabulary of {last}"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"QUERY": "x" * 64}, "the prompt has 65 tokens; this server takes at most 64"),
        ({"QUERY": "x" * 2000}, "the prompt has more than 128 tokens; this server takes at most 64"),
        ({"REQUEST_OUTPUT_LEN": 126}, "3 tokens and max_tokens is 126"),
        ({"REQUEST_OUTPUT_LEN": 0}, "max_tokens is 0"),
        ({"IMAGE_URL": "x"}, "IMAGE_URL: this pipeline takes text only"),
        (
            {"EMBEDDING_BIAS_WORDS": ["a", "a"], "EMBEDDING_BIAS_WEIGHTS": [3e38, 3e38]},
            "embedding_bias_weights of one word add up to more than a number can hold",
        ),
        ({"EMBEDDING_BIAS_WORDS": ["a"]}, "1 embedding_bias_words and 0 embedding_bias_weights"),
    ],
)
def test_refusals_are_one_line(repository: Path, inputs: dict[str, Any], message: str) -> None:
    error = _ask(repository, **inputs).error()
    assert error is not None
    assert message in error.message()


def test_postprocessing_decodes_each_beam_to_its_length(repository: Path) -> None:
    model, _ = started(repository / "postprocessing")
    a, b, c = ids_of("abc")
    tensors = {
        "TOKENS_BATCH": np.array([[[a, b, c]], [[BOS, c, 0]]], dtype=np.int32),
        "SEQUENCE_LENGTH": np.array([[3], [2]], dtype=np.int32),
    }
    empty = {"TOKENS_BATCH": np.zeros((1, 1, 0), dtype=np.int32), "SEQUENCE_LENGTH": np.zeros((1, 1), dtype=np.int32)}
    full, none = model.execute([fakepb.Request(tensors), fakepb.Request(empty)])
    assert full.tensors()["OUTPUT"].tolist() == [b"abc", b"c"]
    assert none.tensors()["OUTPUT"].tolist() == [b""]


def _ids(values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int32)


NOT_TEXT = np.array([[b"\xff"]], dtype=np.object_)


@pytest.mark.parametrize(
    ("name", "tensors", "said"),
    [
        ("preprocessing", {"QUERY": NOT_TEXT, "REQUEST_OUTPUT_LEN": _ids([[1]])}, "QUERY is not UTF-8 text"),
        (
            "postprocessing",
            {"TOKENS_BATCH": _ids([[[5, -1]]]), "SEQUENCE_LENGTH": _ids([[2]])},
            "-1, which is no token",
        ),
        ("postprocessing", {"TOKENS_BATCH": _ids([[[5, 6, 7]]]), "SEQUENCE_LENGTH": _ids([[1], [1]])}, "3 ids for 2"),
        ("postprocessing", {"TOKENS_BATCH": _ids([[[5]]]), "SEQUENCE_LENGTH": _ids([])}, "SEQUENCE_LENGTH is empty"),
    ],
)
def test_hostile_inputs_are_refused_in_one_line(repository: Path, name: str, tensors: Any, said: str) -> None:
    model, _ = started(repository / name)
    (answer,) = model.execute([fakepb.Request(tensors)])
    assert said in answer.error().message()


@pytest.mark.parametrize("name", ["preprocessing", "postprocessing"])
def test_a_fault_of_ours_shows_no_path(repository: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = started(repository / name)
    monkeypatch.setattr(model, "_vocabulary", None)
    one = _ids([[1]])
    tensors = {"QUERY": tensor("a"), "REQUEST_OUTPUT_LEN": one, "TOKENS_BATCH": one[None], "SEQUENCE_LENGTH": one}
    (answer,) = model.execute([fakepb.Request(tensors)])
    assert answer.error().message() == "internal error (AttributeError); see the server's log"

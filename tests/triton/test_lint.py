"""A sound repository has no problems; every way to break one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format

from tests.triton.modelfolder import small_repository
from trtspec.errors import ServingError
from trtspec.triton import pbtxt
from trtspec.triton.lint import lint


def _edit(repository: Path, model: str, change: Callable[[object], None]) -> None:
    path = repository / model / pbtxt.FILE
    config = pbtxt.read(path)
    change(config)
    path.write_text(text_format.MessageToString(config))


def test_what_we_write_is_sound(tmp_path: Path) -> None:
    assert lint(small_repository(tmp_path / "r")) == ()
    assert lint(small_repository(tmp_path / "t", backend="tensorrt")) == ()


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="no model repository"):
        lint(tmp_path / "absent")


def _drop_key(key: str) -> Callable[[object], None]:
    return lambda config: config.parameters.pop(key)  # type: ignore[attr-defined]


def _set_key(key: str, value: str) -> Callable[[object], None]:
    return lambda config: setattr(config.parameters[key], "string_value", value)  # type: ignore[attr-defined]


def _step(config: object, index: int) -> object:
    return config.ensemble_scheduling.step[index]  # type: ignore[attr-defined]


BROKEN: list[tuple[str, Callable[[object], None], str]] = [
    ("tensorrt_llm", _drop_key("xgrammar_tokenizer_info_path"), "parameters lack xgrammar_tokenizer_info_path"),
    ("preprocessing", _drop_key("multimodal_model_path"), "parameters lack multimodal_model_path"),
    ("tensorrt_llm", _set_key("enable_kv_cache_reuse", "false"), "enable_kv_cache_reuse is not true"),
    ("tensorrt_llm", _set_key("gpt_model_path", "/absent"), "gpt_model_path has no readable engine"),
    ("tensorrt_llm_draft", _set_key("gpt_model_path", "${engine_dir}"), "unfilled"),
    ("tensorrt_llm_bls", _set_key("max_draft_len", "9"), "max_draft_len 9 is more than the target engine's 8"),
    ("tensorrt_llm_bls", _set_key("tensorrt_llm_draft_model_name", "drft"), "names 'drft'"),
    ("tensorrt_llm", lambda c: setattr(c, "name", "other"), "names the model 'other'"),
    ("tensorrt_llm", lambda c: setattr(c, "max_batch_size", 9), "max_batch_size 9 is more than the engine's 8"),
    ("tensorrt_llm_draft", lambda c: c.ClearField("model_transaction_policy"), "is not decoupled"),
    ("tensorrt_llm", lambda c: c.output.insert(0, c.output.pop(1)), "the first output is not output_ids"),
    ("tensorrt_llm_draft", lambda c: setattr(c.output[5], "data_type", 10), "logits have different types"),
    ("ensemble", lambda c: setattr(_step(c, 1), "model_name", "gone"), "step gone is not a model"),
    ("ensemble", lambda c: _step(c, 1).input_map.pop("request_output_len"), "needs its input request_output_len"),
    ("ensemble", lambda c: _step(c, 1).input_map.update({"input_idz": "_INPUT_ID"}), "has no input input_idz"),
    ("ensemble", lambda c: _step(c, 1).input_map.update({"input_ids": "_IDS"}), "reads _IDS, which no earlier step"),
    ("ensemble", lambda c: _step(c, 1).input_map.update({"input_ids": "temperature"}), "another type than"),
    ("ensemble", lambda c: _step(c, 2).output_map.pop("OUTPUT"), "no step writes the output text_output"),
    ("ensemble", lambda c: _step(c, 0).input_map.pop("STOP_WORDS_DICT"), "no step reads the input stop_words"),
    ("ensemble", lambda c: setattr(c, "max_batch_size", 64), "max_batch_size 64 is more than"),
    ("ensemble", lambda c: _step(c, 1).output_map.update({"output_ids": "_INPUT_ID"}), "_INPUT_ID is written twice"),
]


@pytest.mark.parametrize(("model", "change", "message"), BROKEN, ids=[message for _, _, message in BROKEN])
def test_a_broken_config_is_found(tmp_path: Path, model: str, change: Callable[[object], None], message: str) -> None:
    repository = small_repository(tmp_path)
    _edit(repository, model, change)
    assert any(message in str(problem) for problem in lint(repository)), [str(p) for p in lint(repository)]


def test_broken_files_are_found(tmp_path: Path) -> None:
    repository = small_repository(tmp_path)
    (repository / "postprocessing" / "1" / "model.py").unlink()
    (repository / "preprocessing" / "1" / "tokenizer" / "tokenizer.json").unlink()
    (repository / "ensemble" / "1").rmdir()
    (repository / "tensorrt_llm" / "config.pbtxt").write_text("max_batch_size: ${n}")
    found = [str(problem) for problem in lint(repository)]
    assert len(found) == 4
    assert "tensorrt_llm: " in found[0]
    assert "not a Triton model configuration" in found[0]
    assert any("postprocessing: there is no 1/model.py" in text for text in found)
    assert any("preprocessing: there is no tokenizer.json" in text for text in found)
    assert any("ensemble: there is no version folder" in text for text in found)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"version": 2, "default": {"draft_len": 1}}, "version is 2"),
        ({"version": 1, "default": {"draft_len": 9}}, "asks for 9 draft tokens; the target engine takes 8"),
        ("x", "not a JSON object"),
    ],
)
def test_a_broken_policy_is_found(tmp_path: Path, policy: object, message: str) -> None:
    repository = small_repository(tmp_path)
    (repository / "tensorrt_llm_bls" / "1" / "policy.json").write_text(json.dumps(policy))
    (found,) = lint(repository)
    assert found.model == "tensorrt_llm_bls"
    assert message in found.message

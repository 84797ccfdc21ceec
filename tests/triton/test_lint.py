"""A sound repository has no problems; every way to break one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from tests.triton.modelfolder import made_engine, small_repository
from trtspec.config.serving import Serving
from trtspec.errors import ServingError
from trtspec.triton import launch, pbtxt
from trtspec.triton.lint import Problem, lint


def _edit(repository: Path, model: str, change: Callable[[object], None]) -> None:
    path = repository / model / pbtxt.FILE
    config = pbtxt.read(path)
    change(config)
    path.write_text(text_format.MessageToString(config))


def test_what_we_write_is_sound(tmp_path: Path) -> None:
    assert lint(small_repository(tmp_path / "r")) == ()
    assert lint(small_repository(tmp_path / "t", backend="tensorrt")) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: None, None),
        (lambda c: setattr(c.parameters["draft_engine_path"], "string_value", "/absent"), "draft_engine_path has no"),
        (lambda c: setattr(c.parameters["target_engine_path"], "string_value", "/other"), "they answer differently"),
        (lambda c: c.parameters.pop("pipeline"), "tensorrt_llm_draft"),
    ],
)
def test_a_fused_pipeline_needs_its_engines_and_no_draft_model(
    tmp_path: Path, change: Callable[[object], None], message: str | None
) -> None:
    repository = small_repository(tmp_path, serving=Serving(pipeline="fused"))
    _edit(repository, "tensorrt_llm_bls", change)
    found = [str(problem) for problem in lint(repository)]
    assert found == [] if message is None else any(message in text for text in found)


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


def _names_gpus(config: Any) -> None:
    config.parameters.pop("gpu_device_ids")
    config.instance_group[0].gpus.append(3)


def _unknown_input(config: Any) -> None:
    next(tensor for tensor in config.input if tensor.name == "seed").name = "random_seed"


FRACTION, TOKENS = "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"
LLM, DRAFT, BLS = "tensorrt_llm", "tensorrt_llm_draft", "tensorrt_llm_bls"
TENSORRT: list[tuple[str, Callable[[Any], None], str, str]] = [
    (LLM, _drop_key("tokenizer_dir"), "repository.parameters", "error"),
    (LLM, _set_key("gpt_model_path", "${engine_dir}"), "repository.placeholder", "error"),
    (LLM, _set_key("gpt_model_type", "V1"), "repository.batching", "error"),
    (LLM, _set_key("decoding_mode", "medusa"), "repository.decoding", "error"),
    (LLM, _set_key("exclude_input_in_output", "True"), "repository.echo", "error"),
    (LLM, _set_key("enable_kv_cache_reuse", "False"), "repository.reuse", "error"),
    (DRAFT, _set_key("max_beam_width", "2"), "repository.beams", "error"),
    (LLM, _unknown_input, "repository.tensors", "error"),
    (LLM, lambda c: setattr(c, "max_batch_size", 9), "repository.batch", "error"),
    (BLS, lambda c: c.ClearField("model_transaction_policy"), "repository.decoupled", "error"),
    (LLM, lambda c: setattr(c.output[5], "data_type", 10), "repository.logits-type", "error"),
    (BLS, _set_key("tensorrt_llm_model_name", "gone"), "repository.models", "error"),
    ("ensemble", lambda c: setattr(_step(c, 1), "model_name", "gone"), "repository.wiring", "error"),
    ("preprocessing", _set_key("max_seq_len", "129"), "repository.length", "error"),
    ("postprocessing", lambda c: setattr(c, "name", "other"), "repository.name", "error"),
    (LLM, lambda c: c.output.insert(0, c.output.pop(1)), "repository.output-order", "error"),
    (LLM, _set_key("gpu_device_ids", "0,1"), "placement.gpu-count", "error"),
    (LLM, _names_gpus, "placement.instance-group", "error"),
    (LLM, _set_key("speculative_decoding_fast_logits", "1"), "placement.fast-logits", "error"),
    (LLM, _set_key(TOKENS, "159"), "memory.sequence", "error"),
    (DRAFT, _set_key(FRACTION, "0"), "memory.sequence", "error"),
    (LLM, _set_key(TOKENS, "1279"), "memory.batch", "warning"),
    (LLM, _drop_key(TOKENS), "memory.order", "warning"),
    (DRAFT, _set_key("kv_cache_host_memory_bytes", "1024"), "memory.draft-host", "warning"),
    (BLS, _set_key("default_num_draft_tokens", "0"), "defaults.off", "warning"),
    (BLS, _set_key("default_num_draft_tokens", "9"), "defaults.draft-len", "error"),
    (BLS, _set_key("max_draft_len", "9"), "engine.draft-len", "error"),
]


@pytest.mark.parametrize(("model", "change", "code", "severity"), TENSORRT)
def test_faults_of_a_repository_for_tensorrt_engines(
    tmp_path: Path, model: str, change: Callable[[Any], None], code: str, severity: str
) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    _edit(repository, model, change)
    assert (code, severity) in {(problem.code, problem.severity) for problem in lint(repository)}


ENGINES: list[tuple[str, dict[str, Any], str]] = [
    ("target", {"max_num_tokens": 64}, "engine.step"),
    ("target", {"model.vocab_size": 200}, "repository.ids"),
    ("draft", {"speculative_decoding_mode": 2}, "engine.draft-mode"),
    ("target", {"model.layer_windows": [64, None]}, "windows.unset"),
    ("target", {"model.layer_windows": [64, None]}, "windows.reuse"),
    ("target", {"model.logits_dtype": "float16"}, "repository.logits-type"),
    ("draft", {"model.mapping": {"tp_size": 2}}, "placement.gpu-count"),
]


@pytest.mark.parametrize(("role", "changes", "code"), ENGINES)
def test_a_repository_against_its_engines(tmp_path: Path, role: Any, changes: dict[str, Any], code: str) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    made_engine(tmp_path / role, role, **changes)
    assert code in {problem.code for problem in lint(repository)}


def test_the_pattern_of_windows_is_compared(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    made_engine(tmp_path / "target", "target", **{"model.layer_windows": [64, None]})
    _edit(repository, LLM, _set_key("max_attention_window_size", "64,136"))
    assert {problem.code for problem in lint(repository)} == {"windows.reuse"}
    _edit(repository, LLM, _set_key("max_attention_window_size", "64"))
    assert {problem.code for problem in lint(repository)} == {"windows.reuse", "windows.pattern"}


def test_engines_elsewhere_are_read_there(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    for name in (LLM, DRAFT):
        _edit(repository, name, _set_key("gpt_model_path", "/mnt/absent"))
    assert {problem.code for problem in lint(repository)} == {"repository.engine"}
    assert lint(repository, {"target": tmp_path / "target", "draft": tmp_path / "draft"}) == ()


def test_an_engine_of_another_version(tmp_path: Path) -> None:
    """The repository has 0.19's names; the engines were built by 1.2.1."""
    found = lint(small_repository(tmp_path, backend="tensorrt", version="0.19.0"))
    assert {problem.code for problem in found} == {"engine.version"}


def _relaunch(repository: Path, **changes: Any) -> None:
    path = repository / launch.RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_leader_mode_needs_equal_sizes(tmp_path: Path) -> None:
    """Draft with one rank, target with two."""
    repository = small_repository(tmp_path, backend="tensorrt")
    made_engine(tmp_path / "target", "target", **{"model.mapping": {"tp_size": 2}})
    _edit(repository, LLM, _set_key("gpu_device_ids", "0,1"))
    _relaunch(repository, mode="leader", world_size=2)
    assert [problem.code for problem in lint(repository)] == ["placement.mode"]
    _relaunch(repository, mode="orchestrator", world_size=2)
    assert [problem.code for problem in lint(repository)] == ["placement.world"]


def _fast(repository: Path, draft: str, target: str, world: int) -> list[Problem]:
    for name, ids in ((LLM, target), (DRAFT, draft)):
        _edit(repository, name, _set_key("speculative_decoding_fast_logits", "true"))
        _edit(repository, name, _set_key("participant_ids", ids))
    _relaunch(repository, spawns_processes=False, world_size=world)
    return list(lint(repository))


def test_ranks_are_shared_out_and_the_world_holds_them(tmp_path: Path) -> None:
    """The report's case: 1 and 4 ranks make a world of 6; here 1 and 2 make 4."""
    repository = small_repository(tmp_path, backend="tensorrt")
    made_engine(tmp_path / "target", "target", **{"model.mapping": {"tp_size": 2}})
    _edit(repository, LLM, _set_key("gpu_device_ids", "0,1"))
    assert _fast(repository, "1", "2,3", 4) == []
    assert [problem.code for problem in _fast(repository, "1", "1,2", 4)] == ["placement.ranks"]
    assert [problem.code for problem in _fast(repository, "0", "1,2", 4)] == ["placement.ranks"]
    assert [problem.code for problem in _fast(repository, "1", "2", 4)] == ["placement.ranks"]
    assert [problem.code for problem in _fast(repository, "1", "2,3", 3)] == ["placement.world"]
    _relaunch(repository, spawns_processes=True, world_size=4)
    assert [problem.code for problem in lint(repository)] == ["placement.fast-logits"]


def test_fractions_alone_leave_too_little(tmp_path: Path) -> None:
    """Two models with TensorRT-LLM's default of 0.9 on one GPU."""
    repository = small_repository(tmp_path, backend="tensorrt")
    for name in (LLM, DRAFT):
        _edit(repository, name, _set_key(FRACTION, "0.9"))
        _edit(repository, name, _drop_key(TOKENS))
    assert [problem.code for problem in lint(repository)] == ["memory.slack", "memory.slack", "memory.order"]


def test_weights_and_caches_must_fit_the_gpu_they_were_planned_for(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    assert lint(repository) == ()
    needed = 2 + 2 * 1280 * 2 * 2 * 2 * 16 * 2  # rank files, and tokens of both caches in bytes
    for memory, codes in ((needed, []), (needed - 1, ["memory.sum"])):
        _relaunch(repository, memory={"bytes": memory})
        assert [problem.code for problem in lint(repository)] == codes


def test_logits_by_default_need_engines_that_gather_them(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, backend="tensorrt", acceptance="logits")
    assert lint(repository) == ()
    made_engine(tmp_path / "draft", "draft", gather_generation_logits=False)
    assert {problem.code for problem in lint(repository)} == {"defaults.logits", "engine.gather-logits"}


def test_codes_of_broken_files(tmp_path: Path) -> None:
    repository = small_repository(tmp_path)
    (repository / "postprocessing" / "1" / "model.py").unlink()
    (repository / "preprocessing" / "1" / "tokenizer" / "tokenizer.json").unlink()
    (repository / "tensorrt_llm_bls" / "1" / "policy.json").write_text("{")
    (repository / "ensemble" / "1").rmdir()
    found = {problem.code for problem in lint(repository)}
    assert found == {"repository.program", "repository.tokenizer", "defaults.policy", "repository.version-folder"}
    (repository / "ensemble" / "config.pbtxt").unlink()
    assert "repository.config" in {problem.code for problem in lint(repository)}


def test_an_empty_engine_folder_name_is_named(tmp_path: Path) -> None:
    """The report's case: `engine_dir:""`."""
    repository = small_repository(tmp_path)
    _edit(repository, LLM, _set_key("gpt_model_path", ""))
    said = [str(problem) for problem in lint(repository)]
    assert "tensorrt_llm: the parameter gpt_model_path is empty" in said

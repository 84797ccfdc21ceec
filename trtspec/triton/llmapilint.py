"""Read an `llmapi` repository back and say what would not load, or would not speculate as its version reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trtspec.errors import ConfigError, ModelFileError
from trtspec.triton import llmapi, pbtxt
from trtspec.versions import Spelling, version

MODEL_FILES = ("model.py", "asking.py", "answering.py", "wire.py")
_BACKENDS = ("pytorch", "_autodeploy")


def is_llmapi(repository: Path) -> bool:
    """Whether the repository is one of the LLM API."""
    return (repository / llmapi.NAME / "1" / llmapi.MODEL_YAML).is_file()


def problems(repository: Path) -> Iterator[tuple[str, str]]:
    """(model folder, fault) of everything wrong; nothing when it is sound."""
    folder = repository / llmapi.NAME
    try:
        config = pbtxt.read(folder / pbtxt.FILE)
    except ModelFileError as error:
        yield llmapi.NAME, str(error)
    else:
        for text in _config_problems(folder, config):
            yield llmapi.NAME, text
    try:
        options = _read(folder / "1" / llmapi.MODEL_YAML)
        served = _read(repository / llmapi.SERVE_OPTIONS)
    except ModelFileError as error:
        yield llmapi.NAME, str(error)
        return
    for text in (*_option_problems(options), *_disagreements(options, served)):
        yield llmapi.NAME, text


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelFileError(f"cannot read: {str(error).splitlines()[0]}", where=path) from None
    if not isinstance(found, dict):
        raise ModelFileError("is not a mapping of keys", where=path)
    return found


def _config_problems(folder: Path, config: Any) -> Iterator[str]:
    wanted = llmapi.triton_model()
    if config.name != folder.name:
        yield f"config.pbtxt names the model {config.name!r}; Triton expects the folder's name"
    if config.backend != "python":
        yield f"the backend is {config.backend!r}, not python"
    if config.max_batch_size:
        yield f"max_batch_size is {config.max_batch_size}; the model takes one prompt a request: 0"
    if not config.model_transaction_policy.decoupled:
        yield "is not decoupled: it can neither stream nor be stopped"
    if not config.output or config.output[0].name != "text_output":
        yield "the first output is not text_output, whose shape clients read"
    for kind, have, need in (("input", config.input, wanted.inputs), ("output", config.output, wanted.outputs)):
        missing = sorted({tensor.name for tensor in need} - {tensor.name for tensor in have})
        if missing:
            yield f"has no {kind} {', '.join(missing)}"
    absent = [name for name in MODEL_FILES if not (folder / "1" / name).is_file()]
    if absent:
        yield f"there is no 1/{absent[0]}"


def _option_problems(options: Mapping[str, Any]) -> Iterator[str]:
    """The arguments of LLM() against the version they were written for."""
    if options.get("backend") not in _BACKENDS:
        yield f"model.yaml: backend is {options.get('backend')!r}, not pytorch"
    yield from _folder_problems("model", options.get("model"))
    block = options.get("speculative_config")
    if not isinstance(block, dict):
        yield "model.yaml has no speculative_config: nothing would be drafted"
        return
    text = str((options.get("triton_config") or {}).get("tensorrt_llm"))
    try:
        spelling = version(text).llmapi
    except ConfigError as error:
        yield f"model.yaml: triton_config.tensorrt_llm: {error}"
        return
    if spelling is None:
        yield f"model.yaml: the LLM API of TensorRT-LLM {text} does not speculate with a draft model"
        return
    yield from _spelling_problems(block, spelling, text)
    if options.get("kv_cache_config", {}).get("free_gpu_memory_fraction", 1) <= 0:
        yield "model.yaml: kv_cache_config.free_gpu_memory_fraction leaves no room for a KV cache"


def _spelling_problems(block: Mapping[str, Any], spelling: Spelling, text: str) -> Iterator[str]:
    if block.get("decoding_type") not in (spelling.decoding_type, spelling.decoding_type_alias):
        yield f"decoding_type {block.get('decoding_type')!r}: TensorRT-LLM {text} says {spelling.decoding_type}"
    name = next((n for n in (spelling.draft_model, spelling.draft_model_alias) if n and n in block), None)
    if name is None:
        yield f"speculative_config names no draft; TensorRT-LLM {text} calls it {spelling.draft_model}"
    else:
        yield from _folder_problems(f"speculative_config.{name}", block[name])
    if not isinstance(block.get("max_draft_len"), int) or block["max_draft_len"] < 1:
        yield f"speculative_config.max_draft_len is {block.get('max_draft_len')!r}: nothing would be drafted"
    known = {"decoding_type", "max_draft_len", "max_concurrency", name, spelling.schedule, spelling.window,
             spelling.threshold}  # fmt: skip
    unknown = sorted(set(block) - known)
    if unknown:
        yield f"speculative_config.{unknown[0]}: TensorRT-LLM {text} takes no such field, and refuses to start"


def _folder_problems(key: str, given: object) -> Iterator[str]:
    if not isinstance(given, str) or not (Path(given) / "config.json").is_file():
        yield f"model.yaml: {key} is no model folder on this machine: {given}"


def _disagreements(options: Mapping[str, Any], served: Mapping[str, Any]) -> Iterator[str]:
    """Both ways to serve must mean the same pair."""
    ours = {k: v for k, v in options.items() if k not in ("model", "backend", "triton_config")}
    different = sorted(k for k in set(ours) | set(served) if ours.get(k) != served.get(k))
    if different:
        yield f"model.yaml and {llmapi.SERVE_OPTIONS} disagree on {', '.join(different)}"

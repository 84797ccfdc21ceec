"""Read a model repository back, every file, and say what would not load or not work together.

What is compared is what stands in the files, not what was meant when they were written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.errors import ModelFileError, ServingError
from trtspec.triton import pbtxt, pipeline
from trtspec.triton.models.tensorrt_llm_bls.policy import parse_policy
from trtspec.triton.wiring import wiring_problems

MODELS = (
    pipeline.PREPROCESSING,
    pipeline.TARGET,
    pipeline.DRAFT,
    pipeline.POSTPROCESSING,
    pipeline.BLS,
    pipeline.ENSEMBLE,
)
_FIRST_OUTPUT = {
    pipeline.TARGET: "output_ids",
    pipeline.DRAFT: "output_ids",
    pipeline.BLS: "text_output",
    pipeline.ENSEMBLE: "text_output",
}
_LOGITS = ("draft_logits", "context_logits", "generation_logits")
_STREAMING = (pipeline.TARGET, pipeline.DRAFT, pipeline.BLS)


@dataclass(frozen=True)
class Problem:
    """One fault; `model` is the folder it is in."""

    model: str
    message: str

    def __str__(self) -> str:
        return f"{self.model}: {self.message}"


def lint(repository: Path) -> tuple[Problem, ...]:
    """Everything wrong with a repository; empty when it is sound. ServingError when there is none."""
    if not repository.is_dir():
        raise ServingError("no model repository", where=repository, fix="run `trtspec build` first")
    configs: dict[str, Any] = {}
    problems = []
    for name in MODELS:
        try:
            configs[name] = pbtxt.read(repository / name / pbtxt.FILE)
        except ModelFileError as error:
            problems.append(Problem(name, str(error)))
    for name, config in configs.items():
        problems += [Problem(name, text) for text in _folder_problems(repository / name, config)]
    if len(configs) == len(MODELS):
        problems += [Problem(name, text) for name, text in _pair_problems(configs)]
        problems += [Problem(pipeline.ENSEMBLE, text) for text in wiring_problems(configs[pipeline.ENSEMBLE], configs)]
        problems += [Problem(pipeline.BLS, text) for text in _policy_problems(repository, configs[pipeline.BLS])]
    return tuple(problems)


def _folder_problems(folder: Path, config: Any) -> Iterator[str]:
    if config.name != folder.name:
        yield f"config.pbtxt names the model {config.name!r}; Triton expects the folder's name"
    if "${" in (folder / pbtxt.FILE).read_text(encoding="utf-8"):
        yield "config.pbtxt holds an unfilled ${placeholder}"
    if not (folder / "1").is_dir():
        yield "there is no version folder 1"
    elif config.backend == "python":
        yield from _program_problems(folder / "1", config)
    missing = sorted(pipeline.REQUIRED_PARAMETERS.get(folder.name, frozenset()) - set(config.parameters))
    if missing:
        yield f"parameters lack {', '.join(missing)}"
    first = _FIRST_OUTPUT.get(folder.name)
    if first is not None and (not config.output or config.output[0].name != first):
        yield f"the first output is not {first}, whose shape clients read"
    if folder.name in (pipeline.TARGET, pipeline.DRAFT):
        yield from _llm_problems(config)


def _program_problems(version: Path, config: Any) -> Iterator[str]:
    if not (version / "model.py").is_file():
        yield "there is no 1/model.py"
    given = pbtxt.parameters(config).get("tokenizer_dir")
    needs = config.name in (pipeline.PREPROCESSING, pipeline.POSTPROCESSING, pipeline.BLS)
    if needs and not (version / (given or "tokenizer") / "tokenizer.json").is_file():
        yield "there is no tokenizer.json in its tokenizer folder"


def _llm_problems(config: Any) -> Iterator[str]:
    """The engine folder that the config names, and the settings that draft tokens need."""
    given = pbtxt.parameters(config)
    if given.get("enable_kv_cache_reuse", "").lower() != "true":
        yield "enable_kv_cache_reuse is not true; a target refuses draft tokens without it"
    if given.get("max_beam_width") != "1":
        yield "max_beam_width is not 1; draft tokens need it"
    file = Path(given.get("gpt_model_path", "")) / "config.json"
    try:
        limits = json.loads(file.read_text(encoding="utf-8"))["build_config"]
        batch = int(limits["max_batch_size"])
    except (OSError, ValueError, KeyError, TypeError):
        yield f"gpt_model_path has no readable engine: {file}"
        return
    if config.max_batch_size > batch:
        yield f"max_batch_size {config.max_batch_size} is more than the engine's {batch}"


def _pair_problems(configs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in _STREAMING:
        if not configs[name].model_transaction_policy.decoupled:
            yield name, "is not decoupled: it can neither stream nor be stopped"
    types = {
        (name, tensor.name): tensor.data_type
        for name in _STREAMING
        for tensor in (*configs[name].input, *configs[name].output)
        if tensor.name in _LOGITS
    }
    if len(set(types.values())) > 1:
        yield pipeline.TARGET, "logits have different types in this repository; draft logits could not be passed on"
    given = pbtxt.parameters(configs[pipeline.BLS])
    for key in ("tensorrt_llm_model_name", "tensorrt_llm_draft_model_name"):
        if given.get(key) not in configs:
            yield pipeline.BLS, f"{key} names {given.get(key)!r}, which is not in this repository"
    yield from ((pipeline.BLS, text) for text in _draft_len_problems(given, configs[pipeline.TARGET]))


def _draft_len_problems(given: dict[str, str], target: Any) -> Iterator[str]:
    path = pbtxt.parameters(target).get("gpt_model_path", "")
    try:
        ours = int(given.get("max_draft_len", ""))
        engine = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
        theirs = int(engine["build_config"]["max_draft_len"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # said already where the engine or the parameter is missing
    if ours > theirs:
        yield f"max_draft_len {ours} is more than the target engine's {theirs}"


def _policy_problems(repository: Path, bls: Any) -> Iterator[str]:
    path = repository / pipeline.BLS / "1" / "policy.json"
    try:
        policy = parse_policy(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        yield f"1/policy.json cannot be read: {error.strerror}"
        return
    except ValueError as error:
        yield f"1/policy.json: {error}"
        return
    limit = pbtxt.parameters(bls).get("max_draft_len", "")
    longest = max([policy.default, *policy.tasks.values()])
    if limit.isdigit() and longest > int(limit):
        yield f"1/policy.json asks for {longest} draft tokens; the target engine takes {limit}"

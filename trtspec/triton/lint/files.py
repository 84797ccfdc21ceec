"""Rules on one model folder by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtspec.triton import pbtxt, pipeline
from trtspec.triton.lint.problem import Problem

_FIRST_OUTPUT = {
    pipeline.TARGET: "output_ids",
    pipeline.DRAFT: "output_ids",
    pipeline.BLS: "text_output",
    pipeline.ENSEMBLE: "text_output",
}
_FILLED = ("gpt_model_type", "gpt_model_path")
"""Parameters that must also have a value."""


def folder_problems(folder: Path, config: Any) -> Iterator[Problem]:
    """`config`: the folder's config.pbtxt, parsed."""
    name = folder.name
    if config.name != name:
        text = f"config.pbtxt names the model {config.name!r}; Triton expects the folder's name"
        yield Problem(name, text, "repository.name")
    unfilled = [key for key, value in pbtxt.parameters(config).items() if "${" in value]
    if "${" in (folder / pbtxt.FILE).read_text(encoding="utf-8"):
        where = f" ({', '.join(sorted(unfilled))})" if unfilled else ""
        yield Problem(name, f"config.pbtxt holds an unfilled ${{placeholder}}{where}", "repository.placeholder")
    if not (folder / "1").is_dir():
        yield Problem(name, "there is no version folder 1", "repository.version-folder")
    elif config.backend == "python":
        yield from _program_problems(folder / "1", config)
    yield from _parameter_problems(name, config)
    first = _FIRST_OUTPUT.get(name)
    if first is not None and (not config.output or config.output[0].name != first):
        yield Problem(name, f"the first output is not {first}, whose shape clients read", "repository.output-order")


def _program_problems(version: Path, config: Any) -> Iterator[Problem]:
    if not (version / "model.py").is_file():
        yield Problem(config.name, "there is no 1/model.py", "repository.program")
    given = pbtxt.parameters(config).get("tokenizer_dir")
    needs = config.name in (pipeline.PREPROCESSING, pipeline.POSTPROCESSING, pipeline.BLS)
    if needs and not (version / (given or "tokenizer") / "tokenizer.json").is_file():
        yield Problem(config.name, "there is no tokenizer.json in its tokenizer folder", "repository.tokenizer")


def _parameter_problems(name: str, config: Any) -> Iterator[Problem]:
    required = pipeline.REQUIRED_PARAMETERS.get(name, frozenset())
    missing = sorted(required - set(config.parameters))
    if missing:
        yield Problem(name, f"parameters lack {', '.join(missing)}", "repository.parameters")
    given = pbtxt.parameters(config)
    for key in _FILLED:
        if key in required and key in given and not given[key]:
            yield Problem(name, f"the parameter {key} is empty", "repository.parameters", fix="run `trtspec repo`")

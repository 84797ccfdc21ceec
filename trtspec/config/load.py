"""Read a configuration file. Precedence: `--set` flag > environment > file > default.

An override is a dotted key and a YAML value: `--set speculation.draft_len=4`, or in the environment
`TRTSPEC_SET_speculation__draft_len=4` (two underscores for a dot).
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from trtspec.config.building import EngineTools
from trtspec.config.gates import Gates
from trtspec.config.quantization import Quantization
from trtspec.config.schema import RunConfig
from trtspec.errors import ConfigError

ENV_PREFIX = "TRTSPEC_SET_"
Location = tuple[str | int, ...]


def load_config(path: Path, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> RunConfig:
    """Parse, override, validate and resolve `path`; any fault is one ConfigError with file:line and key."""
    data, lines = _read(path)
    return _config(data, lines, path, path.resolve().parent, overrides, environ)


def config_of(
    document: dict[str, Any], overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> RunConfig:
    """The same for a configuration that stands in no file; its paths are relative to the current folder."""
    return _config(document, {}, Path("command line"), Path.cwd(), overrides, environ)


def load_gates(path: Path) -> Gates:
    """The rules of a file: a block `gates`, as in a configuration, or its keys alone; faults as in `load_config`."""
    data, lines = _read(path)
    if "gates" in data:
        block = data["gates"]
    else:
        block, lines = data, {("gates", *key): line for key, line in lines.items()}
    try:
        return Gates.model_validate(block if block is not None else {})
    except ValidationError as error:
        raise _explain(error, path, lines, {}, inside=("gates",)) from None


def _config(
    data: dict[str, Any],
    lines: dict[Location, int],
    path: Path,
    folder: Path,
    overrides: Iterable[str],
    environ: Mapping[str, str] | None,
) -> RunConfig:
    sources = _apply(data, _environment(os.environ if environ is None else environ))
    sources |= _apply(data, [(_shown(text), *_split(text, _shown(text))) for text in overrides])
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise _explain(error, path, lines, sources) from None
    return _resolve(config, folder)


def _shown(override: str) -> str:
    return f"--set {override}"


def _read(path: Path) -> tuple[dict[str, Any], dict[Location, int]]:
    if not path.exists():
        raise ConfigError("no such configuration file", where=path)
    if not path.is_file():  # reading a pipe would wait for ever
        fix = "name a YAML file; model folders are given by --target and --draft" if path.is_dir() else ""
        raise ConfigError("this is not a file", where=path, fix=fix)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration: {error}", where=path) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[Location, int] = {}
        _index(node, (), lines, path)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"not valid YAML: {problem}", where=where) from None
    except RecursionError:
        raise ConfigError("nested too deeply to be a configuration", where=path) from None
    if not isinstance(data, dict):
        raise ConfigError("the file is not a mapping of keys", where=path, found=type(data).__name__)
    return data, lines


def _index(node: yaml.Node | None, at: Location, lines: dict[Location, int], path: Path) -> None:
    """Remember the line of every key and list entry; a key given twice is an error (YAML keeps the last)."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*at, str(key.value))
            line = key.start_mark.line + 1
            if here in lines:
                raise ConfigError(
                    f"{_dotted(here)} is given twice", where=f"{path}:{line}", found=f"first at line {lines[here]}"
                )
            lines[here] = line
            _index(value, here, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            lines[(*at, i)] = value.start_mark.line + 1
            _index(value, (*at, i), lines, path)


def _environment(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    found = sorted((k, v) for k, v in environ.items() if k.startswith(ENV_PREFIX))
    return [(f"environment {k}", k.removeprefix(ENV_PREFIX).replace("__", "."), v) for k, v in found]


def _split(text: str, source: str) -> tuple[str, str]:
    key, eq, value = text.partition("=")
    if not eq or not key:
        raise ConfigError("an override is KEY=VALUE", where=source, expected="for example engine.backend=reference")
    return key.strip(), value


def _apply(data: dict[str, Any], overrides: Iterable[tuple[str, str, str]]) -> dict[Location, str]:
    """Write each override into `data`; returns which source spoke for which key."""
    sources: dict[Location, str] = {}
    for source, key, text in overrides:
        *parents, last = key.split(".")
        block: Any = data
        for part in parents:
            block = block.setdefault(part, {}) if isinstance(block, dict) else None
        if not isinstance(block, dict):
            raise ConfigError(f"{key} is not inside a block of keys", where=source)
        try:
            block[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ConfigError(f"the value of {key} is not valid YAML", where=source, found=text) from None
        sources[tuple(key.split("."))] = source
    return sources


def _explain(
    error: ValidationError,
    path: Path,
    lines: dict[Location, int],
    sources: dict[Location, str],
    inside: Location = (),
) -> ConfigError:
    """The first fault as one line; further faults are counted."""
    faults = error.errors(include_url=False)
    first = faults[0]
    location: Location = (*inside, *first["loc"])
    where = _where(location, path, lines, sources)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    name = _dotted(location)
    if first["type"] == "extra_forbidden":
        return ConfigError(f"unknown key {name}{more}", where=where, fix=_did_you_mean(location))
    if first["type"] == "missing":
        return ConfigError(f"{name} is missing{more}", where=where)
    message = _PLAIN.get(first["type"], first["msg"].removeprefix("Value error, "))
    found = None if isinstance(first["input"], (dict, BaseModel)) else repr(first["input"])
    return ConfigError(f"{name}: {message}{more}" if name else message + more, where=where, found=found)


_PLAIN = {
    "model_type": "must be a block of keys",
    "path_type": "must be a path",
    "string_type": "must be text; in quotes where it looks like a number",
    "tuple_type": "must be a list",
}


def _where(location: Location, path: Path, lines: dict[Location, int], sources: dict[Location, str]) -> str:
    # A fault of a whole block comes from the override that reached into it, if one did.
    inside = [source for key, source in sources.items() if location and key[: len(location)] == location]
    if inside:
        return inside[-1]
    for end in range(len(location), 0, -1):
        part = location[:end]
        if part in sources:
            return sources[part]
        if part in lines:
            return f"{path}:{lines[part]}"
    return str(path)


def _dotted(location: Location) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).lstrip(".")


def _did_you_mean(location: Location) -> str:
    """Nearest known key of the same block, or all of them; says where a key of another block belongs."""
    siblings = list(_model_at(location[:-1]).model_fields)
    near = difflib.get_close_matches(str(location[-1]), siblings, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys here: {', '.join(siblings)}"


def _model_at(location: Location) -> type[BaseModel]:
    model: type[BaseModel] = RunConfig
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        candidates = [annotation, *get_args(annotation)]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return model


def _resolve(config: RunConfig, folder: Path) -> RunConfig:
    """Make every path absolute: those given in the file against its folder, default outputs against the current one."""
    pair = config.pair.model_copy(
        update={
            role: source.model_copy(
                update={
                    "path": _absolute(source.path, folder),
                    "quantization": _calibrated(source.quantization, folder),
                }
            )
            for role, source in (("target", config.pair.target), ("draft", config.pair.draft))
        }
    )
    datasets = tuple(d.model_copy(update={"path": _absolute(d.path, folder)}) for d in config.validation.datasets)
    output = _outputs(config, folder)
    return config.model_copy(
        update={
            "pair": pair,
            "validation": config.validation.model_copy(update={"datasets": datasets}),
            "output": config.output.model_copy(update=output),
            "serving": config.serving.model_copy(
                update={"tritonserver": _absolute(config.serving.tritonserver, folder)}
            ),
            "engine": config.engine.model_copy(update={"tools": _tools(config.engine.tools, folder)}),
            "tools": config.tools.model_copy(
                update={"modelopt_python": _absolute(config.tools.modelopt_python, folder)}
            ),
        }
    )


def _tools(tools: EngineTools, folder: Path) -> EngineTools:
    found = {name: _absolute(getattr(tools, name), folder) for name in type(tools).model_fields}
    return tools.model_copy(update=found)


def _calibrated(quantization: Quantization, folder: Path) -> Quantization:
    prompts = _absolute(quantization.calibration.prompts, folder)
    calibration = quantization.calibration.model_copy(update={"prompts": prompts})
    return quantization.model_copy(update={"calibration": calibration})


def _outputs(config: RunConfig, folder: Path) -> dict[str, Path | None]:
    """The result folders, absolute; ConfigError when one is or lies in another, which would overwrite its content."""
    given = config.output.model_fields_set
    found = {
        name: _absolute(getattr(config.output, name), folder if name in given else Path.cwd())
        for name in type(config.output).model_fields
    }
    for one, other in itertools.permutations(found, 2):
        inner, outer = found[one], found[other]
        if inner is not None and outer is not None and inner.is_relative_to(outer):
            raise ConfigError(
                f"output.{one} lies in output.{other}", found=inner, expected="folders apart", fix="choose another"
            )
    return found


def _absolute(path: Path | None, folder: Path) -> Path | None:
    if path is None:
        return None
    if "\0" in str(path):
        raise ConfigError("a path cannot hold a NUL character", found=repr(str(path)))
    expanded = path.expanduser()
    return Path(os.path.normpath(expanded if expanded.is_absolute() else folder / expanded))

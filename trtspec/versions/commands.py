"""Check a `trtllm-build` command line against a version before it is run."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from trtspec.errors import ConfigError
from trtspec.versions.flags import BUILD_FLAGS, NEVER_THERE, Flag
from trtspec.versions.row import LAST
from trtspec.versions.table import TrtLlm

TOOL = "trtllm-build"


def check_flags(version: TrtLlm, arguments: Sequence[str | Path], *, complete: bool = True) -> None:
    """ConfigError for the first argument that `version` does not take: unknown, gone, or with a wrong value.

    `arguments` may begin with the program's name. `complete` also wants every flag whose default flipped
    (:attr:`TrtLlm.must_pass`), since nobody knows what such a version takes without it.
    """
    words = [str(word) for word in arguments]
    if words and not words[0].startswith("-"):
        words = words[1:]
    given = [_checked(version, name, values) for name, values in _split(words)]
    twice = sorted({flag.name for flag in given if given.count(flag) > 1})
    if twice:
        raise _refused(version, twice[0], "is given twice")
    missing = [name for name in version.must_pass if name not in {flag.name for flag in given}]
    if complete and missing:
        raise ConfigError(
            f"--{missing[0]} must be given: {version.flags[missing[0]].note}", where=_where(version)
        )  # fmt: skip


def _split(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(name, values) for each flag, in order; a value before the first flag is an error of its own."""
    name: str | None = None
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            if name is not None:
                yield name, values
            name, equals, value = word[2:].partition("=")
            values = [value] if equals else []
        elif name is None:
            raise ConfigError(f"{word!r} is no argument of {TOOL}", expected="--flag value")
        else:
            values.append(word)
    if name is not None:
        yield name, values


def _checked(version: TrtLlm, name: str, values: list[str]) -> Flag:
    flag = version.flags.get(name) or next((f for f in version.flags.values() if name in f.aliases), None)
    if flag is None:
        raise _unknown(version, name)
    problem = _problem(flag, values)
    if problem:
        raise _refused(version, name, problem)
    return flag


def _problem(flag: Flag, values: list[str]) -> str | None:
    if flag.kind == "switch":
        return f"takes no value, found {values[0]!r}" if values else None
    if not values:
        return "needs a value"
    if flag.kind != "list" and len(values) > 1:
        return f"takes one value, found {' '.join(values)!r}"
    if flag.kind == "int" and not values[0].lstrip("-").isdigit():
        return f"takes a whole number, found {values[0]!r}"
    if flag.choices and values[0] not in flag.choices:
        return f"takes {' | '.join(flag.choices)}, found {values[0]!r}"
    return None


def _unknown(version: TrtLlm, name: str) -> ConfigError:
    elsewhere = next((row for row in BUILD_FLAGS if row.name == name or name in row.aliases), None)
    if not version.flags:
        return ConfigError(f"TensorRT-LLM {version} has no {TOOL}", where=_where(version), fix=f"use {LAST}")
    if name in NEVER_THERE:
        return _refused(version, name, f"is no flag: {NEVER_THERE[name]}")
    if elsewhere is not None:
        return _refused(version, name, f"is a flag of {elsewhere.span} only ({elsewhere.note})")
    near = difflib.get_close_matches(name, version.flags, n=1)
    return _refused(version, name, "is no flag", f"did you mean --{near[0]}?" if near else None)


def _refused(version: TrtLlm, name: str, problem: str, fix: str | None = None) -> ConfigError:
    return ConfigError(f"--{name} {problem}", where=_where(version), fix=fix)


def _where(version: TrtLlm) -> str:
    return f"{TOOL} {version}"

"""The rules of the house that a program can check: imports point downwards, files and functions stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PROJECT

PACKAGE = PROJECT / "trtspec"
# From the ground up; a room may import those before it.
ROOMS = (
    *("errors", "hashing", "store", "supervisor", "runner", "hardware", "versions", "environment", "config"),
    *("analysis", "checkpoint", "pairing", "backends", "triton", "measurement", "release", "workflows", "cli"),
)
TRITON_MODELS = PACKAGE / "triton" / "models"
IN_EVERY_IMAGE = {"numpy", "tokenizers", "triton_python_backend_utils"}
IN_LLM_API_IMAGES = {"tensorrt_llm", "yaml"}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if TRITON_MODELS not in p.parents)
EVERY_FILE = sorted(
    p for place in ("trtspec", "tests", "scripts", "benchmarks") for p in (PROJECT / place).rglob("*.py")
)


def name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from trtspec import runner` names the room in its alias
            yield from (f"{node.module}.{a.name}" for a in node.names) if node.module == "trtspec" else (node.module,)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_point_downwards(path: Path) -> None:
    room = room_of(path)
    if room not in ROOMS:  # __init__ and __main__
        return
    for module in imported(path):
        parts = module.split(".")
        if parts[0] == "trtspec" and len(parts) > 1 and parts[1] in ROOMS:
            assert ROOMS.index(parts[1]) <= ROOMS.index(room), f"{room} knows {parts[1]}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "analysis").glob("*.py")), ids=name)
def test_analysis_is_arithmetic(path: Path) -> None:
    roots = {module.split(".")[0] for module in imported(path)}
    assert roots <= {"__future__", "collections", "dataclasses", "functools", "typing", "numpy", "scipy", "trtspec"}


@pytest.mark.parametrize("path", sorted(TRITON_MODELS.rglob("*.py")), ids=name)
def test_triton_models_need_nothing_that_a_gpu_image_lacks(path: Path) -> None:
    # The fused layout is the pipeline's folder with files of these two beside its own.
    fused = ("fused", "tensorrt_llm", "tensorrt_llm_bls") if path.parent.name in ("fused", "tensorrt_llm_bls") else ()
    folders = {path.parent, TRITON_MODELS / "common", *(TRITON_MODELS / folder for folder in fused)}
    siblings = {p.stem for folder in folders for p in folder.glob("*.py")}
    for module in imported(path):
        root = module.split(".")[0]
        if root == "trtspec":
            # The reference engine's models are the one exception.
            assert path.parent.name in ("tensorrt_llm", "fused")
            assert module.startswith("trtspec.backends.reference")
        else:
            own = IN_LLM_API_IMAGES if path.parent.name == "llmapi" else set()
            assert root in siblings | IN_EVERY_IMAGE | own or root in STDLIB, module


@pytest.mark.parametrize("path", EVERY_FILE, ids=name)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is too long"


STDLIB = {
    *("__future__", "bisect", "collections", "concurrent", "contextlib", "dataclasses", "functools", "itertools"),
    *("json", "pathlib", "queue", "threading", "time", "traceback", "typing", "uuid", "asyncio", "weakref", "re", "os"),
    *("hashlib", "secrets", "logging", "math", "sys", "ctypes", "datetime"),
}

"""Repositories of the LLM API for tests, and their model on the stand-in."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tests.triton import fakepb, standinllm
from tests.triton.modelfolder import arguments, load
from tests.workflows.pair import SHIPPED
from trtspec.config import RunConfig
from trtspec.triton.llmapi import plan_llmapi, write_llmapi

FOLDERS: dict[Any, Path] = {role: SHIPPED / "tiny" / role for role in ("target", "draft")}


def config(folder: Path, **engine: Any) -> RunConfig:
    """The shipped pair on the LLM API, K = 4; results go below `folder`."""
    output = {name: folder / name for name in ("engines", "model_repo", "reports")}
    return RunConfig.model_validate(
        {
            "name": "small",
            "pair": {role: {"path": path} for role, path in FOLDERS.items()},
            "engine": {"backend": "pytorch", **engine},
            "output": output,
        }
    )


def written(folder: Path, **engine: Any) -> Path:
    """The repository, below `folder`."""
    plan = plan_llmapi(config(folder, **engine), FOLDERS)
    plan.final_dir.mkdir(parents=True)
    write_llmapi(plan.final_dir, plan)
    return plan.final_dir


def with_standin(repository: Path) -> Path:
    """Beside model.py, as `tensorrt_llm`, the stand-in; for a real Triton."""
    shutil.copyfile(Path(standinllm.__file__), repository / "tensorrt_llm" / "1" / "tensorrt_llm.py")
    return repository


def started(repository: Path, monkeypatch: Any) -> tuple[Any, dict[str, Any], standinllm.LLM]:
    """The model after initialize() on the stand-in, its modules, and the stand-in's LLM."""
    model = repository / "tensorrt_llm"
    modules: dict[str, Any] = load(model)
    monkeypatch.setitem(sys.modules, "tensorrt_llm", standinllm)
    served = modules["model"].TritonPythonModel()
    served.initialize(arguments(model) | {"model_repository": str(model), "model_version": "1"})
    return served, modules, standinllm.made[-1]


def request(name: str = "r1", sender: fakepb.Sender | None = None, **tensors: Any) -> fakepb.Request:
    """A request of these tensors; text becomes STRING."""
    import numpy as np

    arrays = {}
    for key, value in tensors.items():
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if isinstance(values[0], str):
            arrays[key] = np.array([v.encode() for v in values], dtype=np.object_)
        else:
            arrays[key] = np.array(values)
    return fakepb.Request(arrays, sender or fakepb.Sender(), name)

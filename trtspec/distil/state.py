"""Where training stands, on disk: `state.safetensors` (weights, optimizers) and `state.json`, in one folder that
appears whole. No pickle: a state can be handed on and opened without running anything in it.
"""

# The project's mypy does not look into torch.
# mypy: no-warn-return-any
from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trtspec.checkpoint.jsonfile import read_object
from trtspec.distil.optim import Optimizers
from trtspec.errors import BuildError, ModelFileError

TENSORS, FACTS = "state.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{9})")


def save(folder: Path, step: int, model: nn.Module, optimizers: Optimizers, facts: Mapping[str, Any]) -> Path:
    """Write `folder`/step-…: it has all of it or does not exist; older states go once it does. BuildError: the disk."""
    out, partial = folder / f"step-{step:09d}", folder / f".step-{step:09d}.partial-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        tensors = {f"model.{name}": p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(tensors | _optimizer_tensors(model, optimizers), partial / TENSORS)
        (partial / FACTS).write_text(json.dumps({**facts, "version": 1, "step": step}, indent=1) + "\n", "utf-8")
        for path in partial.iterdir():
            _sync(path)
        older = [path for path, _ in _states(folder) if path != out]
        shutil.rmtree(out, ignore_errors=True)
        partial.rename(out)
        _sync(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise BuildError(f"saving the state failed: {error.strerror}", where=error.filename or folder) from None
    for path in older:
        shutil.rmtree(path, ignore_errors=True)
    return out


def newest(folder: Path) -> Path | None:
    """The latest whole state below `folder`; None where there is none."""
    return max(_states(folder), key=lambda found: found[1], default=(None, 0))[0]


def load(state: Path, model: nn.Module, optimizers: Optimizers) -> dict[str, Any]:
    """Put the state into model and optimizers; returns the facts. ModelFileError where it does not fit them."""
    facts = read_object(state / FACTS)
    tensors = read_tensors(state / TENSORS)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(_take(tensors, f"model.{name}", parameter, state))
        for index, (optimizer, _) in enumerate(optimizers.each):
            prefix = f"optimizer.{index}.{name}."
            for key in [k for k in tensors if k.startswith(prefix)]:
                value = tensors.pop(key)
                # AdamW keeps its step count on the CPU whatever the weights are on.
                optimizer.state[parameter][key[len(prefix) :]] = value if value.dim() == 0 else value.to(parameter)
    if tensors:
        raise ModelFileError(f"{sorted(tensors)[0]!r} belongs to another model", where=state)
    return facts


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a file that this module wrote; ModelFileError when it is damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"cannot be read: {error}", where=path, fix="remove it and train again") from None


def _take(tensors: dict[str, Tensor], name: str, like: Tensor, state: Path) -> Tensor:
    found = tensors.pop(name, None)
    if found is None or found.shape != like.shape:
        shape = None if found is None else list(found.shape)
        raise ModelFileError(f"{name!r} is not of this model", where=state, found=shape, expected=str(list(like.shape)))
    return found


def _optimizer_tensors(model: nn.Module, optimizers: Optimizers) -> dict[str, Tensor]:
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"optimizer.{index}.{names[id(parameter)]}.{key}": value.detach().contiguous()
        for index, (optimizer, _) in enumerate(optimizers.each)
        for parameter, held in optimizer.state.items()
        for key, value in held.items()
    }


def _states(folder: Path) -> list[tuple[Path, int]]:
    found = [(path, _NAME.fullmatch(path.name)) for path in folder.glob("step-*") if (path / FACTS).is_file()]
    return [(path, int(match[1])) for path, match in found if match]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

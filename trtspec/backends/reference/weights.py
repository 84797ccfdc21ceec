"""A checkpoint's tensors by their names, checked against config.json and for NaN; one at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trtspec.backends.reference.modelconfig import ModelConfig
from trtspec.checkpoint.activations import ActivationQuant
from trtspec.checkpoint.readback import Checkpoint
from trtspec.errors import ModelFileError

EMBEDDING = "transformer.vocab_embedding.weight"
FINAL_NORM = "transformer.ln_f.weight"
LM_HEAD = "lm_head.weight"
LAYER = "transformer.layers.{}."
PLAIN = (torch.float32, torch.float16, torch.bfloat16)


class Tensors(Protocol):
    """Named tensors of a whole model: one plain file, or rank files merged and dequantized."""

    @property
    def names(self) -> Collection[str]:
        """All weights and biases, layers numbered through."""

    def get(self, name: str) -> Tensor:
        """A tensor as it is multiplied."""

    def inputs(self, linear: str, /) -> ActivationQuant | None:
        """What a linear does to its inputs; None: nothing."""

    def cache_scale(self, layer: int, /) -> float:
        """Value of code 1 in a layer's quantized cache."""


class Weights:
    """Tensors with their checks. What was never asked for is an error at the end: nothing is left out in silence."""

    def __init__(self, place: Path, tensors: Tensors) -> None:
        self.place, self.tensors = place, tensors
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self.tensors.names

    def get(self, name: str, *shape: int) -> Tensor:
        """A tensor of that shape. ModelFileError: absent, of another shape, NaN or infinity in it."""
        if not self.has(name):
            raise ModelFileError("a tensor is missing", where=self.place, expected=f"{name} {list(shape)}")
        self._asked.add(name)
        tensor = self.tensors.get(name)
        if tuple(tensor.shape) != shape:
            raise ModelFileError(
                f"{name} does not fit config.json",
                where=self.place,
                found=list(tensor.shape),
                expected=str(list(shape)),
            )
        # Two models of NaN agree on every token: they would pass for a perfect pair.
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        if bad:
            raise ModelFileError(
                f"{name} holds NaN or infinity", where=self.place, found=f"{bad} of {tensor.numel()} values"
            )
        return tensor

    def optional(self, name: str, *shape: int, needed: bool = False) -> Tensor | None:
        """A tensor that a model may lack; None then, unless it is needed."""
        return self.get(name, *shape) if needed or self.has(name) else None

    def finish(self) -> None:
        """ModelFileError names a weight or bias that nothing asked for."""
        left = sorted(n for n in self.tensors.names if n not in self._asked and n.endswith((".weight", ".bias")))
        if left:
            raise ModelFileError(
                "a tensor has no place in the model that config.json describes",
                where=self.place,
                found=left[0] + (f" and {len(left) - 1} more" if len(left) > 1 else ""),
            )


class _File:
    """One rank file of plain weights; types stay as they are stored."""

    def __init__(self, file: Path, handle: Any) -> None:
        self._file, self._handle = file, handle
        self.names: frozenset[str] = frozenset(handle.keys())

    def get(self, name: str) -> Tensor:
        tensor: Tensor = self._handle.get_tensor(name)
        if tensor.dtype not in PLAIN:
            raise ModelFileError(f"{name} is not a plain float tensor", where=self._file, found=tensor.dtype)
        return tensor

    def inputs(self, _linear: str, /) -> ActivationQuant | None:
        return None

    def cache_scale(self, _layer: int, /) -> float:
        return 1.0


class _Checkpoint:
    """Rank files merged and dequantized to float32."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.names = frozenset(checkpoint.weights)

    def get(self, name: str) -> Tensor:
        return torch.from_numpy(self._checkpoint.executed(name))

    def inputs(self, linear: str, /) -> ActivationQuant | None:
        return self._checkpoint.activation(linear)

    def cache_scale(self, layer: int, /) -> float:
        return self._checkpoint.kv_scale(layer) or 1.0


@contextmanager
def open_weights(folder: Path, config: ModelConfig) -> Iterator[Weights]:
    """The weights of an engine or checkpoint folder; ModelFileError when a file is missing or not safetensors."""
    if not config.plain_weights:
        yield Weights(folder, _Checkpoint(Checkpoint.open(folder)))
        return
    file = folder / "rank0.safetensors"
    if not file.is_file():
        raise ModelFileError("no such file", where=file, expected="the weights of rank 0")
    try:
        with safe_open(file, framework="pt") as handle:
            yield Weights(file, _File(file, handle))
    except SafetensorError as error:
        raise ModelFileError(f"not a readable safetensors file: {error}", where=file) from None

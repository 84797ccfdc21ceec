"""Read a TensorRT-LLM checkpoint of any format back: all ranks merged, dequantized with numpy, one tensor at a time.

Three views of a weight: `stored` is what the files hold; `tensor` is that in the terms of the source model (a vector
that multiplies the inputs is multiplied into the columns), to be compared with it; `executed` is the matrix that the
engine multiplies the inputs with, after `activation(linear).apply`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trtspec.checkpoint import dequantize
from trtspec.checkpoint.activations import ActivationQuant
from trtspec.checkpoint.codecs import VIEWS, Codes, Floats, decode
from trtspec.checkpoint.formats import CHANNEL, INPUT, PREQUANT, WEIGHT, Format, format_of
from trtspec.checkpoint.header import TensorInfo, read_header
from trtspec.checkpoint.jsonfile import Keys, read_object
from trtspec.checkpoint.merge import merged
from trtspec.errors import ModelFileError

CONFIG = "config.json"
_LAYER = re.compile(r"transformer\.layers\.(\d+)\.(.+)")
PLAIN = ("F32", "F16", "BF16")
LINEARS = ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")


@dataclass(frozen=True)
class Stored:
    """One linear's or tensor's codes as they are in the files, ranks merged. `scales` by suffix, each with its type."""

    dtype: str
    codes: Codes
    scales: Mapping[str, tuple[str, Codes]]

    def scale(self, suffix: str) -> Floats | None:
        """Values of one scale as float32, or None where there is none."""
        return decode(self.scales[suffix][1], self.scales[suffix][0]) if suffix in self.scales else None


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint. `pieces`: merged name → for each tensor-parallel rank where its piece lies."""

    folder: Path
    config: Mapping[str, Any]
    pieces: Mapping[str, tuple[TensorInfo, ...]]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read config.json and every rank's header; ModelFileError names what is broken or absent."""
        config = read_object(folder / CONFIG, fix="a checkpoint has a config.json beside its rank files")
        config = config.get("pretrained_config", config)  # as an engine folder of the reference backend holds it
        keys = Keys(config, folder / CONFIG)
        _check_sizes(keys)
        mapping = keys.block("mapping") or Keys({}, folder / CONFIG)
        tensor, pipeline = (mapping.integer(key, 1, most=1 << 16) for key in ("tp_size", "pp_size"))
        found: dict[str, tuple[TensorInfo, ...]] = {}
        first = 0
        for stage in range(pipeline):
            headers = [read_header(folder / f"rank{stage * tensor + rank}.safetensors") for rank in range(tensor)]
            count = max((int(m[1]) + 1 for name in headers[0] if (m := _LAYER.fullmatch(name))), default=0)
            for name in headers[0]:
                found.setdefault(_global(name, first), _of_all(name, headers, folder))
            first += count
        wanted = keys.integer("num_hidden_layers", most=10_000)
        if first != wanted:
            raise ModelFileError(
                "layers are missing", where=folder, found=f"{first} in the files", expected=f"{wanted} by {CONFIG}"
            )
        return cls(folder, config, found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every tensor, layers numbered through all pipeline stages; scales are among them."""
        return tuple(self.pieces)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """The tensors that are not scales: what a source model has."""
        return tuple(name for name in self.pieces if name.endswith((".weight", ".bias")))

    @property
    def quantization(self) -> Mapping[str, Any]:
        """The `quantization` object of config.json; empty when there is none."""
        block = self.config.get("quantization")
        return block if isinstance(block, dict) else {}

    @cached_property
    def format(self) -> Format:
        """The declared weight format; ModelFileError for one that is not in the table."""
        found = format_of(self.quantization)
        if found is None:
            raise ModelFileError(
                "this quantization cannot be read", where=self.folder / CONFIG, found=self.quantization["quant_algo"]
            )
        return found

    @property
    def group_size(self) -> int:
        """Columns that share a scale; 0 for formats without groups."""
        default = self.format.group_size
        block = Keys(self.quantization, self.folder / CONFIG, "quantization.")
        return block.integer("group_size", default) if default else 0

    def is_quantized(self, linear: str) -> bool:
        """Whether X.weight is held as codes with scales beside it."""
        return any(f"{linear}.{suffix}" in self.pieces for suffix in (WEIGHT, CHANNEL))

    def stored(self, name: str) -> Stored:
        """Codes of a tensor and, for a linear's weight, its scales. KeyError for an unknown name."""
        linear, _, suffix = name.rpartition(".")
        found = [s for s in self.format.names if f"{linear}.{s}" in self.pieces] if suffix == "weight" else []
        if suffix == "weight" and not found and self._dtype(name) not in PLAIN:
            raise ModelFileError(
                f"tensor {name!r} holds codes that nothing here explains",
                where=self.folder,
                found=f"{self._dtype(name)} under {self.format.quant_algo}",
                expected=" or ".join(self.format.names) or "plain weights",
                fix="weight-only checkpoints are read in the late form (plain weights); others are bound to one GPU",
            )
        scales = {s: (self._dtype(f"{linear}.{s}"), self._merged(f"{linear}.{s}")) for s in found}
        held = Stored(self._dtype(name), self._merged(name), scales)
        if WEIGHT in scales and self.group_size:
            self._check_groups(name, held)
        return held

    def _check_groups(self, name: str, held: Stored) -> None:
        codes, scales = held.codes.shape, held.scales[WEIGHT][1].shape
        rows, columns = (codes[0] * 2, codes[1]) if self.format.packs_rows else (codes[0], codes[1] * 2)
        if scales != (rows, columns // self.group_size) or columns % self.group_size:
            raise ModelFileError(
                f"scales of {name!r} are not those of groups of {self.group_size} columns",
                where=self.folder,
                found=f"scales {list(scales)} for {rows} × {columns} weights",
            )

    def tensor(self, name: str) -> Floats:
        """Values in the terms of the source model; float32. KeyError for an unknown name."""
        held = self.stored(name)
        values = dequantize.values(self.format, held, self.group_size)
        prequant = held.scale(PREQUANT)
        return values if prequant is None else (values * prequant).astype(np.float32)

    def executed(self, name: str) -> Floats:
        """Values that the engine multiplies inputs with after `activation(linear).apply`; float32."""
        held = self.stored(name)
        if self.format.late and self._is_late(name):
            return dequantize.as_built(self.format, held)
        return dequantize.executed(self.format, held, self.group_size)

    def activation(self, linear: str) -> ActivationQuant | None:
        """How `linear` (a name without .weight) treats its inputs; None when it takes them as they are.

        ModelFileError where its format has a stored scale for them and the checkpoint has not: none is invented.
        """
        fmt = self.format
        if not self.is_quantized(linear) or (fmt.activation == "none" and not fmt.prequant):
            return None
        held = {s: self._value(f"{linear}.{s}") for s in (INPUT, PREQUANT) if f"{linear}.{s}" in self.pieces}
        if INPUT in fmt.names and INPUT not in held:
            raise ModelFileError(
                f"{linear}.{INPUT} is absent",
                where=self.folder,
                expected=f"a scale for the inputs of {fmt.name}",
                fix="calibrate and quantize the model again",
            )
        scale = None if INPUT not in held else float(held[INPUT].reshape(-1)[0])
        return ActivationQuant(fmt.activation, scale, held.get(PREQUANT), self.group_size or 16)

    def scale(self, name: str) -> Floats:
        """Values of one scale tensor, ranks merged; float32. KeyError for an unknown name."""
        return self._value(name)

    def kv_scale(self, layer: int) -> float | None:
        """Value of code 1 in the KV cache of a layer; None when the cache is not quantized.

        Engines merge scales of K and V to the larger one, and take 1 where a checkpoint has none.
        """
        if self.quantization.get("kv_cache_quant_algo") is None:
            return None
        names = [f"transformer.layers.{layer}.attention.{p}_cache_scaling_factor" for p in ("kv", "k", "v")]
        return max((float(self._value(n).reshape(-1)[0]) for n in names if n in self.pieces), default=1.0)

    def _is_late(self, name: str) -> bool:
        match = _LAYER.fullmatch(name)
        return match is not None and match[2].removesuffix(".weight") in LINEARS and name.endswith(".weight")

    def _dtype(self, name: str) -> str:
        return self.pieces[name][0].dtype

    def _value(self, name: str) -> Floats:
        return decode(self._merged(name), self._dtype(name))

    def _merged(self, name: str) -> Codes:
        pieces = self.pieces[name]
        linear = name.rpartition(".")[0]
        weight = self.pieces.get(f"{linear}.weight", pieces)[0]
        packed = 2 if name.endswith(".weight") and weight.dtype in ("I8", "U8") and self.format.packs_rows else 1
        try:
            return merged(name, [_read(p) for p in pieces], self.config, experts=len(weight.shape) == 3, packed=packed)
        except ValueError as error:
            raise ModelFileError(f"tensor {name!r}: {error}", where=self.folder) from None


def _check_sizes(keys: Keys) -> None:
    """ModelFileError unless config.json has the numbers by which ranks are merged."""
    for key in ("vocab_size", "num_attention_heads"):
        keys.integer(key)
    for key in ("num_key_value_heads", "intermediate_size", "moe_intermediate_size"):
        keys.integer(key, 0, least=0)


def _global(name: str, first: int) -> str:
    match = _LAYER.fullmatch(name)
    return f"transformer.layers.{int(match[1]) + first}.{match[2]}" if match else name


def _of_all(name: str, headers: list[dict[str, TensorInfo]], folder: Path) -> tuple[TensorInfo, ...]:
    absent = next((rank for rank, header in enumerate(headers) if name not in header), None)
    if absent is None:
        return tuple(header[name] for header in headers)
    if name.endswith(".bias"):  # a row-parallel bias may be on the first rank alone
        return (headers[0][name],)
    raise ModelFileError(f"tensor {name!r} is not on every rank", where=folder, found=f"absent on rank {absent}")


def _read(tensor: TensorInfo) -> Codes:
    view = VIEWS.get(tensor.dtype)
    if view is None:
        raise ModelFileError(f"tensor {tensor.name!r} has type {tensor.dtype}", where=tensor.path)
    codes = np.fromfile(tensor.path, view, tensor.elements, offset=tensor.begin)
    if codes.size != tensor.elements:
        raise ModelFileError(f"ended inside tensor {tensor.name!r}; it changed while being read", where=tensor.path)
    return codes.reshape(tensor.shape)

"""A checkpoint against the model it was made from, tensor by tensor: equal bytes where nothing was quantized, within
the rounding of the format where something was. numpy only; one tensor is held at a time.

The values of the source are rounded here by `codecs`, not by what the converter uses, and the ranks are merged by
`readback`, not by the converter's plan: a fault of either side shows.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from trtspec.checkpoint.bounds import Bounds
from trtspec.checkpoint.cast import NAMES
from trtspec.checkpoint.codecs import VIEWS, Codes, Floats, decode, encode
from trtspec.checkpoint.families import Rule
from trtspec.checkpoint.header import ITEM_BYTES, TensorInfo
from trtspec.checkpoint.plan import Plan, plan_conversion
from trtspec.checkpoint.readback import LINEARS, Checkpoint, Stored
from trtspec.errors import ConfigError, ModelFileError

Outcome = Literal["equal", "rounded", "differs", "missing", "extra"]
BLOCK = 1 << 22
"""Elements compared at once."""
TINY = np.float32(1e-38)


@dataclass(frozen=True)
class Compared:
    """One tensor. `rounded`: quantized, within its bound. Errors are of the worst element, in the source's terms."""

    name: str
    outcome: Outcome
    shape: tuple[int, ...] = ()
    error: float = 0.0
    """Largest absolute difference."""
    share: float = 0.0
    """Largest difference ÷ its bound, for quantized tensors."""
    relative: float = 0.0
    """Frobenius norm of the difference ÷ that of the source."""
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the tensor is what it should be."""
        return self.outcome in ("equal", "rounded")


@dataclass(frozen=True)
class Comparison:
    """What a checkpoint should hold (`plan`) beside what it holds."""

    plan: Plan
    checkpoint: Checkpoint

    @classmethod
    def open(cls, model_dir: Path, checkpoint_dir: Path) -> Comparison:
        """ModelFileError: either side is broken, or not supported."""
        held = Checkpoint.open(checkpoint_dir)
        mapping = held.config.get("mapping") or {}
        dtype = str(held.config.get("dtype"))
        if dtype not in NAMES.values():
            raise ModelFileError("dtype is not one of weights", where=checkpoint_dir / "config.json", found=dtype)
        tensor, pipeline = (int(mapping.get(key) or 1) for key in ("tp_size", "pp_size"))
        try:
            plan = plan_conversion(model_dir, dtype=dtype, tensor=tensor, pipeline=pipeline)
        except ConfigError as error:
            # The layout is the checkpoint's own claim, not the user's wish.
            raise ModelFileError(f"not a layout of this model: {error.what}", where=checkpoint_dir) from None
        if plan.config["quantization"]["quant_algo"] is not None:
            raise ModelFileError(
                "the source is quantized already, and its codes were taken over as they are",
                where=model_dir,
                fix="compare with the model before it was quantized",
            )
        return cls(plan, held)

    @property
    def dtype(self) -> str:
        """safetensors type of the unquantized tensors."""
        return {name: stored for stored, name in NAMES.items()}[str(self.checkpoint.config["dtype"])]

    def tensors(self) -> Iterator[Compared]:
        """One result for each tensor that the checkpoint should hold or does hold."""
        rules = {rule.named(0): rule for rule in self.plan.rules}
        for name, rule in rules.items():
            yield self._tensor(name, rule) if name in self.checkpoint.pieces else Compared(name, "missing")
        for name in self.checkpoint.weights:
            if name not in rules:
                yield Compared(name, "extra", why="no tensor of the source belongs here")

    def _tensor(self, name: str, rule: Rule) -> Compared:
        try:
            held = self.checkpoint.stored(name)
            found = _quantized(self, name, rule, held) if held.scales else _plain(self, name, rule, held)
            copies = (self._undeclared(name, held) or _copies(self.checkpoint, name)) if found.good else ""
        except ModelFileError as error:
            return Compared(name, "differs", why=error.what)
        return found if not copies else Compared(name, "differs", found.shape, why=copies)

    def _undeclared(self, name: str, held: Stored) -> str:
        """A plain linear where config.json promises codes: an engine would read its bytes as those."""
        linear, block = name.removesuffix(".weight"), self.checkpoint.quantization
        if held.scales or not self.checkpoint.format.stored or not linear.endswith(LINEARS):
            return ""
        excluded = [str(pattern) for pattern in block.get("exclude_modules") or []]
        if any(fnmatch.fnmatchcase(linear, pattern) for pattern in excluded):
            return ""
        return f"plain weights, yet config.json says {block.get('quant_algo')} and does not exclude it"


def expected_codes(comparison: Comparison, rule: Rule) -> Iterator[tuple[Codes, Floats]]:
    """What the source gives for a tensor, in blocks of whole rows: codes of its stored type, values before rounding."""
    stored = rule.dtype or comparison.dtype
    for part in rule.parts:
        info = comparison.plan.sources[part.name]
        width = math.prod(info.shape[1:])
        begin, end = (row * width for row in part.rows or (0, info.shape[0] if info.shape else 1))
        step = max(1, BLOCK // width) * width
        for at in range(begin, end, step):
            raw = _read(info, at, min(step, end - at))
            values = decode(raw, info.dtype)
            if rule.plus_one:
                values = values + np.float32(1.0)
            same = info.dtype == stored and not rule.plus_one
            yield (raw if same else encode(values, stored)), values


def _plain(comparison: Comparison, name: str, rule: Rule, held: Stored) -> Compared:
    shape = tuple(held.codes.shape)
    if held.dtype != (rule.dtype or comparison.dtype):
        return Compared(name, "differs", shape, why=f"type {held.dtype}, not {rule.dtype or comparison.dtype}")
    if math.prod(shape) != (wanted := elements_of(comparison, rule)):
        return Compared(name, "differs", shape, why=f"{math.prod(shape)} elements, not {wanted}")
    flat, at, differing, error, difference, whole = held.codes.reshape(-1), 0, 0, 0.0, 0.0, 0.0
    for codes, values in expected_codes(comparison, rule):
        mine = np.ascontiguousarray(flat[at : at + codes.size])
        at += codes.size
        if mine.tobytes() == codes.tobytes():
            continue
        unlike = mine.view(f"u{mine.itemsize}") != codes.view(f"u{codes.itemsize}")
        differing += int(unlike.sum())
        with np.errstate(invalid="ignore"):  # infinity - infinity
            gap = np.abs(decode(mine, held.dtype) - decode(codes, held.dtype), dtype=np.float64)
        # A NaN on one side is as far away as can be.
        gap = np.where(np.isnan(gap) & unlike, np.inf, np.nan_to_num(gap))
        error, difference = max(error, float(gap.max())), difference + float(np.square(gap).sum())
        whole += float(np.square(values, dtype=np.float64).sum())
    if not differing:
        return Compared(name, "equal", shape)
    relative = math.sqrt(difference / whole) if whole else math.inf
    return Compared(name, "differs", shape, error, 0.0, relative, f"{differing} of {flat.size} elements differ")


def elements_of(comparison: Comparison, rule: Rule) -> int:
    """Elements that the tensor of a rule has."""
    shapes = [(part, comparison.plan.sources[part.name].shape) for part in rule.parts]
    return sum(
        ((part.rows[1] - part.rows[0]) if part.rows else (shape[0] if shape else 1)) * math.prod(shape[1:])
        for part, shape in shapes
    )


def _quantized(comparison: Comparison, name: str, rule: Rule, held: Stored) -> Compared:
    checkpoint = comparison.checkpoint
    values = checkpoint.tensor(name)
    if values.size != (wanted := elements_of(comparison, rule)):
        return Compared(name, "differs", values.shape, why=f"{values.size} elements, not {wanted}")
    rows = values.reshape(-1, values.shape[-1])
    bounds = Bounds.of(checkpoint.format, held, len(rows), checkpoint.group_size, comparison.dtype)
    at, beyond, error, worst, difference, whole = 0, 0, 0.0, 0.0, 0.0, 0.0
    for _, block in expected_codes(comparison, rule):
        source = block.reshape(-1, values.shape[-1])
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.abs(rows[at : at + len(source)] - source)
            share = np.where(gap == 0, np.float32(0.0), gap / np.maximum(bounds.allowed(source, at), TINY))
        at += len(source)
        # A NaN on either side is as far away as can be.
        gap, share = (np.where(np.isnan(found), np.inf, found) for found in (gap, share))
        beyond += int((share > 1.0).sum())
        error, worst = max(error, float(gap.max(initial=0.0))), max(worst, float(share.max(initial=0.0)))
        difference += float(np.square(gap, dtype=np.float64).sum())
        whole += float(np.square(source, dtype=np.float64).sum())
    relative = math.sqrt(difference / whole) if whole else 0.0
    if beyond:
        why = f"{beyond} of {values.size} elements are beyond the rounding of {checkpoint.format.name}"
        return Compared(name, "differs", values.shape, error, worst, relative, why)
    return Compared(name, "rounded", values.shape, error, worst, relative)


def _copies(checkpoint: Checkpoint, name: str) -> str:
    """What the merge throws away must be right as well: repeated key-value heads and biases, rows that pad."""
    pieces, config = checkpoint.pieces[name], checkpoint.config
    ranks, kv = len(pieces), int(config.get("num_key_value_heads") or config["num_attention_heads"])
    if ".attention.qkv." in name and ranks > kv:
        return _same_heads(pieces, int(config["num_attention_heads"]), kv)
    if name in ("lm_head.weight", "transformer.vocab_embedding.weight") and ranks > 1:
        return _zero_rows(pieces, int(config["vocab_size"]))
    if name.endswith((".dense.bias", ".proj.bias")):
        return _same_bias(pieces)
    return ""


def _same_heads(pieces: tuple[TensorInfo, ...], heads: int, kv: int) -> str:
    ranks = len(pieces)
    for first in range(0, ranks, ranks // kv):
        same = [_read(piece, 0, piece.elements).reshape(piece.shape[0], -1) for piece in pieces[first:][: ranks // kv]]
        begin = same[0].shape[0] * (heads // ranks) // (heads // ranks + 2)
        if any(other[begin:].tobytes() != same[0][begin:].tobytes() for other in same[1:]):
            return f"ranks {first} to {first + ranks // kv - 1} hold one key-value head, and their copies differ"
    return ""


def _same_bias(pieces: tuple[TensorInfo, ...]) -> str:
    """A row-parallel bias is whole on each rank: TensorRT-LLM adds it after the sum over them."""
    first, *others = (_read(piece, 0, piece.elements).tobytes() for piece in pieces)
    return "" if all(other == first for other in others) else "the ranks' copies of the bias differ"


def _zero_rows(pieces: tuple[TensorInfo, ...], vocab_size: int) -> str:
    before = 0
    for piece in pieces:
        rows, width = piece.shape[0], math.prod(piece.shape[1:])
        real = min(rows, max(0, vocab_size - before))
        before += rows
        if real < rows and _read(piece, real * width, (rows - real) * width).any():
            return "the rows that pad the vocabulary are not zero"
    return ""


def _read(info: TensorInfo, begin: int, count: int) -> Codes:
    """Elements [begin, begin + count) of a tensor as codes."""
    item, view = ITEM_BYTES[info.dtype], VIEWS.get(info.dtype)
    if view is None:
        raise ModelFileError(f"tensor {info.name!r} has type {info.dtype}", where=info.path)
    found = np.fromfile(info.path, view, count, offset=info.begin + begin * item)
    if found.size != count:
        raise ModelFileError(f"ended inside tensor {info.name!r}; it changed while being read", where=info.path)
    return found

"""One linear of one rank in a weight format: its codes and its scales, as tensors to write.

The arithmetic is modelopt's (export/quant_utils.py of 0.47): scales are amax ÷ the format's largest value over what
shares a scale, in float32; codes are weight ÷ scale, rounded to nearest with ties to even. A scale of zeros is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trtspec.checkpoint.codecs import (
    E2M1_MAX,
    E4M3_MAX,
    E4M3_VALUES,
    Codes,
    Floats,
    decode,
    encode,
    encode_e2m1,
    encode_e4m3,
    pack_columns,
    pack_rows,
    per_block,
)
from trtspec.checkpoint.formats import CHANNEL, INPUT, PREQUANT, WEIGHT, WEIGHT_2, Format
from trtspec.checkpoint.pieces import Piece, PieceTensor, Writable
from trtspec.checkpoint.quantize.blocks import Once, amax, full_width, row_amax, rows_of
from trtspec.checkpoint.quantize.calibration import Calibration
from trtspec.checkpoint.quantize.computed import Coded, Computed, Encoder, Fp8Coded
from trtspec.errors import ModelFileError

INT8_MAX, INT4_MAX = 127.0, 7.0


@dataclass(frozen=True)
class Linear:
    """A weight of one rank, and what is known of the whole linear it was cut from."""

    tensor: PieceTensor
    whole: tuple[Piece, ...]
    """The weights that share one scale, over all ranks: the linear's, for some formats with those of a second one."""
    scale_key: str
    """Equal for linears that share `whole`."""
    names: tuple[str, ...]
    """Hugging Face modules it was made from, without `.weight`."""
    experts: int
    """Matrices behind each other; 0 for a plain linear."""
    dtype: str
    """safetensors type of the checkpoint's plain tensors."""
    fmt: Format
    group: int
    calibration: Calibration | None
    once: Once

    @property
    def base(self) -> str:
        """Name in the file, without `.weight`."""
        return self.tensor.name.removesuffix(".weight")

    @property
    def key(self) -> str:
        """Name in the whole model."""
        return self.tensor.rule

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The rank's pieces; a linear has no padding."""
        return tuple(piece for piece in self.tensor.pieces if isinstance(piece, Piece))

    @property
    def columns(self) -> tuple[int, int]:
        """Columns of the whole linear that the rank holds."""
        return self.pieces[0].columns

    def tensors(self) -> Iterator[Writable]:
        """The weight and its scales."""
        yield _WEIGHTS[self.fmt.name](self)
        for scale in self.fmt.scales:
            values, shape = _SCALES[self.fmt.name][scale.suffix](self)
            yield Computed(f"{self.base}.{scale.suffix}", scale.dtype or self.dtype, shape, values)

    # What the whole linear's scales are made of; each is found once for all ranks.

    def largest(self) -> Floats:
        """Largest magnitude of the weights as quantized: [1], or [E, 1] over each expert."""
        each = len(self.whole) // (self.experts or 1)
        groups = [self.whole[i : i + each] for i in range(0, len(self.whole), each)]

        def compute() -> Floats:
            found = np.array([amax(group, self.smoothed) for group in groups], np.float32)
            return self._finite(found.reshape(-1, 1) if self.experts else found)

        return self.once.get(("amax", self.scale_key), compute)

    def per_row(self, largest: float) -> Floats:
        """Scale of each of the rank's rows, over the columns of all ranks; [O]."""
        pieces = full_width(self.pieces)
        key = ("rows", self.key, tuple((p.source.name, p.rows) for p in pieces))
        return _scale(self.once.get(key, lambda: self._finite(row_amax(pieces, self.smoothed_whole))), largest)

    def vector(self) -> Floats | None:
        """What multiplies the inputs, rounded to the type it is stored in; [K] of all ranks."""
        if not self.fmt.prequant:
            return None
        assert self.calibration is not None  # plan.quantized demands it

        def compute() -> Floats:
            assert self.calibration is not None
            found = self.calibration.prequant(self.names)
            if found is None:  # SmoothQuant: every channel's largest input becomes 1
                found = np.clip(1 / np.maximum(self.calibration.inputs(self.names), 2.0**-31), 1e-4, 1e4)
            every = np.broadcast_to(found, (self.pieces[0].width,)).astype(np.float32)
            return decode(encode(every, self.dtype), self.dtype)

        return self.once.get(("vector", self.key), compute)

    def smoothed_whole(self, rows: Floats) -> Floats:
        """Rows of all columns as they are quantized."""
        vector = self.vector()
        return rows if vector is None else rows / vector

    @property
    def smoothed(self) -> Callable[[Floats], Floats] | None:
        """The same, or None where rows are quantized as they are."""
        return self.smoothed_whole if self.fmt.prequant else None

    def own(self, rows: Floats) -> Floats:
        """Rows of the rank's columns as they are quantized."""
        vector = self.vector()
        return rows if vector is None else rows / vector[slice(*self.columns)]

    def per_group(self, rows: Floats) -> Floats:
        """Largest magnitude of each group of columns, of the rank's own rows as they are quantized; [n, K/g]."""
        return self._finite(np.abs(rows.reshape(len(rows), -1, self.group)).max(axis=2))

    def _finite(self, found: Floats) -> Floats:
        if np.isfinite(found).all():
            return found
        source = self.pieces[0].source
        raise ModelFileError(
            f"weights of {self.key} hold NaN or infinity, for which there is no scale", where=source.path,
            fix="use finite weights; `trtspec convert` names every tensor that has such",
        )  # fmt: skip

    def largest_input(self) -> np.float32:
        """Largest input of the linear after the vector."""
        assert self.calibration is not None
        seen, vector = self.calibration.inputs(self.names), self.vector()
        return np.float32((seen if vector is None else seen * vector).max())


def _scale(largest: Floats, top: float) -> Floats:
    found = (largest / np.float32(top)).astype(np.float32)
    return np.where(found == 0, np.float32(1.0), found).astype(np.float32)


Values = tuple[Callable[[], Codes], tuple[int, ...]]


def _fp8(linear: Linear) -> Writable:
    each = len(linear.pieces) // (linear.experts or 1) if linear.experts else len(linear.pieces)
    return Fp8Coded(
        linear.tensor.name, linear.tensor.shape, linear.pieces, lambda: _scale(linear.largest(), E4M3_MAX), each
    )


def _by_rows(linear: Linear, largest: float, dtype: str, code: Callable[[Floats], Codes]) -> Writable:
    def prepare() -> Encoder:
        scales = linear.per_row(largest)[:, None]
        return lambda rows, at: code(linear.own(rows) / scales[at : at + len(rows)])

    return Coded(linear.tensor.name, dtype, linear.tensor.shape, linear.pieces, prepare)


def _int8(scaled: Floats) -> Codes:
    return np.clip(np.rint(scaled), -128, 127).astype(np.int8)


def _int4(linear: Linear) -> Writable:
    def encoder(rows: Floats, _: int) -> Codes:
        values = linear.own(rows)
        scales = _scale(linear.per_group(values), INT4_MAX)
        return pack_rows(np.clip(np.rint(values / per_block(scales, linear.group)), -8, 7).astype(np.int8))

    shape = (linear.tensor.shape[0] // 2, linear.tensor.shape[1])
    return Coded(linear.tensor.name, "I8", shape, linear.pieces, lambda: encoder)


def _fp4_scales(linear: Linear, rows: Floats) -> Codes:
    """E4M3 codes of the blocks' scales: amax ÷ (6 × the second scale), never 0."""
    found = linear.per_group(rows) / (np.float32(E2M1_MAX) * _fp4_second(linear))
    return encode_e4m3(np.clip(np.where(found == 0, np.float32(1.0), found), 2.0**-9, E4M3_MAX).astype(np.float32))


def _fp4_second(linear: Linear) -> np.float32:
    return np.float32(_scale(linear.largest(), E2M1_MAX * E4M3_MAX).reshape(-1)[0])


def _fp4(linear: Linear) -> Writable:
    def encoder(rows: Floats, _: int) -> Codes:
        scales = E4M3_VALUES[_fp4_scales(linear, rows)] * _fp4_second(linear)
        return pack_columns(encode_e2m1((rows / per_block(scales, linear.group)).astype(np.float32)))

    shape = (linear.tensor.shape[0], linear.tensor.shape[1] // 2)
    return Coded(linear.tensor.name, "U8", shape, linear.pieces, lambda: encoder)


def _weight_scale(linear: Linear) -> Values:
    return lambda: _scale(linear.largest(), E4M3_MAX), (linear.experts, 1) if linear.experts else (1,)


def _row_scale(largest: float) -> Callable[[Linear], Values]:
    return lambda linear: (lambda: linear.per_row(largest), linear.tensor.shape[:1])


def _groups(linear: Linear) -> tuple[int, ...]:
    return linear.tensor.shape[0], linear.tensor.shape[1] // linear.group


def _group_scale(linear: Linear) -> Values:
    def compute() -> Codes:
        found = [_scale(linear.per_group(linear.own(rows)), INT4_MAX) for rows in rows_of(linear.pieces)]
        return np.concatenate(found)

    return compute, _groups(linear)


def _fp4_group_scale(linear: Linear) -> Values:
    return lambda: np.concatenate([_fp4_scales(linear, rows) for rows in rows_of(linear.pieces)]), _groups(linear)


def _fp4_second_scale(linear: Linear) -> Values:
    return lambda: np.array(_fp4_second(linear), np.float32), ()


def _input(largest: float, shape: tuple[int, ...] = (1,)) -> Callable[[Linear], Values]:
    return lambda linear: (lambda: _scale(np.array([linear.largest_input()]), largest), shape)


def _vector(linear: Linear) -> Values:
    def compute() -> Codes:
        vector = linear.vector()
        assert vector is not None
        return encode(vector[slice(*linear.columns)], linear.dtype)

    return compute, (linear.columns[1] - linear.columns[0],)


_WEIGHTS: dict[str, Callable[[Linear], Writable]] = {
    "fp8": _fp8,
    "fp8_pc_pt": lambda linear: _by_rows(linear, E4M3_MAX, "F8_E4M3", encode_e4m3),
    "int8_sq": lambda linear: _by_rows(linear, INT8_MAX, "I8", _int8),
    "int4_rtn": _int4,
    "int4_awq": _int4,
    "w4a8_awq": _int4,
    "nvfp4": _fp4,
}
_SCALES: dict[str, dict[str, Callable[[Linear], Values]]] = {
    "fp8": {WEIGHT: _weight_scale, INPUT: _input(E4M3_MAX)},
    "fp8_pc_pt": {CHANNEL: _row_scale(E4M3_MAX)},
    "int8_sq": {WEIGHT: _row_scale(INT8_MAX), INPUT: _input(INT8_MAX), PREQUANT: _vector},
    "int4_rtn": {WEIGHT: _group_scale},
    "int4_awq": {WEIGHT: _group_scale, PREQUANT: _vector},
    "w4a8_awq": {WEIGHT: _group_scale, WEIGHT_2: _weight_scale, INPUT: _input(E4M3_MAX), PREQUANT: _vector},
    "nvfp4": {WEIGHT: _fp4_group_scale, WEIGHT_2: _fp4_second_scale, INPUT: _input(E2M1_MAX * E4M3_MAX, ())},
}

"""Codes and scales of a model that is quantized already, laid out as TensorRT-LLM wants them; nothing is rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trtspec.checkpoint.codecs import VIEWS, Codes, Floats, decode, pack_rows
from trtspec.checkpoint.families import Rule
from trtspec.checkpoint.formats import CHANNEL, INPUT, WEIGHT, WEIGHT_2, quantization_block
from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.pieces import Piece, PieceTensor, Writable
from trtspec.checkpoint.plan import Plan, RankPlan
from trtspec.checkpoint.prequantized import Scheme, packed_name, refused
from trtspec.checkpoint.quantize.computed import Computed, constant
from trtspec.checkpoint.quantize.plan import LINEARS
from trtspec.checkpoint.tensors import TensorSource
from trtspec.errors import ModelFileError

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""AutoAWQ, awq/utils/packing_utils.py: nibble i of a word holds output 8 j + AWQ_ORDER[i]."""


def applied(plan: Plan, scheme: Scheme, source: TensorSource) -> Plan:
    """`plan`, made of a scheme's logical tensors, with the codes that are really there.

    ModelFileError: a linear is not quantized like the others, or its parts cannot share one scale.
    """
    work = _Repacking(plan, scheme, source)
    ranks = tuple(replace(rank, tensors=tuple(work.rank(rank))) for rank in plan.ranks)
    block = quantization_block(scheme.fmt, group_size=scheme.group if scheme.fmt.packs_rows else None)
    config = {**plan.config, "quantization": {**block, "kv_cache_quant_algo": scheme.kv_algo}}
    plain = {name: info for name, info in plan.sources.items() if not scheme.is_coded(source, name)}
    packed = {name: info for name, info in source.tensors.items() if scheme.holds(source, name)}
    return replace(plan, ranks=ranks, config=config, sources={**plain, **packed})


class _Repacking:
    def __init__(self, plan: Plan, scheme: Scheme, source: TensorSource) -> None:
        self.plan, self.scheme, self.source = plan, scheme, source
        self.rules = {rule.named(0): rule for rule in plan.rules}

    def rank(self, rank: RankPlan) -> Iterator[Writable]:
        """The rank's tensors."""
        for tensor in rank.tensors:
            rule = self.rules.get(tensor.rule) if isinstance(tensor, PieceTensor) else None
            if rule is None or not isinstance(tensor, PieceTensor) or rule.name.removesuffix(".weight") not in LINEARS:
                yield tensor
                continue
            names = tuple(part.name for part in rule.parts)
            plain = [name for name in names if not self.scheme.is_coded(self.source, name)]
            if plain:
                raise refused(self.plan.facts.path, f"{plain[0]} is not quantized", "one format for all linears")
            yield from self._linear(rule, tensor, names)
            if self.scheme.kv_algo and rule.name == "attention.qkv.weight":
                yield from self._cache(tensor, names)

    def _linear(self, rule: Rule, tensor: PieceTensor, names: Sequence[str]) -> Iterator[Writable]:
        base = tensor.name.removesuffix(".weight")
        linears = [name.removesuffix(".weight") for name in names]
        if self.scheme.packing in ("awq", "gptq"):
            yield from self._int4(tensor, base, linears)
        elif self.scheme.packing == "fp4":
            yield self._cut(tensor, "U8", 2)
            yield self._cut(replace(tensor, name=f"{base}.{WEIGHT}"), "F8_E4M3", 16, "weight_scale")
            yield Computed(f"{base}.{WEIGHT_2}", "F32", (), self._one(linears, "weight_scale_2").copy)
            yield Computed(f"{base}.{INPUT}", "F32", (), self._largest(linears, "input_scale").copy)
        elif self.scheme.fmt.name == "fp8_pc_pt":
            yield self._cut(tensor, "F8_E4M3", 1)
            scales = self._channels(tensor)
            yield Computed(f"{base}.{CHANNEL}", "F32", scales.shape, scales.copy)
        else:
            yield self._cut(tensor, "F8_E4M3", 1)
            yield from self._fp8_scales(rule, base, linears)

    def _fp8_scales(self, rule: Rule, base: str, linears: Sequence[str]) -> Iterator[Writable]:
        if not rule.stacked:
            yield constant(f"{base}.{WEIGHT}", np.float32(self._one(linears, "weight_scale")))
        else:
            each = len(linears) // rule.stacked
            experts = [linears[i : i + each] for i in range(0, len(linears), each)]
            scales = np.array([[self._one(members, "weight_scale")] for members in experts], np.float32)
            yield Computed(f"{base}.{WEIGHT}", "F32", scales.shape, scales.copy)
        yield constant(f"{base}.{INPUT}", np.float32(self._largest(linears, "input_scale")))

    def _cut(self, tensor: PieceTensor, dtype: str, columns: int, suffix: str = "weight") -> Writable:
        """The same rows and columns of the tensors `suffix`, in which `columns` of the matrix are one."""
        pieces = []
        for piece in tensor.pieces:
            assert isinstance(piece, Piece)
            info = self._info(piece.source.name.removesuffix(".weight"), suffix)
            if info.dtype != dtype or math.prod(info.shape) * columns != piece.source.elements:
                raise self._wrong(info, f"type {dtype} and {piece.source.elements // columns} elements")
            begin, end = piece.columns
            if begin % columns or end % columns:
                raise refused(self.plan.facts.path, f"{end - begin} columns on a rank", f"a multiple of {columns}")
            pieces.append(Piece(info, piece.rows, (begin // columns, end // columns), piece.width // columns))
        shape = (*tensor.shape[:-1], tensor.shape[-1] // columns)
        return PieceTensor(tensor.name, dtype, shape, tuple(pieces), rule=tensor.rule)

    def _channels(self, tensor: PieceTensor) -> Floats:
        """A scale for each of the rank's rows; one for a whole tensor is every row's."""
        found = []
        for piece in tensor.pieces:
            assert isinstance(piece, Piece)
            scale = self._read(piece.source.name.removesuffix(".weight"), "weight_scale").reshape(-1)
            rows = piece.source.shape[0]
            found.append(np.broadcast_to(scale, (rows,))[piece.rows[0] : piece.rows[1]])
        return np.concatenate(found)

    def _int4(self, tensor: PieceTensor, base: str, linears: Sequence[str]) -> Iterator[Writable]:
        for linear in dict.fromkeys(linears):
            self._check_symmetric(linear)
        group = self.scheme.group
        columns = tensor.shape[1]
        if columns % group or tensor.shape[0] % 2:
            raise refused(
                self.plan.facts.path, f"{columns} columns of {tensor.name} on a rank", f"multiples of {group}"
            )
        shape = (tensor.shape[0] // 2, columns)
        pieces = tuple(piece for piece in tensor.pieces if isinstance(piece, Piece))
        yield Computed(tensor.name, "I8", shape, lambda: pack_rows(np.concatenate([self._codes(p) for p in pieces])))
        groups = (tensor.shape[0], columns // group)
        yield Computed(
            f"{base}.{WEIGHT}", "F32", groups, lambda: np.concatenate([self._group_scales(p) for p in pieces])
        )

    def _check_symmetric(self, linear: str) -> None:
        words = self._read_codes(linear, "qzeros").view(np.uint32)
        if (words != np.uint32(0x1111_1111 * self.scheme.zero)).any():
            raise refused(self.plan.facts.path, f"{linear} has zero points", "symmetric codes (zero point 8)")
        if self.scheme.packing == "gptq" and f"{linear}.g_idx" in self.source.tensors:
            order = self._read_codes(linear, "g_idx")
            if (order != np.arange(len(order)) // self.scheme.group).any():
                raise refused(
                    self.plan.facts.path, f"{linear} is reordered (desc_act)", "groups of neighbouring columns"
                )

    def _codes(self, piece: Piece) -> Codes:
        """Signed codes of the piece, [rows, columns]."""
        words = self._read_codes(piece.source.name.removesuffix(".weight"), "qweight").view(np.uint32)
        nibbles = [(words >> np.uint32(4 * i)) & np.uint32(15) for i in range(8)]
        if self.scheme.packing == "awq":  # [in, out / 8]
            matrix = np.empty((words.shape[0], words.shape[1] * 8), np.int8)
            for i, place in enumerate(AWQ_ORDER):
                matrix[:, place::8] = nibbles[i]
        else:  # [in / 8, out]
            matrix = np.stack(nibbles, axis=1).reshape(words.shape[0] * 8, words.shape[1]).astype(np.int8)
        rows, columns = slice(*piece.rows), slice(*piece.columns)
        return np.ascontiguousarray((matrix - np.int8(8)).T[rows, columns])

    def _group_scales(self, piece: Piece) -> Floats:
        scales = self._read(piece.source.name.removesuffix(".weight"), "scales")
        begin, end = (column // self.scheme.group for column in piece.columns)
        return np.ascontiguousarray(scales.T[piece.rows[0] : piece.rows[1], begin:end])

    def _cache(self, tensor: PieceTensor, names: Sequence[str]) -> Iterator[Writable]:
        """The scales as they are: unlike those that are calibrated here, they are not raised to 1."""
        attention = names[0].removesuffix(".weight").rpartition(".")[0]
        found = []
        for kind in ("k", "v"):
            places = (f"{attention}.{kind}_proj.{kind}_scale", f"{attention}.{kind}_scale")
            name = next((place for place in places if place in self.source.tensors), None)
            if name is None:
                raise ModelFileError(f"{attention} has no {kind}_scale", where=self.source.folder)
            found.append(np.float32(self._values(self.source.tensors[name]).reshape(-1)[0]))
        base = tensor.name.removesuffix("qkv.weight")
        for kind, scale in (("k", found[0]), ("v", found[1]), ("kv", max(found))):
            yield constant(f"{base}{kind}_cache_scaling_factor", scale)

    def _one(self, linears: Sequence[str], suffix: str) -> Floats:
        """The one scale of all parts."""
        scales = {linear: self._read(linear, suffix).reshape(-1) for linear in linears}
        values = np.concatenate(list(scales.values()))
        if len(values) != len(scales):
            raise refused(self.plan.facts.path, f"{suffix} of {linears[0]} is not one number", "a scale for the tensor")
        if (values != values[0]).any():
            raise refused(
                self.plan.facts.path, f"{' and '.join(linears)} have different scales",
                "one scale, because TensorRT-LLM keeps them as one matrix",
            )  # fmt: skip
        return np.array(values[0], np.float32)

    def _largest(self, linears: Sequence[str], suffix: str) -> Floats:
        return np.array(max(self._read(linear, suffix).max() for linear in linears), np.float32)

    def _info(self, linear: str, suffix: str) -> TensorInfo:
        name = packed_name(self.scheme, f"{linear}.weight") if suffix == "weight" else f"{linear}.{suffix}"
        info = self.source.tensors.get(name)
        if info is None:
            raise ModelFileError(f"tensor {name!r} is missing", where=self.source.folder)
        return info

    def _read(self, linear: str, suffix: str) -> Floats:
        return self._values(self._info(linear, suffix))

    def _values(self, info: TensorInfo) -> Floats:
        return decode(_codes_in(info), info.dtype)

    def _read_codes(self, linear: str, suffix: str) -> Codes:
        info = self._info(linear, suffix)
        if info.dtype not in ("I32", "U32"):
            raise self._wrong(info, "32-bit words")
        return _codes_in(info)

    def _wrong(self, info: TensorInfo, expected: str) -> ModelFileError:
        found = f"type {info.dtype}, shape {list(info.shape)}"
        return ModelFileError(f"tensor {info.name!r} does not fit", where=info.path, found=found, expected=expected)


def _codes_in(info: TensorInfo) -> Codes:
    return np.fromfile(info.path, VIEWS[info.dtype], info.elements, offset=info.begin).reshape(info.shape)

"""A decoder as sizes, and the bytes and arithmetic that follow: per format, per rank, without any file.

Matrices and their split follow TensorRT-LLM's checkpoint (docs/source/architecture/checkpoint.md): qkv and the first
two MLP matrices are split by rows, dense and the last MLP matrix by columns, a key-value head is never split but
copied, embedding and head are split by vocabulary rows, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of one decoder; counts of elements, none in bytes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    mlp_matrices: int = 3
    """3 with a gate (Llama and its kin), 2 without (GPT-2, Falcon)."""
    norms: int = 2
    """Norm vectors of `hidden` elements per layer: 4 in Gemma 2 and 3."""
    qk_norm: bool = False
    qkv_bias: bool = False
    dense_bias: bool = False
    mlp_bias: bool = False
    experts: int = 0
    top_k: int = 0
    expert_intermediate: int = 0
    sparse_layers: int = 0
    """Layers whose MLP is a mixture of experts."""
    windows: tuple[int | None, ...] = ()
    """Attention window per layer; empty or None: sees everything."""

    @property
    def windowed(self) -> bool:
        """Some layer forgets."""
        return any(window is not None for window in self.windows)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, a tied head counted once."""
        return self._count(self.experts)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token goes through: the chosen experts only."""
        return self._count(self.top_k)

    def _count(self, experts: int) -> int:
        dense = sum(m.elements for m in self.matrices(dense_mlp=True)) * (self.layers - self.sparse_layers)
        sparse = sum(m.elements * (experts if m.expert else 1) for m in self.matrices(dense_mlp=False))
        tables = self.vocab * self.hidden * (1 if self.tied else 2)
        router = self.sparse_layers * self.experts * self.hidden
        return dense + sparse * self.sparse_layers + tables + router + self.layers * self.small + self.hidden

    @property
    def small(self) -> int:
        """Norms and biases of a layer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = (q + 2 * kv) * self.qkv_bias + self.hidden * self.dense_bias
        biases += ((self.mlp_matrices - 1) * self.intermediate + self.hidden) * self.mlp_bias
        return self.norms * self.hidden + 2 * self.head_dim * self.qk_norm + biases

    def matrices(self, tensor: int = 1, dense_mlp: bool = True) -> Iterator[Matrix]:
        """The matrices of a layer as one of `tensor` ranks holds them; of a mixture, one expert's."""
        queries, copies = self.heads // tensor, max(1, self.kv_heads // tensor)
        inner = self.intermediate if dense_mlp else self.expert_intermediate
        yield Matrix("qkv", (queries + 2 * copies) * self.head_dim, self.hidden)
        yield Matrix("dense", self.hidden, queries * self.head_dim)
        for name in ("fc", "gate")[: self.mlp_matrices - 1]:
            yield Matrix(name, _share(inner, tensor), self.hidden, not dense_mlp)
        yield Matrix("proj", self.hidden, _share(inner, tensor), not dense_mlp)


@dataclass(frozen=True)
class Matrix:
    """One linear of a layer: (out, in), as stored."""

    name: str
    rows: int
    columns: int
    expert: bool = False

    @property
    def elements(self) -> int:
        """rows × columns."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Format:
    """How a matrix is kept: bits per weight, and what its scales take in bytes.

    `group` weights of a row share a scale of `scale_bytes`; `per_row` and `per_column` bytes belong to each output
    and input channel; `fixed` to the matrix. Sources: TensorRT-LLM checkpoint format and nvidia-modelopt's export.
    """

    bits: float
    group: int = 0
    scale_bytes: float = 0.0
    per_row: float = 0.0
    per_column: float = 0.0
    fixed: float = 0.0

    def nbytes(self, matrix: Matrix) -> float:
        """Bytes of `matrix` in this format."""
        scales = matrix.rows * -(-matrix.columns // self.group) * self.scale_bytes if self.group else 0.0
        own = matrix.rows * self.per_row + matrix.columns * self.per_column + self.fixed
        return matrix.elements * self.bits / 8 + scales + own


@dataclass(frozen=True)
class RankBytes:
    """Weights of one rank, bytes."""

    matrices: float
    tables: float
    """Input embedding and head, kept in the model's own type."""
    small: float
    """Norms, biases, routers."""

    @property
    def total(self) -> int:
        """All of it."""
        return round(self.matrices + self.tables + self.small)


def stages(layers: int, pipeline: int) -> list[int]:
    """Layers of each pipeline stage: as equal as can be, the first ones longer."""
    return [layers // pipeline + (i < layers % pipeline) for i in range(pipeline)]


def rank_bytes(
    shape: Shape,
    form: Format,
    plain: int,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    share_table: bool = False,
) -> list[RankBytes]:
    """Weights of one tensor rank of each pipeline stage. `plain` is bytes per element of what is not quantized.

    The vocabulary is rounded up so that ranks have equal shares. `share_table` counts a tied head once where embedding
    and head sit on one rank, as a Hugging Face file does.
    """
    rows = _share(shape.vocab, tensor)
    table = rows * shape.hidden * plain
    per_layer = shape.small * plain
    found = []
    for i, layers in enumerate(stages(shape.layers, pipeline)):
        first, last = i == 0, i == pipeline - 1
        tables = first + last - (first and last and shape.tied and share_table)
        share = layers / shape.layers
        found.append(
            RankBytes(
                share * layer_bytes(shape, form, tensor),
                tables * table,
                layers * per_layer + (shape.hidden * plain if last else 0) + share * _routers(shape),
            )
        )
    return found


def layer_bytes(shape: Shape, form: Format, tensor: int = 1, experts: float | None = None) -> float:
    """Bytes of all layers' matrices on one tensor rank; of `experts` experts (None: all) in a mixture."""
    count = shape.experts if experts is None else experts
    dense = sum(form.nbytes(m) for m in shape.matrices(tensor)) * (shape.layers - shape.sparse_layers)
    sparse = sum(form.nbytes(m) * (count if m.expert else 1) for m in shape.matrices(tensor, dense_mlp=False))
    return dense + (sparse * shape.sparse_layers if shape.sparse_layers else 0.0)


def layer_elements(shape: Shape, tensor: int = 1) -> float:
    """Weights one token is multiplied with in all layers, on one tensor rank."""
    return layer_bytes(shape, Format(8), tensor, shape.top_k)


def _routers(shape: Shape) -> int:
    return shape.sparse_layers * shape.experts * shape.hidden * 4  # kept in float32


def _share(whole: int, tensor: int) -> int:
    return -(-whole // tensor)

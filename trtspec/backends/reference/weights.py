"""Read rank0.safetensors of a TensorRT-LLM checkpoint and check every tensor against the config.

Names and layout: `mlp.fc` is the gate projection, `mlp.gate` the up projection; qkv rows are [Q; K; V];
`lm_head.weight` is absent when it equals the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trtspec.backends.reference.config import ModelConfig
from trtspec.errors import ModelFileError

EMBEDDING = "transformer.vocab_embedding.weight"
FINAL_NORM = "transformer.ln_f.weight"
LM_HEAD = "lm_head.weight"
LAYER = "transformer.layers.{}."


@dataclass(frozen=True)
class LayerWeights:
    """One layer in the stored dtype; biases are None where the config has none."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    dense: Tensor
    dense_bias: Tensor | None
    post_norm: Tensor
    fc: Tensor
    fc_bias: Tensor | None
    gate: Tensor
    gate_bias: Tensor | None
    proj: Tensor
    proj_bias: Tensor | None


class WeightFile:
    """An open weight file. Tensors are read one at a time, so that packing never holds the model twice."""

    def __init__(self, file: Path, config: ModelConfig, handle: Any) -> None:
        self.file, self.config = file, config
        self._handle = handle
        self._names = frozenset(handle.keys())

    def embedding(self) -> Tensor:
        """[vocab, hidden]"""
        return self._get(EMBEDDING, self.config.vocab_size, self.config.hidden)

    def final_norm(self) -> Tensor:
        """[hidden]"""
        return self._get(FINAL_NORM, self.config.hidden)

    def lm_head(self) -> Tensor:
        """[vocab, hidden]; the embedding when the file has no lm_head."""
        if LM_HEAD not in self._names:
            return self.embedding()
        return self._get(LM_HEAD, self.config.vocab_size, self.config.hidden)

    def layer(self, index: int) -> LayerWeights:
        """All tensors of one layer."""
        c = self.config
        attention, mlp = c.heads * c.head_size, c.intermediate

        def get(name: str, *shape: int) -> Tensor:
            return self._get(LAYER.format(index) + name, *shape)

        def bias(wanted: bool, name: str, size: int) -> Tensor | None:
            return get(name, size) if wanted else None

        return LayerWeights(
            input_norm=get("input_layernorm.weight", c.hidden),
            qkv=get("attention.qkv.weight", c.qkv_rows, c.hidden),
            qkv_bias=bias(c.attn_bias, "attention.qkv.bias", c.qkv_rows),
            dense=get("attention.dense.weight", c.hidden, attention),
            dense_bias=bias(c.attn_bias, "attention.dense.bias", c.hidden),
            post_norm=get("post_layernorm.weight", c.hidden),
            fc=get("mlp.fc.weight", mlp, c.hidden),
            fc_bias=bias(c.mlp_bias, "mlp.fc.bias", mlp),
            gate=get("mlp.gate.weight", mlp, c.hidden),
            gate_bias=bias(c.mlp_bias, "mlp.gate.bias", mlp),
            proj=get("mlp.proj.weight", c.hidden, mlp),
            proj_bias=bias(c.mlp_bias, "mlp.proj.bias", c.hidden),
        )

    def _get(self, name: str, *shape: int) -> Tensor:
        if name not in self._names:
            raise ModelFileError("a tensor is missing", where=self.file, expected=f"{name} {list(shape)}")
        tensor: Tensor = self._handle.get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelFileError(
                f"{name} does not fit config.json", where=self.file, found=list(tensor.shape), expected=str(list(shape))
            )
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ModelFileError(f"{name} is not a plain float tensor", where=self.file, found=tensor.dtype)
        # Two models of NaN agree on every token: they would pass for a perfect pair.
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        if bad:
            raise ModelFileError(
                f"{name} holds NaN or infinity", where=self.file, found=f"{bad} of {tensor.numel()} values"
            )
        return tensor


@contextmanager
def open_weights(file: Path, config: ModelConfig) -> Iterator[WeightFile]:
    """Open a rank's weights; ModelFileError when the file is missing or not safetensors."""
    if not file.is_file():
        raise ModelFileError("no such file", where=file, expected="the weights of rank 0")
    try:
        with safe_open(file, framework="pt") as handle:
            yield WeightFile(file, config, handle)
    except SafetensorError as error:
        raise ModelFileError(f"not a readable safetensors file: {error}", where=file) from None

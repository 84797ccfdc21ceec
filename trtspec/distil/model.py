"""What distilling asks of a transformers model: logits at some positions, answers with the likeliest tokens kept.

One forward pass serves rows padded on the right for training (causal attention never looks at what follows, so no
mask is needed) and on the left for answering.
"""

# The project's mypy does not look into torch.
# mypy: no-warn-return-any, allow-untyped-decorators
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trtspec.distil.texts import Text


def autocast(device: str, bfloat16: bool) -> AbstractContextManager[Any]:
    """Matrix products in bfloat16, sums and weights in float32; nothing at all when `bfloat16` is off."""
    return torch.autocast(device, torch.bfloat16, enabled=bfloat16)


def padded(texts: Sequence[Text], device: str) -> tuple[Tensor, Tensor]:
    """Token ids [rows, longest - 1] and which of their positions are followed by an answer token."""
    width = max(len(text.ids) for text in texts) - 1
    ids = np.zeros((len(texts), width), np.int64)
    counted = np.zeros((len(texts), width), np.bool_)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids) - 1] = text.ids[:-1]
        counted[row, text.prompt - 1 : len(text.ids) - 1] = True
    return torch.from_numpy(ids).to(device), torch.from_numpy(counted).to(device)


def logits_at(model: Any, ids: Tensor, counted: Tensor) -> Tensor:
    """[counted positions, vocab]: the head is applied to no other position, which a large vocabulary needs.

    The cap on final logits is Gemma 2's (transformers 4.57.6, modeling_gemma2.py).
    """
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[counted]
    logits = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


class Answering:
    """Left-padded prompts answered together, token by token, with one cache."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        width = max(map(len, prompts))
        device = model.device
        self._model, self._cache = model, None
        self._ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
        self._mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        self._positions = (self._mask.cumsum(-1) - 1).clamp_min(0)

    @torch.inference_mode()
    def logits(self) -> Tensor:
        """[prompts, vocab] float32: what follows what was read so far."""
        out = self._model(
            input_ids=self._ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = out.past_key_values
        return out.logits[:, -1].float()

    def read(self, tokens: Tensor) -> None:
        """Go on with one token for each prompt, [prompts]."""
        self._ids = tokens[:, None]
        self._mask = torch.cat([self._mask, torch.ones_like(self._ids)], dim=1)
        self._positions = self._positions[:, -1:] + 1

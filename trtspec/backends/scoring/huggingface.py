"""A model on transformers, on a CPU or a CUDA GPU: what the reference engine does not run, or runs too slowly.

Local files only, safetensors only, and never code that comes with a model. Tokens are chosen by the same arithmetic as
the reference engine's, so that a seed means the same thing in both.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.request import Sampling
from trtspec.backends.reference.sampling import TOKEN, draw, probabilities, uniform
from trtspec.backends.scoring.base import GREEDY, LONGEST, Device, Ids, asked, is_checkpoint, seeds_of, without_torch
from trtspec.checkpoint.facts import read_config
from trtspec.checkpoint.tensors import TensorSource
from trtspec.config import Role
from trtspec.errors import ConfigError, MissingError, ModelFileError

DTYPES = ("float32", "bfloat16", "float16")


class TransformersScorer:
    """`folder`: a Hugging Face folder. Arguments and errors as :func:`trtspec.backends.scoring.open_scorer`."""

    def __init__(
        self,
        folder: Path,
        *,
        device: Device = "cpu",
        dtype: str = "auto",
        max_len: int | None = None,
        batch: int = 8,
        role: Role = "target",
    ) -> None:
        _require(folder, device, dtype)
        chosen = "float32" if dtype == "auto" and device == "cpu" else dtype
        self._model: Any = _load(folder, device, chosen)
        self._device, self._batch, self._role = device, batch, role
        text = self._model.config.get_text_config()
        positions = getattr(text, "max_position_embeddings", None)
        self._max_len = min(positions or LONGEST, max_len or LONGEST)
        head = self._model.get_output_embeddings()
        self._vocab = int(text.vocab_size if head is None else head.weight.shape[0])
        # Some architectures compute the logits of every place, and have no parameter to ask for fewer.
        self._keeps = "logits_to_keep" in inspect.signature(self._model.forward).parameters

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return self._vocab

    @property
    def max_len(self) -> int:
        """Longest prompt with its answer in tokens."""
        return self._max_len

    @property
    def conditions(self) -> Mapping[str, str]:
        """Engine, dtype, device (a GPU by its name)."""
        import torch

        name = torch.cuda.get_device_name(0) if self._device == "cuda" else "cpu"
        return {"engine": "transformers", "dtype": str(self._model.dtype).removeprefix("torch."), "device": name}

    def generate(
        self,
        prompts: Sequence[Ids],
        max_tokens: int | Sequence[int],
        sampling: Sampling = GREEDY,
        seed: int | Sequence[int] = 0,
        end_ids: Collection[int] = (),
    ) -> list[list[int]]:
        """See :class:`Scorer`. Prompts of like length are answered together, padded on the left."""
        each, seeds = asked(prompts, max_tokens, self.max_len), seeds_of(seed, len(prompts))
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), each[i]))
        answers: list[list[int]] = [[] for _ in prompts]
        for start in range(0, len(order), self._batch):
            chosen = order[start : start + self._batch]
            written = self._answer([prompts[i] for i in chosen], [each[i] for i in chosen], sampling,
                                   [seeds[i] for i in chosen], frozenset(end_ids))  # fmt: skip
            for i, ids in zip(chosen, written, strict=True):
                answers[i] = ids
        return answers

    def _answer(
        self, prompts: list[Ids], each: list[int], sampling: Sampling, seeds: list[int], ends: frozenset[int]
    ) -> list[list[int]]:
        import torch
        from transformers import GenerationConfig

        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=self._device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=self._device)
        settings = GenerationConfig(
            max_new_tokens=max(each),
            do_sample=False,
            # A finished row is filled up with the end id, which is cut off below.
            pad_token_id=min(ends, default=0),
            eos_token_id=sorted(ends) or None,
        )
        pads = [width - len(p) for p in prompts]
        processors = [] if sampling.greedy else [_Drawing(sampling, seeds, pads)]
        with torch.inference_mode(), _memory(f"the {self._role}"):
            out = self._model.generate(
                ids, attention_mask=mask, generation_config=settings, logits_processor=processors
            )
        return [_cut(row[width:].tolist()[:new], ends) for row, new in zip(out, each, strict=True)]

    def logits(self, ids: Ids, first: int) -> npt.NDArray[np.float32]:
        """See :class:`Scorer`."""
        import torch

        if not 0 <= first < len(ids) <= self.max_len:
            raise ValueError(f"logits from {first} of {len(ids)} tokens; the model takes {self.max_len}")
        keep = len(ids) - first
        with torch.inference_mode(), _memory(f"the {self._role}"):
            tokens = torch.tensor([list(ids)], device=self._device)
            fewer = {"logits_to_keep": keep} if self._keeps else {}
            out = self._model(tokens, use_cache=False, **fewer).logits[0, -keep:]
            found: npt.NDArray[np.float32] = out.float().cpu().numpy()
        return found

    def close(self) -> None:
        """Free the weights."""
        self._model = None
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def __enter__(self) -> TransformersScorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Drawing:
    """Draws each row's next token and leaves it as the only choice: transformers' own greedy step then takes it."""

    def __init__(self, sampling: Sampling, seeds: list[int], pads: list[int]) -> None:
        self._sampling, self._seeds, self._pads = sampling, seeds, pads

    def __call__(self, ids: Any, scores: Any) -> Any:
        import torch

        chosen = []
        for row, seed, pad in zip(scores.float().cpu().numpy(), self._seeds, self._pads, strict=True):
            u = uniform(seed, ids.shape[1] - pad, TOKEN)
            chosen.append(draw(probabilities(row, self._sampling), u))
        out = torch.full_like(scores, -torch.inf)
        out[torch.arange(len(chosen)), chosen] = 0.0
        return out


def _cut(ids: list[int], ends: frozenset[int]) -> list[int]:
    return next((ids[:i] for i, token in enumerate(ids) if token in ends), ids)


def _require(folder: Path, device: Device, dtype: str) -> None:
    if dtype not in ("auto", *DTYPES):
        raise ConfigError("no such type to compute in", found=dtype, expected=", ".join(DTYPES))
    if not folder.is_dir():
        raise ModelFileError("no such model folder", where=folder)
    if is_checkpoint(folder):
        raise ConfigError(
            "transformers cannot run a TensorRT-LLM checkpoint", where=folder, fix="name the Hugging Face folder"
        )
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise without_torch(package)
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise MissingError(
            "no CUDA device that torch can use", found=f"torch {torch.__version__}", fix="choose the device cpu"
        )


def _load(folder: Path, device: Device, dtype: str) -> Any:
    """The model, its own generation settings put aside: end ids and sampling come from the caller."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    TensorSource.open(folder)  # tells what is wrong with weights more clearly, and refuses pickled ones
    kind: Any = "auto" if dtype == "auto" else getattr(torch, dtype)
    try:
        with _memory(folder):
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=kind,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                **kernel(folder),
            ).to(device)
    except MissingError:
        raise
    except Exception as error:  # transformers raises whatever its parts raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelFileError(f"transformers cannot load this model: {first}", where=folder) from None
    model.generation_config = GenerationConfig()
    return model.eval()


def kernel(folder: Path) -> dict[str, str]:
    """Arguments of `from_pretrained` for a model's attention. transformers' faster kernels leave out the cap on
    attention scores, for which Gemma 2 was trained."""
    config = read_config(folder)
    text = config.get("text_config")
    capped = (text if isinstance(text, dict) else config).get("attn_logit_softcapping")
    return {"attn_implementation": "eager"} if capped else {}


@contextmanager
def _memory(what: object) -> Iterator[None]:
    """MissingError where the device has not enough memory."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).splitlines()[0]
        raise MissingError(
            f"not enough memory to run {what}: {first}", fix="use a smaller dtype, shorter prompts, or the device cpu"
        ) from None

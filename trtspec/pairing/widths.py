"""Rows of embedding and head against config.json and the last real id; and against the other model's.

Padding of the head: tensor parallelism splits its rows evenly, so they are filled up to a multiple of its size
(TensorRT-LLM, `tensorrt_llm/models/*/convert.py`, `pad_vocab_size`). NVIDIA ModelOpt's own exports fill AWQ up to a
multiple of 64 first; the checkpoints written here do not, whatever the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtspec.config import Role, RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model

EMBEDDINGS = (
    "model.embed_tokens.weight",
    "lm_head.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.lm_head.weight",
    "transformer.wte.weight",
    "wte.weight",
    "transformer.word_embeddings.weight",
)
"""Names of embedding and head in the families whose sizes are known."""


def check_widths(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Each model in itself, then the two heads."""
    for model in (target, draft):
        yield from _rows(model)
        yield from _last_id(model)
    if target.facts is None or draft.facts is None:
        yield Finding("widths.not-measured", "info", "pair", "widths are not compared: a config.json is missing")
        return
    yield from _heads(target, draft, config)


def _rows(model: Model) -> Iterator[Finding]:
    if model.facts is None or model.source is None:
        return
    for name in EMBEDDINGS:
        tensor = model.source.tensors.get(name)
        if tensor is not None and tensor.shape and tensor.shape[0] != model.facts.vocab_size:
            yield Finding(
                "widths.rows-disagree", "error", model.role,
                f"{name} has {tensor.shape[0]:,} rows, config.json says vocab_size {model.facts.vocab_size:,}",
                "config.json was edited or is another model's: restore the one that came with the weights",
                {"tensor": name, "rows": tensor.shape[0], "vocab_size": model.facts.vocab_size},
            )  # fmt: skip
            return


def _last_id(model: Model) -> Iterator[Finding]:
    if model.facts is None or model.vocabulary is None or model.vocabulary.last_id < model.facts.vocab_size:
        return
    vocabulary, width = model.vocabulary, model.facts.vocab_size
    beyond = [i for i in vocabulary.by_id if i >= width]
    # Gemma 3 270M and 1B have one such token, for images: no text prompt contains it.
    harmless = all(vocabulary.is_special(i) for i in beyond)
    yield Finding(
        "widths.last-id", "warning" if harmless else "error", model.role,
        f"the tokenizer has {len(beyond):,} ids beyond the {width:,} rows of the model, up to {vocabulary.last_id} "
        f"({vocabulary.by_id[vocabulary.last_id]!r})",
        "see that no prompt contains them" if harmless else "use the tokenizer that belongs to this model",
        {"count": len(beyond), "last_id": vocabulary.last_id, "vocab_size": width},
    )  # fmt: skip


def padded(rows: int, tensor_parallel: int) -> int:
    """Rows of the head in the checkpoint: filled up so that the ranks' shares are equal."""
    return -(-rows // tensor_parallel) * tensor_parallel


def _heads(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    roles: tuple[tuple[Role, Model], ...] = (("target", target), ("draft", draft))
    given = {role: model.facts.vocab_size for role, model in roles if model.facts is not None}
    width = {role: padded(given[role], config.pair[role].parallelism.tensor) for role, _ in roles}
    last = {f"{role}_last_id": last_id(model) for role, model in roles}
    data: dict[str, Any] = {"target": width["target"], "draft": width["draft"], "given": given, **last}
    if width["target"] == width["draft"]:
        yield Finding("widths.equal", "info", "pair", f"both heads have {width['target']:,} rows", None, data)
        return
    shown = f"heads are {width['target']:,} rows (target) and {width['draft']:,} (draft)" + _padding(given, width)
    if config.speculation.acceptance == "logits":
        if given["target"] == given["draft"]:
            return  # the preflight has that: only splitting tells them apart
        message = (
            f"{shown}: logits acceptance copies whole rows of logits from draft to target and fails on other widths, "
            "though no real token stands in the difference"
        )
        fix = "set speculation.acceptance to tokens, or choose a draft padded to the same width"
        yield Finding("widths.logits", "error", "pair", message, fix, data)
    elif width["draft"] > width["target"]:
        message = f"{shown}: should the draft ever propose an id from its padding, the target has no row for it"
        fix = "have the rows beyond the last real token masked in the draft, or choose a draft that is not wider"
        yield Finding("widths.draft-wider", "warning", "pair", message, fix, data)
    else:
        message = f"{shown}: rows beyond the last real id{_real(data)} are padding; comparing tokens never reads them"
        yield Finding("widths.padding", "info", "pair", message, None, data, "heads differ in padding only")


def _padding(given: dict[Role, int], width: dict[Role, int]) -> str:
    """Names the rows that parallelism adds, where it does."""
    added = [f"{role} {width[role] - rows}" for role, rows in given.items() if width[role] != rows]
    return f", {' and '.join(added)} of them added by tensor parallelism" if added else ""


def _real(data: dict[str, Any]) -> str:
    last = data["target_last_id"]
    return f" ({last})" if last is not None else ""


def last_id(model: Model) -> int | None:
    """The largest real id, read or published; None when unknown."""
    if model.vocabulary is not None:
        return model.vocabulary.last_id
    return None if model.published is None else model.published.tokens - 1

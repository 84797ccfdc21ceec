"""Rows of embedding and head against config.json and the last real id; and against the other model's."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.config import Role, RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model

ROWS = ("model.embed_tokens.weight", "lm_head.weight")


def check_widths(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Each model in itself, then the two heads."""
    for model in (target, draft):
        yield from _rows(model)
        yield from _last_id(model)
    if target.facts is None or draft.facts is None:
        yield Finding("widths.not-measured", "info", "pair", "widths are not compared: a config.json is missing")
        return
    yield _heads(target, draft, target.facts.vocab_size, draft.facts.vocab_size, config)


def _rows(model: Model) -> Iterator[Finding]:
    if model.facts is None or model.source is None:
        return
    for name in ROWS:
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
    """Head rows after padding to a multiple of the tensor-parallel size, as TensorRT-LLM splits it."""
    return -(-rows // tensor_parallel) * tensor_parallel


def _heads(target: Model, draft: Model, target_rows: int, draft_rows: int, config: RunConfig) -> Finding:
    roles: tuple[Role, Role] = ("target", "draft")
    given = (target_rows, draft_rows)
    widths = [padded(n, config.pair[role].parallelism.tensor) for role, n in zip(roles, given, strict=True)]
    facts = {"target": widths[0], "draft": widths[1], "target_last_id": _last(target), "draft_last_id": _last(draft)}
    if widths[0] == widths[1]:
        return Finding("widths.equal", "info", "pair", f"both heads have {widths[0]:,} rows", None, facts)
    shown = f"heads are {widths[0]:,} rows (target) and {widths[1]:,} (draft)"
    if config.speculation.acceptance == "logits":
        message = f"{shown}: logits acceptance copies whole rows of logits and fails on different widths"
        fix = "set speculation.acceptance to tokens, or choose a draft padded to the same width"
        return Finding("widths.logits", "error", "pair", message, fix, facts)
    message = f"{shown}: the rows beyond the last real token are padding, and comparing tokens never reads them"
    return Finding("widths.padding", "info", "pair", message, None, facts)


def _last(model: Model) -> int | None:
    return None if model.vocabulary is None else model.vocabulary.last_id

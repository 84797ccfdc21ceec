"""Every tensor of the source goes somewhere, and every tensor needed is there in the right shape."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Family, Root, Rule
from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.tensors import TensorSource, same_bytes
from trtspec.errors import ModelFileError

COMPUTED = re.compile(r"(.*\.)?rotary_emb\.inv_freq")
"""Rotary frequencies: old exports store them, every engine computes them from the settings."""


def check_names(
    family: Family, facts: ModelFacts, root: Root, rules: Sequence[Rule], source: TensorSource
) -> tuple[str, ...]:
    """Warnings that name what is left out. ModelFileError: a tensor is missing, or nobody maps it."""
    needed = {part.name for rule in rules for part in rule.parts}
    missing = sorted(needed - set(source.tensors))
    if missing:
        hint = "tie_word_embeddings is false in config.json" if missing == [root.head] else None
        raise ModelFileError(f"tensor {missing[0]!r} is missing{_more(missing)}", where=source.folder, fix=hint)
    extra = sorted(n for n in source.tensors if n not in needed and not COMPUTED.fullmatch(n))
    other = [name for name in extra if family.not_text and name.startswith(family.not_text)]
    extra = [name for name in extra if name not in set(other)]
    if facts.tie_word_embeddings and root.head in extra:
        _check_tied(source, facts, root)
        extra.remove(root.head)
    if extra:
        raise ModelFileError(
            f"tensor {extra[0]!r} has no place in a {facts.architecture} of this config.json{_more(extra)}",
            where=source.tensors[extra[0]].path,
            fix="no tensor is dropped in silence: correct config.json or the weights",
        )
    return _left_out(family, other)


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _left_out(family: Family, names: list[str]) -> tuple[str, ...]:
    counts = Counter(next(p for p in family.not_text if name.startswith(p)) for name in names)
    return tuple(
        f"only the text model is converted: {count} tensors under {prefix} are left out"
        for prefix, count in sorted(counts.items())
    )


def _check_tied(source: TensorSource, facts: ModelFacts, root: Root) -> None:
    head = source.tensors[root.head]
    if not same_bytes(head, source.tensors[root.embedding]):
        raise ModelFileError(
            f"{root.head} differs from the embedding, yet tie_word_embeddings is true",
            where=head.path,
            fix=f"set tie_word_embeddings to false in {facts.path.name} if the head is the model's own",
        )


def check_shapes(rules: Sequence[Rule], source: TensorSource, facts: ModelFacts) -> Mapping[str, TensorInfo]:
    """The tensors that are used, by name. ModelFileError: one has not the shape that config.json implies."""
    used: dict[str, TensorInfo] = {}
    for rule in rules:
        for part in rule.parts:
            info = source.tensors[part.name]
            if info.shape != part.shape:
                raise ModelFileError(
                    f"tensor {part.name!r} does not fit {facts.path.name}",
                    where=info.path,
                    found=f"shape {list(info.shape)}",
                    expected=f"{list(part.shape)}",
                    fix="config.json and weights are not of one model",
                )
            used[part.name] = info
    return used

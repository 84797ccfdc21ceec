"""Rules on what requests get that do not say: draft length, acceptance, policy; and on the tokenizer copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from trtspec.config import ROLES
from trtspec.triton import pipeline
from trtspec.triton.lint.problem import Problem
from trtspec.triton.lint.seen import Seen
from trtspec.triton.models.tensorrt_llm_bls.policy import parse_policy


def check_defaults(seen: Seen) -> Iterator[Problem]:
    """Defaults of the BLS against the engines."""
    wished, limit = seen.number(pipeline.BLS, "default_num_draft_tokens"), seen.number(pipeline.BLS, "max_draft_len")
    if not wished:
        text = "default_num_draft_tokens is 0: requests that do not ask for drafts get none"
        yield Problem(pipeline.BLS, text, "defaults.off", "warning", "set speculation.draft_len")
    if wished is not None and limit is not None and wished > limit:
        text = f"default_num_draft_tokens {wished} is more than max_draft_len {limit}"
        yield Problem(pipeline.BLS, text, "defaults.draft-len", fix="run `trtspec repo`")
    if seen.logits:
        lacking = [role for role in ROLES if role in seen.engines
                   and not seen.engines[role].flag("gather_generation_logits")]  # fmt: skip
        if lacking:
            text = f"default_use_draft_logits is true, but no generation logits come from {' and '.join(lacking)}"
            yield Problem(pipeline.BLS, text, "defaults.logits", fix="run `trtspec build`")


def check_policy(seen: Seen) -> Iterator[Problem]:
    """The policy file."""
    path = seen.repository / pipeline.BLS / "1" / "policy.json"
    try:
        policy = parse_policy(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        yield Problem(pipeline.BLS, f"1/policy.json cannot be read: {error.strerror}", "defaults.policy")
        return
    except ValueError as error:
        yield Problem(pipeline.BLS, f"1/policy.json: {error}", "defaults.policy")
        return
    limit = seen.number(pipeline.BLS, "max_draft_len")
    longest = max([policy.default, *policy.tasks.values()])
    if limit is not None and longest > limit:
        text = f"1/policy.json asks for {longest} draft tokens; the target engine takes {limit}"
        yield Problem(pipeline.BLS, text, "defaults.policy")


def check_tokenizer(seen: Seen) -> Iterator[Problem]:
    """Ids that the tokenizer can produce against rows that the engines have."""
    folder = seen.given[pipeline.PREPROCESSING].get("tokenizer_dir", "tokenizer")
    last = _last_id(seen.repository / pipeline.PREPROCESSING / "1" / folder / "tokenizer.json")
    target = seen.engines.get("target")
    rows = target.model.get("vocab_size") if target else None
    if last is not None and isinstance(rows, int) and last >= rows:
        text = f"the tokenizer has ids up to {last}, the target engine {rows} rows"
        yield Problem(
            pipeline.PREPROCESSING, text, "repository.ids", fix="the engine is another model's: `trtspec build`"
        )


def _last_id(path: Path) -> int | None:
    """The largest id of a tokenizer.json; None where the file does not say."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        vocab = document["model"]["vocab"]
        ids = list(vocab.values()) if isinstance(vocab, dict) else [len(vocab) - 1]
        return int(max([*ids, *(token["id"] for token in document.get("added_tokens") or ())]))
    except (OSError, ValueError, KeyError, TypeError):
        return None

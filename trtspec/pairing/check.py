"""All checks of a pair, from its files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trtspec.config import RunConfig
from trtspec.pairing.conversion import check_conversion
from trtspec.pairing.economics import check_economics, economics_facts
from trtspec.pairing.facts import memory_facts, model_facts
from trtspec.pairing.findings import Finding, Verdict
from trtspec.pairing.lengths import check_lengths
from trtspec.pairing.lineage import check_lineage
from trtspec.pairing.memory import check_memory
from trtspec.pairing.model import Model
from trtspec.pairing.parity import check_tokenizers, read_tokenizers
from trtspec.pairing.preflight import check_preflight
from trtspec.pairing.published import check_published
from trtspec.pairing.size import check_size
from trtspec.pairing.widths import check_widths

Check = Callable[[Model, Model, RunConfig], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    check_tokenizers,
    check_published,
    check_widths,
    check_lengths,
    check_size,
    check_lineage,
    check_conversion,
    check_preflight,
    check_memory,
    check_economics,
)
"""Every check, in the order in which findings are listed: one line adds one."""
FACTS: dict[str, Callable[[Model, Model, RunConfig], Any]] = {
    "memory": memory_facts,
    "economics": economics_facts,
}
"""Figures of the pair, besides those of each model."""


def check_pair(target_dir: Path, draft_dir: Path, config: RunConfig, more: Sequence[Check] = ()) -> Verdict:
    """Findings and facts of the pair. Never raises for a broken model file: that is an error finding.

    A missing tokenizer is an error; whatever else a missing file hides is *not measured*. `more`: the engine's checks.
    """
    return check_models(*read_models(target_dir, draft_dir, config), config, more)


def check_models(target: Model, draft: Model, config: RunConfig, more: Sequence[Check] = ()) -> Verdict:
    """The same on models that were read before."""
    found = [finding for check in (*CHECKS, *more) for finding in check(target, draft, config)]
    facts: dict[str, Any] = {model.role: model_facts(model) for model in (target, draft)}
    facts |= {name: read(target, draft, config) for name, read in FACTS.items()}
    return Verdict((*target.findings, *draft.findings, *found), facts)


def read_models(target_dir: Path, draft_dir: Path, config: RunConfig) -> tuple[Model, Model]:
    """Both models with everything their folders show; what cannot be read is in their findings."""
    target, draft = Model.read("target", target_dir, config), Model.read("draft", draft_dir, config)
    read_tokenizers(target, draft)
    return target, draft

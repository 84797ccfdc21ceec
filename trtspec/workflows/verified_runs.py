"""The two runs of verify-checkpoint: logits against transformers, and acceptance before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trtspec.analysis.paired import paired_difference
from trtspec.analysis.simulation import histogram
from trtspec.backends.scoring import open_scorer
from trtspec.checkpoint.compare import Comparison
from trtspec.config import Role
from trtspec.measurement.agreement import Agreement, agreement
from trtspec.measurement.offline import OfflineAcceptance, measure
from trtspec.measurement.reading import Setting
from trtspec.workflows.drafted import K_MAX, end_ids
from trtspec.workflows.reporter import Reporter
from trtspec.workflows.verify_checkpoint import LOGIT_PROMPTS, LOGIT_TOKENS, LONG_TOKENS, AcceptanceChange, asked

PROMPTS = 32
"""Prompts whose acceptance is measured unless --limit says otherwise."""


def compare_logits(comparison: Comparison, prompts: Sequence[Path], reporter: Reporter) -> Agreement:
    """Transformers on the source and the reference engine on the checkpoint, both computing in float32."""
    model = comparison.plan.facts.path.parent
    texts = [prompt.ids for prompt in asked(model, prompts, comparison.plan.facts.vocab_size)]
    chosen = [ids[:LOGIT_TOKENS] for ids in texts[:: max(1, len(texts) // LOGIT_PROMPTS)][:LOGIT_PROMPTS]]
    # All of them as one long text: short ones say little of how positions are counted.
    most = min(LONG_TOKENS, comparison.plan.facts.max_position_embeddings - 1)
    chosen.append(tuple(token for ids in texts for token in ids)[:most])
    longest = max(map(len, chosen)) + 1
    with (
        open_scorer(model, engine="transformers", dtype="float32") as source,
        open_scorer(comparison.checkpoint.folder, dtype="float32", max_len=longest, batch=1) as held,
    ):
        return agreement(source, held, chosen, lambda done, total: reporter.progress("logits in texts", done, total))


def acceptance_change(
    comparison: Comparison,
    role: Role,
    partner: Path,
    prompts: Sequence[Path],
    k: int,
    limit: int | None,
    reporter: Reporter,
) -> AcceptanceChange:
    """Greedy acceptance of the pair with the source and with the checkpoint in `role`, on the same prompts."""
    model = comparison.plan.facts.path.parent
    texts = asked(model, prompts, comparison.plan.facts.vocab_size)
    count = limit or PROMPTS
    texts = texts[:: max(1, len(texts) // count)][:count]
    longest = max(len(text.ids) + text.max_tokens for text in texts)
    found: list[OfflineAcceptance] = []
    for title, folder in (("before", model), ("after", comparison.checkpoint.folder)):
        pair = {role: folder, "draft" if role == "target" else "target": partner}
        with (
            open_scorer(pair["target"], max_len=longest) as target,
            open_scorer(pair["draft"], max_len=longest, role="draft") as draft,
        ):
            setting = Setting(k_max=max(K_MAX, k), end_ids=end_ids(model), tails=False)
            said = f"acceptance {title} in prompts"
            found.append(measure(target, draft, texts, setting, progress=_titled(reporter, said)))
    counted = [[histogram([r.traces["tokens"]], k) for r in side.readings] for side in found]
    pairs = [[(float(h.accepted), float(h.tested)) for h in side] for side in counted]
    return AcceptanceChange(role, found[0], found[1], paired_difference(pairs[0], pairs[1]), k)


def _titled(reporter: Reporter, title: str) -> Callable[[int, int], None]:
    return lambda done, total: reporter.progress(title, done, total)

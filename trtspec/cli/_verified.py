"""What `verify-checkpoint` found, for people: a line for each thing that was looked at, the wrong ones by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from trtspec.checkpoint.compare import Compared
    from trtspec.workflows.verify_checkpoint import AcceptanceChange, Verified

NAMED = 10
"""Wrong tensors that are named."""
GOOD, BAD, OPEN = ("✓", "green"), ("✗", "red"), ("-", "dim")
_NUMBER = re.compile(r"transformer\.layers\.\d+\.")


def render(found: Verified) -> RenderableType:
    """Model, table, wrong tensors, verdict."""
    checkpoint, plan = found.comparison.checkpoint, found.comparison.plan
    mapping = f"tensor {plan.layout.tensor} × pipeline {plan.layout.pipeline}"
    fmt = checkpoint.format
    name = fmt.name if fmt.quant_algo is None else f"{fmt.name} ({fmt.quant_algo})"
    head = f"{plan.facts.architecture}, weights {name}, {checkpoint.config['dtype']}, {mapping}"
    return Group(Text(head), _table(found), *_wrong(found), _verdict(found))


def _table(found: Verified) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    rows = [*_config(found), *_tensors(found), *_runs(found)]
    for (mark, colour), what, said in rows:
        table.add_row(Text(mark, colour), what, Text(said))
    return table


Row = tuple[tuple[str, str], str, str]


def _config(found: Verified) -> Iterator[Row]:
    wrong = "; ".join(map(str, found.claims))
    yield (BAD if wrong else GOOD), "config.json", wrong or "says what the model says"
    if found.scales:
        more = f" (and {len(found.scales) - 3} more)" if len(found.scales) > 3 else ""
        yield BAD, "scales", "; ".join(found.scales[:3]) + more
    elif found.comparison.checkpoint.format.scales:
        yield GOOD, "scales", "all there, finite and above zero; what calibration should have found, no source says"


def _tensors(found: Verified) -> Iterator[Row]:
    """A line for each kind of tensor: layers together."""
    kinds: dict[str, list[Compared]] = {}
    for tensor in found.tensors:
        kinds.setdefault(_NUMBER.sub("layers.*.", tensor.name), []).append(tensor)
    for kind, tensors in kinds.items():
        good = all(t.good for t in tensors)
        yield (GOOD if good else BAD), kind, _said(tensors)


def _said(tensors: list[Compared]) -> str:
    wrong = [t for t in tensors if not t.good]
    if wrong:
        return f"{len(wrong)} of {len(tensors)}: {wrong[0].outcome}"
    exact = sum(t.outcome == "equal" for t in tensors)
    if exact == len(tensors):
        return f"{exact} equal to the bit"
    worst, relative = max(t.share for t in tensors), max(t.relative for t in tensors)
    error = max(t.error for t in tensors)
    return (
        f"{len(tensors)} within rounding: worst {worst:.2f} of the bound, "
        f"largest error {error:.3g}, relative (Frobenius) {relative:.4f}"
    )


def _runs(found: Verified) -> Iterator[Row]:
    logits = found.logits
    if logits is None:
        yield OPEN, "logits", f"not measured: {found.not_measured}"
    else:
        from trtspec.workflows.verify_checkpoint import WORST

        figure, limit = found.limit
        share = f"{logits.relative:.2g} of the largest logit; {logits.relative_typical:.2g} at 99 of 100 positions"
        judged = "mean KL" if figure == "kl_mean" else "at 99 of 100 positions it"
        said = [
            f"{logits.texts} texts, {logits.positions} positions: largest difference {logits.difference:.3g} ({share})",
            f"KL mean {logits.kl_mean:.3g} max {logits.kl_max:.3g} nats, same first choice {logits.top1:.1%}",
        ]
        worst = f", {WORST * limit:g} at worst" if figure == "relative_typical" else ""
        said[-1] += f"; {judged} may be {limit:g}{worst}"
        yield (GOOD if found.logits_hold else BAD), "logits", ", ".join(said)
    if found.acceptance is not None:
        yield GOOD, "acceptance", _change(found.acceptance)


def _change(change: AcceptanceChange) -> str:
    before, after = change.before.alpha(change.k), change.after.alpha(change.k)
    if before is None or after is None or change.difference is None:
        return "not measured: no tokens were tested"
    gap = change.difference
    return (
        f"α {before.point:.3f} ({before.low:.3f}–{before.high:.3f}) before, {after.point:.3f} "
        f"({after.low:.3f}–{after.high:.3f}) with this checkpoint as {change.role}: "
        f"{gap.point:+.3f} ({gap.low:+.3f} to {gap.high:+.3f}); greedy, K = {change.k}, {gap.n} prompts, 95% intervals"
    )


def _wrong(found: Verified) -> Iterator[Text]:
    wrong = [tensor for tensor in found.tensors if not tensor.good]
    for tensor in wrong[:NAMED]:
        error = f" (largest difference {tensor.error:.3g})" if tensor.error else ""
        yield Text(f"  {tensor.name}: {tensor.outcome}{f': {tensor.why}' if tensor.why else ''}{error}", "red")
    if len(wrong) > NAMED:
        yield Text(f"  and {len(wrong) - NAMED} more tensors", "red")


def _verdict(found: Verified) -> Text:
    if not found.holds:
        return Text("verdict: does not hold", "bold red")
    if found.logits is None:
        return Text("verdict: good, as far as it was looked at", "bold green")
    return Text("verdict: good", "bold green")

"""The chat templates of both models, rendered on sample conversations and compared.

The deployment renders with the target's template only. What the draft's says is what the draft was trained on: a
prompt in another format is one it has not seen, and its guesses get worse.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from trtspec.pairing.conversations import NAMES, PLAIN
from trtspec.pairing.findings import Finding, Severity
from trtspec.pairing.words import Words

CONTEXT = 30
"""Characters shown around the first difference."""
DIFF_LINES = 12
COMPARED = 20_000
"""Characters of a rendered text that a line diff looks at: difflib is quadratic."""


def check_template(target: Words, draft: Words) -> Iterator[Finding]:
    """Templates that do not work, then the pair's differences. Both models' texts have been rendered before."""
    for words in (target, draft):
        yield from _refused(words)
    if target.template is None or draft.template is None:
        yield _absent(target, draft)
        return
    if _works(target) and _works(draft):
        yield from _one_sided(target, draft)
        yield _compared(target, draft)


def _works(words: Words) -> bool:
    return any("text" in result for result in words.rendered or ())


def _absent(target: Words, draft: Words) -> Finding:
    none = [words.role for words in (target, draft) if words.template is None]
    if len(none) == 2:
        message = "neither model has a chat template: prompts go in as they are"
    elif none == ["draft"]:
        message = "the draft has no chat template, and needs none: prompts are rendered with the target's"
    else:
        message = "the target has no chat template: prompts go in as they are, although the draft has one"
    brief = "no chat template" if len(none) == 2 else f"no chat template of the {none[0]}'s"
    return Finding("template.none", "info", "pair", message, None, {"without": none}, brief)


def _refused(words: Words) -> Iterator[Finding]:
    """A template with which not one conversation can be rendered."""
    if words.rendered is None or words.template is None or _works(words):
        return
    reason = words.rendered[0]["error"]
    serious = words.role == "target"
    yield Finding(
        "template.broken", "error" if serious else "warning", words.role,
        f"its chat template ({words.template.where}) renders no conversation at all: {reason}",
        "restore the template that came with the model" if serious else "the target's is used; look at the draft's",
        {"where": words.template.where, "error": reason},
    )  # fmt: skip


def _one_sided(target: Words, draft: Words) -> Iterator[Finding]:
    """Conversations that one template refuses and the other renders; tools are an extra that many lack."""
    for words, other in ((target, draft), (draft, target)):
        names = [n for n, name in enumerate(NAMES) if words.text(n) is None and other.text(n) is not None]
        plain = [n for n in names if NAMES[n] in PLAIN]
        if not plain:
            continue
        reason = (words.rendered or [])[plain[0]]["error"]
        told = " and ".join(NAMES[n] for n in plain)
        draft_refuses = words.role == "draft"
        yield Finding(
            "template.refused", "warning" if draft_refuses else "info", words.role,
            f"its chat template refuses {told}, the {other.role}'s renders it: {reason}",
            "the draft never saw such prompts: measure acceptance on them" if draft_refuses else None,
            {"conversations": [NAMES[n] for n in names], "error": reason},
        )  # fmt: skip


def _compared(target: Words, draft: Words) -> Finding:
    pairs = {
        n: (a, b) for n in range(len(NAMES)) if (a := target.text(n)) is not None and (b := draft.text(n)) is not None
    }
    differing = [n for n, (a, b) in pairs.items() if a != b]
    same = [NAMES[n] for n in pairs if n not in differing]
    if not differing:
        message = f"both chat templates render {len(pairs)} sample conversations alike"
        return Finding("template.equal", "info", "pair", message, None, {"conversations": same}, "equal chat templates")
    n = differing[0]
    plain = [NAMES[d] for d in differing if NAMES[d] in PLAIN]
    severity: Severity = "warning" if plain else "info"
    where = _first_difference(*pairs[n])
    message = (
        f"chat templates differ on {', '.join(NAMES[d] for d in differing)}: after {where['after']!r} the target's "
        f"prints {where['target']!r} and the draft's {where['draft']!r}"
    )
    fix = "the draft learned another chat format: measure acceptance on prompts rendered with the target's"
    data = {"differ": [NAMES[d] for d in differing], "same": same, "at": where["at"], "diff": _diff(*pairs[n])}
    return Finding("template.differs", severity, "pair", message, fix if plain else None, data)


def _first_difference(a: str, b: str) -> dict[str, Any]:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return {
        "at": at,
        "after": a[max(0, at - CONTEXT) : at],
        "target": a[at : at + CONTEXT],
        "draft": b[at : at + CONTEXT],
    }


def _diff(a: str, b: str) -> list[str]:
    one, other = a[:COMPARED].splitlines(), b[:COMPARED].splitlines()
    lines = difflib.unified_diff(one, other, "target", "draft", lineterm="", n=1)
    return [line[:120] for line, _ in zip(lines, range(DIFF_LINES), strict=False)]

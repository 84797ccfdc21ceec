"""Do the two models come from one family, and how do they differ inside?

A pair works with any two architectures that share token ids: each model computes its own logits with its own
attention and positions. What differs inside is therefore said, not held against the pair. What the models were trained
on is another matter: a target that was trained further writes text that its old relatives do not expect, and
acceptance falls by an amount that only measuring tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trtspec.checkpoint.facts import ModelFacts, Rope
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model
from trtspec.pairing.origin import Origin

MEASURE = "measure acceptance on your own prompts with `trtspec profile` before anything is built"
NO_ROPE = {"GPT2LMHeadModel": "learned positions"}


def check_lineage(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Training first, as far as names tell, then what config.json says about the inside."""
    del config  # every check has the same three arguments
    yield from _training(target.origin, draft.origin)
    if target.facts is None or draft.facts is None:
        yield Finding("lineage.not-measured", "info", "pair", "architectures are not compared: no config.json for both")
        return
    yield from _inside(target.facts, draft.facts)


def _training(target: Origin, draft: Origin) -> Iterator[Finding]:
    names = target.known, draft.known
    if names[0] is None or names[1] is None:
        message = "names and model cards do not tell what both models were trained from"
        yield Finding("lineage.unnamed", "info", "pair", message, brief="family unknown by name")
        return
    found = [*_apart(target, draft), *_tuning(target, draft)]
    yield from found
    if not found:
        message = f"by their names {names[0].text} and {names[1].text} are of one family"
        if names[0].version != names[1].version:
            message += ", of other versions: their training data differ somewhat"
        yield Finding(
            "lineage.family", "info", "pair", message, data=_origins(target, draft), brief="one family by their names"
        )


def _apart(target: Origin, draft: Origin) -> Iterator[Finding]:
    """One of them was trained towards something that the other was not, or they never were of one family."""
    why = _difference(target, draft)
    if why is None:
        return
    yield Finding(
        "lineage.tuned-away", "warning", "pair",
        f"{why}: the draft has not learned what the target now writes, and acceptance may be low",
        MEASURE, _origins(target, draft),
    )  # fmt: skip


def _difference(target: Origin, draft: Origin) -> str | None:
    ours, theirs = target.known, draft.known
    assert ours is not None
    assert theirs is not None
    if ours.line != theirs.line:
        return f"by their names {ours.text} and {theirs.text} are of different families"
    for one, other, role in ((target, draft, "target"), (draft, target, "draft")):
        only = sorted(one.branches - other.branches)
        if only:
            return f"the {role} {_called(one)} was trained towards {only[0]}, the other model was not"
    if target.derived and not _same_tuning(target, draft):
        return f"the target {_called(target)} seems fine-tuned from its family"
    return None


def _same_tuning(target: Origin, draft: Origin) -> bool:
    """Both fine-tuned alike: the same words of their own, or the same owner."""
    one, other = target.name, draft.name
    if one is None or other is None or not draft.derived:
        return False
    return (bool(one.words) and one.words == other.words) or (one.owner is not None and one.owner == other.owner)


def _tuning(target: Origin, draft: Origin) -> Iterator[Finding]:
    kinds = target.tuning, draft.tuning
    if None in kinds or kinds[0] == kinds[1]:
        return
    yield Finding(
        "lineage.tuning-differs", "warning", "pair",
        f"by their names the target is {_kind(kinds[0])} and the draft {_kind(kinds[1])}: one of them has never seen "
        "the chat format",
        f"take the {'instruct' if kinds[0] == 'instruct' else 'base'} draft of that family, or {MEASURE}",
        _origins(target, draft),
    )  # fmt: skip


def _kind(tuning: str | None) -> str:
    return "an instruct model" if tuning == "instruct" else "a base model"


def _called(origin: Origin) -> str:
    base = f" (from {origin.base.text})" if origin.base else ""
    return (origin.name.text if origin.name else "") + base


def _origins(target: Origin, draft: Origin) -> dict[str, dict[str, str | None]]:
    return {
        role: {
            "name": origin.name.text if origin.name else None,
            "base": origin.base.text if origin.base else None,
            "relation": origin.relation,
            "tuning": origin.tuning,
        }
        for role, origin in (("target", target), ("draft", draft))
    }


def _inside(target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    told = {code: (describe(target), describe(draft)) for code, (_, describe, _) in ASPECTS.items()}
    apart = [ASPECTS[code][0] for code, (ours, theirs) in told.items() if ours != theirs]
    brief = f"other {', '.join(apart)}: nothing that must agree"
    for code, (ours, theirs) in told.items():
        what, _, comment = ASPECTS[code]
        if ours != theirs:
            message = f"{what}: target {ours}, draft {theirs}; {comment}"
            yield Finding(code, "info", "pair", message, None, {"target": ours, "draft": theirs}, brief)
    alike = [f"{ASPECTS[code][0]} ({ours})" for code, (ours, theirs) in told.items() if ours == theirs]
    if alike:
        message = "alike in " + ", ".join(alike)
        yield Finding("lineage.alike", "info", "pair", message, brief=brief if apart else "alike inside")


def attention(facts: ModelFacts) -> str:
    """Multi-head, multi-query or grouped-query attention, with its counts of query and key-value heads."""
    heads, kv = facts.num_attention_heads, facts.num_key_value_heads
    kind = "MHA" if kv == heads else "MQA" if kv == 1 else "GQA"
    return f"{kind} {heads}:{kv}"


def rope(facts: ModelFacts) -> str:
    """θ and scaling of the rotary embedding; that of windowed layers after it."""
    if facts.architecture in NO_ROPE:
        return NO_ROPE[facts.architecture]
    local = "" if facts.rope_local is None else f", windowed layers {_rope(facts.rope_local)}"
    part = "" if facts.partial_rotary_factor == 1 else f", on {facts.partial_rotary_factor:.0%} of each head"
    return _rope(facts.rope) + part + local


def _rope(rope: Rope) -> str:
    factor = rope.parameters.get("factor")
    times = f" ×{factor:g}" if type(factor) in (int, float) else ""
    scaling = "" if rope.type == "default" else f" {rope.type}{times}"
    return f"θ {rope.theta:g}{scaling}"


def windows(facts: ModelFacts) -> str:
    """How many layers have a sliding window, and how wide it is."""
    sizes = [window for window in facts.layer_windows if window is not None]
    if not sizes:
        return "none"
    return f"{max(sizes):,} tokens in {len(sizes)} of {len(facts.layer_windows)} layers"


def _tied(facts: ModelFacts) -> str:
    return "tied" if facts.tie_word_embeddings else "separate"


Describe = Callable[[ModelFacts], str]
ASPECTS: dict[str, tuple[str, Describe, str]] = {
    "lineage.architecture": (
        "architecture",
        lambda facts: facts.architecture,
        "each is converted and built by its own rules; token ids are what must agree",
    ),
    "lineage.attention": ("attention", attention, "each model keeps a KV cache of its own layout"),
    "lineage.rope": ("rotary embedding", rope, "each model places the same tokens in its own way"),
    "lineage.window": (
        "sliding window",
        windows,
        "a draft that sees less of a long prompt guesses worse there, and never wrongly for the target",
    ),
    "lineage.tied": ("embeddings", _tied, "a tied head is written out on conversion; it costs memory, not acceptance"),
}
"""Code → what is compared, how it is described, and why a difference does not matter for correctness."""

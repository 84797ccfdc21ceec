"""What `trtllm-build` changes without being asked, predicted before a build and expected of its record after.

The table is :data:`trtspec.backends.tensorrt.rules.RULES`. Most changes only log a warning, and the engine then cannot
verify drafts, or has other limits than asked for. Some raise, after minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trtspec.backends.tensorrt.flags import Flags, FlagValue
from trtspec.backends.tensorrt.rules import RULES, Rule, Seen
from trtspec.backends.tensorrt.subject import Subject
from trtspec.config import Role

NO_REUSE: Mapping[Role, str] = {
    "target": "it could not reuse its KV cache, and the runtime would refuse it as one that verifies drafts",
    "draft": "it cannot reuse its KV cache, and computes everything so far anew in each round",
}
"""What the loss of paged-context attention means."""


@dataclass(frozen=True)
class Rewrite:
    """One flag that will not be what was asked for; without a flag, a build that fails or goes wrong."""

    rule: Rule
    flag: str
    asked: FlagValue | None
    becomes: FlagValue | None
    refused: bool
    role: Role = "target"

    def __str__(self) -> str:
        change = f"--{self.flag} {_shown(self.asked)} becomes {_shown(self.becomes)}: " if self.flag else ""
        meaning = f": {NO_REUSE[self.role]}" if self.rule.breaks == "target" else ""
        raises = self.refused and self.rule.strict and self.role == "draft"
        return change + self.rule.why + meaning + ("; this version may end with an error instead" if raises else "")


@dataclass(frozen=True)
class Prediction:
    """All that changes, and the flags as the engine will record them."""

    rewrites: tuple[Rewrite, ...]
    flags: Flags

    @property
    def refused(self) -> tuple[Rewrite, ...]:
        """Those that must not be."""
        return tuple(rewrite for rewrite in self.rewrites if rewrite.refused)


def predict(flags: Flags, subject: Subject) -> Prediction:
    """Apply every rule in order; a rule sees what the rules before it made."""
    now, found, role = dict(flags), [], subject.role
    for rule in RULES:
        seen = Seen(now, subject)
        if not rule.when(seen):
            continue
        after, refused = rule.changes(seen), rule.refuses(subject)
        changed = {name: value for name, value in after.items() if now.get(name) != value}
        found += [Rewrite(rule, name, now.get(name), value, refused, role) for name, value in changed.items()]
        if not after:
            found.append(Rewrite(rule, "", None, None, refused, role))
        now |= after
    return Prediction(tuple(found), now)


def _shown(value: FlagValue | None) -> str:
    return "(not given)" if value is None else "on" if value is True else str(value)

"""Greedy equality: is the speculative text the text that the target alone writes?

Where it is not, the first place of difference is found and judged by the target's own logits there. Verifying several
positions at once rounds differently than stepping one by one; where the best logits are closer than `near_tie`, either
token may win and neither is wrong. Any wider gap is a real difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trtspec.errors import ServingError
from trtspec.measurement.generator import Generator
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import Samples, domains_of

Kind = Literal["near-tie", "real", "undiagnosed"]
CONTEXT = 60
"""Characters shown before and after the first difference."""
_MAX_FORKS = 8
_LOOK_BACK = 8
_LIKELY = 8
# Half of a character's bytes decode to this; the rest of the character comes with the next token.
_UNFINISHED = "\ufffd"


@dataclass(frozen=True)
class Difference:
    """The first place where a speculative answer departs from the target's own."""

    prompt_id: str
    kind: Kind
    before: str
    """The end of what both answers share."""
    target_only: str
    speculative: str
    token: int | None = None
    """Place of the differing token in the answer, from 0; None where it was not found."""
    gap: float | None = None
    """Best logit there minus that of the worse of the two tokens; None where it was not found."""
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """Greedy equality over the prompts of one domain that were answered in both modes."""

    compared: int
    equal: int
    differences: tuple[Difference, ...] = ()

    def count(self, kind: Kind) -> int:
        """How many differences are of this kind."""
        return sum(d.kind == kind for d in self.differences)


def compare(
    client: Generator, prompts: Sequence[Prompt], samples: Samples, *, temperature: float, near_tie: float
) -> dict[str, Comparison] | None:
    """Per domain, every prompt answered in both modes; None (not measured) for sampled answers, which may differ.

    Asks the server only where texts differ. A server that fails there leaves the difference undiagnosed.
    """
    if temperature > 0.0:
        return None
    return {domain: _compare(client, domain, samples, near_tie) for domain in domains_of(prompts)}


def _compare(client: Generator, domain: str, samples: Samples, near_tie: float) -> Comparison:
    pairs = samples.pairs(domain)
    differences = tuple(
        diagnose(client, plain.prompt, plain.text, spec.text, near_tie)
        for plain, spec in pairs
        if plain.text != spec.text
    )
    return Comparison(len(pairs), len(pairs) - len(differences), differences)


def diagnose(client: Generator, prompt: Prompt, target_only: str, speculative: str, near_tie: float) -> Difference:
    """Find the first differing token and the logit gap there."""
    token: int | None = None
    gap: float | None = None
    try:
        trail = _Trail(client, prompt, (target_only, speculative), near_tie)
        token, gap, reason = trail.first_difference()
        kind: Kind = "near-tie" if gap is not None and gap <= near_tie else "real"
    except ServingError as error:
        kind, reason = "undiagnosed", str(error)
    split = len(_shared(target_only, speculative))
    return Difference(
        prompt_id=prompt.id,
        kind=kind,
        before=target_only[max(0, split - CONTEXT) : split],
        target_only=target_only[split : split + CONTEXT],
        speculative=speculative[split : split + CONTEXT],
        token=token,
        gap=gap,
        reason=reason,
    )


@dataclass(frozen=True)
class _Trail:
    """The target's own tokens, followed to where the two texts part."""

    client: Generator
    prompt: Prompt
    texts: tuple[str, str]
    near_tie: float

    def first_difference(self) -> tuple[int, float | None, str]:
        """(place of the differing token, gap, reason); gap None where a text goes on with no likely token.

        The target is run again, and may itself take another turn at a near-tie before the texts part; it is then led
        back onto the shared text and followed further.
        """
        prompt_ids = list(self.client.tokens(self.prompt.text))
        path: list[int] = []
        for _ in range(_MAX_FORKS):
            room = self.prompt.max_tokens - len(path)
            path += self.client.token_ids((*prompt_ids, *path), room) if room > 0 else ()
            place = self._leaves(path)
            for text, other in (self.texts, self.texts[::-1]):
                if self._follows(path, place, text):
                    return self._nearest(prompt_ids, path, place, other)
            back = self._back(path[:place], self._logits(prompt_ids + path[:place]))
            if back is None:
                return place, None, "the target, run again, follows neither text"
            path = [*path[:place], back]
        raise ServingError(f"the target, run again, took {_MAX_FORKS} other turns before the texts part")

    @property
    def shared(self) -> str:
        """What both texts begin with."""
        return _shared(*self.texts)

    def _leaves(self, path: Sequence[int]) -> int:
        """How many tokens of `path` stay on the shared text."""
        low, high = 0, len(path)
        while low < high:
            middle = (low + high + 1) // 2
            on = _begins(self.shared, self._text(path[:middle]))
            low, high = (middle, high) if on else (low, middle - 1)
        return low

    def _follows(self, path: Sequence[int], place: int, text: str) -> bool:
        """Whether the token at `place`, or the end there, is that of `text`."""
        if place == len(path):
            return text == self._text(path)
        return _begins(text, self._text(path[: place + 1]))

    def _nearest(
        self, prompt_ids: list[int], path: Sequence[int], place: int, other: str
    ) -> tuple[int, float | None, str]:
        """The place at or shortly before `place` where `other` could have left the path at the smallest gap.

        Before it, because one text's token may begin like the other's: " ba" + "r" against " baz".
        """
        if place == self.prompt.max_tokens:
            return place, None, "one text goes on after max_tokens"
        found: tuple[int, float | None] = (place, None)
        for at in range(place, max(-1, place - _LOOK_BACK), -1):
            logits = self._logits(prompt_ids + list(path[:at]))
            own = path[at] if at < len(path) else None
            gap = self._gap(path[:at], own, logits, other, beyond=at < place)
            if gap is not None and (found[1] is None or gap < found[1]):
                found = (at, gap)
            if gap is not None and gap <= self.near_tie:
                break
        return *found, "" if found[1] is not None else f"a text goes on with none of the {_LIKELY} likeliest tokens"

    def _gap(
        self, path: Sequence[int], own: int | None, logits: NDArray[np.float64], text: str, *, beyond: bool
    ) -> float | None:
        """Best logit minus the lower of `own` and the likeliest other token with which `text` goes on."""
        for token in self._candidates(logits):
            if token == own or not self._continues([*path, token], text):
                continue
            if beyond and len(self._text([*path, token])) <= len(self.shared):
                continue
            return float(logits.max() - min(logits[token], logits.max() if own is None else logits[own]))
        return None

    def _back(self, path: Sequence[int], logits: NDArray[np.float64]) -> int | None:
        """A near-tied token with which both texts go on."""
        for token in self._candidates(logits):
            near = float(logits.max() - logits[token]) <= self.near_tie
            if near and all(self._continues([*path, token], text) for text in self.texts):
                return token
        return None

    def _text(self, ids: Sequence[int]) -> str:
        return self.client.decode(tuple(ids)) if ids else ""

    def _logits(self, ids: Sequence[int]) -> NDArray[np.float64]:
        return np.asarray(self.client.next_logits(tuple(ids)), np.float64).reshape(-1)

    def _candidates(self, logits: NDArray[np.float64]) -> list[int]:
        """Tokens by falling logit: all near-tied ones, and the likeliest few, so that a wider gap has a number."""
        near = int((logits >= logits.max() - self.near_tie).sum())
        return [int(i) for i in np.argsort(-logits, kind="stable")[: max(near, _LIKELY)]]

    def _continues(self, path: Sequence[int], text: str) -> bool:
        """Whether `text` begins with the decoded path, and the last token adds to it or ends it."""
        here, until = self._text(path), self._text(path[:-1])
        if here == until:  # a token without text, such as the end token
            return text == until
        return _begins(text, here)


def _begins(text: str, start: str) -> bool:
    return text.startswith(start.rstrip(_UNFINISHED))


def _shared(a: str, b: str) -> str:
    end = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:end]

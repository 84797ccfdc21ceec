"""What the draft says at every place of the target's answers: one prompt's evidence for every draft length.

See :mod:`trtspec.measurement.offline` for what is measured and why this is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from trtspec.analysis.simulation import ENDED, MATCH, MISS, WITHHELD, Trace
from trtspec.backends.reference.request import Sampling
from trtspec.backends.reference.sampling import ACCEPT, TOKEN, Probabilities, Row, draw, probabilities, uniform
from trtspec.backends.scoring.base import GREEDY, Scorer
from trtspec.measurement.repetition import is_degenerate

Rows = npt.NDArray[np.float32]
Rule = Literal["tokens", "tokens-independent", "logits"]
RULES: tuple[Rule, ...] = ("tokens", "tokens-independent", "logits")
ALONE = 3
"""Purpose of the random numbers of a draft that shares none with the target; the engine's own are 0, 1 and 2."""


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt as the models get it. `seed` is that of its request."""

    id: str
    domain: str
    ids: tuple[int, ...]
    max_tokens: int
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """How the pair is asked."""

    k_max: int = 8
    """Longest draft that will be replayed."""
    sampling: Sampling = GREEDY
    end_ids: tuple[int, ...] = ()
    withheld: frozenset[int] | None = None
    """End ids that a draft call does not return, so that they are never proposed; None: the first, as served."""
    tails: bool = True
    """Follow the draft behind its misses: only the number of drafted tokens depends on it."""

    @property
    def silent(self) -> frozenset[int]:
        """The end ids that are not proposed."""
        return frozenset(self.end_ids[:1]) if self.withheld is None else self.withheld

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Greedy, all rules are one."""
        return RULES[:1] if self.sampling.greedy else RULES


@dataclass(frozen=True)
class Reading:
    """What was found on one prompt. For the rules that draw, at each place, the answer being given: the chances
    of a match, and of an end of the draft, which is no test."""

    id: str
    domain: str
    prompt_tokens: int
    tokens: int
    max_tokens: int
    degenerate: bool
    traces: Mapping[Rule, Trace]
    match: Mapping[Rule, tuple[float, ...]] = field(default_factory=dict)
    untested: Mapping[Rule, tuple[float, ...]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """The target ended the answer by itself."""
        return self.tokens < self.max_tokens


class PairReader:
    """Reads prompts with a target and a draft."""

    def __init__(self, target: Scorer, draft: Scorer, setting: Setting) -> None:
        self._target, self._draft, self._setting = target, draft, setting

    def read(self, prompts: Sequence[TokenPrompt]) -> list[Reading]:
        """One reading for each prompt; answers and tails are written in batches."""
        s = self._setting
        answers = self._target.generate(
            [p.ids for p in prompts],
            [p.max_tokens for p in prompts],
            s.sampling,
            [p.seed for p in prompts],
            s.end_ids,
        )
        reports = [self._ask(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        tails = self._follow(reports) if s.tails else [()] * len(reports)
        return [report.reading(t) for report, t in zip(reports, tails, strict=True)]

    def _ask(self, prompt: TokenPrompt, answer: Sequence[int]) -> _Report:
        """One forward pass of the draft (and, when sampling, of the target) over prompt and answer."""
        report = _Report(self._setting, prompt, *self._followed(answer, prompt.max_tokens))
        ids, first = report.text, len(prompt.ids) - 1
        rows = self._draft.logits(ids, first)
        judge = None if self._setting.sampling.greedy else self._target.logits(ids, first)
        report.said = [report.choose(row, place) for place, row in enumerate(rows)]
        if report.ended:
            report.end = self._end(report, judge)
        report.outcomes["tokens"] = "".join(map(report.outcome, range(report.places), report.said))
        if judge is not None:
            report.sample(judge, rows)
        return report

    def _followed(self, answer: Sequence[int], most: int) -> tuple[tuple[int, ...], int]:
        """The answer up to the first token that the draft does not have, and the longest it could be."""
        strange = next((i for i, token in enumerate(answer) if token >= self._draft.vocab_size), None)
        return (tuple(answer), most) if strange is None else (tuple(answer[: strange + 1]), strange + 1)

    def _end(self, report: _Report, judge: Rows | None) -> int:
        """The end token that the target chose; asked for only where several could be and it matters."""
        ends = self._setting.end_ids
        if judge is not None:
            chosen = report.choose(judge[-1], report.places - 1)
            return chosen if chosen in ends else ends[0]
        if report.said[-1] in self._setting.silent or report.said[-1] not in ends or len(ends) == 1:
            return ends[0]
        return report.choose(self._target.logits(report.text, len(report.text) - 1)[0], report.places - 1)

    def _follow(self, reports: Sequence[_Report]) -> list[tuple[int, ...]]:
        """How far the draft goes on behind each of its misses, up to what the longest round could hold."""
        s, jobs = self._setting, [job for i, report in enumerate(reports) for job in report.misses(i)]
        open_ = [job for job in jobs if job.room > 0 and job.known is None]
        written = self._draft.generate(
            [job.ids for job in open_],
            [job.room for job in open_],
            s.sampling,
            [reports[job.report].prompt.seed for job in open_],
            s.end_ids,
        )
        found = {id(job): self._length(job, ids, reports[job.report]) for job, ids in zip(open_, written, strict=True)}
        tails: list[list[int]] = [[] for _ in reports]
        for job in jobs:
            tails[job.report].append(found.get(id(job), s.k_max if job.known is None else job.known))
        return [tuple(t) for t in tails]

    def _length(self, job: _Miss, ids: Sequence[int], report: _Report) -> int:
        """Tokens drafted behind a miss; an end token counts where it is proposed."""
        s = self._setting
        if len(ids) == job.room:
            return s.k_max
        if not set(s.end_ids) - s.silent:
            return len(ids)
        if not s.silent:
            return len(ids) + 1
        text = (*job.ids, *ids)
        last = report.pick(self._draft.logits(text, len(text) - 1)[0], len(text))
        return len(ids) + (last not in s.silent)


@dataclass(frozen=True, eq=False)
class _Miss:
    """A miss whose tail is wanted: text up to and with it, tokens that a round could still hold, tail if known."""

    report: int
    ids: tuple[int, ...]
    room: int
    known: int | None


@dataclass
class _Report:
    """One prompt in the making. Behind a token that the draft does not have, it cannot be asked: `most` is less."""

    setting: Setting
    prompt: TokenPrompt
    answer: tuple[int, ...]
    most: int
    """Longest answer that is looked at."""
    said: list[int] = field(default_factory=list)
    """The draft's token at each place."""
    end: int | None = None
    outcomes: dict[Rule, str] = field(default_factory=dict)
    match: dict[Rule, tuple[float, ...]] = field(default_factory=dict)
    untested: dict[Rule, tuple[float, ...]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return len(self.answer) < self.most

    @property
    def places(self) -> int:
        return len(self.answer) + self.ended

    @property
    def text(self) -> tuple[int, ...]:
        """What must be read to know what comes at every place."""
        return (*self.prompt.ids, *self.answer)[: len(self.prompt.ids) + self.places - 1]

    def pick(self, row: Row, position: int, purpose: int = TOKEN) -> int:
        """The token that a model with these logits puts at an absolute position."""
        if self.setting.sampling.greedy:
            return int(row.argmax())
        return draw(probabilities(row, self.setting.sampling), uniform(self.prompt.seed, position, purpose))

    def choose(self, row: Row, place: int) -> int:
        return self.pick(row, len(self.prompt.ids) + place)

    def own(self, place: int) -> int:
        """The target's token at a place."""
        if place < len(self.answer):
            return self.answer[place]
        return -1 if self.end is None else self.end

    def outcome(self, place: int, said: int) -> str:
        if said in self.setting.silent:
            return WITHHELD
        if said != self.own(place):
            return MISS
        return MATCH if place < len(self.answer) else ENDED

    def sample(self, judge: Rows, rows: Rows) -> None:
        """Outcomes and chances of the rules that need both distributions."""
        alone, logits = "", ""
        chances: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for place, (target_row, draft_row) in enumerate(zip(judge, rows, strict=True)):
            p, q = (probabilities(row, self.setting.sampling) for row in (target_row, draft_row))
            position, own = len(self.prompt.ids) + place, self.own(place)
            said = draw(q, uniform(self.prompt.seed, position, ALONE))
            ratio = min(1.0, _at(q, own) / _at(p, own)) if _at(p, own) > 0.0 else 0.0
            taken = uniform(self.prompt.seed, position, ACCEPT) < ratio
            alone += self.outcome(place, said)
            logits += WITHHELD if said in self.setting.silent else self.outcome(place, own if taken else -1)
            chances.append((self._chances(place, q, _at(q, own)), self._chances(place, q, ratio)))
        self.outcomes |= {"tokens-independent": alone, "logits": logits}
        for i, rule in enumerate(RULES[1:]):
            self.match[rule] = tuple(c[i][0] for c in chances)
            self.untested[rule] = tuple(c[i][1] for c in chances)

    def _chances(self, place: int, q: Probabilities, agreed: float) -> tuple[float, float]:
        """P(match) and P(end of the draft, no test), where the draft agrees with probability `agreed`."""
        silent = sum(_at(q, end) for end in self.setting.silent)
        if place < len(self.answer):
            match = min(agreed, 1.0 - silent)
            return match, silent
        # The end token: accepted it cuts the round, withheld it shortens it.
        return 0.0, silent if self.own(place) in self.setting.silent else min(1.0, silent + agreed)

    def misses(self, number: int) -> Iterator[_Miss]:
        """Every miss of the rule `tokens`, in order."""
        s = self.setting
        for place, outcome in enumerate(self.outcomes["tokens"]):
            if outcome == MISS:
                before = (*self.prompt.ids, *self.answer[:place])
                room = min(s.k_max - 1, self.most - place - 2)
                yield _Miss(number, (*before, self.said[place]), room, 0 if self.said[place] in s.end_ids else None)

    def reading(self, tails: tuple[int, ...]) -> Reading:
        return Reading(
            id=self.prompt.id,
            domain=self.prompt.domain,
            prompt_tokens=len(self.prompt.ids),
            tokens=len(self.answer),
            max_tokens=self.most,
            degenerate=is_degenerate(self.answer),
            traces={rule: Trace(o, self.most, tails if rule == "tokens" else ()) for rule, o in self.outcomes.items()},
            match=self.match,
            untested=self.untested,
        )


def _at(weights: Probabilities, token: int) -> float:
    """Probability of a token, 0 for one that the model does not have."""
    return float(weights[token]) if 0 <= token < len(weights) else 0.0

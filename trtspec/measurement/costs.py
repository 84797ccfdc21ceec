"""What a step costs, measured through the server as a client: draft, target, verification, and what a round adds.

A call of a model costs more than its steps: it is sent, put into a batch, and answered. So steps are differences of
two calls, in which that cancels: `n` tokens more ÷ n for a step of either model, and K draft tokens beside none for
the verification of K. The rest of a round, as the speculative pipeline runs it, is its overhead: both calls, the
pipeline itself, the stream. Calls of one kind are made by all clients at once, so that a step is one of that load.

Under load a round's overhead may be less than nothing: its steps overlap with those of other requests, and a step was
timed with all requests in that step.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trtspec.analysis.prediction import StepTimes
from trtspec.measurement.endpoints import BLS, ENSEMBLE
from trtspec.measurement.parts import Cost, StepCosts
from trtspec.measurement.prompts import Prompt
from trtspec.triton.generation import GenerateRequest, Generation

TARGET, DRAFT = "tensorrt_llm", "tensorrt_llm_draft"
REPEATS = 10
"""Of every call by every client, in turns."""
ANSWERS = 6
"""Whole answers of each client, target alone and with each draft length that rounds are timed with."""
MORE = 8
"""Tokens by which the longer of two calls is longer."""
ROOM = 48
"""Tokens of a whole answer."""


class Stepping(Protocol):
    """A client that can also time one call of an engine."""

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        """Answer one request."""

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """Token ids the server makes of a prompt."""

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        """The target's own greedy continuation."""

    def timed(self, model: str, ids: tuple[int, ...], new_tokens: int, drafts: tuple[int, ...] = ()) -> float:
        """Seconds of one greedy call that does not end before `new_tokens`; `drafts` are verified by it."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(frozen=True)
class Wanted:
    """What to time. `ks`: draft lengths whose verification is timed. `k`: the one that is served; rounds are timed with
    it, with one draft token, and with the most.

    `longest`: most tokens that an engine holds.
    """

    k: int
    ks: tuple[int, ...]
    longest: int
    use_draft_logits: bool = False
    timeout: float | None = 120.0
    repeats: int = REPEATS

    @property
    def rounds(self) -> tuple[int, ...]:
        """Draft lengths whose rounds are timed."""
        return tuple(sorted({1, self.k, max(self.ks)}))


def lengths(k: int, most: int) -> tuple[int, ...]:
    """Draft lengths to time: powers of two, the one that is served, and the longest."""
    return tuple(sorted({n for n in (1, 2, 4, 8, 16, 32, 64, k, most) if n <= most}))


def step_costs(
    clients: Callable[[], Stepping], prompts: Sequence[Prompt], concurrency: int, wanted: Wanted
) -> StepCosts | None:
    """With so many clients at once; None where no prompt leaves room for it. ServingError where a call fails."""
    usable = [p for p in prompts if p.max_tokens > 1]
    made = [clients() for _ in range(concurrency)]
    try:
        texts = _texts(made[0], usable, concurrency, wanted)
        if not texts:
            return None
        with ThreadPoolExecutor(concurrency, thread_name_prefix="costs") as pool:
            run = _Run(made, texts, wanted, pool)
            return run.costs()
    finally:
        for client in made:
            client.close()


@dataclass(frozen=True)
class _Text:
    """A prompt, the ids of it and of a beginning of its answer, and what comes then."""

    prompt: Prompt
    ids: tuple[int, ...]
    drafts: tuple[int, ...]


def _texts(client: Stepping, prompts: Sequence[Prompt], count: int, wanted: Wanted) -> list[_Text]:
    """One for each client and repetition of whole answers; prompts come again where there are too few."""
    found: list[_Text] = []
    most = max(wanted.ks)
    for prompt in prompts:
        ids = client.tokens(prompt.text)
        room = wanted.longest - len(ids)
        if room <= max(MORE, most) + 2:
            continue
        own = client.token_ids(ids, min(most, room - 1)) or ids[-1:]
        # Where the answer is shorter the last token comes again: verifying it takes as long, whatever comes of it.
        found.append(_Text(prompt, ids, (*own, *([own[-1]] * most))[:most]))
        if len(found) == count * ANSWERS:
            break
    return found


@dataclass
class _Run:
    clients: Sequence[Stepping]
    texts: Sequence[_Text]
    wanted: Wanted
    pool: ThreadPoolExecutor

    def costs(self) -> StepCosts:
        draft, target, verify = self._steps()
        costs = StepCosts(
            draft_step=draft,
            target_step=target,
            verify={k: cost for k, cost in verify.items() if cost is not None},
            concurrency=len(self.clients),
        )
        made = self._answers()
        token = cost_of(t for t in map(token_seconds, made[0]) if t is not None)
        times = times_of(costs.model_copy(update={"token": token, "overhead": Cost(seconds=0.0, n=1)}))
        if times is None:
            return costs.model_copy(update={"token": token})
        own = {k: cost_of(_overheads(made[k], times), signed=True) for k in self.wanted.rounds}
        found = {k: cost for k, cost in own.items() if cost is not None}
        changes = {"token": token, "overhead": found.get(self.wanted.k), "k": self.wanted.k, "overheads": found}
        return costs.model_copy(update=changes)

    def _steps(self) -> tuple[Cost | None, Cost | None, dict[int, Cost | None]]:
        """Every kind of call in turns; the first turn is not counted, it fills caches."""
        kinds: list[Callable[[Stepping, _Text], float]] = [
            lambda c, t: c.timed(DRAFT, t.ids, 1),
            lambda c, t: c.timed(DRAFT, t.ids, 1 + MORE),
            lambda c, t: c.timed(TARGET, t.ids, 1),
            lambda c, t: c.timed(TARGET, t.ids, 1 + MORE),
            *(self._verifying(k) for k in self.wanted.ks),
        ]
        seen: list[list[float]] = [[] for _ in kinds]
        for turn in range(self.wanted.repeats + 1):
            for kind, times in zip(kinds, seen, strict=True):
                found = self._together(kind)
                if turn:
                    times += found
        short, long, one, more, *verified = seen
        target = [(b - a) / MORE for a, b in zip(one, more, strict=True)]
        step = statistics.median(target)
        verify = {
            k: cost_of(v - a + step for a, v in zip(one, own, strict=True))
            for k, own in zip(self.wanted.ks, verified, strict=True)
        }
        return cost_of((b - a) / MORE for a, b in zip(short, long, strict=True)), cost_of(target), verify

    def _verifying(self, k: int) -> Callable[[Stepping, _Text], float]:
        return lambda client, text: client.timed(TARGET, text.ids, k + 1, text.drafts[:k])

    def _together(self, kind: Callable[[Stepping, _Text], float]) -> list[float]:
        """One call of every client, each with a text of its own that stays the same: its prompt is in the cache."""
        own = [self.texts[i % len(self.texts)] for i in range(len(self.clients))]
        return list(self.pool.map(kind, self.clients, own))

    def _answers(self) -> dict[int, list[Generation]]:
        """Whole answers by draft length, 0 for the target alone, each with all clients at once, in turns."""
        lengths = (0, *self.wanted.rounds)
        found: dict[int, list[Generation]] = {k: [] for k in lengths}
        for turn in range(ANSWERS):
            for k in lengths[:: 1 if turn % 2 == 0 else -1]:
                model = BLS if k else ENSEMBLE
                requests = [self._request(turn * len(self.clients) + i, k or None) for i in range(len(self.clients))]
                found[k].extend(self.pool.map(lambda c, r, m=model: c.generate(m, r), self.clients, requests))
        return found

    def _request(self, place: int, draft_len: int | None) -> GenerateRequest:
        text = self.texts[place % len(self.texts)]
        room = min(ROOM, self.wanted.longest - len(text.ids))
        logits = self.wanted.use_draft_logits and draft_len is not None
        return GenerateRequest(
            text.prompt.text, room, draft_len=draft_len, stream=True, use_draft_logits=logits,
            timeout=self.wanted.timeout, ignore_eos=text.prompt.ignore_eos,
        )  # fmt: skip


def _overheads(answers: Iterable[Generation], times: StepTimes) -> list[float]:
    return [found for answer in answers if (found := overhead_of(answer, times)) is not None]


def token_seconds(answer: Generation) -> float | None:
    """Seconds a token behind the first piece of a streamed answer; None where nothing came after it."""
    if answer.first_token_seconds is None or not answer.chunks:
        return None
    later = answer.output_tokens - (answer.chunks[0].tokens or 1)
    return (answer.seconds - answer.first_token_seconds) / later if later > 0 else None


def overhead_of(answer: Generation, times: StepTimes) -> float | None:
    """Seconds a round behind the first one, beside its steps. The first, with the prompt, ends at the first piece."""
    if answer.first_token_seconds is None or answer.histogram is None or answer.rounds < 3:
        return None
    counted = np.asarray(answer.histogram).sum(axis=0)
    first = int(np.flatnonzero(counted.sum(axis=1)).max())
    if first > times.most:  # its verification was lost in noise
        return None
    steps = times.without_overhead(counted) - first * times.draft - times.verifying(first)
    return (answer.seconds - answer.first_token_seconds - steps) / (answer.rounds - 1)


def cost_of(values: Iterable[float], *, signed: bool = False) -> Cost | None:
    """Median and quartiles; None where nothing was measured, or noise was larger than what was to be measured."""
    known = list(values)
    if not known:
        return None
    low, middle, high = (float(x) for x in np.percentile(known, [25, 50, 75]))
    return Cost(seconds=middle, n=len(known), low=low, high=high) if signed or middle > 0 else None


def times_of(costs: StepCosts | None) -> StepTimes | None:
    """For predictions; None where a part was not measured."""
    if costs is None or costs.draft_step is None or costs.target_step is None or costs.overhead is None:
        return None
    if not costs.verify:
        return None
    return StepTimes(
        token=(costs.token or costs.target_step).seconds,
        draft=costs.draft_step.seconds,
        verify={0: costs.target_step.seconds} | {k: cost.seconds for k, cost in costs.verify.items()},
        overhead={k: cost.seconds for k, cost in costs.overheads.items()} or {0: costs.overhead.seconds},
    )

"""One answer from prompt to last response: what the loop asks and tells (decode.Host)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import beams
from adaptive import Adaptive
from admission import Admission, Breaker
from decode import SPECULATIVE, Cancelled, Decoding
from guard import Guard
from job import Job, Settings
from logs import Log
from metrics import OTHER, Metrics
from pair import Pair, Verdict
from policy import PolicyFile
from result import Result
from rounds import RoundDone, Rounds
from vocabulary import Vocabulary
from watch import Watch, Watched
from wire import response
from writing import Writer


@dataclass(frozen=True)
class House:
    """What all requests of this model share."""

    settings: Settings
    vocabulary: Vocabulary
    policy: PolicyFile
    guard: Guard
    breaker: Breaker
    watch: Watch
    admission: Admission
    metrics: Metrics
    log: Log

    def known(self, task: str | None) -> str:
        """A task's name, if the policy knows it: clients choose names, and there must not be a state for each."""
        return "" if not task else task if task in self.policy.policy.tasks else OTHER

    def levels(self) -> None:
        """How much is going on, for the metrics."""
        self.metrics.in_flight(self.admission.running)
        self.metrics.waiting(self.admission.waiting)


class Answer:
    """The answer to one prompt. :meth:`run` may be entered again, by another thread, after a call was given up."""

    def __init__(self, house: House, job: Job, watched: Watched) -> None:
        self.job = job
        self.finish = ""
        self.lost = ""
        """Why this answer must do without the draft from now on."""
        self._house = house
        self._watched = watched
        self._task = house.known(job.task)
        self._probe = house.guard.begins(self._task)
        self._rounds = Rounds(house.settings.max_draft_len)
        self._decoding: Decoding | None = None
        self._decided: tuple[int, str] | None = None

    def run(self) -> Any:
        """Write it; sends all but the last response, which is returned."""
        self.check()
        decoding = self._decoding or self._begin()
        if self.job.beams > 1:
            return self._search(decoding)
        decoding.run()
        self.check()  # a call that was stopped looks like the end of the answer
        self.finish, total = self._writer.finish, len(self._writer.tokens)
        text, tokens = self._writer.piece() if self.job.stream else (self._whole_text(), total)
        return response(self._result.last(text, tokens, total, self._rounds, self.mode, self.finish))

    @property
    def mode(self) -> str:
        """How it was made so far."""
        return self._decoding.mode if self._decoding else SPECULATIVE

    def check(self) -> None:
        """Give up when nobody waits for the answer any more."""
        if self._watched.over:
            raise Cancelled

    def draft_len(self) -> tuple[int, str]:
        """The least of what request, engine, policy, guard and the state of the draft model allow."""
        decided = self._allowed()
        if decided != self._decided:
            self._decided = decided
            self._house.metrics.decision(self.job.task, decided[1], decided[0])
            if decided[0] == 0 and not self.lost:
                self._house.metrics.fallback(self.job.task, decided[1])
        return decided

    def _allowed(self) -> tuple[int, str]:
        job, house = self.job, self._house
        least = min(
            (job.draft_tokens, job.draft_reason),
            (house.settings.max_draft_len, "engine") if house.settings.draft else (0, "no-draft-model"),
            house.policy.policy.decide(job.task, house.admission.in_flight),
            key=lambda limit: limit[0],
        )
        if least[0] and house.guard.stops(self._task) and not self._probe:
            return 0, "guard"
        if least[0] and not self._pair.draft_knows(self._writer.tokens):
            return 0, "inputs"
        # Asked last, because to be allowed may mean to be the one that tries.
        refused = least[0] and (self.lost or house.breaker.refuses())
        return (0, refused) if refused else least

    def round_done(self, done: RoundDone) -> None:
        """A speculative round has been counted."""
        self._house.metrics.round(self.job.task, done)
        self._house.guard.saw(self._task, done.tested, done.accepted, self._probe)

    def progress(self, verdict: Verdict) -> None:
        """Send what has become certain."""
        self.check()
        self._result.add(verdict)
        if self.job.stream and not self._writer.finish:
            text, tokens = self._writer.piece()
            if text:
                self._watched.sender.send(response(self._result.piece(text, tokens)))

    def warn(self, problem: str) -> None:
        """Into the server's log."""
        self._house.log.event("warn", "fallback", self.job.request_id, problem=problem)

    def account(self, finish: str, seconds: float) -> None:
        """It has ended: count it and write its line into the log."""
        job, rounds, began = self.job, self._rounds, self._decoding is not None
        self._house.metrics.request(job.task, self.mode, finish, len(self._writer.tokens) if began else 0)
        self._house.log.event(
            "info",
            "request-end",
            job.request_id,
            task=self._task or None,
            mode=self.mode,
            finish=finish,
            prompt_tokens=len(self._pair.prompt.ids) if began else None,
            tokens=len(self._writer.tokens) if began else 0,
            rounds=rounds.total,
            drafted=rounds.drafted,
            tested=rounds.tested,
            accepted=rounds.accepted,
            seconds=seconds,
            prompt=lambda: job.inputs.words("text_input"),
            answer=lambda: self._writer.text() if began else None,
        )

    def _begin(self) -> Decoding:
        job, settings = self.job, self._house.settings
        self._pair = Pair(job, settings, self._watched.caller)
        self._writer = Writer(self._house.vocabulary, self._pair.limits())
        self._result = Result(job, len(self._pair.prompt.ids))
        self._decoding = Decoding(
            self._pair,
            self._writer,
            self._rounds,
            self,
            stream=job.stream,
            at_once=bool(job.target_only),
            adaptive=Adaptive(settings.max_draft_len) if settings.adaptive_draft_len else None,
        )
        return self._decoding

    def _search(self, decoding: Decoding) -> Any:
        """Beams: one call of the target, which no draft can follow."""
        decoding.mode = f"target-only:{self.draft_len()[1]}"
        self.finish = "length"
        texts, tensors, tokens = beams.answer(self._pair, self._house.vocabulary, self.job)
        return response(self._result.beams(texts, tokens, tensors, self._rounds, self.mode))

    def _whole_text(self) -> str:
        text = self._writer.text()
        if self.job.exclude_input:
            return text
        prompt = self._pair.prompt.ids
        if self._writer.finish == "stop_words":
            return self._house.vocabulary.decode(prompt) + text
        return self._house.vocabulary.decode(prompt + self._writer.tokens)

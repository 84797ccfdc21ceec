"""One request: its answers one after the other, what goes wrong meanwhile, and the accounts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from answer import Answer, House
from calls import Call, Caller, CallFailed, CallRefused, Ended
from decode import Cancelled
from job import Job
from watch import CANCELLED, DEADLINE, Watched
from wire import FINAL, Refused, fault, refusal

GONE = "the request was cancelled"
Last = Callable[[], None]


def internal_error(house: House, request_id: str, error: Exception) -> Any:
    """Ours, not the client's, who learns its kind; its place is in the log, and no text of the request anywhere."""
    answer, told = fault(error)
    house.log.event("error", "internal-error", request_id, **told)
    return answer


class Service:
    """The work on one request. :meth:`work` may be called again, by another thread, after a call was given up."""

    def __init__(
        self, house: House, jobs: Sequence[Job], sender: Any, caller: Callable[[Ended], Caller], timeout: float | None
    ) -> None:
        self._house = house
        self.watched = Watched(sender, caller(self._call_ended), timeout)
        self.watched.owner = self
        self._answers = [Answer(house, job, self.watched) for job in jobs]
        self._at = 0
        self._doubt = ""
        """How a draft call has failed, until the target has shown that it was not the request's fault."""

    @property
    def _answer(self) -> Answer:
        """The one that is being written."""
        return self._answers[self._at]

    def work(self) -> Last:
        """Answer the request; what is returned sends the last response."""
        self.watched.waiting = False
        self._house.levels()
        try:
            return self._work()
        except (Cancelled, Refused, CallFailed) as reason:
            return self._ending(*self._refusal(reason))
        except Exception as error:
            return self._ending(internal_error(self._house, self._answer.job.request_id, error), "failed")

    def turn_away(self) -> None:
        """Nobody waits for it any more, and it was never begun."""
        self._ending(*self._refusal(Cancelled()))()

    def refuse(self, reason: Exception) -> None:
        """There is no room for it."""
        self._ending(refusal(reason, unavailable=True), "overloaded")()

    def _work(self) -> Last:
        while True:
            last = self._answer.run()
            if self._at == len(self._answers) - 1:
                return self._ending(last, self._answer.finish)
            self.watched.sender.send(last)
            self._account(self._answer.finish)
            self._at += 1

    def _refusal(self, reason: Exception) -> tuple[Any, str]:
        """A call that was stopped for a client that has gone, or because of the time, fails too."""
        if self.watched.over == CANCELLED:
            return refusal(GONE, cancelled=True), CANCELLED
        if self.watched.over == DEADLINE:
            return refusal(f"deadline exceeded after {self.watched.timeout:g} s", cancelled=True), DEADLINE
        refused = isinstance(reason, Refused | CallRefused)
        return refusal(reason, internal=not refused), "refused" if refused else "failed"

    def _ending(self, last: Any, finish: str) -> Last:
        self._house.watch.remove(self.watched)
        self._account(finish)
        return lambda: self._send(last)

    def _send(self, last: Any) -> None:
        self._house.levels()
        self.watched.sender.send(last, flags=FINAL)

    def _account(self, finish: str) -> None:
        try:
            self._answer.account(finish, time.monotonic() - self.watched.arrived)
        except Exception as error:  # the answer goes out all the same
            internal_error(self._house, self._answer.job.request_id, error)

    # The state of the draft model.

    def go_on_without(self, call: Call) -> None:
        """A call was given up; another thread takes this request."""
        if call.model == self._house.settings.draft:
            if self._house.breaker.hangs(1):
                self._house.log.event("error", "draft-given-up", hanging=self._house.breaker.hanging)
            self._answer.lost = "draft-slow"
            if call.slow:
                waited = time.monotonic() - call.began
                self._answer.warn(f"the draft model hangs for {waited:.1f} s; the target continues alone")
                self._draft_failed("draft-slow")
        self._house.admission.replace(self)

    def _call_ended(self, call: Call, failure: CallFailed | None) -> None:
        house = self._house
        if call.model != house.settings.draft:
            if failure is None and self._doubt:
                self._draft_failed(self._doubt)
                self._doubt = ""
        elif call.given_up:
            house.breaker.hangs(-1)
        elif failure is None:
            if house.breaker.succeeded():
                house.log.event("info", "breaker", open=False)
        elif call.slow:
            self._draft_failed(failure.mode)
        elif call.stopped is None:  # not for a client that has gone
            self._doubt = failure.mode

    def _draft_failed(self, mode: str) -> None:
        self._house.metrics.fallback(self._answer.job.task, mode)
        if self._house.breaker.failed(mode):
            hanging = self._house.breaker.hanging
            self._house.log.event("error", "breaker", open=True, reason=mode, hanging=hanging or None)

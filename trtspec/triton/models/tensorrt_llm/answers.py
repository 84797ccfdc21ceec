"""Updates of the reference engine, as responses of TensorRT-LLM's Triton backend."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
from parsing import LlmJob
from wire import FINAL, Array, int32, refusal, response

from trtspec.backends.reference import Ticket, Update

LOOK = 0.05
"""Seconds between two looks whether the client is still there; each costs a message to the server."""
# Triton tells a sender about a cancellation from a thread of its own, which may touch the sender a moment later.
_RECENT: deque[Any] = deque(maxlen=256)


class Batch:
    """All that belongs to one Triton request: its sender, and the engine's tickets of its members."""

    def __init__(self, sender: Any, size: int, wanted: frozenset[str]) -> None:
        self._sender = sender
        self._left = size
        self._looked = time.monotonic()
        self.wanted = wanted
        self._tickets: list[Ticket] = []
        self._cancelled = False
        self.stopped = False
        self.closed = False

    def hold(self, ticket: Ticket) -> None:
        """Keep the ticket of a member; a cancellation may have come first."""
        self._tickets.append(ticket)
        if self._cancelled:
            ticket.cancel()

    def stop(self) -> None:
        """As a `stop` request asks: end every member; what it has got by then is its answer, as in TensorRT-LLM."""
        self.stopped = True
        self.cancel()

    def cancel(self) -> None:
        """End every member; each still reports its last update."""
        self._cancelled = True
        for ticket in list(self._tickets):
            ticket.cancel()

    def due(self) -> bool:
        """Whether it is time to look if the client is still there."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return False
        self._looked = now
        return True

    def look(self) -> None:
        """Cancel if the client has gone. Never after the last response: the server has forgotten the sender then."""
        if not self.closed and self._sender.is_cancelled():
            self.cancel()

    def send(self, message: Any, last: bool) -> None:
        """Send unless the request has ended; it does with its last member."""
        if self.closed:
            return
        self._left -= last
        done = last and self._left == 0
        self.closed = done
        self._sender.send(message, flags=FINAL if done else 0)
        if done:
            _RECENT.append(self._sender)


class Answer:
    """One batch member. Streaming sends every update; otherwise all is said at the end.

    The engine's thread calls :meth:`add`, whoever sends calls :meth:`send` with what it returned, in that order.
    """

    def __init__(self, job: LlmJob, index: int, batch: Batch) -> None:
        self.job = job
        self.batch = batch
        self.whole = not job.request.draft_ids
        """Whether this is an answer, and not a round of one."""
        self.count = 0
        """New tokens so far."""
        self._index = index
        self._updates: list[Update] = []
        self._times = [time.monotonic_ns()] * 2 + [0, 0]  # arrival, first scheduled, first token, last token

    def add(self, update: Update) -> list[Update]:
        """Take one update; the updates that are to be sent now, usually none."""
        if update.new_ids:
            self.count += len(update.new_ids)
            now = time.monotonic_ns()
            self._times[2] = self._times[2] or now
            self._times[3] = now
        self._updates.append(update)
        if not (update.finished or self.job.wants.streaming):
            return []
        ready, self._updates = self._updates, []
        return ready

    def send(self, updates: list[Update]) -> None:
        """Say what these updates add."""
        failure, last = self.failure(updates), updates[-1]
        if failure:
            self.batch.send(refusal(failure, cancelled=last.error is None, internal=last.error is not None), last=True)
        else:
            self.batch.send(response(self.tensors(updates)), last=last.finished)

    def failure(self, updates: list[Update]) -> str:
        """Why these updates are no answer, in one line; empty where they are."""
        last = updates[-1]
        cancelled = last.finish_reason == "cancelled" and not self.batch.stopped
        return last.error or ("the request was cancelled" if cancelled else "")

    def tensors(self, updates: list[Update]) -> dict[str, Array]:
        """What these updates add, as far as it is wanted."""
        wants, request = self.job.wants, self.job.request
        new = [token for update in updates for token in update.new_ids]
        # A stream carries new tokens only.
        ids = new if wants.exclude_input or wants.streaming else [*request.input_ids, *new]
        tensors = {"output_ids": int32([[ids]]), "sequence_length": int32([[len(ids)]])}
        if wants.log_probs:
            log_probs = _joined([u.log_probs for u in updates], (0,))
            tensors["output_log_probs"] = log_probs.reshape(1, 1, -1)
            tensors["cum_log_probs"] = log_probs.sum(dtype=np.float32).reshape(1, 1)
        if wants.generation_logits:
            logits = _joined([u.logits for u in updates], (0, 0))
            tensors["generation_logits"] = logits.reshape(1, 1, *logits.shape)
        context = [u.context_logits for u in updates if u.context_logits is not None]
        if wants.context_logits and context:
            tensors["context_logits"] = context[0][None]
        if self.job.batch_size > 1:
            tensors["batch_index"] = int32([[self._index]])
        if wants.perf:
            tensors |= self._perf(updates[-1])
        if wants.input_count:
            tensors["num_input_tokens"] = int32([[len(request.input_ids)]])
        if wants.output_count:
            tensors["num_output_tokens"] = int32([[len(new)]])
        wanted = self.batch.wanted
        return {name: array for name, array in tensors.items() if not wanted or name in wanted}

    def _perf(self, last: Update) -> dict[str, Array]:
        """Upstream's ten. This engine's cache has no blocks to count."""
        rate = last.accepted / last.drafted if last.drafted else 0.0
        names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
        times = [*self._times[:3], self._times[3] if last.finished else 0]
        blocks = ("kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks")
        return {
            **{name: int32([[0]]) for name in blocks},
            **{name: np.array([[t]], dtype=np.int64) for name, t in zip(names, times, strict=True)},
            "acceptance_rate": np.array([[rate]], dtype=np.float32),
            "total_accepted_draft_tokens": int32([[last.accepted]]),
            "total_draft_tokens": int32([[last.drafted]]),
        }


def _joined(parts: list[Array | None], empty: tuple[int, ...]) -> Array:
    found = [part for part in parts if part is not None and part.size]
    return np.concatenate(found).astype(np.float32) if found else np.zeros(empty, dtype=np.float32)

"""tensorrt_llm and tensorrt_llm_draft on the reference engine, with the tensors of TensorRT-LLM's Triton backend.

execute() parses a request completely, hands it to the engine and returns; the engine batches whatever is in
flight. Answers go out from one thread of this model, so that the engine never waits for the wire. Only the last word
of a request that runs alone goes out from the engine's own thread, which has nothing else to do: a call of the
speculative loop is so short that waking another thread is a part of it that counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from answers import Answer, Batch
from families import Families
from outbox import Outbox
from parsing import parse, stop_request
from wire import FINAL, REFUSES, Inputs, Parameters, Refused, internal_error, pb, refusal, refuse_numpy_2, response

try:
    from trtspec.backends.reference import Update, open_engine
except ImportError as error:
    raise ImportError(f"the reference engine is not in the Python that Triton uses: {error}") from None


class TritonPythonModel:
    """One engine; draft and target are the same program on different folders."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the engine. Errors name what is missing."""
        refuse_numpy_2()
        given = Parameters(args)
        self._name = given.model
        self._exclude_input = given.flag("exclude_input_in_output", False)
        self._decoupled = given.decoupled
        self._engine = open_engine(given.text("gpt_model_path"), threads=given.number("reference_threads", 0) or None)
        self._running: dict[str, set[Batch]] = {}
        self._lock = threading.Lock()
        self._outbox = Outbox()
        labels = {"model": self._name, "version": args.get("model_version", "1")}
        self._families = Families(pb, labels, lengths=given.flag("count_requests", False))
        self._families.watch(self._engine, given.number("stats_check_period_ms", 100) / 1000)

    def execute(self, requests: list[Any]) -> None:
        """Take all requests; their answers come later, from other threads."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._take(request.request_id(), Inputs.of(request), sender, request.requested_output_names())
            except (Refused, ValueError) as reason:
                sender.send(refusal(f"{REFUSES}{reason}"), flags=FINAL)
            except Exception as error:
                sender.send(internal_error(self._name, error), flags=FINAL)

    def finalize(self) -> None:
        """Cancel what runs, send what is left, end both threads."""
        self._engine.close()
        self._outbox.close()
        self._families.close()

    def _take(self, request_id: str, inputs: Inputs, sender: Any, wanted: Any) -> None:
        if stop_request(inputs):
            self._stop(request_id)
            sender.send(*(() if self._decoupled else (response({}),)), flags=FINAL)
            return
        jobs = parse(request_id, inputs, self._engine.config.vocab_size, self._exclude_input)
        if not self._decoupled and (len(jobs) > 1 or jobs[0].wants.streaming):
            raise Refused("this model is not decoupled: it answers one prompt with one response; send no streaming")
        batch = Batch(sender, len(jobs), frozenset(wanted))
        answers = [Answer(job, index, batch) for index, job in enumerate(jobs)]
        with self._lock:
            self._running.setdefault(request_id, set()).add(batch)
        try:
            for answer in answers:
                take = self._on_update(request_id, answer)
                batch.hold(self._engine.submit(answer.job.request, take, here=len(jobs) == 1 and answer.job.short))
        except Exception:
            self._forget(request_id, batch)
            batch.cancel()
            batch.closed = True
            raise

    def _on_update(self, request_id: str, answer: Answer) -> Callable[[Update], None]:
        """What the engine's thread does with an update."""

        def say(updates: list[Update]) -> None:
            answer.send(updates)
            if answer.batch.closed:
                self._forget(request_id, answer.batch)

        def take(update: Update) -> None:
            ready = answer.add(update)
            if update.finished and answer.whole and update.finish_reason not in ("cancelled", "error"):
                self._families.answered(len(answer.job.request.input_ids), answer.count)
            if ready and update.finished and self._engine.alone and self._outbox.idle:
                say(ready)
            elif ready:
                self._outbox.put(lambda: say(ready))
            if not update.finished and answer.batch.due():
                self._outbox.put(answer.batch.look)

        return take

    def _stop(self, request_id: str) -> None:
        """End every running request with this id, as a later request with `stop` asks."""
        if not request_id:
            raise Refused("a stop request needs the id of the request to stop")
        with self._lock:
            batches = list(self._running.get(request_id, ()))
        for batch in batches:
            batch.stop()

    def _forget(self, request_id: str, batch: Batch) -> None:
        with self._lock:
            alike = self._running.get(request_id, set())
            alike.discard(batch)
            if not alike:
                self._running.pop(request_id, None)

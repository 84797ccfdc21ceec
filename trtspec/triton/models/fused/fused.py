"""Both reference engines inside the pipeline's own process: calls of the two LLM models become calls of Python.

What a call is asked and answers is the same as through Triton, because the same code reads the tensors and makes
them: parsing.py and answers.py of tensorrt_llm. Preprocessing remains a model of its own, called through Triton.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence

from answers import Answer, Batch
from calls import CallFailed, CallRefused, Models, NotLoaded
from parsing import parse
from wire import REFUSES, Array, Inputs, Parameters, Refused, first_line

try:
    from trtspec.backends.reference import Update, open_engine
    from trtspec.backends.reference.engine import ReferenceEngine
except ImportError as error:
    raise ImportError(f"the reference engine is not in the Python that Triton uses: {error}") from None

SWITCH = 0.0003
"""Seconds that a thread may keep the others from Python. An engine's thread that comes back from a step must not wait
for Python's usual 5 ms, a few steps of a small model, while a request's thread counts its tokens."""


class FusedModels:
    """The models behind the pipeline: see calls.Models."""

    def __init__(self, given: Parameters, served: Models) -> None:
        sys.setswitchinterval(SWITCH)
        self._served = served
        self._threads = given.number("reference_threads", 0) or None
        target, draft = (given.text(f"tensorrt_llm_{role}model_name") for role in ("", "draft_"))
        self._engines = {target: self._open(given.text("target_engine_path"))}
        self._missing = ""
        try:
            self._engines[draft] = self._open(given.text("draft_engine_path"))
        except Exception as error:
            if given.flag("require_draft", True):
                raise
            self._missing = first_line(error)
        self._running: dict[str, Batch] = {}

    def plain(
        self, request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """The answer of a model that is not fused."""
        return self._served.plain(request_id, model, tensors, wanted)

    def decoupled(
        self, request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """The answer of an engine."""
        if model not in self._engines:
            raise NotLoaded(self._missing)
        try:
            return self._ask(self._engines[model], request_id, Inputs(tensors), frozenset(wanted))
        except (Refused, ValueError) as error:
            raise CallRefused(f"{REFUSES}{first_line(error)}") from None
        except RuntimeError as error:
            raise CallFailed(first_line(error)) from None

    def stop(self, request_id: str, model: str) -> None:  # noqa: ARG002  one call at a time has this id
        """End the call with this id; it still returns."""
        batch = self._running.get(request_id)
        if batch is not None:
            batch.cancel()

    def close(self) -> None:
        """End the engines' threads."""
        for engine in self._engines.values():
            engine.close()

    def _open(self, folder: str) -> ReferenceEngine:
        return open_engine(folder, threads=self._threads)

    def _ask(
        self, engine: ReferenceEngine, request_id: str, inputs: Inputs, wanted: frozenset[str]
    ) -> dict[str, Array]:
        jobs = parse(request_id, inputs, engine.config.vocab_size, exclude_input=False)
        if len(jobs) != 1:
            raise Refused(f"{len(jobs)} prompts in one call")
        answer = Answer(jobs[0], 0, Batch(None, 1, wanted))
        ready: list[Update] = []
        done = threading.Event()

        def take(update: Update) -> None:
            found = answer.add(update)
            if update.finished:
                ready.extend(found)
                done.set()

        self._running[request_id] = answer.batch
        try:
            answer.batch.hold(engine.submit(jobs[0].request, take, here=jobs[0].short))
            done.wait()
        finally:
            self._running.pop(request_id, None)
        failure = answer.failure(ready)
        if failure:
            raise CallFailed(failure)
        return answer.tensors(ready)

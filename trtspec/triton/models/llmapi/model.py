"""tensorrt_llm on TensorRT-LLM's LLM API: one model that drafts and verifies inside the engine.

Speaks the tensors of TensorRT-LLM's own llmapi model. execute() only starts requests; one thread runs the event loop
from which answers go out and clients that have gone are looked for.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from answering import Answer
from asking import Ask, parse
from wire import FINAL, Inputs, Refused, refusal, response

# Left by mpirun around the server; the workers that the LLM API starts would take it for their own job.
_JOB = ("OMPI_COMM_WORLD_", "OMPI_MCA_orte_", "ORTE_", "OMPI_UNIVERSE_SIZE", "PMI_", "PMIX_RANK", "PMIX_NAMESPACE",
        "PMIX_SERVER_")  # fmt: skip


@dataclass(eq=False)
class Running:
    """A request in flight: its id, its response sender, its result of the LLM API."""

    name: str
    sender: Any
    result: Any


class TritonPythonModel:
    """One LLM for the life of the server."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load both models; that takes minutes. Errors are the LLM API's own."""
        ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
        if ranks > 1:
            raise RuntimeError(f"started on {ranks} MPI ranks; over several nodes use trtllm-serve (docs/llm-api.md)")
        for name in [name for name in os.environ if name.startswith(_JOB)]:
            del os.environ[name]
        options = _options(args)
        settings = options.pop("triton_config", {})
        self._draft_len = int((options.get("speculative_config") or {}).get("max_draft_len") or 0)
        # Not at the top: importing it opens the GPUs, and the file must be readable without any.
        from tensorrt_llm import LLM, SamplingParams

        self._sampling = SamplingParams
        self._llm = LLM(**options)
        self._running: list[Running] = []
        # Triton tells a sender about a cancellation from a thread of its own, which may touch it a moment later.
        self._recent: deque[Running] = deque(maxlen=256)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="answers", daemon=True)
        self._thread.start()
        period = float(settings.get("cancellation_check_period_ms", 100)) / 1000
        self._watch = asyncio.run_coroutine_threadsafe(self._look(period), self._loop)

    def execute(self, requests: list[Any]) -> None:
        """Take all requests; their answers come later."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                inputs = Inputs.of(request)
                if inputs.flag("stop"):
                    self._stop(request.request_id(), sender)
                    continue
                ask = parse(inputs)
                # What SamplingParams refuses is the client's error too.
                sampling = self._sampling(**ask.sampling)
            except (Refused, ValueError, TypeError) as reason:
                sender.send(refusal(reason), flags=FINAL)
                continue
            asyncio.run_coroutine_threadsafe(self._serve(request.request_id(), ask, sampling, sender), self._loop)

    def finalize(self) -> None:
        """Abort what runs, wait for its last answers, end the thread and the LLM."""
        self._watch.cancel()
        asyncio.run_coroutine_threadsafe(self._drained(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._llm.shutdown()

    async def _serve(self, name: str, ask: Ask, sampling: Any, sender: Any) -> None:
        answer, running = Answer(ask, self._draft_len), None
        try:
            result = self._llm.generate_async(ask.prompt, sampling, streaming=ask.streaming)
            running = Running(name, sender, result)
            self._running.append(running)
            async for update in result:
                if ask.streaming and not update.finished:
                    sender.send(response(answer.tensors(update, last=False)))
            if any(output.finish_reason == "cancelled" for output in result.outputs):
                sender.send(refusal("the request was cancelled", cancelled=True), flags=FINAL)
            else:
                sender.send(response(answer.tensors(result, last=True)), flags=FINAL)
        except Exception as reason:  # whatever the LLM API raises belongs to this request alone
            sender.send(refusal(reason), flags=FINAL)
        finally:
            if running is not None:
                self._running.remove(running)
                self._recent.append(running)

    def _stop(self, name: str, sender: Any) -> None:
        """Abort the requests of this id; each still gets its last answer, an error that says so."""
        if not name:
            raise Refused("a stop request needs the request id of what it stops")

        def stop() -> None:
            for running in self._running:
                if running.name == name:
                    running.result.abort()
            sender.send(flags=FINAL)

        self._loop.call_soon_threadsafe(stop)

    async def _look(self, period: float) -> None:
        while True:
            await asyncio.sleep(period)
            for running in list(self._running):
                if running.sender.is_cancelled():
                    running.result.abort()

    async def _drained(self) -> None:
        for running in self._running:
            running.result.abort()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=9)


def _options(args: dict[str, str]) -> dict[str, Any]:
    """model.yaml beside this file, or the file that LLM_CONFIG_PATH names."""
    given = os.environ.get("LLM_CONFIG_PATH")
    path = Path(given) if given else Path(args["model_repository"]) / args["model_version"] / "model.yaml"
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or "model" not in found:
        raise RuntimeError(f"{path} holds no LLM() arguments")
    return found

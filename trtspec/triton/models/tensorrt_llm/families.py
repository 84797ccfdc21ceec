"""Metric families of TensorRT-LLM's Triton backend, for what the reference engine knows: `nv_llm_*`, `nv_trt_llm_*`.

Their labels are those of that backend, so that its dashboards and checks read them; there is no label of the process.
Triton counts references to a series per process and frees it with the last one, while a model that is being reloaded
has two processes with these same labels. So nothing is ever given back here (see :func:`_kept`): a reloaded model
goes on where the last one stopped.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtspec.backends.reference import ReferenceEngine

BUCKETS = (10.0, 50.0, 100.0, 500.0, 1000.0)
LENGTHS = {
    "nv_llm_input_token_len": ("total_input_tokens", "tokens of prompts"),
    "nv_llm_output_token_len": ("total_output_tokens", "tokens of answers"),
}
START = 0.5
"""Seconds until the series are made, where no answer comes first."""
TIMESTAMP = "Timestamp"
# {family: {(label, its value): the name in the log}}; the backend writes the same figures to the verbose log.
LEVELS: dict[str, dict[tuple[str, str], str]] = {
    "nv_trt_llm_request_metrics": {
        ("request_type", "active"): "Active Request Count",
        ("request_type", "max"): "Max Request Count",
        ("request_type", "scheduled"): "Scheduled Requests",
        ("request_type", "waiting"): "Waiting Requests",
    },
    "nv_trt_llm_general_metrics": {
        ("general_type", "iteration_counter"): "Iteration Counter",
        ("general_type", "timestamp"): TIMESTAMP,
    },
}


class Families:
    """This model's series, and the thread that keeps the levels up to date. Nothing here raises into a request.

    They are made by the thread or for the first answer, not while the model loads: the server watches it then.
    """

    def __init__(self, pb: Any, labels: dict[str, str], *, lengths: bool) -> None:
        self._pb = pb
        self._labels = labels
        self._counts = lengths
        self._broken = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._making = threading.Lock()
        self._lengths: tuple[Any, ...] = ()
        self._levels: dict[str, Any] = {}

    def watch(self, engine: ReferenceEngine, period: float) -> None:
        """Publish what the engine says of itself, so many seconds apart and only if it has changed."""
        run = (lambda: self._run(engine, period),)
        self._thread = threading.Thread(target=self._guarded, args=run, name="families", daemon=True)
        self._thread.start()

    def answered(self, prompt: int, answer: int) -> None:
        """A request has been answered, and will say so when this has returned: two messages to the server."""
        if self._counts and not self._broken:
            self._guarded(lambda: self._observe(prompt, answer))

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread:
            self._thread.join()

    def _make(self) -> None:
        with self._making:
            if self._levels:
                return
            if self._counts:
                self._lengths = tuple(self._length(name, *words) for name, words in LENGTHS.items())
            self._levels = dict(self._level_series())

    def _level_series(self) -> Iterator[tuple[str, Any]]:
        family = self._pb.MetricFamily
        for name, series in LEVELS.items():
            found = _kept(family(name=name, description="as TensorRT-LLM's backend says it", kind=family.GAUGE))
            for (label, value), key in series.items():
                yield key, _kept(found.Metric(labels=self._labels | {label: value}))

    def _length(self, name: str, kind: str, description: str) -> Any:
        family = self._pb.MetricFamily
        found = _kept(family(name=name, description=description, kind=family.HISTOGRAM))
        return _kept(found.Metric(labels=self._labels | {"response_metric_type": kind}, buckets=list(BUCKETS)))

    def _observe(self, *lengths: int) -> None:
        self._make()
        for series, length in zip(self._lengths, lengths, strict=True):
            series.observe(float(length))

    def _run(self, engine: ReferenceEngine, period: float) -> None:
        last: dict[str, int] = {}
        if self._closed.wait(START):
            return
        self._make()
        while not self._broken:
            levels = _levels(engine)
            if levels != last:
                self._publish(levels, last)
                last = levels
            if self._closed.wait(period):
                return

    def _publish(self, levels: dict[str, int], last: dict[str, int]) -> None:
        now = time.time()
        for key, level in levels.items():
            if level != last.get(key):
                self._levels[key].set(float(level))
        self._levels[TIMESTAMP].set(float(int(now * 1e6)))
        said = levels | {TIMESTAMP: datetime.fromtimestamp(now).strftime("%m-%d-%Y %H:%M:%S.%f")}
        self._pb.Logger.log_verbose(json.dumps(said))

    def _guarded(self, what: Callable[[], object]) -> None:
        """After an error (a server without metrics, say) no more is tried."""
        try:
            what()
        except Exception as error:
            if self._broken:
                return
            self._broken = True
            self._pb.Logger.log_warn(f"no metrics of the engine from now on: {str(error).strip().splitlines()[0]}")


def _levels(engine: ReferenceEngine) -> dict[str, int]:
    stats = engine.stats()
    running, waiting = stats.active, stats.waiting
    return {
        "Active Request Count": running + waiting,
        "Max Request Count": engine.config.max_batch_size,
        "Scheduled Requests": running,
        "Waiting Requests": waiting,
        "Iteration Counter": stats.steps,
    }


def _kept(found: Any) -> Any:
    """The same, with a reference more than there is: it is not given back to the server when this process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return found

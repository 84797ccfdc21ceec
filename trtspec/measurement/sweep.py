"""More loads: each mode at each load, in a fixed window after a warm-up of its own.

A closed loop keeps a number of requests in flight, an open one sends them as they come. Load goes on until the last
request that began inside the window has ended, so that none of them ran on an emptying server; those that began later
are not counted. Tokens are counted when they come, inside the window.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

from trtspec.measurement.arrivals import arrivals
from trtspec.measurement.asking import Asker
from trtspec.measurement.endpoints import Endpoint
from trtspec.measurement.generator import Answering
from trtspec.measurement.prompts import Prompt, shuffled
from trtspec.measurement.records import Answer, Mode

WARM = 0.2
"""Of the window, before it: caches fill and every stream has begun."""
MOST_IN_FLIGHT = 256
"""Requests of an open loop that are sent at once; more wait here, and their waiting counts."""
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Load:
    """One point of the curve: requests in flight, or arrivals per second."""

    concurrency: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        return f"{self.concurrency} in flight" if self.rate is None else f"{self.rate:g} a second"


@dataclass(frozen=True)
class Timed:
    """An answer and when it was due and sent, in seconds from the start of the window."""

    answer: Answer
    due: float
    sent: float

    @property
    def ended(self) -> float:
        """When its last token came."""
        return self.sent + self.answer.seconds

    @property
    def waited(self) -> float:
        """Between due and sent; an open loop that cannot keep up makes its users wait."""
        return self.sent - self.due


@dataclass(frozen=True)
class Window:
    """What one window saw: requests that began in it, and tokens that came in it."""

    mode: Mode
    load: Load
    seconds: float
    requests: tuple[Timed, ...]
    output_tokens: float
    finished: int
    """Requests that ended inside the window."""
    busy: float
    """Seconds that requests spent inside the window, from when they were due, added up."""


def loads(concurrencies: Sequence[int], rates: Sequence[float]) -> list[Load]:
    """Closed loops first."""
    return [*(Load(concurrency=c) for c in concurrencies), *(Load(rate=r) for r in rates)]


def sweep(
    asker: Asker,
    endpoints: Mapping[Mode, Endpoint],
    prompts: Sequence[Prompt],
    chosen: Sequence[Load],
    progress: Progress | None = None,
) -> Iterator[Window]:
    """One window for each load and mode, the mode that goes first alternating. Yielded one by one: nothing is lost."""
    order = shuffled(prompts, asker.validation.seed)
    steps = [(load, mode) for i, load in enumerate(chosen) for mode in list(endpoints)[:: 1 if i % 2 == 0 else -1]]
    for number, (load, mode) in enumerate(steps, start=1):
        if progress is not None:
            progress(number - 1, len(steps), f"{load}, {mode}")
        with _Runner(asker, endpoints[mode], mode, order) as runner:
            yield runner.run(load)
    if progress is not None:
        progress(len(steps), len(steps), "done")


@dataclass
class _Runner:
    """The threads and clients of one window."""

    asker: Asker
    endpoint: Endpoint
    mode: Mode
    prompts: Sequence[Prompt]
    seen: list[Timed] = field(default_factory=list)
    clients: list[Answering] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)
    start: float = 0.0

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for client in self.clients:
            client.close()

    def run(self, load: Load) -> Window:
        """One window. One in which nothing began or was answered is a window too, and says so."""
        seconds = self.asker.validation.window
        self.start = time.perf_counter() + WARM * seconds
        count = min(load.concurrency or MOST_IN_FLIGHT, MOST_IN_FLIGHT if load.rate else 1024)
        with ThreadPoolExecutor(count, thread_name_prefix="sweep") as pool:
            try:
                if load.rate is None:
                    self._closed(pool, count, seconds)
                else:
                    self._open(pool, load.rate, seconds)
            except BaseException:
                self.stop.set()
                for client in self.clients:
                    client.close()
                raise
        return self._window(load, seconds)

    def _closed(self, pool: ThreadPoolExecutor, count: int, seconds: float) -> None:
        work = itertools.cycle(enumerate(self.prompts))
        begun = [threading.Event() for _ in range(count)]

        def drain(number: int) -> None:
            """Until the window is over, and then until no other thread is in a request that began inside it."""
            client = self._client()
            while not self.stop.is_set():
                now = time.perf_counter() - self.start
                if now >= seconds:
                    begun[number].set()
                    if all(event.is_set() for event in begun):
                        return
                with self.lock:
                    place, prompt = next(work)
                self._ask(client, prompt, place, now)

        self._wait([pool.submit(drain, number) for number in range(count)])

    def _open(self, pool: ThreadPoolExecutor, rate: float, seconds: float) -> None:
        idle: SimpleQueue[Answering] = SimpleQueue()
        first = -WARM * seconds
        work = zip(
            arrivals(rate, (2 + WARM) * seconds, self.asker.validation.seed),
            itertools.cycle(enumerate(self.prompts)),
            strict=False,
        )
        inside: list[Future[None]] = []
        for offset, (place, prompt) in work:
            due = first + offset
            if due >= seconds and all(future.done() for future in inside):
                break
            self._pause(due)
            future = pool.submit(self._borrowed, idle, prompt, place, due)
            if due < seconds:
                inside.append(future)
        self._wait(inside)
        self.stop.set()
        for client in self.clients:
            client.close()

    def _borrowed(self, idle: SimpleQueue[Answering], prompt: Prompt, place: int, due: float) -> None:
        if self.stop.is_set():
            return
        client = self._client() if idle.empty() else idle.get()
        try:
            self._ask(client, prompt, place, due)
        finally:
            idle.put(client)

    def _pause(self, due: float) -> None:
        left = self.start + due - time.perf_counter()
        if left > 0:
            time.sleep(left)

    def _ask(self, client: Answering, prompt: Prompt, place: int, due: float) -> None:
        sent = time.perf_counter() - self.start
        name = f"sweep-{id(self):x}-{len(self.seen)}"
        answer = self.asker.ask(client, self.endpoint, self.mode, prompt, place, name)
        with self.lock:
            self.seen.append(Timed(answer, due, sent))

    def _client(self) -> Answering:
        client = self.endpoint.clients()
        with self.lock:
            self.clients.append(client)
        return client

    def _wait(self, futures: Sequence[Future[None]]) -> None:
        for future in futures:
            future.result()

    def _window(self, load: Load, seconds: float) -> Window:
        own = tuple(t for t in self.seen if 0.0 <= t.due < seconds)
        tokens = sum(tokens_within(t, seconds) for t in self.seen if t.answer.usable)
        finished = sum(t.answer.usable and 0.0 <= t.ended < seconds for t in self.seen)
        return Window(self.mode, load, seconds, own, tokens, finished, busy_within(self.seen, seconds))


def busy_within(seen: Sequence[Timed], seconds: float) -> float:
    """Seconds of requests inside the window, added up: whole latencies would count time that lies behind it."""
    return sum(max(0.0, min(t.ended, seconds) - max(t.due, 0.0)) for t in seen)


def tokens_within(timed: Timed, seconds: float) -> float:
    """Output tokens that came inside the window; where chunks were not counted, in proportion to the time."""
    answer = timed.answer
    if answer.chunks and all(c.tokens is not None for c in answer.chunks):
        return float(sum(c.tokens or 0 for c in answer.chunks if 0.0 <= timed.sent + c.seconds < seconds))
    inside = min(timed.ended, seconds) - max(timed.sent, 0.0)
    return answer.output_tokens * max(0.0, inside) / answer.seconds if answer.seconds > 0 else 0.0

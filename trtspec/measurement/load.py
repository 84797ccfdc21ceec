"""Load: the same prompts with and without speculation, at one declared concurrency.

Each domain's prompts are cut into blocks; a block is answered in both modes before the next begins, and the mode that
goes first alternates. So a machine that slows down, and a prefix cache that favours whoever comes second, meet both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

from trtspec.config.validation import Validation
from trtspec.errors import ConfigError, ServingError
from trtspec.measurement.asking import Asker
from trtspec.measurement.endpoints import Endpoint, Factory, of_pair
from trtspec.measurement.generator import Answering
from trtspec.measurement.prompts import Prompt, shuffled
from trtspec.measurement.records import MODES, Answer, Block, Mode, Samples, Stopped, domains_of

MAX_BLOCKS = 8
Progress = Callable[[int, int, str], None]
"""(requests answered, requests in all, what runs now); called from one thread at a time."""
Decided = Callable[[Samples], bool]
"""Whether what was measured so far decides what there is to decide."""
Clients = Mapping[Mode, Sequence[Answering]]


class MeasurementInterrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement; `samples` is what was measured until then."""

    def __init__(self, samples: Samples) -> None:
        super().__init__("measurement interrupted")
        self.samples = samples


@dataclass(frozen=True)
class Job:
    """Prompts of one domain to be answered in one mode."""

    domain: str
    index: int
    mode: Mode
    prompts: tuple[Prompt, ...]
    first: int = 0
    """Place of the first prompt in its domain, in the order in which they are asked."""


def measure(
    client_factory: Factory,
    prompts: Sequence[Prompt],
    validation: Validation,
    k: int,
    progress: Progress | None = None,
    *,
    stream: bool = True,
    use_draft_logits: bool = False,
    endpoints: Mapping[Mode, Endpoint] | None = None,
    decided: Decided | None = None,
) -> Samples:
    """Answer every prompt in both modes, with K = k draft tokens in the speculative one.

    `endpoints` takes the place of the client factory where the modes have different ones, or there is only one mode.
    Where it may end early (`decided`, `validation.max_prompts` or `.max_seconds`) the prompts are asked in a seeded
    random order. Requests that fail become unusable answers; ServingError when the server answers nothing any more.
    Ctrl-C ends running requests, joins the threads and raises MeasurementInterrupted with what is complete.
    """
    if not prompts:
        raise ConfigError("there are no prompts to measure", fix="name a file of prompts under validation.datasets")
    found = endpoints or of_pair(client_factory, k, use_draft_logits=use_draft_logits)
    chosen = _chosen(prompts, validation, may_stop=decided is not None)
    session = _Session(Asker(validation, stream), found, chosen, progress or (lambda *_: None), _places(prompts))
    made: dict[Factory, list[Answering]] = {endpoint.clients: [] for endpoint in found.values()}
    clients = {mode: made[endpoint.clients] for mode, endpoint in found.items()}
    try:
        for factory, own in made.items():
            own.extend(factory() for _ in range(min(validation.concurrency, len(chosen))))
        _warm_up(session, clients, chosen, validation.warmup)
        session.run_all(plan(chosen, validation.concurrency, tuple(found)), clients, decided)
    except KeyboardInterrupt:
        session.stopped = "interrupted"
        raise MeasurementInterrupted(session.samples(prompts)) from None
    finally:
        for client in (c for own in made.values() for c in own):
            client.close()
    return session.samples(prompts)


def budgeted(prompts: Sequence[Prompt], validation: Validation) -> list[Prompt]:
    """`validation.max_prompts` of each domain, drawn with the seed; in the order of the file."""
    drawn = {(p.domain, p.id) for p in _chosen(prompts, validation, may_stop=False)}
    return [p for p in prompts if (p.domain, p.id) in drawn]


def _chosen(prompts: Sequence[Prompt], validation: Validation, *, may_stop: bool) -> list[Prompt]:
    """The prompts in the order in which they are asked."""
    if not may_stop and validation.max_prompts is None and validation.max_seconds is None:
        return list(prompts)
    order = shuffled(prompts, validation.seed)
    return [p for d in domains_of(order) for p in [p for p in order if p.domain == d][: validation.max_prompts]]


def _places(prompts: Sequence[Prompt]) -> dict[tuple[str, str], int]:
    return {(p.domain, p.id): i for d in domains_of(prompts) for i, p in enumerate(p for p in prompts if p.domain == d)}


def plan(prompts: Sequence[Prompt], concurrency: int, modes: Sequence[Mode] = MODES) -> list[Job]:
    """The jobs in order: block by block, within it domain by domain, within it every mode.

    A block holds at least about four prompts per request in flight, so that its tail, when fewer are left than may be
    in flight, stays small; the number of blocks is even, so that each mode goes first equally often.
    """
    jobs: list[Job] = []
    for domain in domains_of(prompts):
        own = [p for p in prompts if p.domain == domain]
        count = max(2, min(MAX_BLOCKS, len(own) // (4 * concurrency)) // 2 * 2)
        edges = [len(own) * i // count for i in range(count + 1)]
        for i in range(count):
            block = tuple(own[edges[i] : edges[i + 1]])
            order = modes if i % 2 == 0 else modes[::-1]
            jobs += [Job(domain, i, mode, block, edges[i]) for mode in order if block]
    return sorted(jobs, key=lambda job: job.index)


def _warm_up(session: _Session, clients: Clients, prompts: Sequence[Prompt], count: int) -> None:
    """Unmeasured requests in every mode, from the end of the list: the first measured prompts stay unseen."""
    if not count:
        return
    chosen = tuple(prompts[-1 - i % len(prompts)] for i in range(count))
    for mode in session.endpoints:
        answers = session.answer(Job("warm-up", 0, mode, chosen), clients, counted=False)
        if not any(a.usable for a in answers):
            raise ServingError(f"no {mode} request of the warm-up was answered", found=answers[-1].fault)


@dataclass
class _Session:
    """The state of one measurement: answers so far, and how many requests failed in a row."""

    asker: Asker
    endpoints: Mapping[Mode, Endpoint]
    prompts: Sequence[Prompt]
    progress: Progress
    places: Mapping[tuple[str, str], int]
    """A prompt's place in its domain's file gives its seed, in every mode and whatever the order of asking."""
    answers: list[Answer] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    unmeasured: list[Answer] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)
    stopped: Stopped = "all"
    failed_in_a_row: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    def run_all(self, jobs: Sequence[Job], clients: Clients, decided: Decided | None) -> None:
        """Every block, or as many as it takes; a pair of blocks of every domain is never broken up."""
        limit = self.asker.validation.max_seconds
        began = time.monotonic()
        rounds = [list(group) for _, group in groupby(jobs, key=lambda job: job.index)]
        for number, group in enumerate(rounds, start=1):
            for job in group:
                self.run(job, clients)
            if decided is not None:
                self.looks.append(len({(a.prompt.domain, a.prompt.id) for a in self.answers}))
            if number == len(rounds):
                return
            if decided is not None and decided(self.samples(self.prompts)):
                self.stopped = "decided"
                return
            if limit is not None and time.monotonic() - began >= limit:
                self.stopped = "budget"
                return

    def run(self, job: Job, clients: Clients) -> None:
        """Answer one block and note its wall time."""
        start = time.perf_counter()
        answers = self.answer(job, clients)
        wall = time.perf_counter() - start
        tokens = sum(a.output_tokens for a in answers if a.usable)
        self.blocks.append(Block(job.domain, job.index, job.mode, wall, len(answers), tokens))

    def answer(self, job: Job, clients: Clients, *, counted: bool = True) -> list[Answer]:
        """One thread per client; each takes the next prompt when it has finished one."""
        work = enumerate(job.prompts, start=job.first)
        done: list[Answer] = []
        own = clients[job.mode]
        with ThreadPoolExecutor(len(own), thread_name_prefix="load") as pool:
            futures = [pool.submit(self._drain, client, job, work, done, counted) for client in own]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self.stop.set()
                for client in own:
                    client.close()
                raise
        return done

    def _drain(
        self, client: Answering, job: Job, work: Iterator[tuple[int, Prompt]], done: list[Answer], counted: bool
    ) -> None:
        name = f"{job.domain}-{job.index}"
        try:
            while not self.stop.is_set():
                with self.lock:
                    place, prompt = next(work, (0, None))
                if prompt is None:
                    return
                own = self.places[prompt.domain, prompt.id] if counted else place
                answer = self.asker.ask(client, self.endpoints[job.mode], job.mode, prompt, own, name)
                with self.lock:
                    if not self.stop.is_set():
                        done.append(answer)
                        self._note(answer, job, counted)
        except BaseException:
            self.stop.set()
            raise

    def _note(self, answer: Answer, job: Job, counted: bool) -> None:
        self.failed_in_a_row = 0 if answer.usable else self.failed_in_a_row + 1
        if self.failed_in_a_row >= max(8, 2 * self.asker.validation.concurrency):
            raise ServingError(f"{self.failed_in_a_row} requests in a row failed", found=answer.fault)
        if not counted:
            self.unmeasured.append(answer)
            return
        self.answers.append(answer)
        self.progress(len(self.answers), len(self.prompts) * len(self.endpoints), f"{job.domain}, {job.mode}")

    def samples(self, prompts: Sequence[Prompt]) -> Samples:
        """What there is, in the order of the prompts."""
        place = {(p.domain, p.id): i for i, p in enumerate(prompts)}
        ordered = sorted(self.answers, key=lambda a: place[a.prompt.domain, a.prompt.id])
        return Samples(
            tuple(ordered), tuple(self.blocks), tuple(self.unmeasured), self.stopped, looks=tuple(self.looks)
        )

"""Load: the same prompts with and without speculation, at one declared concurrency.

Each domain's prompts are cut into blocks; a block is answered in both modes before the next begins, and the mode that
goes first alternates. So a machine that slows down, and a prefix cache that favours whoever comes second, meet both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.validation import Validation
from trtspec.errors import ConfigError, ServingError
from trtspec.measurement.generator import Generator
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import MODES, Answer, Block, Mode, Samples, domains_of
from trtspec.triton.generation import GenerateRequest, Generation

MODELS: dict[Mode, str] = {"target-only": "ensemble", "speculative": "tensorrt_llm_bls"}
MAX_BLOCKS = 8
Progress = Callable[[int, int, str], None]
"""(requests answered, requests in all, what runs now); called from one thread at a time."""


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
    """Place of the first prompt in its domain; a prompt's seed follows from its place, in both modes alike."""


def measure(
    client_factory: Callable[[], Generator],
    prompts: Sequence[Prompt],
    validation: Validation,
    k: int,
    progress: Progress | None = None,
    *,
    stream: bool = True,
    use_draft_logits: bool = False,
) -> Samples:
    """Answer every prompt in both modes, with K = k draft tokens in the speculative one.

    Requests that fail become unusable answers; ServingError when the server answers nothing any more.
    Ctrl-C ends running requests, joins the threads and raises MeasurementInterrupted with what is complete.
    """
    if not prompts:
        raise ConfigError("there are no prompts to measure", fix="name a file of prompts under validation.datasets")
    settings = _Settings(validation, k, stream, use_draft_logits)
    jobs = plan(prompts, validation.concurrency)
    session = _Session(settings, sum(len(j.prompts) for j in jobs), progress or (lambda *_: None))
    clients: list[Generator] = []
    try:
        clients.extend(client_factory() for _ in range(min(validation.concurrency, len(prompts))))
        _warm_up(session, clients, prompts, validation.warmup)
        for job in jobs:
            session.run(job, clients)
    except KeyboardInterrupt:
        raise MeasurementInterrupted(session.samples(prompts)) from None
    finally:
        for client in clients:
            client.close()
    return session.samples(prompts)


def plan(prompts: Sequence[Prompt], concurrency: int) -> list[Job]:
    """The jobs in order: block by block, within it domain by domain, within it both modes.

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
            modes = MODES if i % 2 == 0 else MODES[::-1]
            jobs += [Job(domain, i, mode, block, edges[i]) for mode in modes if block]
    return sorted(jobs, key=lambda job: job.index)


def _warm_up(session: _Session, clients: Sequence[Generator], prompts: Sequence[Prompt], count: int) -> None:
    """Unmeasured requests in both modes, from the end of the list: the first measured prompts stay unseen."""
    if not count:
        return
    chosen = tuple(prompts[-1 - i % len(prompts)] for i in range(count))
    for mode in MODES:
        answers = session.answer(Job("warm-up", 0, mode, chosen), clients, counted=False)
        if not any(a.usable for a in answers):
            raise ServingError(f"no {mode} request of the warm-up was answered", found=answers[-1].fault)


@dataclass(frozen=True)
class _Settings:
    """How requests are made."""

    validation: Validation
    k: int
    stream: bool
    use_draft_logits: bool

    def request(self, job: Job, prompt: Prompt, place: int) -> GenerateRequest:
        greedy = self.validation.temperature == 0.0
        speculative = job.mode == "speculative"
        return GenerateRequest(
            prompt=prompt.text,
            max_tokens=prompt.max_tokens,
            draft_len=self.k if speculative else None,
            temperature=self.validation.temperature,
            top_k=None if greedy or not self.validation.top_k else self.validation.top_k,
            top_p=None if greedy else self.validation.top_p,
            seed=None if greedy else self.validation.seed + place,
            task=None,  # the policy in force must not decide what is measured to decide the policy
            stream=self.stream,
            use_draft_logits=self.use_draft_logits and speculative,
            request_id=f"{job.domain}-{job.index}-{job.mode}-{place}",
            timeout=self.validation.request_timeout,
        )


@dataclass
class _Session:
    """The state of one measurement: answers so far, and how many requests failed in a row."""

    settings: _Settings
    total: int
    progress: Progress
    answers: list[Answer] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    failed_in_a_row: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, job: Job, clients: Sequence[Generator]) -> None:
        """Answer one block and note its wall time."""
        start = time.perf_counter()
        answers = self.answer(job, clients)
        wall = time.perf_counter() - start
        tokens = sum(a.output_tokens for a in answers if a.usable)
        self.blocks.append(Block(job.domain, job.index, job.mode, wall, len(answers), tokens))

    def answer(self, job: Job, clients: Sequence[Generator], *, counted: bool = True) -> list[Answer]:
        """One thread per client; each takes the next prompt when it has finished one."""
        work = enumerate(job.prompts, start=job.first)
        done: list[Answer] = []
        with ThreadPoolExecutor(len(clients), thread_name_prefix="load") as pool:
            futures = [pool.submit(self._drain, client, job, work, done, counted) for client in clients]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self.stop.set()
                for client in clients:
                    client.close()
                raise
        return done

    def _drain(
        self, client: Generator, job: Job, work: Iterator[tuple[int, Prompt]], done: list[Answer], counted: bool
    ) -> None:
        try:
            while not self.stop.is_set():
                with self.lock:
                    place, prompt = next(work, (0, None))
                if prompt is None:
                    return
                answer = _ask(client, MODELS[job.mode], self.settings.request(job, prompt, place), prompt, job.mode)
                with self.lock:
                    if not self.stop.is_set():
                        done.append(answer)
                        self._note(answer, job, counted)
        except BaseException:
            self.stop.set()
            raise

    def _note(self, answer: Answer, job: Job, counted: bool) -> None:
        self.failed_in_a_row = 0 if answer.usable else self.failed_in_a_row + 1
        if self.failed_in_a_row >= max(8, 2 * self.settings.validation.concurrency):
            raise ServingError(f"{self.failed_in_a_row} requests in a row failed", found=answer.fault)
        if counted:
            self.answers.append(answer)
            self.progress(len(self.answers), self.total, f"{job.domain}, {job.mode}")

    def samples(self, prompts: Sequence[Prompt]) -> Samples:
        """What there is, in the order of the prompts."""
        place = {(p.domain, p.id): i for i, p in enumerate(prompts)}
        ordered = sorted(self.answers, key=lambda a: place[a.prompt.domain, a.prompt.id])
        return Samples(tuple(ordered), tuple(self.blocks))


def _ask(client: Generator, model: str, request: GenerateRequest, prompt: Prompt, mode: Mode) -> Answer:
    try:
        return _answer(client.generate(model, request), prompt, mode)
    except ServingError as error:
        return Answer(prompt, mode, fault=str(error))


def _answer(got: Generation, prompt: Prompt, mode: Mode) -> Answer:
    """The client's answer as a record; what contradicts itself at once is a fault."""
    histogram, fault = None, None
    if got.histogram is not None and mode == "speculative":
        try:
            histogram = RoundHistogram.from_wire(got.histogram)
        except ValueError as error:
            fault = f"the server's histogram is none: {error}"
    if got.finish_reason in ("error", "cancelled"):
        fault = f"the server ended the answer with {got.finish_reason!r}"
    counted = histogram is not None
    return Answer(
        prompt=prompt,
        mode=mode,
        text=got.text,
        finish_reason=got.finish_reason,
        spec_mode=got.mode,
        input_tokens=got.input_tokens,
        output_tokens=got.output_tokens,
        seconds=got.seconds,
        first_token_seconds=got.first_token_seconds,
        histogram=histogram,
        rounds=got.rounds if counted else None,
        drafted=got.drafted if counted else None,
        tested=got.tested if counted else None,
        accepted=got.accepted if counted else None,
        fault=fault,
    )

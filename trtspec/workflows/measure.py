"""measure: the served pair on its prompts, and what that says. A server of our own, or one that runs already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trtspec.config import ROLES, RunConfig
from trtspec.errors import ConfigError, EvidenceError, ServingError, context
from trtspec.measurement import serverfacts
from trtspec.measurement.asking import Asker
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.datasets import Vocabulary, dataset_rows
from trtspec.measurement.endpoints import Endpoint, of_llm_api, of_pair
from trtspec.measurement.exactness import Comparison, compare
from trtspec.measurement.lengths import length_problems
from trtspec.measurement.load import Decided, MeasurementInterrupted, budgeted, measure
from trtspec.measurement.parts import CounterCheck, DatasetRow, QualityRow
from trtspec.measurement.prompts import Prompt, load_sets
from trtspec.measurement.quality import assess
from trtspec.measurement.records import Mode, Samples
from trtspec.measurement.result import ProblemRow, ResultDocument
from trtspec.measurement.scrape import CounterWatch, memory
from trtspec.measurement.summary import Around, build_result
from trtspec.measurement.sweep import Window, loads, sweep
from trtspec.triton.pipeline import PREPROCESSING
from trtspec.workflows.reporter import Reporter, Silent
from trtspec.workflows.serve import current_repository, measured_serving
from trtspec.workflows.step_times import Timed, step_times

if TYPE_CHECKING:
    from trtspec.measurement.generator import Generator
    from trtspec.triton.server import TritonServer

METRICS_PORT = 8002


@dataclass(frozen=True)
class Running:
    """A server that runs already. `url` is its gRPC port, or its HTTP port with `http`.

    `target_only`: for the LLM API, a second server without drafts. `metrics`: its metrics port, HOST:PORT.
    """

    url: str
    http: bool = False
    target_only: str | None = None
    metrics: str | None = None


@dataclass(frozen=True)
class Asked:
    """What is going to be asked: prompts, what they are, and the tokens of the deployment where they are known."""

    prompts: tuple[Prompt, ...]
    rows: tuple[DatasetRow, ...]
    vocabulary: Vocabulary | None


Decide = Callable[[Sequence[Prompt]], Decided]
"""Of the prompts that are planned: who says when that is enough."""


def measured(
    config: RunConfig,
    reporter: Reporter | None = None,
    running: Running | None = None,
    *,
    http: bool = False,
    decide: Decide | None = None,
) -> ResultDocument:
    """Measure; bad prompts are found before a server starts. `http`: our own server is asked over HTTP.

    After Ctrl-C the document holds what was measured until then, and `interrupted` says so.
    """
    reporter = reporter or Silent()
    if running is not None:
        asked = prepared(config, reporter)
        with context(stage="measure"):
            return measured_at(config, running, asked, reporter, decide)
    repository = current_repository(config, reporter.note)
    asked = prepared(config, reporter)
    with measured_serving(config, repository, reporter.note) as server, context(stage="measure"):
        return measured_on(config, server, asked, reporter, http=http, decide=decide)


def measured_on(
    config: RunConfig,
    server: TritonServer,
    asked: Asked,
    reporter: Reporter,
    *,
    http: bool = False,
    decide: Decide | None = None,
) -> ResultDocument:
    """On a server that we started."""
    metrics = server.metrics_url.removeprefix("http://").partition("/")[0]
    where = Running(server.http_url if http else server.grpc_url, http, None, metrics)
    return measured_at(config, where, asked, reporter, decide, grpc=server.grpc_url, check=server.check)


def prepared(config: RunConfig, reporter: Reporter) -> Asked:
    """The prompts as the deployment renders them, looked at. ConfigError names file and line of a bad one."""
    folder = tokenizer_folder(config)
    template = None if folder is None else ChatTemplate.read(folder)
    sets = load_sets(config.validation, template)
    vocabulary = Vocabulary(folder) if folder is not None and (folder / "tokenizer.json").is_file() else None
    if vocabulary is None:
        reporter.note("Not measured: whether prompts are random tokens, and tokens of answers (no tokenizer here)")
    prompts = budgeted([p for each in sets for p in each.prompts], config.validation)
    planned = [replace(each, prompts=tuple(p for p in prompts if p.domain == each.domain)) for each in sets]
    return Asked(tuple(prompts), dataset_rows(planned, vocabulary, config.validation.ignore_eos), vocabulary)


def tokenizer_folder(config: RunConfig) -> Path | None:
    """The tokenizer that is deployed; without a repository, or with the LLM API, that of the target's folder."""
    deployed = config.repository_dir / PREPROCESSING / "1" / "tokenizer"
    if config.engine.backend != "pytorch" and deployed.is_dir():
        return deployed
    own = config.pair.target.path
    return own if own is not None and own.is_dir() else None


def measured_at(
    config: RunConfig,
    where: Running,
    asked: Asked,
    reporter: Reporter,
    decide: Decide | None = None,
    *,
    grpc: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> ResultDocument:
    """On a running server. `grpc` is its gRPC port where requests go over HTTP; `check` raises if it has died."""
    run = _Run(config, where, asked, reporter, grpc or (None if where.http else where.url), check)
    return run.document(None if decide is None else decide(asked.prompts))


@dataclass
class _Run:
    """One measurement on one server."""

    config: RunConfig
    where: Running
    asked: Asked
    reporter: Reporter
    grpc: str | None
    check: Callable[[], None]

    def document(self, decided: Decided | None) -> ResultDocument:
        endpoints = self._endpoints()
        facts = self._facts(endpoints)
        notes = list(self._one_mode(endpoints))
        watch = self._watch(notes)
        samples = self._samples(endpoints, decided)
        counters = watch.check((*samples.unmeasured, *samples.answers), self._watched(endpoints)) if watch else None
        if samples.stopped != "interrupted":
            notes += length_problems(Asker(self.config.validation), endpoints, samples)
        windows, whole = ((), True) if samples.stopped == "interrupted" else self._windows(endpoints)
        samples = samples if whole else replace(samples, stopped="interrupted")
        timed = self._step_times(samples, notes)
        self.check()
        quality = self._quality(samples, notes)
        around = Around(
            transport="http" if self.where.http else "grpc",
            modes=tuple(endpoints),
            environment=facts,
            datasets=self.asked.rows,
            windows=windows,
            counters=counters or CounterCheck(outcome="not-measured", reason="no metrics port could be read"),
            costs=timed.at(self.config.validation.concurrency),
            costs_at=timed.beside(self.config.validation.concurrency),
            memory=memory(watch.latest) if watch else None,
            ids=None if self.asked.vocabulary is None else self.asked.vocabulary.ids,
            quality=quality,
            notes=tuple(notes),
        )
        return build_result(self.config, self.asked.prompts, samples, self._exactness(samples, endpoints), around)

    def _endpoints(self) -> dict[Mode, Endpoint]:
        clients = partial(self._client, self.where.url)
        if self.config.engine.backend == "pytorch":
            other = self.where.target_only
            return of_llm_api(clients, None if other is None else partial(self._client, other))
        if self.where.target_only is not None:
            raise ConfigError("one server answers both modes", found="--target-only-url", fix="leave it out")
        logits = self.config.speculation.acceptance == "logits"
        return of_pair(clients, self.config.speculation.k, use_draft_logits=logits)

    def _watched(self, endpoints: Mapping[Mode, Endpoint]) -> dict[Mode, Endpoint]:
        """Those whose server's counters are read: a second server has counters of its own."""
        other = self.where.target_only is not None
        return {mode: end for mode, end in endpoints.items() if not (other and mode == "target-only")}

    def _client(self, url: str) -> Any:
        from trtspec.triton.client import TritonClient
        from trtspec.triton.http_client import HttpClient

        return (HttpClient if self.where.http else TritonClient)(url, self.config.validation.request_timeout)

    def _facts(self, endpoints: Mapping[Mode, Endpoint]) -> dict[str, str]:
        ask = serverfacts.over_http if self.where.http else serverfacts.over_grpc
        told = ask(self.where.url, dict.fromkeys(e.model for e in endpoints.values()))
        folder = tokenizer_folder(self.config)
        local = serverfacts.of_repository(
            self.config.repository_dir,
            {role: self.config.engine_dir(role) for role in ROLES},
            (folder or Path()) / "tokenizer.json",
        )
        return told | local | serverfacts.of_machine()

    def _one_mode(self, endpoints: Mapping[Mode, Endpoint]) -> Iterator[ProblemRow]:
        if "target-only" in endpoints:
            return
        message = (
            "only the speculative mode was measured: the LLM API takes no draft length by request; "
            "--target-only-url names a server without drafts to compare with"
        )
        yield ProblemRow(code="modes.one", domain="", message=message, count=1, severity="note")

    def _watch(self, notes: list[ProblemRow]) -> CounterWatch | None:
        """A first look at the server's counters. Without them the measurement stands, and says what it lacks."""
        host, port = self._metrics_port()
        try:
            return CounterWatch.begin(host, port)
        except ServingError as error:
            fix = "; name the metrics port with --metrics-url" if self.where.metrics is None else ""
            message = f"the server's counters were not compared: {error}{fix}"
            notes.append(ProblemRow(code="scrape.none", domain="", message=message, count=1, severity="note"))
            return None

    def _metrics_port(self) -> tuple[str, int]:
        given = self.where.metrics or f"{urlsplit(f'//{self.where.url}').hostname}:{METRICS_PORT}"
        try:
            parts = urlsplit(given if "//" in given else f"//{given}")
            return parts.hostname or "localhost", parts.port or METRICS_PORT
        except ValueError:
            raise ConfigError("not a metrics address", found=given, expected="HOST:PORT") from None

    def _samples(self, endpoints: Mapping[Mode, Endpoint], decided: Decided | None) -> Samples:
        prompts, how = self.asked.prompts, self.config.validation
        times = "twice" if len(endpoints) > 1 else "once"
        self.reporter.note(f"Measuring {len(prompts)} prompts {times}, {how.concurrency} in flight")
        try:
            return measure(
                endpoints["speculative"].clients,
                prompts,
                how,
                self.config.speculation.k,
                lambda done, total, _: self.reporter.progress("requests", done, total),
                endpoints=endpoints,
                decided=decided,
            )
        except MeasurementInterrupted as stopped:
            if not stopped.samples.answers:
                raise
            self.reporter.note("Interrupted: what was measured is kept")
            return stopped.samples

    def _windows(self, endpoints: Mapping[Mode, Endpoint]) -> tuple[tuple[Window, ...], bool]:
        """Those that are whole, and whether they are all."""
        how = self.config.validation
        chosen = loads(how.sweep, how.arrival_rates)
        if not chosen:
            return (), True
        self.reporter.note(f"Measuring {len(chosen)} more loads, {how.window:g} s for each mode")
        found: list[Window] = []
        try:
            for window in sweep(Asker(how), endpoints, self.asked.prompts, chosen, self._window_progress):
                found.append(window)
        except KeyboardInterrupt:
            self.reporter.note("Interrupted: what was measured is kept")
            return tuple(found), False
        return tuple(found), True

    def _step_times(self, samples: Samples, notes: list[ProblemRow]) -> Timed:
        if samples.stopped == "interrupted":
            return Timed()
        timed = step_times(self.config, self.grpc, self.asked.prompts, self.reporter)
        notes += [timed.problem] if timed.problem else []
        return timed

    def _window_progress(self, done: int, total: int, _: str) -> None:
        self.reporter.progress("windows", done, total)

    def _exactness(self, samples: Samples, endpoints: Mapping[Mode, Endpoint]) -> dict[str, Comparison] | None:
        """Greedy equality. Where no gRPC port is known, differences stay undiagnosed."""
        if len(endpoints) < 2 or samples.stopped == "interrupted":
            return None
        one = _no_logits() if self.grpc is None or self._llm_api else self._grpc_client(self.grpc)
        try:
            return compare(
                one,
                samples.asked(self.asked.prompts),
                samples,
                temperature=self.config.validation.temperature,
                near_tie=self.config.gates.near_tie,
            )
        finally:
            one.close()

    def _quality(self, samples: Samples, notes: list[ProblemRow]) -> tuple[QualityRow, ...]:
        """What was measured is kept when the user's command fails; nothing can be said of quality then."""
        if samples.stopped == "interrupted":
            return ()
        try:
            return assess(self.config.validation.quality, samples, self.config.report_dir / "quality.log")
        except EvidenceError as error:
            notes.append(ProblemRow(code="quality.failed", domain="", message=str(error), count=1))
            return ()

    @property
    def _llm_api(self) -> bool:
        return self.config.engine.backend == "pytorch"

    def _grpc_client(self, url: str) -> Generator:
        from trtspec.triton.client import TritonClient

        return TritonClient(url, self.config.validation.request_timeout)


def _no_logits() -> Generator:
    """A client of a server that shows no logits: differences are found, and not explained."""
    from trtspec.measurement.undiagnosed import NoLogits

    return NoLogits()

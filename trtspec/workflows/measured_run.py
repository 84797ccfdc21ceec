"""One measurement on one running server: answers, counters, loads, step times, exactness, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trtspec.config import ROLES, RunConfig
from trtspec.errors import ConfigError, EvidenceError, ServingError
from trtspec.measurement import serverfacts
from trtspec.measurement.asking import Asker
from trtspec.measurement.datasets import Vocabulary
from trtspec.measurement.endpoints import Endpoint, of_llm_api, of_pair
from trtspec.measurement.exactness import Comparison, compare
from trtspec.measurement.lengths import length_problems
from trtspec.measurement.load import Decided, MeasurementInterrupted, measure
from trtspec.measurement.parts import CounterCheck, DatasetRow, QualityRow
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.quality import assess
from trtspec.measurement.records import Mode, Samples
from trtspec.measurement.result import ProblemRow, ResultDocument
from trtspec.measurement.scrape import CounterWatch, memory
from trtspec.measurement.summary import Around, build_result
from trtspec.measurement.sweep import Window, loads, sweep
from trtspec.measurement.undiagnosed import NoLogits
from trtspec.triton.pipeline import PREPROCESSING
from trtspec.workflows.reporter import Reporter
from trtspec.workflows.step_times import Timed, step_times

if TYPE_CHECKING:
    from trtspec.measurement.generator import Generator

METRICS_PORT = 8002


@dataclass(frozen=True)
class Running:
    """A server that runs already. `url` is its gRPC port, or its HTTP port with `http`.

    `target_only`: for the LLM API, a second server without drafts. `metrics`: its metrics port, HOST:PORT or an
    address.
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


def tokenizer_folder(config: RunConfig) -> Path | None:
    """The tokenizer that is deployed; without a repository, or with the LLM API, that of the target's folder."""
    deployed = config.repository_dir / PREPROCESSING / "1" / "tokenizer"
    if config.engine.backend != "pytorch" and deployed.is_dir():
        return deployed
    own = config.pair.target.path
    return own if own is not None and own.is_dir() else None


@dataclass
class _Found:
    """What was found beside the answers, as far as it went."""

    notes: list[ProblemRow]
    counters: CounterCheck | None = None
    windows: list[Window] = field(default_factory=list)
    timed: Timed = field(default_factory=Timed)
    quality: tuple[QualityRow, ...] = ()
    exactness: dict[str, Comparison] | None = None


@dataclass
class MeasuredRun:
    """One measurement on one server."""

    config: RunConfig
    where: Running
    asked: Asked
    reporter: Reporter
    grpc: str | None
    check: Callable[[], None]

    def document(self, decided: Decided | None) -> ResultDocument:
        """Everything there is to measure; after Ctrl-C what there is until then."""
        endpoints = self._endpoints()
        facts = self._facts(endpoints)
        found = _Found([*self._one_mode(endpoints)])
        watch = self._watch(found.notes)
        samples = self._samples(endpoints, decided)
        if samples.stopped != "interrupted":
            try:
                self._more(samples, endpoints, watch, found)
            except KeyboardInterrupt:
                self.reporter.note("Interrupted: what was measured is kept")
                samples = replace(samples, stopped="interrupted")
        around = Around(
            transport="http" if self.where.http else "grpc",
            modes=tuple(endpoints),
            environment=facts,
            datasets=self.asked.rows,
            windows=found.windows,
            counters=found.counters or CounterCheck(outcome="not-measured", reason="no counters were compared"),
            costs=found.timed.at(self.config.validation.concurrency),
            costs_at=found.timed.beside(self.config.validation.concurrency),
            memory=memory(watch.latest) if watch else None,
            ids=None if self.asked.vocabulary is None else self.asked.vocabulary.ids,
            quality=found.quality,
            notes=tuple(found.notes),
        )
        return build_result(self.config, self.asked.prompts, samples, found.exactness, around)

    def _more(
        self, samples: Samples, endpoints: Mapping[Mode, Endpoint], watch: CounterWatch | None, found: _Found
    ) -> None:
        """What follows the answers, each as soon as nothing before it needs the server undisturbed."""
        if watch is not None:
            found.counters = watch.check((*samples.unmeasured, *samples.answers), self._watched(endpoints))
        found.notes += length_problems(Asker(self.config.validation), endpoints, samples)
        self._windows(endpoints, found)
        found.timed = step_times(self.config, self.grpc, self.asked.prompts, self.reporter)
        found.notes += [found.timed.problem] if found.timed.problem else []
        self.check()
        found.quality = self._quality(samples, found.notes)
        found.exactness = self._exactness(samples, endpoints)

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

    def _windows(self, endpoints: Mapping[Mode, Endpoint], found: _Found) -> None:
        """One after the other, so that those that are whole are kept."""
        how = self.config.validation
        chosen = loads(how.sweep, how.arrival_rates)
        if chosen:
            self.reporter.note(f"Measuring {len(chosen)} more loads, {how.window:g} s for each mode")
        for window in sweep(Asker(how), endpoints, self.asked.prompts, chosen, self._window_progress):
            found.windows.append(window)

    def _window_progress(self, done: int, total: int, _: str) -> None:
        if total:
            self.reporter.progress("windows", done, total)

    def _exactness(self, samples: Samples, endpoints: Mapping[Mode, Endpoint]) -> dict[str, Comparison] | None:
        """Greedy equality. Where no gRPC port is known, differences stay undiagnosed."""
        if len(endpoints) < 2:
            return None
        one: Generator = NoLogits() if self.grpc is None or self._llm_api else self._grpc_client(self.grpc)
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

"""measure: the served pair on its prompts, and what that says. A server of our own, or one that runs already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trtspec.config import RunConfig
from trtspec.errors import context
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.datasets import Vocabulary, dataset_rows
from trtspec.measurement.load import Decided, budgeted
from trtspec.measurement.prompts import Prompt, load_sets
from trtspec.measurement.result import ResultDocument
from trtspec.workflows.measured_run import Asked, MeasuredRun, Running, tokenizer_folder
from trtspec.workflows.reporter import Reporter, Silent
from trtspec.workflows.serve import current_repository, measured_serving

if TYPE_CHECKING:
    from trtspec.triton.server import TritonServer

__all__ = ["Asked", "Decide", "Running", "measured", "measured_at", "measured_on", "prepared"]

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
    where = Running(server.http_url if http else server.grpc_url, http, metrics=server.metrics_url)
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
    run = MeasuredRun(config, where, asked, reporter, grpc or (None if where.http else where.url), check)
    return run.document(None if decide is None else decide(asked.prompts))

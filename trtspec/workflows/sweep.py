"""sweep: one server, several K, one result document for each, and an index of them.

Steps are timed once, before the first K: they do not depend on it, and each document carries them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtspec.config import RunConfig
from trtspec.errors import ConfigError, EvidenceError, context
from trtspec.measurement.result import ResultDocument
from trtspec.measurement.resultfile import load_result
from trtspec.store import write_atomic
from trtspec.workflows.measure import Asked, Running, measured_at, prepared
from trtspec.workflows.reporter import Reporter, Silent
from trtspec.workflows.serve import current_repository, measured_serving
from trtspec.workflows.step_times import Timed, step_times

INDEX = "index.json"


@dataclass(frozen=True)
class Sweep:
    """The documents that are whole, by K, and where they lie."""

    results: tuple[ResultDocument, ...]
    folder: Path
    interrupted: bool

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        files = {str(r.conditions.k): self.folder / name(r.conditions.k) for r in self.results}
        return {"folder": self.folder, "results": files, "interrupted": self.interrupted}


def name(k: int) -> str:
    """File of one K."""
    return f"k{k}.json"


def sweep(
    config: RunConfig,
    ks: Sequence[int],
    folder: Path,
    reporter: Reporter | None = None,
    running: Running | None = None,
    *,
    http: bool = False,
) -> Sweep:
    """Measure each K, on a server of our own or one that runs. What was measured is written at once.

    A running server must have a policy that allows the longest K; our own is measured without its policy.
    """
    reporter = reporter or Silent()
    _require(config, ks)
    if running is not None:
        asked = prepared(config, reporter)
        grpc = None if running.http else running.url
        return _each(config, ks, folder, reporter, asked, grpc, running)
    repository = current_repository(config, reporter.note)
    asked = prepared(config, reporter)
    with measured_serving(config, repository, reporter.note) as server:
        where = Running(server.http_url if http else server.grpc_url, http, metrics=server.metrics_url)
        return _each(config, ks, folder, reporter, asked, server.grpc_url, where)


def read(folder: Path) -> list[ResultDocument]:
    """The documents of a sweep."""
    try:
        index = json.loads((folder / INDEX).read_bytes())
        names = [str(entry["file"]) for entry in index["results"]]
    except OSError as error:
        raise EvidenceError(f"cannot read the sweep: {error.strerror}", where=folder / INDEX) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EvidenceError("not the index of a sweep", where=folder / INDEX) from None
    return [load_result(folder / Path(each).name) for each in names]


def _require(config: RunConfig, ks: Sequence[int]) -> None:
    if config.engine.backend == "pytorch":
        raise ConfigError("the LLM API drafts one K to a server; a request cannot choose", found="--k")
    most = config.speculation.max_draft_len
    wrong = [k for k in ks if not 1 <= k <= most]
    if wrong or not ks:
        raise ConfigError(
            "not a draft length", where="--k", found=wrong[0] if wrong else "none",
            expected=f"1 to speculation.max_draft_len, {most}",
        )  # fmt: skip


def _each(
    config: RunConfig,
    ks: Sequence[int],
    folder: Path,
    reporter: Reporter,
    asked: Asked,
    grpc: str | None,
    where: Running,
) -> Sweep:
    done: list[ResultDocument] = []
    with context(stage="measure"):
        timed = step_times(config, grpc, asked.prompts, reporter)
        for result in _measured(config, sorted(set(ks)), asked, reporter, grpc, where):
            if result.interrupted:
                return Sweep(tuple(done), folder, interrupted=True)
            done.append(_with_times(result, timed))
            _write(folder, done)
    return Sweep(tuple(done), folder, interrupted=False)


def _measured(
    config: RunConfig, ks: Sequence[int], asked: Asked, reporter: Reporter, grpc: str | None, where: Running
) -> Iterator[ResultDocument]:
    for k in ks:
        reporter.note(f"K = {k}")
        yield measured_at(with_k(config, k), where, asked, reporter, grpc=grpc)


def with_k(config: RunConfig, k: int) -> RunConfig:
    """The same, drafting k tokens; steps are not timed again."""
    speculation = config.speculation.model_copy(update={"draft_len": k})
    validation = config.validation.model_copy(update={"costs": False})
    return config.model_copy(update={"speculation": speculation, "validation": validation})


def _with_times(result: ResultDocument, timed: Timed) -> ResultDocument:
    load = result.conditions.concurrency
    problems = (*result.problems, *([timed.problem] if timed.problem else []))
    changes = {"costs": timed.at(load), "costs_at": timed.beside(load), "problems": problems}
    return result.model_copy(update=changes)


def _write(folder: Path, done: Sequence[ResultDocument]) -> None:
    """The index last: it names only documents that are there."""
    write_atomic(folder / name(done[-1].conditions.k), done[-1].model_dump_json(indent=1) + "\n")
    rows = [{"k": r.conditions.k, "file": name(r.conditions.k), "created": r.created} for r in done]
    write_atomic(folder / INDEX, json.dumps({"version": 1, "pair": done[0].pair, "results": rows}, indent=1) + "\n")

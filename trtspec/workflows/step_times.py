"""Step costs of a served pair at every load that is measured: 1, the declared one, and those of the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtspec.config import RunConfig
from trtspec.errors import ServingError
from trtspec.measurement.costs import Wanted, lengths, step_costs
from trtspec.measurement.parts import StepCosts
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.result import ProblemRow
from trtspec.workflows.reporter import Reporter

if TYPE_CHECKING:
    from trtspec.triton.client import TritonClient


@dataclass(frozen=True)
class Timed:
    """What was timed, by load; why not, where it was not."""

    costs: tuple[StepCosts, ...] = ()
    problem: ProblemRow | None = None

    def at(self, concurrency: int) -> StepCosts | None:
        """Of one load."""
        return next((c for c in self.costs if c.concurrency == concurrency), None)

    def beside(self, concurrency: int) -> tuple[StepCosts, ...]:
        """Of the other loads."""
        return tuple(c for c in self.costs if c.concurrency != concurrency)


def step_times(config: RunConfig, grpc: str | None, prompts: Sequence[Prompt], reporter: Reporter) -> Timed:
    """A failure leaves the measurement as it is, and is a note in it."""
    if not config.validation.costs or config.engine.backend == "pytorch":
        return Timed()
    if grpc is None:
        return Timed(problem=_problem("step times were not measured: they need the gRPC port"))
    how, spec = config.validation, config.speculation
    loads = sorted({1, how.concurrency, *how.sweep})
    reporter.note(f"Timing steps with {', '.join(map(str, loads))} in flight")
    wanted = Wanted(
        k=spec.k,
        ks=lengths(spec.k, spec.max_draft_len),
        longest=config.engine.max_input_len,
        use_draft_logits=spec.acceptance == "logits",
        timeout=how.request_timeout,
    )
    found: list[StepCosts] = []
    try:
        for done, load in enumerate(loads):
            reporter.progress("step times", done, len(loads))
            costs = step_costs(lambda: _client(grpc, how.request_timeout), prompts, load, wanted)
            if costs is not None:
                found.append(costs)
        reporter.progress("step times", len(loads), len(loads))
    except ServingError as error:
        return Timed(tuple(found), _problem(f"step times were not measured: {error}"))
    return Timed(tuple(found), None if found else _problem("step times were not measured: no prompt leaves room"))


def _client(url: str, timeout: float) -> TritonClient:
    from trtspec.triton.client import TritonClient

    return TritonClient(url, timeout)


def _problem(message: str) -> ProblemRow:
    return ProblemRow(code="costs.none", domain="", message=message, count=1, severity="note")

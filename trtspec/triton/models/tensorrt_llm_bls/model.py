"""tensorrt_llm_bls: text in, text out, with speculation between a draft and a target model.

One instance serves many requests: execute() reads each request completely, hands it to a thread (admission.py) and
returns. What happens to one request is in service.py, the loop in decode.py, the counting in rounds.py, what limits
the draft length in policy.py and guard.py.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import drain
import triton_python_backend_utils as pb
from admission import Admission, Breaker, Overloaded
from answer import House
from calls import Call, Caller, Ended, Models, ServedModels, Spent
from guard import Band, Guard
from job import Job, Settings
from limits import Limits
from logs import Log
from metrics import Metrics
from policy import PolicyFile
from service import Service, internal_error
from vocabulary import Vocabulary
from watch import Watch, Watched
from wire import FINAL, Inputs, Parameters, Refused, refusal, refuse_numpy_2

HERE = Path(__file__).parent
OTHER_POLICY = "TRTSPEC_POLICY"
"""A policy file in the place of ours: what is served must not decide what is measured to decide it."""
# Parameters that Triton and its clients send by themselves.
KNOWN_PARAMETERS = frozenset({"id", "priority", "timeout", "headers", "binary_data_output"})
KNOWN_PREFIXES = ("triton_", "sequence_")
SPARE_CALLS = 8
"""Calls of a hanging draft model that may be tried after those that were in progress when it began to hang."""
CLOSING = 5.0
"""Seconds that finalize() waits for requests that still run; Triton calls it when none should."""


class TritonPythonModel:
    """The pipeline. :meth:`models` is what another way of calling the models replaces."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read parameters, tokenizer and policy; start the threads."""
        refuse_numpy_2()
        given = Parameters(args)
        self.settings = settings = Settings.of(given)
        self.limits = Limits.of(given)
        self.timeout = given.real("request_timeout") or None
        self.draft_timeout = given.real("draft_timeout", 10.0)
        self.spent = Spent()
        self._models = self.models(given)
        most = settings.max_concurrent_requests
        self.house = House(
            settings,
            Vocabulary(HERE / "tokenizer", skip_special=settings.skip_special_tokens),
            _policy(Path(os.environ.get(OTHER_POLICY) or HERE / "policy.json")),
            Guard(_band(given), self._guard_changed),
            Breaker(most + SPARE_CALLS),
            Watch(self.spent, self._slow, self._left, self._stuck),
            Admission(most, given.number("max_waiting_requests", 256), lambda service: service.work()),
            Metrics(pb, args.get("model_name", given.model), args.get("model_version", "1")),
            Log(pb.Logger, requests=given.flag("log_requests", True), prompts=given.flag("log_prompts", False)),
        )
        self.house.metrics.know(self.house.policy.policy.tasks)
        drain.follow(self.house.admission.close)

    def models(self, given: Parameters) -> Models:
        """The models behind the pipeline."""
        served = ServedModels(self.spent)
        if given.text("pipeline") != "fused":
            return served
        from fused import FusedModels  # a file of the fused layout only

        return FusedModels(given, served)

    def execute(self, requests: list[Any]) -> None:
        """Take all requests; their answers come later."""
        self._follow_policy()
        for request in requests:
            self._take(request)

    def finalize(self) -> None:
        """Wait for what is running, but not for calls that never return."""
        self.house.admission.close(CLOSING)
        self.house.watch.close()
        self.house.metrics.close()
        self._models.close()

    def _take(self, request: Any) -> None:
        """Read a request completely, for its memory is reused when execute() has returned."""
        sender, request_id = request.get_response_sender(), request.request_id()
        try:
            service = self._read(request, request_id, sender)
        except Refused as reason:
            self.house.log.event("info", "refused", request_id, reason=str(reason))
            self._refuse(sender, refusal(reason), "refused")
        except Exception as error:  # nobody would answer this request, and Triton would answer others twice
            self._refuse(sender, internal_error(self.house, request_id, error), "failed")
        else:
            self._admit(service)

    def _read(self, request: Any, request_id: str, sender: Any) -> Service:
        parameters = json.loads(request.parameters() or "{}")
        self._name_unknown(request_id, parameters)
        inputs = Inputs.of(request)
        self.limits.check(inputs, request_id)
        jobs = Job.all_of(request_id, frozenset(request.requested_output_names()), inputs, self.settings)
        timeout = _asked_timeout(request.timeout(), parameters) or self.timeout
        return Service(self.house, jobs, sender, partial(self._caller, jobs[0].request_id), timeout)

    def _refuse(self, sender: Any, response: Any, finish: str) -> None:
        self.house.metrics.request(None, "speculative", finish)
        sender.send(response, flags=FINAL)

    def _admit(self, service: Service) -> None:
        service.watched.waiting = True
        self.house.watch.add(service.watched)
        try:
            self.house.admission.submit(service)
        except Overloaded as reason:
            service.refuse(reason)
        self.house.levels()

    def _caller(self, request_id: str, ended: Ended) -> Caller:
        # Unique among calls in flight, because a stop request finds its call by the id.
        return Caller(f"{request_id}.{uuid.uuid4().hex[:8]}", self._models, ended)

    # What the watch asks and tells.

    def _slow(self, call: Call, now: float) -> bool:
        return call.model == self.settings.draft and now - call.began > self.draft_timeout

    def _left(self, watched: Watched) -> None:
        if self.house.admission.withdraw(watched.owner):
            watched.owner.turn_away()

    def _stuck(self, watched: Watched, call: Call) -> None:
        watched.owner.go_on_without(call)

    def _guard_changed(self, task: str, stopped: bool, rate: float) -> None:
        self.house.metrics.guard(task, stopped)
        self.house.log.event("warn", "guard", task=task, open=stopped, rate=rate)

    def _follow_policy(self) -> None:
        problem = self.house.policy.refresh()
        if problem is None:
            return
        self.house.log.event("warn" if problem else "info", "policy-reload", ok=not problem, problem=problem or None)
        self.house.metrics.know(self.house.policy.policy.tasks)

    def _name_unknown(self, request_id: str, parameters: dict[str, Any]) -> None:
        """/generate turns a misspelt input into a request parameter without a word; say its name in the log."""
        unknown = sorted(name for name in parameters.keys() - KNOWN_PARAMETERS if not name.startswith(KNOWN_PREFIXES))
        if unknown:
            self.house.log.event("warn", "unknown-inputs", request_id, names=unknown)


def _asked_timeout(microseconds: int, parameters: dict[str, Any]) -> float:
    """Seconds that a request gives itself, 0 for none. Over /generate Triton 2.51 leaves it among the parameters."""
    asked = microseconds or parameters.get("timeout", 0)
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not 0 <= asked < math.inf:
        raise Refused("timeout is not a number of microseconds")
    return asked / 1e6


def _policy(path: Path) -> PolicyFile:
    try:
        return PolicyFile(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise pb.TritonModelException(
            f"{path.name} cannot be used: {reason}; `trtspec repo` writes a new one"
        ) from None


def _band(given: Parameters) -> Band | None:
    if not given.flag("guard_enabled", False):
        return None
    return Band(
        floor=given.real("guard_floor", 0.5),
        recover=given.real("guard_recover", 0.6),
        window=given.number("guard_window", 256),
        probe_every=given.number("guard_probe_every", 32),
    )

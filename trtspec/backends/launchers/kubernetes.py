"""Steps as Kubernetes Jobs, one after the other: applied with kubectl, watched, their output copied into our logs.

Queueing, placing and killing are the cluster's. The Job's pod tells how it ended; it is never started twice.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.backends.launchers.base import Cancelled, Follower, Step, StepFailed, Watch
from trtspec.backends.launchers.manifest import job, job_name, text
from trtspec.config.building import Kubernetes
from trtspec.errors import BuildError
from trtspec.runner import Process, Runner
from trtspec.store import write_atomic

CALL_TIMEOUT = 120.0
POLL = 5.0
"""Seconds between two looks at a pod."""
HOPELESS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""Reasons for which a pod would wait for ever."""
PATIENCE = 60
"""Looks at a Job without any pod before it is given up."""


@dataclass(frozen=True)
class Pod:
    """What a Job's pod is doing. `phase` is empty while there is none."""

    phase: str = ""
    waiting: str = ""
    """Why it does not start."""
    message: str = ""
    exit_code: int | None = None
    reason: str = ""
    """Why it ended, such as OOMKilled or DeadlineExceeded."""

    @property
    def ended(self) -> bool:
        """Well or not."""
        return self.phase in ("Succeeded", "Failed")


class KubernetesLauncher:
    """One Job at a time."""

    here = False

    def __init__(
        self,
        runner: Runner,
        settings: Kubernetes,
        image: str,
        *,
        unique: Callable[[], str] = lambda: secrets.token_hex(4),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runner, self._settings, self._image = runner, settings, image
        self._unique, self._sleep = unique, sleep

    def run(self, steps: Sequence[Step], watch: Watch) -> None:
        """See :class:`trtspec.backends.launchers.base.Launcher`."""
        for step in steps:
            self._run(step, watch)

    def _run(self, step: Step, watch: Watch) -> None:
        name = job_name(step.slug, self._unique())
        path = step.log.with_name(f"{step.log.stem}.{step.slug}.job.yaml")
        write_atomic(path, text(job(step, self._settings, self._image, name)))
        watch.note(f"{step.name}: handed to Kubernetes as job/{name} ({path})")
        self._call("apply", "--filename", str(path), log=kubectl_log(step))
        try:
            pod = self._watch(step, name, watch)
        except BaseException:
            self._delete(step, name)
            raise
        if pod.phase != "Succeeded":
            code = f"exit code {pod.exit_code}" if pod.exit_code is not None else "no exit code"
            reason = f", {pod.reason}" if pod.reason else ""
            _append(step.log, f"kubernetes: the pod ended with {code}{reason} {pod.message}".rstrip())
            raise StepFailed(
                f"{step.name}: the pod of job/{name} ended with {code}{reason}", step, return_code=pod.exit_code
            )

    def _watch(self, step: Step, name: str, watch: Watch) -> Pod:
        """Until the pod has ended; its output goes into the step's log as it comes."""
        follower, copying, said, absent = Follower(step.log), None, "", 0
        while True:
            pod = self._pod(name)
            absent = 0 if pod.phase else absent + 1
            self._refuse(step, name, pod, absent)
            if copying is None and pod.phase in ("Running", "Succeeded", "Failed"):
                copying = self._copy(step, name)
            if pod.ended:
                _finish(copying)
            for line in follower.lines(last=pod.ended):
                watch.line(step, line)
            if pod.ended:
                return pod
            said = _tell(watch, step, pod, said)
            if watch.cancelled():
                raise Cancelled(f"{step.name}: ended, since it is not wanted any more")
            self._sleep(POLL)

    def _refuse(self, step: Step, name: str, pod: Pod, absent: int) -> None:
        if pod.waiting in HOPELESS:
            _append(step.log, f"kubernetes: {pod.waiting} {pod.message}".rstrip())
            raise StepFailed(f"{step.name}: the pod cannot start: {pod.waiting} {pod.message}".rstrip(), step)
        if absent > PATIENCE:
            raise StepFailed(f"{step.name}: job/{name} has no pod", step, fix=f"see `kubectl describe job/{name}`")

    def _pod(self, name: str) -> Pod:
        with tempfile.TemporaryDirectory(prefix="trtspec-kubectl-") as folder:
            log = Path(folder) / "pods"
            self._call("get", "pods", f"--selector=job-name={name}", "--output=json", log=log)
            said = log.read_text(encoding="utf-8", errors="replace")
        return pod_of("\n".join(line for line in said.splitlines() if not line.startswith("$ ")))

    def _copy(self, step: Step, name: str) -> Process:
        return self._runner.start(self._kubectl("logs", "--follow", f"job/{name}"), log=step.log)

    def _delete(self, step: Step, name: str) -> None:
        try:
            self._call("delete", "job", name, "--wait=false", "--ignore-not-found", log=kubectl_log(step))
        except BuildError:
            return  # the first error is the one to tell; kubectl's stands in the log

    def _call(self, *words: str, log: Path) -> None:
        self._runner.run(self._kubectl(*words), log=log, timeout=CALL_TIMEOUT)

    def _kubectl(self, *words: str) -> list[str]:
        context = [] if self._settings.context is None else [f"--context={self._settings.context}"]
        return ["kubectl", *context, f"--namespace={self._settings.namespace}", *words]


def kubectl_log(step: Step) -> Path:
    """What kubectl itself says."""
    return step.log.with_name(f"{step.log.stem}.kubectl.log")


def pod_of(document: str) -> Pod:
    """The newest pod of `kubectl get pods --output=json`; BuildError for other text."""
    try:
        items: list[dict[str, Any]] = json.loads(document)["items"]
    except (ValueError, KeyError, TypeError):
        raise BuildError("kubectl did not print pods", found=document[:200]) from None
    if not items:
        return Pod()
    status = max(items, key=lambda item: str(item["metadata"].get("creationTimestamp", "")))["status"]
    states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
    waiting: dict[str, Any] = next((s["waiting"] for s in states if "waiting" in s), {})
    ended: dict[str, Any] = next((s["terminated"] for s in states if "terminated" in s), {})
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    unplaced: dict[str, Any] = next((c for c in conditions if c.get("reason") == "Unschedulable"), {})
    return Pod(
        phase=str(status.get("phase", "")),
        waiting=str(waiting.get("reason") or unplaced.get("reason") or ""),
        message=str(waiting.get("message") or status.get("message") or unplaced.get("message") or ""),
        exit_code=ended.get("exitCode"),
        reason=str(status.get("reason") or ended.get("reason") or ""),
    )


def _tell(watch: Watch, step: Step, pod: Pod, said: str) -> str:
    """Say once why a pod waits."""
    now = f"{pod.waiting} {pod.message}".strip() if pod.phase in ("", "Pending") else ""
    if now and now != said:
        watch.note(f"{step.name}: waiting: {now}")
    return now or said


def _finish(copying: Process | None) -> None:
    if copying is None:
        return
    try:
        copying.wait(30.0)
    except TimeoutError:
        copying.stop()


def _append(log: Path, line: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(line + "\n")

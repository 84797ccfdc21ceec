"""Build TensorRT engines: predict, run `trtllm-build` through a launcher, explain a failure, read the result back."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from trtspec.backends.base import Unwatched, Watcher
from trtspec.backends.launchers import Step, StepFailed, launcher_for
from trtspec.backends.launchers.base import Cancelled, Follower
from trtspec.backends.tensorrt import steps
from trtspec.backends.tensorrt.causes import diagnose
from trtspec.backends.tensorrt.commands import CACHE, build_command, timing_cache
from trtspec.backends.tensorrt.fits import built_for
from trtspec.backends.tensorrt.flags import Flags, engine_flags
from trtspec.backends.tensorrt.gpus import turn
from trtspec.backends.tensorrt.machine import Machine, machine_for, require_machine
from trtspec.backends.tensorrt.progress import TOTAL, Progress
from trtspec.backends.tensorrt.readback import check_engine
from trtspec.backends.tensorrt.rewrites import Prediction, predict
from trtspec.backends.tensorrt.subject import Subject, of_checkpoint, planned
from trtspec.config import ROLES, Role, RunConfig
from trtspec.environment import Environment
from trtspec.errors import BuildError, ConfigError, context
from trtspec.runner import Runner, SubprocessRunner

FORMAT = 1
"""Raised when the same inputs would give another engine folder: part of the content key."""
NOT_IN_THE_KEY = ("workers", "log_level")
"""Flags that do not change the engine."""
REJECTED = "engine.rejected.json"
"""Beside the log: the config.json of an engine that was not as asked for."""
SHOWN = 12
"""Lines of a failed build's log that are shown."""
SAID = 3
_TRACEBACK = re.compile(r"^\s*Traceback \(most recent call last\)")


@dataclass
class TensorRTBuilder:
    """The engine folder is `trtllm-build`'s: config.json and rank<r>.engine. Its log lies beside it, engine.log."""

    watcher: Watcher = field(default_factory=Unwatched)
    runner: Runner = field(default_factory=SubprocessRunner)
    environment: Environment | None = None
    """What was detected; by default detected when needed."""
    name: str = field(default="tensorrt", init=False)

    def require(self, config: RunConfig) -> None:
        """MissingError: no TensorRT-LLM, another version than configured, no GPU, no cluster tool.

        ConfigError: a flag that the version does not take, or that would break speculation; folders a pod cannot see.
        """
        machine = require_machine(config, self.environment)
        for role in ROLES:
            subject = _planned(config, role, machine)
            with context(role=role):
                # A GPU as configured has been judged by `check`, which also lists the formats that do run on it.
                judged = ("wrong-gpu",) if machine.sm == config.hardware.spec.sm else ()
                refuse(predict(engine_flags(config, subject), subject), f"pair.{role}", but=judged)
                plan = self._steps(config, role, machine, subject, config.engine_dir(role))
                steps.require_launcher(config, plan)

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """Flags, TensorRT-LLM, TensorRT, GPU: those found here, or planned ones where nothing is."""
        machine = machine_for(config, self.environment)
        flags = engine_flags(config, _planned(config, role, machine))
        kept = {name: value for name, value in flags.items() if name not in NOT_IN_THE_KEY}
        return {"backend": self.name, "format": FORMAT, "flags": kept, "machine": machine.facts()}

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:
        """Fill `out`. BuildError with the log's tail and the known cause, or when the result is another engine."""
        machine = require_machine(config, self.environment)
        subject = of_checkpoint(checkpoint, role, machine.version, sm=machine.sm, gpus=machine.gpus or None)
        flags = engine_flags(config, subject)
        prediction = predict(flags, subject)
        refuse(prediction, str(checkpoint))
        for rewrite in prediction.rewrites:
            self.watcher.note(f"  engine of the {role}: {rewrite}")
        plan = self._steps(config, role, machine, subject, out, checkpoint)
        self._tell_misfit(config, role, machine)
        log = plan[-1].log
        with context(log=log):
            self._run(config, role, machine, subject, plan)
            _check(out, flags, prediction, subject, log.with_name(REJECTED))
        _keep_cache(out, timing_cache(config, machine.sm, machine.tensorrt))

    def _tell_misfit(self, config: RunConfig, role: Role, machine: Machine) -> None:
        """Say why an engine that stands there is built anew, when it was made for another machine."""
        was = built_for(config.engine_dir(role))
        changed = [
            f"{name} {was[name]} → {now}" for name, now in machine.facts().items() if was and was.get(name) != now
        ]
        if changed:
            self.watcher.note(
                f"  engine of the {role}: the one here was built for another machine ({', '.join(changed)})"
            )

    def _steps(
        self, config: RunConfig, role: Role, machine: Machine, subject: Subject, out: Path,
        checkpoint: Path | None = None,
    ) -> list[Step]:  # fmt: skip
        source = checkpoint or config.checkpoint_dir(role)
        command = build_command(
            config, role, source, out, machine.version, subject=subject, tensorrt=machine.tensorrt
        )  # fmt: skip
        return steps.plan(config, role, machine, command, (source, out.parent))

    def _run(self, config: RunConfig, role: Role, machine: Machine, subject: Subject, plan: list[Step]) -> None:
        log = plan[-1].log
        log.parent.mkdir(parents=True, exist_ok=True)
        launcher = launcher_for(config, self.runner)
        watch = _Watch(self.watcher, f"engine of the {role}", Progress(subject.ranks))
        if not launcher.here:
            steps.write_probe(config, role)
        # On a cluster, whoever places the jobs decides what runs side by side.
        with turn(config, machine.gpus, watch.tell) if launcher.here else nullcontext():
            if self.watcher.cancelled():
                raise Cancelled(f"engine of the {role}: not begun, since it is not wanted any more")
            written = Follower(log)
            self.watcher.note(f"  engine of the {role}: building, log {log}")
            try:
                launcher.run(plan, watch)
            except StepFailed as failed:
                raise explain(failed, written.all(), self.watcher.note) from None
            _refuse_traceback(written.all())
        self.watcher.progress(watch.title, TOTAL, TOTAL)


def _planned(config: RunConfig, role: Role, machine: Machine) -> Subject:
    seen = planned(config, role, machine.version)
    return dataclasses.replace(seen, sm=machine.sm, gpus=machine.gpus or None)


def refuse(prediction: Prediction, where: str, but: tuple[str, ...] = ()) -> None:
    """ConfigError for the first change that the engine would be of no use with, the rules named by `but` apart."""
    for rewrite in [each for each in prediction.refused if each.rule.name not in but][:1]:
        raise ConfigError(f"trtllm-build would not give the engine that is asked for: {rewrite}", where=where,
                          fix=rewrite.rule.fix)  # fmt: skip


def explain(failed: StepFailed, lines: list[str], note: Callable[[str], None]) -> BuildError:
    """The failure with its known cause; the log's last lines are shown first."""
    told = [line.rstrip() for line in lines if not line.startswith("$ ")]
    for line in told[-SHOWN:]:
        note(f"  | {line}")
    known = diagnose(told, 1 if failed.return_code is None else failed.return_code)
    said = [line for line in told if line.startswith("trtspec-probe: ") and "{" not in line] or _last_words(told)
    what = failed.what.removeprefix(f"{failed.step.name}: ")
    error = BuildError(
        f"{what}: {known.said}" if known else what,
        found="; ".join(said[-SAID:]) or "no output",
        fix=known.cause.fix if known else failed.fix,
    )
    error.context |= failed.context
    return error


def _last_words(lines: list[str]) -> list[str]:
    """The error that a Python traceback at the end of the log ends with; without one, the last lines."""
    last = lines[-1:]
    traced = any(_TRACEBACK.search(line) for line in lines[-SHOWN:])
    return last if traced and last and last[0][:1].strip() else lines[-SAID:]


def _refuse_traceback(lines: list[str]) -> None:
    """Exit code 0 is not believed when the tool printed a traceback: a worker's failure may not reach it."""
    for i, line in enumerate(lines):
        if _TRACEBACK.search(line):
            known = diagnose(lines[i:])
            ends = [each for each in lines[i + 1 :] if each[:1].strip()]
            raise BuildError(
                "trtllm-build ended with exit code 0, but printed an error" + (f": {known.said}" if known else ""),
                found=ends[0] if ends else line,
                fix=known.cause.fix if known else "read the log",
            )


def _check(out: Path, flags: Flags, prediction: Prediction, subject: Subject, rejected: Path) -> None:
    """Read the engine back. The record of one that is not as asked for is kept, since its folder goes."""
    rejected.unlink(missing_ok=True)
    try:
        check_engine(out, flags, prediction, subject)
    except BuildError as error:
        record = out / "config.json"
        if error.where == str(record) and record.is_file():
            shutil.copyfile(record, rejected)
            error.where = str(rejected)
        raise


def _keep_cache(out: Path, cache: Path) -> None:
    """Move the timing cache to where the next build finds it; an engine is whole without one."""
    written = out / CACHE
    if written.is_file() and written.stat().st_size > 0:
        cache.parent.mkdir(parents=True, exist_ok=True)
        os.replace(written, cache)
    else:
        written.unlink(missing_ok=True)


@dataclass
class _Watch:
    """Lines of the tool as progress."""

    watcher: Watcher
    title: str
    progress: Progress

    def line(self, step: Step, text: str) -> None:  # noqa: ARG002
        if self.progress.feed(text):
            self.watcher.progress(self.title, self.progress.percent, TOTAL)

    def note(self, text: str) -> None:
        self.watcher.note(f"  {text}")

    def tell(self, text: str) -> None:
        """News of this build, from nobody who names it."""
        self.note(f"{self.title}: {text}")

    def cancelled(self) -> bool:
        return self.watcher.cancelled()

"""Steps as Slurm jobs: one script each, chained with `--dependency=afterok`, the last one waited for with `--wait`.

Queueing, placing, time limits and killing are Slurm's. A script is complete: it can be handed to `sbatch` by hand.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from trtspec.backends.launchers.base import Step, StepFailed, Watch, follow
from trtspec.config.building import Slurm
from trtspec.errors import BuildError, ConfigError, TrtspecError
from trtspec.runner import Runner, tail
from trtspec.store import write_atomic

SUBMIT_TIMEOUT = 120.0
_JOB = re.compile(r"^(\d+)(;[\w.-]+)?$")
_NOT_IN_A_DIRECTIVE = re.compile(r'["\\\n\r]')


class SlurmLauncher:
    """Writes scripts beside the logs and submits them."""

    here = False

    def __init__(self, runner: Runner, settings: Slurm) -> None:
        self._runner, self._settings = runner, settings

    def run(self, steps: Sequence[Step], watch: Watch) -> None:
        """See :class:`trtspec.backends.launchers.base.Launcher`."""
        jobs: list[str] = []
        try:
            for step in steps[:-1]:
                jobs.append(self._submit(step, jobs[-1:]))
            self._wait(steps[-1], jobs, watch)
        except BaseException:
            self._cancel(jobs, steps[-1])
            raise

    def _submit(self, step: Step, after: Sequence[str]) -> str:
        """Hand over a step; its job id."""
        log = submit_log(step)
        self._runner.run(
            ["sbatch", "--parsable", *dependency(after), write_script(step, self._settings)],
            log=log, timeout=SUBMIT_TIMEOUT,
        )  # fmt: skip
        job = job_of(log)
        if job is None:
            raise BuildError("sbatch named no job", where=log, found="; ".join(tail(log)[-2:]))
        return job

    def _wait(self, step: Step, jobs: list[str], watch: Watch) -> None:
        """Submit the last step and wait until it has ended."""
        script, log = write_script(step, self._settings), submit_log(step)
        command = ["sbatch", "--parsable", "--wait", *dependency(jobs[-1:]), str(script)]
        watch.note(f"{step.name}: handed to Slurm ({script})")
        process = self._runner.start(command, log=log)

        def end() -> None:
            jobs.extend(_known(job_of(log)))
            process.stop()

        code = follow(process, step, watch, end=end)
        if code != 0:
            raise StepFailed(f"{step.name}: the Slurm job ended with exit code {code}", step, return_code=code)

    def _cancel(self, jobs: list[str], step: Step) -> None:
        """End what is still queued or running; a job that has ended is not affected."""
        if jobs:
            log = submit_log(step)
            try:
                self._runner.run(["scancel", *dict.fromkeys(jobs)], log=log, timeout=SUBMIT_TIMEOUT)
            except TrtspecError:
                # The first error is the one to tell; scancel's stands in the log.
                return


def _known(job: str | None) -> list[str]:
    return [] if job is None else [job]


def submit_log(step: Step) -> Path:
    """What sbatch itself says."""
    return step.log.with_name(f"{step.log.stem}.sbatch.log")


def dependency(after: Sequence[str]) -> list[str]:
    """A job whose predecessor failed is removed instead of waiting for ever."""
    return [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []


def job_of(log: Path) -> str | None:
    """The job id that `sbatch --parsable` printed last: `123` or `123;cluster`."""
    found = [match[1] for line in tail(log) if (match := _JOB.match(line.strip()))]
    return found[-1] if found else None


def write_script(step: Step, settings: Slurm) -> Path:
    """<log>.sbatch beside the log."""
    path = step.log.with_name(f"{step.log.stem}.{step.slug}.sbatch")
    write_atomic(path, script(step, settings))
    return path


def script(step: Step, settings: Slurm) -> str:
    """The whole batch script. Every word is quoted: nothing of the configuration reaches a shell bare."""
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options(step, settings)), ""]
    lines += ["# Written by trtspec: one step of an engine build.", "set -euo pipefail"]
    if settings.modules:
        lines.append(f"module load {shlex.join(settings.modules)}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(step.variables.items())]
    # trtllm-build starts its own workers: inside an MPI step it would take itself for one rank of many.
    lines += ["unset SLURM_NTASKS SLURM_PROCID SLURM_LOCALID PMI_RANK PMI_SIZE PMIX_RANK"] if step.gpus else []
    return "\n".join([*lines, f"exec {shlex.join(launch(step, settings))}", ""])


def options(step: Step, settings: Slurm) -> list[str]:
    """Lines `#SBATCH --name=value`."""
    # In an output path, Slurm replaces %j and its like.
    log = _directive(str(step.log).replace("%", "%%"))
    found = {
        "job-name": f"trtspec-{step.slug}",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(settings.cpus),
        "gpus-per-node": str(step.gpus),
        "time": str(math.ceil(step.timeout / 60)),
        "output": log,
        "open-mode": "append",
    }
    named = ("partition", "account", "qos", "constraint")
    found |= {name: value for name in named if (value := getattr(settings, name)) is not None}
    found |= {"mem": settings.memory} if settings.memory is not None else {}
    return [f"--{name}={value}" for name, value in (found | dict(settings.options)).items()]


def _directive(path: str) -> str:
    if _NOT_IN_A_DIRECTIVE.search(path):
        raise ConfigError("a path in a Slurm script cannot hold quotes, backslashes or line breaks", found=repr(path))
    return f'"{path}"'


def launch(step: Step, settings: Slurm) -> tuple[str, ...]:
    """The command, inside the container when there is one."""
    if settings.container is None:
        return step.command
    mounts = [_mounted(folder) for folder in dict.fromkeys((*step.folders, *settings.mounts))]
    return (
        *("srun", "--ntasks=1", "--mpi=none", f"--container-image={settings.container}"),
        *(f"--container-mounts={','.join(mounts)}", "--no-container-mount-home"),
        *step.command,
    )  # fmt: skip


def _mounted(folder: Path) -> str:
    if any(sign in str(folder) for sign in ",:"):
        raise ConfigError("pyxis cannot mount a folder with a comma or colon in its name", found=folder)
    return f"{folder}:{folder}"

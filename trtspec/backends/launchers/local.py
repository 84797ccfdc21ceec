"""Steps on this machine, one process each."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from trtspec.backends.launchers.base import Step, StepFailed, Watch, follow
from trtspec.runner import Runner, describe


class LocalLauncher:
    """Starts each step here and waits for it."""

    here = True

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, steps: Sequence[Step], watch: Watch) -> None:
        """See :class:`trtspec.backends.launchers.base.Launcher`."""
        for step in steps:
            deadline = time.monotonic() + step.timeout
            process = self._runner.start(step.command, log=step.log, environment={**os.environ, **step.variables})
            code = follow(process, step, watch, deadline=deadline)
            if code != 0:
                program = Path(step.command[0]).name
                raise StepFailed(f"{step.name}: {program} {describe(code)}", step, return_code=code)

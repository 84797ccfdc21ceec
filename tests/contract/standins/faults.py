"""Faults that a STAND-IN brings about when STANDIN_FAULT asks for one.

| STANDIN_FAULT | what happens |
|---|---|
| `crash@N` | a traceback and exit code 1 once N percent are done (10, 50, 90) |
| `enospc@N` | the disk is full at N percent: the traceback of an OSError, exit code 1 |
| `sigkill@N` | the process kills itself with SIGKILL |
| `hang@N` | it stands still for ever, and does not listen to SIGTERM |
| `no-files` | says that it finished and writes nothing |
| `other-limits` | writes an engine with half the max_seq_len, one token less of max_draft_len |
| `no-paged-fmha` | writes an engine without paged-context FMHA, without a word |
| `truncated-config` | config.json ends in its middle, everything else is right |
| `traceback-exit-0` | a traceback in the output, the last rank's file is missing, exit code 0 |
| `empty-engine` | the last rank's file has 0 bytes, exit code 0 |

STANDIN_FAULT_WHEN limits it to calls with that text in their arguments (for example `target`).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

TIMED = ("crash", "enospc", "sigkill", "hang")
STILL = ("no-files", "other-limits", "no-paged-fmha", "truncated-config", "traceback-exit-0", "empty-engine")


class Fault:
    """The fault of this call, if any."""

    def __init__(self, environment: Mapping[str, str], arguments: Sequence[str]) -> None:
        name = environment.get("STANDIN_FAULT", "")
        if name and environment.get("STANDIN_FAULT_WHEN", "") not in " ".join(arguments):
            name = ""
        self.name, _, percent = name.partition("@")
        self.percent = float(percent or 50)
        if self.name not in ("", *TIMED, *STILL):
            raise SystemExit(f"STAND-IN: no fault {self.name!r}")

    def reached(self, percent: float) -> None:
        """`percent` of the work is done: the moment may have come."""
        if self.name not in TIMED or percent < self.percent:
            return
        sys.stdout.flush()
        if self.name == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.name == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(3600)
        if self.name == "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise RuntimeError(f"STAND-IN: made to fail after {self.percent:g} %")

    def __eq__(self, name: object) -> bool:
        return self.name == name

    def __hash__(self) -> int:
        return hash(self.name)

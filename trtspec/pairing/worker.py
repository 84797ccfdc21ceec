"""The inside of a process with limits; `limited` is its outside. It imports little: every check starts it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable


def serve(answer: Callable[[str], str], *, cpu_seconds: int, memory: int) -> None:
    """Limit this process to seconds of processor time and bytes of address space, then answer line by line."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        print(answer(line), flush=True)

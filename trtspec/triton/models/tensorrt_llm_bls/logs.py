"""The server's log as events: one JSON object per line, which programs can read and people still can.

    {"event": "request", "request": "client-7", "task": "code", "mode": "speculative", "tokens": 120, "seconds": 1.9}

What people wrote stays out: prompts, answers and words are left away unless the server was told to log them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

LEVELS = {"info": "log_info", "warn": "log_warn", "warning": "log_warn", "error": "log_error"}
PRIVATE = frozenset({"prompt", "answer", "text", "stop_words", "bad_words"})
"""Fields that hold what people wrote."""
LONGEST = 256
"""Characters of a text; a client chooses its request ids and misspells its parameters."""
MOST_ITEMS = 16
CUT = "…"


class Log:
    """Writes events through Triton's logger."""

    def __init__(self, logger: Any, *, requests: bool = True, prompts: bool = False) -> None:
        self._logger = logger
        self._requests = requests
        self._prompts = prompts

    def event(self, level: str, event: str, request_id: str = "", **fields: Any) -> None:
        """One line. Fields that are None are left out. `level` is info, warn or error; never raises.

        Info events of requests (those with a request id) are left out where requests are not logged. A field may be
        a function, which is asked only if the field is to be logged.
        """
        if level == "info" and request_id and not self._requests:
            return
        told = {"event": event, "request": request_id or None}
        told |= {name: _value(value) for name, value in fields.items() if self._prompts or name not in PRIVATE}
        # ASCII only: no control character of a client reaches a terminal.
        line = json.dumps({name: _plain(value) for name, value in told.items() if value is not None})
        try:
            getattr(self._logger, LEVELS.get(level, "log_warn"))(line)
        except Exception:
            # A server that is going away takes no log lines.
            return


def _value(field: Any) -> Any:
    """What a field says; a client's bytes need not be text."""
    if not callable(field):
        return field
    try:
        return field()
    except Exception as error:
        return f"({type(error).__name__})"


def _plain(value: Any) -> Any:
    """As JSON holds it, and short."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return round(float(value), 6) if np.isfinite(value) else str(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return [_plain(item) for item in items[:MOST_ITEMS]] + ([CUT] if len(items) > MOST_ITEMS else [])
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + CUT

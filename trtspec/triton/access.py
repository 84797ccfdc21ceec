"""What clients of the server may not do, and how tritonserver is told so.

Triton lets every client that reaches its ports map shared memory of the machine into the server, switch traces on
and change what is logged. The first is more than an inconvenience: the Python models exchange prompts and answers
through shared memory. Each of these groups of the protocol can be closed with a header and a value that a client must
send; the value made here is random and told to nobody. Loading and unloading of models is off in Triton by default.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

CLOSED = "shared-memory,trace,logging"
"""Groups of both protocols, in Triton's own words."""
HEADER = "closed"
FLAGS = ("--http-restricted-api", "--grpc-restricted-protocol")


def options(given: Sequence[str], key: str | None = None) -> list[str]:
    """Arguments that close the groups, and the user's own. Who restricts a protocol himself is left to it."""
    value = f"{CLOSED}:{HEADER}={secrets.token_hex(16) if key is None else key}"
    own = {word.partition("=")[0] for word in given}
    return [*(f"{flag}={value}" for flag in FLAGS if flag not in own), *given]

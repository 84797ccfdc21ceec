"""Ports for the server: given ones are checked, free ones are found, before anything starts."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from dataclasses import dataclass

from trtspec.config.serving import Serving
from trtspec.errors import ConfigError, MissingError

NAMES = ("http_port", "grpc_port", "metrics_port")


@dataclass(frozen=True)
class Ports:
    """Three different TCP ports; `chosen` says that at least one of them was picked here."""

    http: int
    grpc: int
    metrics: int
    chosen: bool


def reserve(serving: Serving, patience: float = 0.0) -> Ports:
    """Check the given ports and pick a free one for each 0; `patience` is seconds to wait for a port in use.

    MissingError (naming the port and its key) when one is in use, ConfigError when two keys name the same port or
    the host is not an address of this machine. Nothing stays bound.
    """
    wanted = {name: int(getattr(serving, name)) for name in NAMES}
    _refuse_twins(wanted)
    deadline = time.monotonic() + patience
    while True:
        try:
            return _reserve_once(serving, wanted)
        except MissingError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def _reserve_once(serving: Serving, wanted: dict[str, int]) -> Ports:
    with contextlib.ExitStack() as stack:
        # All are bound at the same time, given ones first, so that no free one repeats another.
        bound = {
            name: _bind(stack, serving.host, name, port)
            for name, port in sorted(wanted.items(), key=lambda item: item[1] == 0)
        }
    return Ports(bound["http_port"], bound["grpc_port"], bound["metrics_port"], chosen=0 in wanted.values())


def _refuse_twins(wanted: dict[str, int]) -> None:
    for i, first in enumerate(NAMES):
        for second in NAMES[i + 1 :]:
            if wanted[first] == wanted[second] != 0:
                raise ConfigError(
                    f"serving.{first} and serving.{second} are the same port",
                    found=wanted[first],
                    fix="give each its own, or 0 for any free port",
                )


def _bind(stack: contextlib.ExitStack, host: str, name: str, port: int) -> int:
    """Bind and return the port number; the socket lives as long as `stack`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = stack.enter_context(socket.socket(family, kind, protocol))
        # As the server does: a port whose last connections are in TIME_WAIT is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)
    except OSError as error:
        raise _explain(error, host, name, port) from None
    return int(listener.getsockname()[1])


def _explain(error: OSError, host: str, name: str, port: int) -> ConfigError | MissingError:
    if error.errno == errno.EADDRINUSE:
        return MissingError(
            f"port {port} is in use", where=f"serving.{name}", fix="stop what uses it, or choose another port or 0"
        )
    if error.errno == errno.EACCES:
        return MissingError(f"port {port} is not permitted", where=f"serving.{name}", fix="choose one above 1023")
    return ConfigError(
        "this machine cannot listen on that address",
        where="serving.host",
        found=f"{host} ({error.strerror or error})",
        fix="use 127.0.0.1, or an address of this machine",
    )

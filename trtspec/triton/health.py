"""What the server says of itself over HTTP: ready or not, its models, its metrics. Requests never go this way."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass

from trtspec.errors import ServingError

TIMEOUT = 5.0
_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?P<labels>\{.*\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Model:
    """One entry of the repository index. `state` is READY, LOADING, UNAVAILABLE …"""

    name: str
    state: str
    reason: str


def ready(host: str, port: int) -> bool:
    """Whether /v2/health/ready answers 200; false also while nobody listens."""
    try:
        return _ask(host, port, "GET", "/v2/health/ready")[0] == http.client.OK
    except OSError:
        return False


def models(host: str, port: int) -> list[Model]:
    """The repository index: every model the server knows, with its state."""
    path = "/v2/repository/index"
    try:
        _, body = _ask(host, port, "POST", path)
        entries = json.loads(body)
        return [Model(e["name"], e.get("state", "UNAVAILABLE"), e.get("reason", "")) for e in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServingError(f"no repository index: {error}", where=f"http://{host}:{port}{path}") from None


def metrics(host: str, port: int) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples of /metrics as {name: {((label, value), …): number}}, labels sorted; comment lines are skipped."""
    try:
        _, body = _ask(host, port, "GET", "/metrics")
    except OSError as error:
        raise ServingError(f"no metrics: {error}", where=f"http://{host}:{port}/metrics") from None
    return parse_metrics(body.decode("utf-8", "replace"))


def parse_metrics(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Prometheus text format, of which label and value are kept and type and help are not."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match:
            labels = tuple(sorted(_LABEL.findall(match["labels"] or "")))
            samples.setdefault(match["name"], {})[labels] = float(match["value"])
    return samples


def _ask(host: str, port: int, method: str, path: str) -> tuple[int, bytes]:
    """Status and body. Straight to the server: a proxy named in the environment has no business with it."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"not an HTTP answer: {error!r}") from None
    finally:
        connection.close()

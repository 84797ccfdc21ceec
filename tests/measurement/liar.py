"""A stand-in server that speaks Triton's HTTP and lies on demand. Its models are toys; its wire is real."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from tests.measurement.fake import FakeClient
from trtspec.triton.generation import Chunk, GenerateRequest, Generation
from trtspec.triton.tables import BLS_INPUTS, BLS_OUTPUTS, ENSEMBLE_INPUTS, ENSEMBLE_OUTPUTS

MODELS = {"ensemble": (ENSEMBLE_INPUTS, ENSEMBLE_OUTPUTS), "tensorrt_llm_bls": (BLS_INPUTS, BLS_OUTPUTS)}
COUNTED = ("rounds", "drafted_tokens", "tested_tokens", "accepted_tokens", "emitted_tokens")


@dataclass
class Script:
    """What the server does instead of the truth. Each gets the number of the request and may answer as it likes."""

    answer: Callable[[int, str, Generation], Generation] = lambda number, model, truth: truth
    """What it says."""
    before: Callable[[int, str], None] = lambda number, model: None
    """Done before the answer: it may sleep."""
    reply: Callable[[int, str], dict[str, Any] | None] = lambda number, model: None
    """An event in the place of the answer; empty: the connection is closed without any."""
    count: Callable[[Counter[str]], Counter[str]] = lambda truth: truth
    """What the metrics page says."""
    log_probs: Callable[[int], int] = lambda tokens: tokens
    """How many log-probabilities come with an answer of so many tokens."""


@dataclass
class Liar:
    """The server's state. `url` is host:port, of its metrics too."""

    script: Script
    counters: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    toy: FakeClient = field(default_factory=FakeClient)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def events(self, model: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with self.lock:
            self.requests += 1
            number = self.requests
            self.counters[f'nv_inference_request_success{{model="{model}",version="1"}}'] += 1
        self.script.before(number, model)
        instead = self.script.reply(number, model)
        if instead is not None:
            yield from [instead] if instead else []
            return
        speculative = model == "tensorrt_llm_bls"
        request = GenerateRequest(body["text_input"], body["max_tokens"], draft_len=body.get("num_draft_tokens"))
        truth = self.toy.generate(model, request)
        if speculative:
            self._count(truth)
        yield from self._pieces(model, self.script.answer(number, model, with_chunks(truth)))

    def _count(self, truth: Generation) -> None:
        assert truth.histogram is not None
        emitted = truth.accepted + int(truth.histogram[0].sum())
        with self.lock:
            for name, value in zip(
                COUNTED, (truth.rounds, truth.drafted, truth.tested, truth.accepted, emitted), strict=True
            ):
                self.counters[f'trtspec_{name}_total{{model="tensorrt_llm_bls",task=""}}'] += value

    def _pieces(self, model: str, told: Generation) -> Iterator[dict[str, Any]]:
        place = 0
        for chunk in told.chunks:
            text = told.text[place : place + (chunk.tokens or 0)]
            place += chunk.tokens or 0
            yield {"text_output": text, "num_input_tokens": 3, "num_output_tokens": chunk.tokens or 0}
        left = told.output_tokens - sum(c.tokens or 0 for c in told.chunks)
        last: dict[str, Any] = {"text_output": told.text[place:], "num_input_tokens": 3, "num_output_tokens": left}
        if model == "tensorrt_llm_bls":
            last |= {
                "spec_rounds": told.rounds, "spec_tested": told.tested, "spec_mode": told.mode,
                "total_accepted_draft_tokens": told.accepted, "total_draft_tokens": told.drafted,
                "finish_reason": told.finish_reason,
            }  # fmt: skip
            if told.histogram is not None:
                last["spec_histogram"] = np.asarray(told.histogram).reshape(-1).tolist()
        yield last

    def whole(self, model: str, body: dict[str, Any]) -> dict[str, Any]:
        """The same in one piece."""
        found: dict[str, Any] = {"text_output": "", "num_output_tokens": 0}
        for event in self.events(model, body):
            summed = {
                name: found[name] + event.get(name, type(found[name])())
                for name in ("text_output", "num_output_tokens")
            }
            found |= event | summed
        if body.get("return_log_probs"):
            found["output_log_probs"] = [-0.5] * self.script.log_probs(found["num_output_tokens"])
        return found

    def metrics(self) -> str:
        with self.lock:
            told = self.script.count(Counter(self.counters))
        return "".join(f"{series} {value}\n" for series, value in told.items())


def with_chunks(truth: Generation) -> Generation:
    """One token a piece; the speculative model sends a round at a time."""
    step = 1 if not truth.rounds else max(1, round(truth.output_tokens / truth.rounds))
    sizes = [min(step, truth.output_tokens - i) for i in range(0, truth.output_tokens, step)]
    return replace(truth, chunks=tuple(Chunk(0.0, size) for size in sizes))


@contextmanager
def lying(script: Script | None = None) -> Iterator[Liar]:
    """The server, on a port of its own, until the block ends."""
    liar = Liar(script or Script())
    server = _Server(liar)
    liar.url = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield liar
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, liar: Liar) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.liar = liar

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has given up is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(self.server.liar.metrics().encode(), "text/plain")
        elif self.path.endswith("/config"):
            self._send(b'{"name": "toy"}')
        elif self.path.startswith("/v2/models/"):
            self._send(json.dumps(_metadata(self.path.split("/")[3])).encode())
        else:
            self._send(b'{"version": "0.0"}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.close_connection = True
        if self.path.endswith("/generate"):
            self._send(json.dumps(self.server.liar.whole(self.path.split("/")[3], body)).encode())
            return
        begun = False
        for event in self.server.liar.events(self.path.split("/")[3], body):
            if not begun:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
            begun = True
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _metadata(model: str) -> dict[str, Any]:
    names = [[line.split()[0] for line in table.splitlines() if line.strip()] for table in MODELS[model]]
    inputs, outputs = ([{"name": name} for name in kind] for kind in names)
    return {"inputs": inputs, "outputs": outputs}

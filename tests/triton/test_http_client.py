"""The HTTP client: against a real Triton, and against servers that misbehave as Triton or a proxy may."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import eventually
from tests.triton.throwaway import add_a_pair, serving
from trtspec.triton.answer import PairClient, Retry
from trtspec.triton.client import SPECULATIVE, TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.triton.failures import RequestError, told
from trtspec.triton.http_client import HttpClient, arrays_of, body_of
from trtspec.triton.payload import flag, number, strings
from trtspec.triton.server import TritonServer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("http")
    impatient = serving(stop_timeout=1.0)  # over HTTP a model is not told that nobody waits any more
    with TritonServer.start(add_a_pair(folder / "repository"), impatient, folder / "triton.log") as server:
        yield server


@pytest.fixture(params=["gRPC", "HTTP"])
def either(running: TritonServer, request: pytest.FixtureRequest) -> Iterator[PairClient]:
    """The same over both protocols."""
    over_http = request.param == "HTTP"
    with HttpClient(running.http_url) if over_http else TritonClient(running.grpc_url) as client:
        yield client


def ask(prompt: str, max_tokens: int = 8, **more: Any) -> GenerateRequest:
    return GenerateRequest(prompt, max_tokens, **{"timeout": 10.0, **more})


@pytest.mark.triton
def test_text_comes_in_pieces_and_then_the_whole_answer(either: PairClient) -> None:
    assert either.ready()
    with either.stream(TARGET_ONLY, ask("say α|×–|日本", stream=True)) as answer:
        assert [text for text in answer if text] == ["α", "×–", "日本"]
        result = answer.result
    assert (result.text, result.output_tokens, result.input_tokens) == ("α×–日本", 3, 7)
    assert [chunk.tokens for chunk in result.chunks] == [1, 1, 1]
    assert either.generate(TARGET_ONLY, ask("say α|×–")).text == "α×–"
    assert either.tokens("abc") == (97, 98, 99)


@pytest.mark.triton
def test_the_counters_of_speculation(either: PairClient) -> None:
    answer = either.generate(SPECULATIVE, ask("speculate", draft_len=3))
    assert (answer.mode, answer.finish_reason, answer.speculative) == ("speculative", "length", True)
    assert (answer.rounds, answer.tested, answer.accepted, answer.drafted, answer.alpha) == (3, 7, 7, 9, 1.0)
    assert answer.histogram is not None
    assert (answer.histogram[0, 3, 3], answer.histogram[1, 3, 1], answer.histogram.sum()) == (2, 1, 3)


@pytest.mark.triton
def test_the_same_tensors_reach_the_model(running: TritonServer) -> None:
    how: dict[str, Any] = {"temperature": 0.5, "top_k": 4, "seed": 2**63 + 5, "stop_words": ("\n\n",), "task": "code"}
    request = ask("inputs_are", draft_len=4, request_id="mine", **how)
    with HttpClient(running.http_url) as http, TritonClient(running.grpc_url) as grpc:
        seen = [json.loads(client.generate(SPECULATIVE, request).text) for client in (http, grpc)]
    assert seen[0] == seen[1]


@pytest.mark.triton
def test_an_input_that_the_model_does_not_have_is_refused(either: PairClient) -> None:
    """Triton's /generate would take it for a parameter, and answer without it."""
    with pytest.raises(RequestError, match="tensorrt_llm_bls has no input repetition_penalty; leave it out") as caught:
        either.generate(SPECULATIVE, ask("say x", repetition_penalty=1.1))
    assert caught.value.kind == "refused"
    with pytest.raises(RequestError, match="the server has no model bls") as caught:
        either.generate("bls", ask("say x"))
    assert caught.value.kind == "refused"


@pytest.mark.triton
@pytest.mark.parametrize("stream", [False, True])
def test_a_models_own_error(either: PairClient, stream: bool) -> None:
    with pytest.raises(RequestError, match="model tensorrt_llm_bls: the prompt is too long") as caught:
        either.generate(SPECULATIVE, ask("fail", stream=stream))
    assert caught.value.kind == "refused"


@pytest.mark.triton
def test_a_deadline(either: PairClient, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no answer in time \(found 0\.3 s\)") as caught:
        either.generate(TARGET_ONLY, ask(f"hang {tmp_path / 'mark'}", timeout=0.3))
    assert caught.value.kind == "deadline"


@pytest.mark.triton
def test_cancelling_from_another_thread(either: PairClient, tmp_path: Path) -> None:
    answer = either.stream(TARGET_ONLY, ask(f"hang {tmp_path / 'mark'}"))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(list, answer)
        assert eventually((tmp_path / "mark.began").exists)
        answer.cancel()
        with pytest.raises(RequestError, match="was cancelled") as caught:
            waiting.result(5.0)
    assert caught.value.kind == "cancelled"
    with pytest.raises(RequestError, match="not read to its end"):
        _ = answer.result


@pytest.mark.triton
def test_closing_the_client_cancels_what_runs(running: TritonServer, tmp_path: Path) -> None:
    client = HttpClient(running.http_url)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.generate, TARGET_ONLY, ask(f"hang {tmp_path / 'mark'}", stream=True))
        assert eventually((tmp_path / "mark.began").exists)
        client.close()
        with pytest.raises(RequestError, match="was cancelled"):
            waiting.result(5.0)


METADATA = {"name": "m", "inputs": [{"name": n} for n in ("text_input", "max_tokens", "stream")]}
METADATA["inputs"] += [{"name": n} for n in ("exclude_input_in_output", "top_k", "num_draft_tokens")]
GOOD = {"text_output": "yes", "num_input_tokens": 1, "num_output_tokens": 1}
Post = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def pretending(post: Post, port: int = 0) -> Iterator[str]:
    """A server that knows one model and answers requests as `post` does; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            say(self, 200, json.dumps(METADATA))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            post(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def say(handler: BaseHTTPRequestHandler, status: int, body: str, length: int | None = None) -> None:
    data = body.encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)


def event(data: object) -> str:
    return f"data: {json.dumps(data)}\n\n"


@pytest.mark.parametrize(
    ("status", "body", "stream", "message", "kind"),
    [
        (200, json.dumps({"error": "generate expects exactly 1 response"}), False, "exactly 1 response", "failed"),
        (400, json.dumps({"error": "overloaded: 64 run, 256 wait"}), False, r"found 64 run, 256 wait", "overloaded"),
        (503, json.dumps({"error": "Exceeds maximum queue size"}), True, "the server is overloaded", "overloaded"),
        (200, event(GOOD) + event({"error": "deadline exceeded after 2 s"}), True, "no answer in time", "deadline"),
        (200, event(GOOD) + event({"error": "the request was cancelled"}), True, "was cancelled", "cancelled"),
        (400, event({"error": "max_tokens is 0; it must be at least 1"}), True, "must be at least 1", "refused"),
        (400, json.dumps({"error": "bad_words is not UTF-8 text"}), False, "not UTF-8", "refused"),
        (400, json.dumps({"error": "refused: no beams here"}), False, "^model m: no beams here", "refused"),
        (502, "<html>Bad gateway</html>", False, "no JSON object", "failed"),
        (200, "data: nonsense\n\n", True, "no JSON object", "failed"),
    ],
)
def test_failures_in_disguise(status: int, body: str, stream: bool, message: str, kind: str) -> None:
    with pretending(lambda handler: say(handler, status, body)) as url, HttpClient(url) as client:
        with pytest.raises(RequestError, match=message) as caught:
            client.generate("m", ask("x", stream=stream))
        assert caught.value.kind == kind


def breaks_in_a_chunk(handler: BaseHTTPRequestHandler) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    data = event(GOOD).encode()
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.close_connection = True


@pytest.mark.parametrize(
    ("post", "stream"),
    [
        (lambda handler: say(handler, 200, json.dumps(GOOD), length=999), False),
        (lambda handler: say(handler, 200, event(GOOD), length=999), True),
        (breaks_in_a_chunk, True),
    ],
)
def test_an_answer_that_breaks_off_is_none(post: Post, stream: bool) -> None:
    with pretending(post) as url, HttpClient(url) as client:
        with pytest.raises(RequestError) as caught:
            client.generate("m", ask("x", stream=stream, timeout=3.0))
        assert caught.value.kind == "unreachable"


def test_the_connection_is_closed_whatever_happens() -> None:
    ended = threading.Event()

    def post(handler: BaseHTTPRequestHandler) -> None:
        say(handler, 200, event(GOOD), length=10**6)
        handler.wfile.flush()
        handler.rfile.read(1)  # returns when the other side closes
        ended.set()

    with pretending(post) as url, HttpClient(url) as client:
        with client.stream("m", ask("x", stream=True)) as answer:
            assert next(iter(answer)) == "yes"
        assert ended.wait(5.0)


def test_overload_is_asked_again_only_when_told_to() -> None:
    turns = iter([True, True, False])

    def post(handler: BaseHTTPRequestHandler) -> None:
        say(handler, 200, json.dumps({"error": "overloaded: full"} if next(turns) else GOOD))

    with pretending(post) as url:
        with HttpClient(url) as client, pytest.raises(RequestError, match="overloaded"):
            client.generate("m", ask("x"))
        with HttpClient(url, retry=Retry(overloaded=20.0, first_pause=0.01)) as client:
            assert client.generate("m", ask("x")).text == "yes"


def test_nothing_is_asked_again_once_an_answer_has_begun() -> None:
    asked = []

    def post(handler: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        say(handler, 200, event(GOOD) + event({"error": "overloaded: full"}))

    retry = Retry(overloaded=20.0, first_pause=0.01)
    with pretending(post) as url, HttpClient(url, retry=retry) as client, pytest.raises(RequestError, match="overl"):
        client.generate("m", ask("x", stream=True))
    assert asked == [1]


def test_waiting_for_a_server_that_does_not_listen_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with HttpClient(f"127.0.0.1:{port}") as client, pytest.raises(RequestError, match="cannot be reached") as caught:
        client.generate("m", ask("x"))
    assert caught.value.kind == "unreachable"
    with ThreadPoolExecutor() as pool, HttpClient(f"127.0.0.1:{port}", retry=Retry(connecting=20.0)) as client:
        waiting = pool.submit(client.generate, "m", ask("x"))
        time.sleep(0.2)
        with pretending(lambda handler: say(handler, 200, json.dumps(GOOD)), port):
            assert waiting.result(20.0).text == "yes"


def test_a_grpc_client_waits_too() -> None:
    with TritonClient("127.0.0.1:1", retry=Retry(connecting=0.2)) as client:
        with pytest.raises(RequestError, match=r"nobody listened for 0\.2 s") as caught:
            client.generate(TARGET_ONLY, ask("x"))
        assert caught.value.kind == "unreachable"


def test_an_address_without_a_port() -> None:
    with HttpClient("localhost") as client, pytest.raises(RequestError, match="not an address"):
        client.generate("m", ask("x"))


@given(st.lists(st.text(min_size=1), min_size=2), st.integers(0, 2**64 - 1), st.booleans())
def test_tensors_survive_the_way_there_and_back(texts: list[str], seed: int, on: bool) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    body = json.loads(json.dumps(body_of({"w": strings(texts), "s": number(seed, np.uint64), "f": flag(on)})))
    found = arrays_of(body)
    assert [word.decode() for word in found["w"]] == texts
    assert (int(found["s"][0]), bool(found["f"][0])) == (seed, on)


def test_a_dead_model_process_is_no_fault_of_the_request() -> None:
    error = told("Stub process 'tensorrt_llm_0' is not healthy.", "model m")
    assert (error.kind, "start the server again" in str(error)) == ("failed", True)

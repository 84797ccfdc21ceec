"""What streaming clients send that know nothing of speculation, and the examples of the documentation.

Foremost the tensors of Triton's OpenAI frontend (server repository, python/openai, `engine/utils/triton.py`).
"""

from __future__ import annotations

import json
import queue
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.grpc as grpc

from tests.conftest import PROJECT
from tests.triton.servedpair import build, serve
from tests.triton.test_upstream_contract import STOP, Arrays, core, end_to_end, i32, tensors, words
from trtspec.cli.serve import ways_to_ask
from trtspec.config import load_config
from trtspec.triton.client import TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

BLS, TARGET = "tensorrt_llm_bls", "tensorrt_llm"
PROMPT = "def read_lines(path: str) -> list[str]:\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("openai")
    with serve(build(tiny_config, folder), folder / "triton.log") as found:
        yield found


@pytest.fixture(scope="module")
def expected(server: TritonServer) -> str:
    """The target's own greedy answer."""
    with TritonClient(server.grpc_url) as client:
        return client.generate(TARGET_ONLY, GenerateRequest(PROMPT, 24)).text


def f32(value: float) -> np.ndarray[Any, Any]:
    return np.array([[value]], np.float32)


def responses(server: TritonServer, model: str, *requests: Arrays, request_id: str = "") -> list[Any]:
    """What comes back on one stream, in which all requests go out at once."""
    came: queue.Queue[Any] = queue.Queue()
    with grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(callback=lambda result, error: came.put(error or result))
        for inputs in requests:
            client.async_stream_infer(model, tensors(grpc, inputs), request_id=request_id)
        client.stop_stream()
    return list(came.queue)


def text_of(answers: list[Any]) -> str:
    """As the frontend reads it: exactly one string in each response."""
    pieces = [answer.as_numpy("text_output") for answer in answers]
    assert all(piece.size == 1 for piece in pieces)
    return "".join(piece.flat[0].decode() for piece in pieces)


def chat(stream: bool, **more: np.ndarray[Any, Any]) -> Arrays:
    return {"text_input": words(PROMPT), "stream": np.array([[stream]]), "max_tokens": i32(24), **more}


NEWER = {name: np.array([[True]]) for name in ("return_num_input_tokens", "return_num_output_tokens")}
# OpenAI's defaults, which its schema fills in; and what a client may add.
SAMPLING: Arrays = {"top_p": f32(1.0), "temperature": f32(0.7), "frequency_penalty": f32(0.0)}
SAMPLING |= {"presence_penalty": f32(0.0), "seed": np.array([[7]], np.uint64)}


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_request_speculates_and_leaves_the_prompt_out(server: TritonServer, expected: str, stream: bool) -> None:
    answers = responses(server, BLS, chat(stream, **NEWER))
    assert text_of(answers) == expected
    assert (len(answers) > 1) is stream
    assert answers[-1].as_numpy("spec_mode").flat[0] == b"speculative"
    assert answers[-1].as_numpy("spec_histogram").sum() > 0
    counted = [int(answer.as_numpy("num_output_tokens").flat[0]) for answer in answers]
    assert sum(counted) == 24
    assert {int(answer.as_numpy("num_input_tokens").flat[0]) for answer in answers} == {len(tokens(server))}


def tokens(server: TritonServer) -> tuple[int, ...]:
    with TritonClient(server.grpc_url) as client:
        return client.tokens(PROMPT)


@pytest.mark.parametrize("newer", [{}, NEWER], ids=["older", "newer"])
def test_every_input_that_the_frontend_knows(server: TritonServer, newer: Arrays) -> None:
    """Sampled with a seed: the same answer again, and without drafts that of the target asked directly."""
    inputs = chat(False, stop_words=words("zzz", "return"), **SAMPLING, **newer)
    one, again = (text_of(responses(server, BLS, inputs)) for _ in range(2))
    assert one == again
    assert "return" not in one
    without = text_of(responses(server, BLS, inputs | {"num_draft_tokens": i32(0)}))
    alone = text_of(responses(server, TARGET_ONLY, inputs | {"exclude_input_in_output": np.array([[True]])}))
    assert alone.startswith(without), "the target ends behind a stop word, the pipeline before it"


@pytest.mark.parametrize("echo", [False, True])
def test_completions_may_ask_for_the_prompt(server: TritonServer, expected: str, echo: bool) -> None:
    inputs = chat(False, exclude_input_in_output=np.array([[not echo]]), **NEWER)
    assert text_of(responses(server, BLS, inputs)) == (PROMPT if echo else "") + expected


@pytest.mark.parametrize("model", [BLS, TARGET_ONLY])
def test_a_streaming_end_to_end_client(server: TritonServer, expected: str, model: str) -> None:
    """`end_to_end_grpc_client --streaming`: new text only, which it adds up."""
    inputs = end_to_end(PROMPT, 24, stream=np.array([[True]]))
    answers = responses(server, model, inputs)
    assert text_of(answers) == expected
    assert len(answers) > 1


def test_a_streaming_core_client_and_its_stop_request(server: TritonServer) -> None:
    """`inflight_batcher_llm_client --streaming --stop-after-ms`: pieces of new tokens, then an early end."""
    inputs = core((5, 6, 7), 12) | {"end_id": i32(-1), "streaming": np.array([[True]])}
    pieces = [answer.as_numpy("output_ids") for answer in responses(server, TARGET, inputs)]
    assert [piece.shape[:2] for piece in pieces] == [(1, 1)] * len(pieces)
    assert sum(piece.shape[2] for piece in pieces) == 12
    longest = inputs | {"request_output_len": i32(900)}
    stopped = responses(server, TARGET, longest, STOP, request_id="same")
    found = [a.as_numpy("output_ids") for a in stopped if not isinstance(a, Exception)]
    assert sum(ids.shape[2] for ids in found if ids is not None) < 900


def test_the_lines_that_serve_prints_work(server: TritonServer, tiny_config: Path) -> None:
    config = load_config(tiny_config)
    once, stream, ask = ways_to_ask(config, tiny_config, server.http_url, server.grpc_url)
    texts = []
    for line in (once, stream):
        command = shlex.split(line)
        url, body = command[2], command[4]
        assert command[0] == "curl"
        with urlopen(Request(url, body.encode()), timeout=60) as answer:
            events = [json.loads(line.removeprefix(b"data: ")) for line in answer.read().splitlines() if line]
        texts.append("".join(event["text_output"] for event in events))
    command = [sys.executable, "-m", *shlex.split(ask), "--max-tokens", "32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert texts[0] == texts[1] == done.stdout.removesuffix("\n")


def test_the_example_of_the_documentation(server: TritonServer) -> None:
    page = (PROJECT / "docs" / "clients.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    example = example.replace("127.0.0.1:8001", server.grpc_url)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "speculative: 32 tokens" in done.stdout
    assert "drafted tokens accepted" in done.stdout

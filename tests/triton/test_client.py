"""The client against a real Triton whose models compute nothing but speak the wire."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.processes import eventually
from tests.triton.throwaway import add_a_pair, serving
from trtspec.errors import ServingError
from trtspec.triton.client import SPECULATIVE, TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.triton.connection import Connection, Exchange
from trtspec.triton.server import TritonServer

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("client")
    with TritonServer.start(add_a_pair(folder / "repository"), serving(), folder / "triton.log") as server:
        yield server


@pytest.fixture
def client(running: TritonServer) -> Iterator[TritonClient]:
    with TritonClient(running.grpc_url, timeout=10.0) as client:
        yield client


def ask(prompt: str, max_tokens: int = 8, **more: Any) -> GenerateRequest:
    return GenerateRequest(prompt, max_tokens, **{"timeout": 10.0, **more})


def test_the_server_and_its_models(client: TritonClient) -> None:
    assert client.ready()
    names = {"ensemble", "tensorrt_llm_bls", "tensorrt_llm", "preprocessing", "postprocessing"}
    assert client.models() == dict.fromkeys(names, "READY")


def test_one_answer_and_a_stream_say_the_same(client: TritonClient) -> None:
    whole = client.generate(TARGET_ONLY, ask("say one| two| three", 2))
    pieces = client.generate(TARGET_ONLY, ask("say one| two| three", 2, stream=True))
    assert (whole.text, whole.output_tokens, whole.input_tokens) == ("one two", 2, 7)
    assert (pieces.text, pieces.output_tokens, pieces.input_tokens) == ("one two", 2, 7)
    assert whole.first_token_seconds is None
    assert pieces.first_token_seconds is not None
    assert 0.05 <= pieces.first_token_seconds <= pieces.seconds - 0.05
    assert (whole.mode, whole.finish_reason, whole.histogram, whole.rounds) == ("", "", None, 0)


def test_text_is_utf_8_both_ways(client: TritonClient) -> None:
    assert client.generate(TARGET_ONLY, ask("say α×–|日本", stream=True)).text == "α×–日本"


def test_the_counters_of_speculation(client: TritonClient) -> None:
    answer = client.generate(SPECULATIVE, ask("speculate", draft_len=3))
    assert (answer.mode, answer.finish_reason) == ("speculative", "length")
    assert (answer.rounds, answer.tested, answer.accepted, answer.drafted) == (3, 7, 7, 9)
    assert answer.histogram is not None
    assert answer.histogram.shape == (2, 4, 4)
    assert (answer.histogram[0, 3, 3], answer.histogram[1, 3, 1], answer.histogram.sum()) == (2, 1, 3)


def test_tensors_on_the_wire(client: TritonClient) -> None:
    request = ask(
        "inputs_are",
        draft_len=4,
        temperature=0.5,
        top_k=40,
        top_p=0.25,
        seed=2**63 + 5,
        stop_words=("\n\n", "ende"),
        task="code",
        use_draft_logits=True,
        request_id="mine",
    )
    seen = json.loads(client.generate(SPECULATIVE, request).text)
    assert seen == {
        "id": "mine",
        "text_input": ["object", [1, 1], ["inputs_are"]],
        "max_tokens": ["int32", [1, 1], [8]],
        "stream": ["bool", [1, 1], [False]],
        "exclude_input_in_output": ["bool", [1, 1], [True]],
        "num_draft_tokens": ["int32", [1, 1], [4]],
        "use_draft_logits": ["bool", [1, 1], [True]],
        "temperature": ["float32", [1, 1], [0.5]],
        "top_k": ["int32", [1, 1], [40]],
        "top_p": ["float32", [1, 1], [0.25]],
        "seed": ["uint64", [1, 1], [2**63 + 5]],
        "stop_words": ["object", [1, 2], ["\n\n", "ende"]],
        "task": ["object", [1, 1], ["code"]],
        "return_perf_metrics": ["bool", [1, 1], [True]],
        "return_num_input_tokens": ["bool", [1, 1], [True]],
        "return_num_output_tokens": ["bool", [1, 1], [True]],
    }


def test_a_models_own_error_is_passed_on_in_one_line(client: TritonClient) -> None:
    with pytest.raises(ServingError) as caught:
        client.generate(SPECULATIVE, ask("fail"))
    assert str(caught.value) == "model tensorrt_llm_bls: the prompt is too long"
    assert client.generate(SPECULATIVE, ask("say on")).text == "on"


@pytest.mark.parametrize(
    ("prompt", "missing"),
    [("mute", "num_input_tokens, num_output_tokens, text_output"), ("poor", "num_input_tokens, num_output_tokens")],
)
def test_an_answer_that_lacks_something(client: TritonClient, prompt: str, missing: str) -> None:
    with pytest.raises(ServingError, match=f"the answer lacks {missing}$"):
        client.generate(TARGET_ONLY, ask(prompt))


def test_an_unknown_model_is_answered_with_the_known_ones(client: TritonClient) -> None:
    with pytest.raises(ServingError, match=r"the server has no model bls \(expected one of ensemble, postproc"):
        client.generate("bls", ask("say x"))


def test_a_deadline_cancels_the_work(client: TritonClient, tmp_path: Path) -> None:
    mark = tmp_path / "cancelled"
    began = time.monotonic()
    with pytest.raises(ServingError, match=r"no answer in time \(found 0\.5 s\)"):
        client.generate(TARGET_ONLY, ask(f"hang {mark}", timeout=0.5))
    assert time.monotonic() - began < 5.0
    assert eventually(mark.exists)


def test_cancelling_tells_the_model(client: TritonClient, tmp_path: Path) -> None:
    mark = tmp_path / "cancelled"
    exchange = client.open(TARGET_ONLY, ask(f"hang {mark}"))
    assert eventually((tmp_path / "cancelled.began").exists)
    threading.Timer(0.2, exchange.cancel).start()
    with pytest.raises(ServingError, match="was cancelled"):
        list(exchange)
    assert eventually(mark.exists)


def test_leaving_a_stream_early_tells_the_model(client: TritonClient, tmp_path: Path) -> None:
    mark = tmp_path / "cancelled"
    with client.open(TARGET_ONLY, ask(f"hang {mark}")):
        assert eventually((tmp_path / "cancelled.began").exists)
    assert eventually(mark.exists)


def test_closing_the_client_cancels_what_runs(running: TritonServer, tmp_path: Path) -> None:
    client = TritonClient(running.grpc_url)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.generate, TARGET_ONLY, ask(f"hang {tmp_path / 'cancelled'}"))
        assert eventually((tmp_path / "cancelled.began").exists)
        client.close()
        with pytest.raises(ServingError, match="was cancelled"):
            waiting.result(5.0)
    assert eventually((tmp_path / "cancelled").exists)


def test_many_threads_share_one_client(client: TritonClient) -> None:
    def one(i: int) -> str:
        model = (TARGET_ONLY, SPECULATIVE)[i % 2]
        return client.generate(model, ask(f"say {i}|-|{i}", stream=i % 3 == 0)).text

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(one, range(256))) == [f"{i}-{i}" for i in range(256)]


def test_what_explains_a_difference(client: TritonClient) -> None:
    assert client.tokens("abc") == (97, 98, 99)
    assert client.tokens("") == ()
    assert client.decode((104, 105)) == "hi"
    assert client.token_ids((97, 117), 3) == (118, 119, 120)
    assert client.token_ids((97, 120), 3) == (121,)  # the end token, 122, is not part of it
    logits = client.next_logits((3, 4, 5))
    assert (logits.shape, logits.dtype, int(np.argmax(logits))) == ((10,), np.float32, 2)


def test_a_server_that_is_not_there() -> None:
    with TritonClient("127.0.0.1:1") as client:
        assert not client.ready()
        with pytest.raises(ServingError, match=r"127\.0\.0\.1:1: the server cannot be reached"):
            client.generate(TARGET_ONLY, ask("say x"))


def test_a_stream_that_just_ends_is_not_an_answer() -> None:
    from tritonclient.grpc import service_pb2

    class Call(list[Any]):
        def cancel(self) -> None:
            self.clear()

    half = service_pb2.ModelStreamInferResponse(infer_response=service_pb2.ModelInferResponse(model_name="m"))
    call = Call([half])
    owner = SimpleNamespace(url="u", _forget=lambda exchange: None)
    with pytest.raises(ServingError, match="model m: the stream ended without a final response"):
        list(Exchange(owner, call, "m", None))  # type: ignore[arg-type]
    assert call == []


def test_a_proxy_in_the_environment_is_not_used(running: TritonServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    connection = Connection(running.grpc_url)
    assert connection.ready()
    connection.close()

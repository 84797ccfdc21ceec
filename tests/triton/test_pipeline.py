"""The generated repository on a real Triton, with the shipped tiny pair in float32."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.triton import servedpair
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.errors import ServingError
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.generation import Generation
from trtspec.triton.lint import lint
from trtspec.triton.payload import flag, number, strings
from trtspec.triton.repository import POLICY_FILE
from trtspec.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

BLS, ALONE = "tensorrt_llm_bls", "ensemble"
PROMPTS = (
    "<|user|>\nWhat does `os.path.join` do?\n<|assistant|>\n",
    "def read_lines(path: str) -> list[str]:\n",
    "class Queue:\n    def put(self",
    "import json\n\n",
    "😀 naïve café",
    "x",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    """The tiny pair's repository; the policy allows what the tests ask for."""
    return servedpair.build(tiny_config, tmp_path_factory.mktemp("pair"), tasks={"off": {"draft_len": 0}})


@pytest.fixture(scope="module")
def server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server with that repository; at the end it still runs, and no model has left a traceback."""
    with servedpair.serve(built, tmp_path_factory.mktemp("log") / "triton.log") as found:
        yield found


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[TritonClient]:
    """A client of that server."""
    with TritonClient(server.grpc_url) as found:
        yield found


def _ask(client: TritonClient, prompt: str, model: str = BLS, max_tokens: int = 32, **how: Any) -> Generation:
    return client.generate(model, GenerateRequest(prompt, max_tokens, **how))


def test_the_repository_is_sound(built: Path) -> None:
    assert lint(built) == ()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_speculation_does_not_change_a_greedy_answer(client: TritonClient, k: int, stream: bool) -> None:
    for prompt in PROMPTS:
        alone = _ask(client, prompt, ALONE)
        pair = _ask(client, prompt, draft_len=k, stream=stream)
        assert pair.text == alone.text
        assert (pair.mode, pair.input_tokens) == ("speculative", alone.input_tokens)
        assert pair.output_tokens == alone.output_tokens
        assert pair.histogram is not None
        histogram = RoundHistogram.from_wire(pair.histogram)
        assert (histogram.rounds, histogram.tested) == (pair.rounds, pair.tested)
        assert (histogram.accepted, histogram.drafted) == (pair.accepted, pair.drafted)
        assert histogram.emitted == pair.output_tokens + (pair.finish_reason == "end_id")


@pytest.mark.parametrize("stream", [False, True])
def test_without_drafts_the_answer_is_the_same(client: TritonClient, stream: bool) -> None:
    for prompt in PROMPTS:
        requested = _ask(client, prompt, draft_len=0, stream=stream, max_tokens=70)
        off = _ask(client, prompt, draft_len=4, stream=stream, max_tokens=70, task="off")
        assert requested.text == off.text == _ask(client, prompt, ALONE, max_tokens=70).text
        assert (requested.mode, off.mode) == ("target-only:requested", "target-only:policy")


@pytest.mark.parametrize("k", [1, 4])
def test_a_seed_repeats_the_answer(client: TritonClient, k: int) -> None:
    how: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "draft_len": k}
    first, again, streamed = (_ask(client, PROMPTS[1], **how, seed=11, stream=s).text for s in (False, False, True))
    assert first == again == streamed
    assert first != _ask(client, PROMPTS[1], **how, seed=12).text


def test_a_temperature_alone_samples(client: TritonClient) -> None:
    greedy = _ask(client, PROMPTS[1]).text
    assert len({greedy, *(_ask(client, PROMPTS[1], temperature=1.5, seed=seed).text for seed in (1, 2))}) == 3


def test_logits_acceptance_works_and_is_greedy_when_asked(client: TritonClient) -> None:
    alone = _ask(client, PROMPTS[1], ALONE)
    assert _ask(client, PROMPTS[1], draft_len=4, use_draft_logits=True).text == alone.text
    sampled = _ask(
        client, PROMPTS[1], draft_len=4, use_draft_logits=True, temperature=1.0, top_p=1.0, seed=5, stream=True
    )
    assert sampled.output_tokens == 32 or sampled.finish_reason == "end_id"
    assert sampled.drafted > 0


def test_eight_at_once_get_their_own_answers(client: TritonClient) -> None:
    prompts = [f"def function_{i}(value: int) -> int:\n" for i in range(8)]
    alone = [_ask(client, p, ALONE).text for p in prompts]
    with ThreadPoolExecutor(8) as pool:
        pair = list(pool.map(lambda p: _ask(client, p, draft_len=4, stream=True), prompts))
    assert [p.text for p in pair] == alone


def test_stop_words_end_the_answer_before_them(client: TritonClient) -> None:
    whole = _ask(client, PROMPTS[1], ALONE).text
    word = whole[7:10]
    for how in ({"draft_len": 8}, {"draft_len": 1, "stream": True}, {"draft_len": 0, "stream": True}):
        got = _ask(client, PROMPTS[1], stop_words=("zzz", word), **how)
        assert (got.text, got.finish_reason) == (whole[: whole.find(word)], "stop_words")


def test_a_client_that_leaves_frees_the_server(client: TritonClient) -> None:
    for k in (0, 4):
        request = GenerateRequest(PROMPTS[1], 900, draft_len=k, stream=True)
        with client.open(BLS, request) as exchange:
            next(iter(exchange))
        began = time.monotonic()
        assert _ask(client, PROMPTS[3], max_tokens=4).text == _ask(client, PROMPTS[3], ALONE, max_tokens=4).text
        assert time.monotonic() - began < 10


def test_more_requests_than_the_engine_steps_at_once(client: TritonClient) -> None:
    with ThreadPoolExecutor(20) as pool:
        texts = list(pool.map(lambda i: _ask(client, PROMPTS[i % 3], draft_len=2, max_tokens=12).text, range(20)))
    assert texts == [_ask(client, PROMPTS[i % 3], ALONE, max_tokens=12).text for i in range(20)]


@pytest.mark.parametrize("model", [BLS, ALONE])
@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [("word " * 600, 8, "this server takes at most 512"), ("word", 2000, "this server takes at most 1024 together")],
)
def test_what_is_too_long_is_one_clear_line(
    client: TritonClient, model: str, prompt: str, max_tokens: int, message: str
) -> None:
    with pytest.raises(ServingError) as caught:
        _ask(client, prompt, model, max_tokens=max_tokens)
    assert message in str(caught.value)
    assert "word" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_prompt_at_the_length_limit_is_answered(client: TritonClient) -> None:
    line = "x = 1\n"
    tokens_of_line = len(client.tokens(line * 2)) - len(client.tokens(line))
    prompt = line * (511 // tokens_of_line)
    tokens = len(client.tokens(prompt))
    assert 500 < tokens <= 512
    most = 1024 - tokens
    assert _ask(client, prompt, draft_len=8, max_tokens=most).text == _ask(client, prompt, ALONE, max_tokens=most).text


def _raw(client: TritonClient, model: str, **tensors: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    with client._connection.exchange(model, tensors, "raw", 60.0) as exchange:
        (answer,) = list(exchange)
    return answer


def test_only_the_two_mandatory_inputs_are_needed(client: TritonClient) -> None:
    """What a client sends that knows nothing of speculation: the server's default speculates."""
    answer = _raw(client, BLS, text_input=strings([PROMPTS[3]]), max_tokens=number(16))
    assert answer["spec_mode"].flat[0] == b"speculative"
    assert answer["text_output"].shape == (1,)
    assert answer["text_output"][0].decode() == _ask(client, PROMPTS[3], ALONE, max_tokens=16).text
    assert answer["spec_histogram"].shape == (1, 2, 9, 9)


def _post(server: TritonServer, verb: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/models/{BLS}/{verb}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_plain_http_clients_are_answered(server: TritonServer, client: TritonClient) -> None:
    body = {"text_input": PROMPTS[1], "max_tokens": 20}
    expected = _ask(client, PROMPTS[1], ALONE, max_tokens=20).text
    one = json.loads(_post(server, "generate", body))
    assert (one["text_output"], one["spec_mode"], one["finish_reason"]) == (expected, "speculative", "length")
    events = _post(server, "generate_stream", body | {"stream": True}).split("\n\n")
    pieces = [json.loads(event.removeprefix("data: "))["text_output"] for event in events if event]
    assert "".join(pieces) == expected
    assert len(pieces) > 1


@pytest.mark.parametrize("model", [BLS, ALONE])
def test_the_prompt_comes_back_when_asked_for(client: TritonClient, model: str) -> None:
    answer = _raw(
        client,
        model,
        text_input=strings([PROMPTS[3]]),
        max_tokens=number(8),
        exclude_input_in_output=flag(False),
        stream=flag(False),
    )
    assert answer["text_output"][0].decode() == PROMPTS[3] + _ask(client, PROMPTS[3], ALONE, max_tokens=8).text


def test_figures_and_logits_on_request(client: TritonClient) -> None:
    answer = _raw(
        client,
        BLS,
        text_input=strings([PROMPTS[1]]),
        max_tokens=number(9),
        num_draft_tokens=number(3),
        **{
            f"return_{what}": flag(True)
            for what in ("log_probs", "generation_logits", "perf_metrics", "num_input_tokens", "num_output_tokens")
        },
    )
    new = int(answer["num_output_tokens"].flat[0])
    assert answer["output_log_probs"].shape == (1, 1, new)
    assert answer["generation_logits"].shape == (1, 1, new, 2048)
    ids = client.token_ids(client.tokens(PROMPTS[1]), 9)
    assert tuple(answer["generation_logits"][0, 0].argmax(axis=1)) == ids
    times = [int(answer[f"{n}_time_ns"].flat[0]) for n in ("arrival", "first_scheduled", "first_token", "last_token")]
    assert 0 < times[0] <= times[1] <= times[2] <= times[3]


def test_the_targets_own_wire(client: TritonClient) -> None:
    ids = client.tokens(PROMPTS[1])
    greedy = client.token_ids(ids, 6)
    logits = client.next_logits(ids)
    assert (int(logits.argmax()), logits.shape) == (greedy[0], (2048,))
    wrong = (greedy[2] + 1) % 2048
    answer = _raw(
        client,
        "tensorrt_llm",
        input_ids=np.array([ids], dtype=np.int32),
        input_lengths=number(len(ids)),
        request_output_len=number(5),
        draft_input_ids=np.array([[*greedy[:2], wrong, 0]], dtype=np.int32),
        return_perf_metrics=flag(True),
    )
    # The prompt, two accepted tokens, and the target's own instead of the third.
    assert answer["output_ids"][0, 0].tolist() == [*ids, *greedy[:3]]
    assert answer["output_ids"].shape == (1, 1, len(ids) + 3)
    assert (int(answer["total_accepted_draft_tokens"].flat[0]), int(answer["total_draft_tokens"].flat[0])) == (2, 4)


def test_a_stop_request_ends_a_running_one(client: TritonClient) -> None:
    ids = client.tokens(PROMPTS[1])
    inputs = {
        "input_ids": np.array([ids], dtype=np.int32),
        "input_lengths": number(len(ids)),
        "request_output_len": number(900),
        "streaming": flag(True),
    }
    connection = client._connection
    with connection.exchange("tensorrt_llm", inputs, "long", 60.0) as exchange:
        responses = iter(exchange)
        next(responses)
        stop = inputs | {"stop": flag(True)}
        with connection.exchange("tensorrt_llm", stop, "long", 60.0) as stopping:
            assert list(stopping) == []
        # It ends with what it has by then, as in TensorRT-LLM: no error, and not all 900 tokens.
        assert len(list(responses)) < 899


def test_a_changed_policy_is_used_without_a_restart(client: TritonClient, built: Path) -> None:
    path = built / POLICY_FILE
    before = path.read_text()
    try:
        path.write_text(json.dumps({"version": 1, "default": {"draft_len": 0}}))
        assert _ask(client, PROMPTS[3], draft_len=4).mode == "target-only:policy"
        path.write_text("broken")
        assert _ask(client, PROMPTS[3], draft_len=4).mode == "target-only:policy"
    finally:
        path.write_text(before)
    assert _ask(client, PROMPTS[3], draft_len=4).mode == "speculative"


def test_streams_are_pieces_of_whole_characters(client: TritonClient) -> None:
    request = GenerateRequest(PROMPTS[4], 24, draft_len=4, stream=True)
    with client.open(BLS, request) as exchange:
        pieces = [bytes(answer["text_output"][0]).decode() for answer in exchange]
    assert len(pieces) > 1
    assert "".join(pieces) == _ask(client, PROMPTS[4], ALONE, max_tokens=24).text


def test_closed_senders_do_not_stop_others(client: TritonClient) -> None:
    """Clients leave while others are answered."""
    expected = _ask(client, PROMPTS[1], ALONE).text
    done = threading.Event()

    def leave() -> None:
        while not done.is_set():
            with client.open(BLS, GenerateRequest(PROMPTS[2], 400, draft_len=4, stream=True)) as exchange:
                next(iter(exchange))

    leavers = [threading.Thread(target=leave) for _ in range(3)]
    for thread in leavers:
        thread.start()
    try:
        texts = [_ask(client, PROMPTS[1], draft_len=4).text for _ in range(8)]
    finally:
        done.set()
        for thread in leavers:
            thread.join()
    assert texts == [expected] * 8

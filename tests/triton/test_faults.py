"""Never worse than the target alone: a draft that fails, hangs, dies or is unloaded, clients that leave, load, the end.

Real Triton with the generated pipeline; draft and target are stand-ins that compute nothing (faultyllm.py).
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes import eventually
from tests.triton.faultyllm import BLS, DRAFT, FAIL, HANG, SLOW, TARGET, Switch, answer, faulty_repository, heard
from tests.triton.throwaway import serving
from trtspec.config.serving import Serving
from trtspec.errors import ServingError
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.generation import Generation
from trtspec.triton.server import TritonServer

pytestmark = pytest.mark.triton

PROMPTS = tuple(f"prompt {i}" for i in range(16))
SETTINGS: dict[str, Any] = {"draft_timeout": 1.0, "stop_timeout": 4.0, "max_waiting_requests": 4}
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")


class Served:
    """A server with a faulty pair, and a client of it."""

    def __init__(self, server: TritonServer, repository: Path, client: TritonClient) -> None:
        self.server, self.repository, self.client = server, repository, client

    def ask(self, prompt: str, max_tokens: int = 60, **how: Any) -> Generation:
        """With drafts, streamed."""
        return self.client.generate(
            BLS, GenerateRequest(prompt, max_tokens, **({"draft_len": 4, "stream": True} | how))
        )

    def all_at_once(self, **how: Any) -> list[Generation]:
        """16 streams."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda prompt: self.ask(prompt, **how), PROMPTS))

    def post(self, body: dict[str, Any]) -> str:
        """Over plain HTTP."""
        url = f"http://{self.server.http_url}/v2/models/{BLS}/generate"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answered:
            return str(answered.read().decode())

    def control(self, verb: str) -> None:
        """Load or unload the draft model."""
        url = f"http://{self.server.http_url}/v2/repository/models/{DRAFT}/{verb}"
        urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=30).read()

    def events(self, event: str) -> list[dict[str, Any]]:
        """Lines of that kind in the server's log."""
        # Triton writes a message as a JSON string.
        lines = [line.partition("] ")[2] for line in self.server.log.read_text().splitlines() if "event" in line]
        found = [json.loads(json.loads(line)) for line in lines if line.startswith('"{')]
        return [each for each in found if each["event"] == event]


def serve(folder: Path, settings: Serving, more: tuple[str, ...] = ()) -> Iterator[Served]:
    """A server with a faulty pair."""
    repository = faulty_repository(folder, serving=settings)
    with (
        TritonServer.start(
            repository, settings, folder / "triton.log", through=lambda words: [*words, *more]
        ) as server,
        TritonClient(server.grpc_url, timeout=60) as client,
    ):
        yield Served(server, repository, client)
        if server.running:
            assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose draft can be unloaded; every test leaves it well."""
    yield from serve(tmp_path_factory.mktemp("shared"), serving(**SETTINGS), EXPLICIT)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A server that a test may ruin."""
    yield from serve(tmp_path, serving(**SETTINGS), EXPLICIT)


def well_again(served: Served) -> None:
    """The breaker lets drafts pass again."""
    assert eventually(lambda: served.ask("well?", 12).mode == "speculative", 30.0)


def texts_are_right(answers: list[Generation], max_tokens: int = 60) -> None:
    """All are the target's."""
    assert [found.text for found in answers] == [answer(prompt, max_tokens) for prompt in PROMPTS]


def test_the_pair_speculates(shared: Served) -> None:
    answers = shared.all_at_once()
    texts_are_right(answers)
    assert {found.mode for found in answers} == {"speculative"}
    assert all(0 < found.accepted < found.drafted for found in answers)


def test_a_draft_that_fails_costs_no_answer_and_pauses_drafting(shared: Served) -> None:
    with Switch(shared.repository, FAIL):
        answers = shared.all_at_once()
        texts_are_right(answers)
        assert {found.mode for found in answers} == {"target-only:draft-failed"}
        calls = heard(shared.repository, DRAFT)
        assert {found.mode for found in shared.all_at_once(max_tokens=8)} == {"target-only:draft-failed"}
        # One tries again after each pause, and the pauses grow.
        assert heard(shared.repository, DRAFT) < calls + 8
    assert "out of memory" in shared.events("fallback")[-1]["problem"]
    assert shared.events("breaker")[-1] == {"event": "breaker", "open": True, "reason": "draft-failed"}
    well_again(shared)
    assert shared.events("breaker")[-1] == {"event": "breaker", "open": False}


def test_a_slow_draft_is_stopped_and_the_request_goes_on(shared: Served) -> None:
    with Switch(shared.repository, SLOW):
        stopped = heard(shared.repository, DRAFT, "stopped")
        answers = shared.all_at_once()
        texts_are_right(answers)
        assert {found.mode for found in answers} == {"target-only:draft-slow"}
        assert heard(shared.repository, DRAFT, "stopped") == stopped + 16
    well_again(shared)


def test_a_draft_that_hangs_is_left_behind_and_returns_later(shared: Served) -> None:
    with Switch(shared.repository, HANG):
        answers = shared.all_at_once()
        texts_are_right(answers)
        assert {found.mode for found in answers} == {"target-only:draft-slow"}
        assert all(found.rounds == 0 for found in answers)
    assert "hangs for" in shared.events("fallback")[-1]["problem"]
    well_again(shared)
    texts_are_right(shared.all_at_once())


def test_unloaded_in_the_middle_and_loaded_again(shared: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shared.all_at_once, max_tokens=110)
        calls = heard(shared.repository, DRAFT)
        assert eventually(lambda: heard(shared.repository, DRAFT) > calls + 32)
        shared.control("unload")
        try:
            answers = running.result()
            without = shared.ask("without").mode
        finally:
            shared.control("load")
    texts_are_right(answers, 110)
    lost = [found for found in answers if found.mode != "speculative"]
    assert {found.mode for found in lost} <= {"target-only:no-draft-model", "target-only:draft-failed"}
    # On a busy machine some may begin only now.
    assert any(found.rounds > 0 for found in lost)
    assert without == "target-only:no-draft-model"
    well_again(shared)


def test_a_fifth_of_the_clients_leaves(shared: Served) -> None:
    """Nobody else notices, and both models are told to stop."""

    def one(i: int) -> str | None:
        prompt = PROMPTS[i % 16]
        if i % 5:
            return shared.ask(prompt).text
        with shared.client.open(BLS, GenerateRequest(prompt, 110, draft_len=4, stream=True)) as exchange:
            next(iter(exchange))
        return None

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(one, range(40)))
    assert texts == [answer(PROMPTS[i % 16], 60) if i % 5 else None for i in range(40)]
    assert eventually(lambda: sum(e["finish"] == "cancelled" for e in shared.events("request-end")) >= 8)
    well_again(shared)


def _refused(shared: Served, prompt: str, **how: Any) -> str:
    try:
        return "answered " + shared.ask(prompt, **how).text
    except ServingError as error:
        return str(error)


def test_more_than_can_wait_is_turned_away_and_who_leaves_makes_room(shared: Served) -> None:
    """16 at once and 4 in the queue, while the target hangs."""
    with ThreadPoolExecutor(20) as pool:
        with Switch(shared.repository, HANG, TARGET):
            running = [pool.submit(shared.ask, prompt, 8, draft_len=0) for prompt in PROMPTS]
            assert eventually(lambda: _level(shared, "in_flight") == 16)
            request = GenerateRequest("leaves", 8, draft_len=0)
            with contextlib.ExitStack() as leaving:
                for _ in range(4):
                    leaving.enter_context(shared.client.open(BLS, request))
                assert eventually(lambda: _level(shared, "waiting") == 4)
                said = _refused(shared, "too many")
                assert "16 requests are being answered and 4 wait; try again later" in said
                with pytest.raises(urllib.error.HTTPError) as caught:
                    shared.post({"text_input": "too many", "max_tokens": 8})
                assert json.loads(caught.value.read())["error"].startswith("overloaded: 16 requests")
            assert eventually(lambda: _level(shared, "waiting") == 0)
        assert [found.result().text for found in running] == [answer(prompt, 8) for prompt in PROMPTS]


def _level(served: Served, name: str) -> float:
    return sum(served.server.metrics().get(f"trtspec_requests_{name}", {}).values())


def test_a_request_past_its_deadline_is_told_so(shared: Served) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        shared.post({"text_input": "late", "max_tokens": 100, "num_draft_tokens": 1, "timeout": 50_000})
    assert (caught.value.code, json.loads(caught.value.read())) == (400, {"error": "deadline exceeded after 0.05 s"})
    assert shared.events("request-end")[-1]["finish"] == "deadline"
    assert shared.ask("in time", 8).text == answer("in time", 8)


def test_the_end_lets_streams_finish_and_waits_for_no_client_for_ever(own: Served) -> None:
    never = _never_closed(own)
    with ThreadPoolExecutor(16) as pool:
        calls = heard(own.repository, DRAFT)
        running = [pool.submit(own.ask, prompt, 110) for prompt in PROMPTS]
        assert eventually(lambda: heard(own.repository, DRAFT) > calls + 32)
        own.server.stop()  # Triton hangs on that stream until it is killed
        texts_are_right([found.result() for found in running], 110)
    assert not own.server.running
    never.close()


def _never_closed(served: Served) -> Any:
    """A client that keeps its stream open when it has its answer."""
    from tritonclient import grpc

    text = grpc.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[b"never"]], dtype=np.object_))
    count = grpc.InferInput("max_tokens", [1, 1], "INT32")
    count.set_data_from_numpy(np.array([[4]], dtype=np.int32))
    client, answered = grpc.InferenceServerClient(served.server.grpc_url), threading.Event()
    client.start_stream(lambda result, error: answered.set())
    client.async_stream_infer(BLS, [text, count])
    assert answered.wait(10)
    return client


def test_a_draft_that_does_not_load_leaves_the_target(tmp_path: Path) -> None:
    settings = serving(require_draft=False, **SETTINGS)
    repository = faulty_repository(tmp_path, serving=settings)
    (repository / DRAFT / "1" / "model.py").write_text("raise ValueError('no engine')")
    with TritonServer.start(repository, settings, tmp_path / "log") as server, TritonClient(server.grpc_url) as client:
        assert server.without_draft.startswith(f"model {DRAFT} is not ready: ")
        found = client.generate(BLS, GenerateRequest("alone", 30, draft_len=4))
        assert (found.text, found.mode) == (answer("alone", 30), "target-only:no-draft-model")
    with pytest.raises(ServingError):
        TritonServer.start(repository, serving(**SETTINGS), tmp_path / "log")

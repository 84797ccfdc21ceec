"""tensorrt_llm on the reference engine: the wire, with an engine that does what it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.triton import fakepb
from tests.triton.modelfolder import EOS, arguments, load
from tests.triton.scripted import tensor
from trtspec.backends import reference
from trtspec.backends.reference import Request, Update

LAST = Update((), True, "end_id")


class Engine:
    """Hands the updates it was given to every request; keeps what it was asked."""

    def __init__(self, updates: list[Update]) -> None:
        self.config = SimpleNamespace(vocab_size=260)
        self.asked: list[Request] = []
        self.cancelled: list[str] = []
        self.here: list[bool] = []
        self.alone = False
        self.closed = False
        self._updates = updates
        self.hold = threading.Event()
        self.hold.set()
        self._threads: list[threading.Thread] = []

    def submit(self, request: Request, on_update: Callable[[Update], None], *, here: bool = False) -> Any:
        if len(request.input_ids) > 9:
            raise ValueError("the input is too long")
        self.asked.append(request)
        self.here.append(here)

        def run() -> None:
            self.hold.wait(10)
            gone = request.request_id in self.cancelled
            for update in [Update((), True, "cancelled")] if gone else self._updates:
                on_update(update)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()
        return SimpleNamespace(cancel=lambda: self.cancelled.append(request.request_id))

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        self.closed = True


@pytest.fixture
def serve(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Engine]]:
    """serve(updates) starts the model on an engine that answers with them."""

    def start(*updates: Update) -> tuple[Any, Engine]:
        engine = Engine(list(updates))
        monkeypatch.setattr(reference, "open_engine", lambda path, threads: engine)
        folder = repository / "tensorrt_llm"
        model = load(folder)["model"].TritonPythonModel()
        model.initialize(arguments(folder))
        return model, engine

    return start


def _request(name: str = "r1", sender: fakepb.Sender | None = None, **inputs: Any) -> fakepb.Request:
    given: dict[str, Any] = {"input_ids": [5, 6], "input_lengths": [2], "request_output_len": [3]} | inputs
    # Tensors with an empty reshape reach a model as [B].
    arrays = {n: v if isinstance(v, np.ndarray) else tensor(v) for n, v in given.items() if v is not None}
    shaped = {
        n: a if n in ("input_ids", "draft_input_ids") or a.ndim != 2 else a.reshape(-1) for n, a in arrays.items()
    }
    return fakepb.Request(shaped, sender or fakepb.Sender(), name)


def _answers(model: Any, request: fakepb.Request) -> list[fakepb.Tensors]:
    model.execute([request])
    model.finalize()
    assert request.sender.finals == 1
    return [response.tensors() for response in request.sender.sent]


def test_one_shot_has_everything_in_one_response(serve: Any) -> None:
    model, engine = serve(Update((7,), False), Update((8, 9), False), LAST)
    (answer,) = _answers(model, _request(end_id=EOS))
    assert list(answer) == ["output_ids", "sequence_length"]
    assert (answer["output_ids"].tolist(), answer["sequence_length"].tolist()) == ([[[5, 6, 7, 8, 9]]], [[5]])
    assert engine.asked[0].end_ids == frozenset({EOS})


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_whoever_sends_nothing_is_lost_and_the_order_holds(serve: Any, alone: bool, stream: bool) -> None:
    model, engine = serve(*(Update((token,), False) for token in range(7, 27)), LAST)
    engine.alone = alone
    answers = _answers(model, _request(streaming=stream, exclude_input_in_output=True))
    assert [token for answer in answers for token in answer["output_ids"].reshape(-1).tolist()] == list(range(7, 27))
    assert len(answers) == (21 if stream else 1)


def test_the_last_word_of_a_lone_request_goes_out_from_the_engines_thread(serve: Any) -> None:
    senders: list[str] = []

    class Sender(fakepb.Sender):
        def send(self, response: Any = None, flags: int = 0) -> None:
            senders.append(threading.current_thread().name)
            super().send(response, flags)

    for alone in (True, False):
        model, engine = serve(Update((7,), False), LAST)
        engine.alone = alone
        _answers(model, _request(sender=Sender()))
    assert senders[0] != "answers" == senders[1]


@pytest.mark.parametrize(
    ("more", "short"),
    [
        ({"draft_input_ids": [7, 8], "request_output_len": [99]}, True),
        ({"request_output_len": [4]}, True),
        ({"request_output_len": [4], "streaming": True}, False),
        ({"request_output_len": [64]}, False),
    ],
)
def test_only_calls_of_a_speculative_loop_may_take_the_workers_place(serve: Any, more: Any, short: bool) -> None:
    model, engine = serve(LAST)
    _answers(model, _request(**more))
    assert engine.here == [short]


@pytest.mark.parametrize("exclude", [True, False])
def test_the_prompt_is_part_of_the_output_unless_excluded(serve: Any, exclude: bool) -> None:
    model, _ = serve(Update((7,), True, "length"))
    (answer,) = _answers(model, _request(exclude_input_in_output=exclude))
    assert answer["output_ids"].tolist() == [[[7] if exclude else [5, 6, 7]]]


def test_streaming_sends_new_tokens_only_and_ends_with_the_last(serve: Any) -> None:
    model, _ = serve(Update((7,), False), Update((8,), False), LAST)
    request = _request(streaming=True, return_num_output_tokens=True)
    answers = _answers(model, request)
    assert [a["output_ids"].tolist() for a in answers] == [[[[7]]], [[[8]]], [[[]]]]
    assert [int(a["num_output_tokens"].flat[0]) for a in answers] == [1, 1, 0]
    assert answers[-1]["output_ids"].shape == (1, 1, 0)


def test_all_that_was_asked_for_and_nothing_else(serve: Any) -> None:
    logits = np.arange(4, dtype=np.float32).reshape(2, 2)
    update = Update(
        (7, 8), True, "length", accepted=1, drafted=3, logits=logits, log_probs=np.array([-1.0, -2.0], np.float32)
    )
    model, engine = serve(update)
    flags = ("return_log_probs", "return_generation_logits", "return_perf_metrics", "return_num_input_tokens")
    (answer,) = _answers(model, _request(**dict.fromkeys(flags, True)))
    assert engine.asked[0].return_generation_logits
    assert answer["generation_logits"].shape == (1, 1, 2, 2)
    assert answer["output_log_probs"].tolist() == [[[-1.0, -2.0]]]
    assert answer["cum_log_probs"].tolist() == [[-3.0]]
    assert answer["num_input_tokens"].tolist() == [[2]]
    assert answer["acceptance_rate"].tolist() == [[pytest.approx(1 / 3)]]
    assert (answer["total_accepted_draft_tokens"].item(), answer["total_draft_tokens"].item()) == (1, 3)
    times = [answer[f"{n}_time_ns"].item() for n in ("arrival", "first_scheduled", "first_token", "last_token")]
    assert 0 < times[0] <= times[2] <= times[3]
    assert "context_logits" not in answer


def test_a_verify_step_reaches_the_engine_whole(serve: Any) -> None:
    model, engine = serve(LAST)
    logits = np.ones((1, 2, 260), dtype=np.float32)
    _answers(
        model,
        _request(
            draft_input_ids=[8, 9],
            draft_logits=logits,
            draft_acceptance_threshold=0.5,
            stop_words_list=np.array([[[3, 4, 5], [1, 3, -1]]], dtype=np.int32),
            min_tokens=2,
        ),
    )
    (asked,) = engine.asked
    assert (asked.draft_ids, asked.acceptance_threshold, asked.min_tokens) == ((8, 9), 0.5, 2)
    assert asked.draft_logits is not None
    assert asked.draft_logits.shape == (2, 260)
    assert asked.stop_words == ((3,), (4, 5))


@pytest.mark.parametrize(
    ("inputs", "greedy", "top_p"),
    [
        ({}, True, 1.0),
        ({"temperature": 0.7}, True, 1.0),  # TensorRT-LLM: without top_k and top_p the best token
        ({"temperature": 0.7, "runtime_top_p": 1.0}, False, 1.0),
        ({"temperature": 0.7, "runtime_top_p": 0.0}, True, 1.0),
        ({"temperature": 0.7, "runtime_top_k": 5}, False, 1.0),
        ({"temperature": 0.0, "runtime_top_p": 0.5}, True, 0.5),
    ],
)
def test_sampling_defaults_are_upstreams(serve: Any, inputs: dict[str, Any], greedy: bool, top_p: float) -> None:
    model, engine = serve(LAST)
    _answers(model, _request(**inputs))
    assert (engine.asked[0].sampling.greedy, engine.asked[0].sampling.top_p) == (greedy, top_p)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": None}, "input_ids is missing"),
        ({"input_ids": list(range(4, 15)), "input_lengths": [11]}, "the input is too long"),
        ({"input_lengths": [3]}, "input_lengths is 3, but input_ids has 2"),
        ({"beam_width": 2}, "beam_width is 2; the reference engine does 1"),
        ({"lora_task_id": 1}, "the reference engine does not support lora_task_id"),
        ({"draft_logits": np.ones((1, 1, 260), np.float32)}, "draft_logits came without draft_input_ids"),
        (
            {"draft_input_ids": [8], "draft_logits": np.ones((1, 1, 99), np.float32)},
            "draft_logits is [1, 99]; the target needs [1, 260]: both engines need the same vocabulary",
        ),
    ],
)
def test_refusals_are_one_line(serve: Any, inputs: dict[str, Any], message: str) -> None:
    model, _ = serve(LAST)
    request = _request(**inputs)
    model.execute([request])
    model.finalize()
    assert [r.error().message() for r in request.sender.sent] == [f"refused: {message}"]
    assert request.sender.finals == 1


def test_an_engine_error_is_the_answer(serve: Any) -> None:
    model, _ = serve(Update((), True, "error", error="no memory\nat line 3"))
    request = _request()
    model.execute([request])
    model.finalize()
    assert [r.error().message() for r in request.sender.sent] == ["no memory"]


def test_a_stop_request_ends_the_running_one_with_its_id(serve: Any) -> None:
    model, engine = serve(LAST)
    engine.hold.clear()
    running, other, stop = _request("r1"), _request("r2"), _request("r1", stop=True)
    model.execute([running, other])
    model.execute([stop])
    engine.hold.set()
    model.finalize()
    assert engine.cancelled == ["r1"]
    # What it has got by then is its answer: the prompt alone.
    assert running.sender.sent[-1].tensors()["output_ids"].tolist() == [[[5, 6]]]
    assert (stop.sender.finals, stop.sender.sent) == (1, [])
    assert not other.sender.sent[-1].has_error()


def test_a_stop_request_needs_an_id(serve: Any) -> None:
    model, _ = serve(LAST)
    stop = _request("", stop=True)
    model.execute([stop])
    model.finalize()
    assert "needs the id" in stop.sender.sent[0].error().message()


def test_a_batch_is_answered_member_by_member(serve: Any) -> None:
    model, _ = serve(Update((7,), True, "length"))
    request = _request(
        input_ids=np.array([[5, 6], [8, 2]], dtype=np.int32),
        input_lengths=np.array([2, 1], dtype=np.int32),
        request_output_len=np.array([3, 3], dtype=np.int32),
    )
    answers = _answers(model, request)
    assert {a["batch_index"].item(): a["output_ids"][0, 0].tolist() for a in answers} == {0: [5, 6, 7], 1: [8, 7]}


def test_a_client_that_left_is_noticed(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, engine = serve(*[Update((7,), False)] * 3, LAST)
    batch = type(model)._take.__globals__["Batch"]
    monkeypatch.setitem(batch.look.__globals__, "LOOK", 0.0)
    request = _request(streaming=True, sender=fakepb.Sender(gone_after=1))
    model.execute([request])
    model.finalize()
    assert engine.cancelled

"""What happens around the loop: guard, deadline, policy, drafts lost and found, accounts. Scripted models."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.processes import eventually
from tests.triton import fakepb
from tests.triton.fakepb import Tensors
from tests.triton.modelfolder import EOS, ids_of, small_repository, started
from tests.triton.scripted import Guess, Script, perfect, tensor
from trtspec.config.serving import Guard, Serving

TRUTH = "the quick brown fox jumps over"


class Model:
    """One BLS for several requests, over scripted models."""

    def __init__(self, repository: Path, guess: Guess | None = None, hook: Callable[[str], None] | None = None) -> None:
        said = [*ids_of(TRUTH), EOS]
        preprocessing, _ = started(repository / "preprocessing")
        self.script = Script(said, guess or perfect(said), preprocessing)
        self._hook = hook or (lambda _: None)
        self.served, self.modules = started(repository / "tensorrt_llm_bls", self._handle)

    def _handle(self, model: str, request_id: str, tensors: Tensors) -> Iterator[Tensors | Exception]:
        if "stop" not in tensors:
            self._hook(model)
        yield from self.script(model, request_id, tensors)

    def begin(self, microseconds: int = 0, **inputs: Any) -> fakepb.Request:
        """Send a request."""
        given = {"text_input": "p", "max_tokens": 50, "num_draft_tokens": 4} | inputs
        tensors = {name: tensor(value) for name, value in given.items()}
        request = fakepb.Request(tensors, microseconds=microseconds)
        self.served.execute([request])
        return request

    def ask(self, **inputs: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        request = self.begin(**inputs)
        assert eventually(lambda: bool(request.sender.finals))
        return request.sender.sent[-1].tensors()

    def mode(self, **inputs: Any) -> str:
        """How it was answered."""
        mode: bytes = self.ask(**inputs)["spec_mode"].flat[0]
        return mode.decode()

    def events(self, event: str) -> list[dict[str, Any]]:
        """Log lines of that kind."""
        lines = [json.loads(line) for line in self.modules["pb"].Logger.lines]
        return [line for line in lines if line["event"] == event]

    def counted(self, name: str, **labels: str) -> float:
        """Of the metrics page, over all other labels."""
        self.served.house.metrics.flush()
        page = self.modules["pb"].MetricFamily.page
        return sum(n for (family, found), n in page.items() if family == name and set(labels.items()) <= set(found))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a guard that decides quickly, and deadlines."""
    guard = Guard(enabled=True, floor=0.5, recover=0.6, window=20, probe_every=3)
    return small_repository(tmp_path_factory.mktemp("guarded"), serving=Serving(guard=guard, request_timeout=5.0))


def test_the_guard_stops_drafts_and_probes_bring_them_back(guarded: Path) -> None:
    said, bad = [*ids_of(TRUTH), EOS], True
    model = Model(guarded, lambda position, wanted: [0] * wanted if bad else perfect(said)(position, wanted))
    assert model.mode() == "target-only:guard"  # in the middle of the first request
    assert model.mode() == "target-only:guard"
    assert model.script.count("tensorrt_llm_draft") == 20
    assert [model.mode() for _ in range(2)] == ["target-only:guard", "speculative"]  # the third is a probe
    bad = False
    modes = [model.mode() for _ in range(7)]
    assert modes == ["target-only:guard"] * 2 + ["speculative"] * 5
    assert [(e["open"], e["task"]) for e in model.events("guard")] == [(True, ""), (False, "")]
    assert model.counted("trtspec_guard_open") == 0
    assert model.counted("trtspec_fallbacks_total", reason="guard") == 5
    model.served.finalize()


def test_a_request_past_its_deadline_is_stopped_and_told(guarded: Path) -> None:
    model = Model(guarded, hook=lambda name: time.sleep(0.1) if name == "tensorrt_llm" else None)
    request = model.begin(microseconds=50_000)
    assert eventually(lambda: bool(request.sender.finals))
    error = request.sender.sent[-1].error()
    assert error is not None
    assert (error.message(), error.code()) == ("deadline exceeded after 0.05 s", "CANCELLED")
    assert model.events("request-end")[-1]["finish"] == "deadline"
    assert model.counted("trtspec_requests_total", finish="deadline") == 1
    model.served.finalize()


def test_the_servers_own_deadline_holds_where_a_request_names_none(guarded: Path) -> None:
    assert Model(guarded).served.timeout == 5.0
    request = fakepb.Request({"text_input": tensor("p"), "max_tokens": tensor(4)}, parameters_json='{"timeout": 1}')
    model = Model(guarded, hook=lambda _: time.sleep(0.1))
    model.served.execute([request])
    assert eventually(lambda: bool(request.sender.finals))
    assert "deadline exceeded after 1e-06 s" in str(request.sender.sent[-1].error().message())


def test_a_draft_call_that_never_returns_costs_only_its_patience(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    hang = {"now": False}

    def hook(model: str) -> None:
        if model == "tensorrt_llm_draft" and hang["now"]:
            assert never.wait(20)

    model = Model(repository, hook=hook)
    monkeypatch.setattr(model.modules["watch"], "GRACE", 0.05)
    model.served.draft_timeout = 0.05
    assert model.mode() == "speculative"
    hang["now"] = True
    found = model.ask(stream=True)
    assert found["spec_mode"].flat[0] == b"target-only:draft-slow"
    assert model.served.house.breaker.hanging == 1
    assert model.script.stopped == ["tensorrt_llm_draft"]
    assert model.counted("trtspec_fallbacks_total", reason="draft-slow") == 1
    hang["now"] = False
    never.set()
    assert eventually(lambda: model.served.house.breaker.hanging == 0)
    model.served.draft_timeout = 10.0  # a busy machine may need longer than the patience above
    assert model.mode() == "speculative"
    assert model.served.house.admission.in_flight == 0
    model.served.finalize()


def test_the_last_words_of_a_lost_draft_change_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the target's although the hanging call returns in the middle of it, with tokens."""
    never, hang = threading.Event(), {"now": True}

    def hook(model: str) -> None:
        if model == "tensorrt_llm_draft" and hang["now"]:
            assert never.wait(20)
        elif model == "tensorrt_llm":
            never.set()
            time.sleep(0.01)

    model = Model(repository, hook=hook)
    monkeypatch.setattr(model.modules["watch"], "GRACE", 0.05)
    model.served.draft_timeout = 0.05
    request = model.begin(stream=True)
    assert eventually(lambda: bool(request.sender.finals))
    text = b"".join(response.tensors()["text_output"][0] for response in request.sender.sent)
    assert text.decode() == TRUTH
    assert request.sender.finals == 1
    model.served.finalize()


def test_failures_in_a_row_pause_drafting_for_all(repository: Path) -> None:
    def guess(*_: int) -> list[int]:
        raise RuntimeError("out of memory")

    model = Model(repository, guess)
    assert [model.mode() for _ in range(5)] == ["target-only:draft-failed"] * 5
    assert model.script.count("tensorrt_llm_draft") == 3
    assert model.counted("trtspec_fallbacks_total", reason="draft-failed") == 5
    assert [event["open"] for event in model.events("breaker")] == [True]
    model.served.finalize()


def test_what_neither_model_takes_is_no_failure_of_the_draft(repository: Path) -> None:
    wrong = {"now": True}

    def hook(model: str) -> None:
        if wrong["now"] and model != "preprocessing":
            raise RuntimeError("no such input")

    model = Model(repository, hook=hook)
    for _ in range(model.served.house.breaker.FAILURES + 1):
        request = model.begin()
        assert eventually(lambda sender=request.sender: bool(sender.finals))  # type: ignore[misc]
        assert request.sender.sent[-1].error().message() == "no such input"
    assert model.script.count("tensorrt_llm_draft") == 0  # the hook is before it
    wrong["now"] = False
    assert model.mode() == "speculative"
    assert model.counted("trtspec_fallbacks_total", reason="draft-failed") == 0
    model.served.finalize()


def test_a_prompt_that_is_too_long_is_refused_and_not_failed(repository: Path) -> None:
    model = Model(repository)
    request = model.begin(text_input="x" * 64)
    assert eventually(lambda: bool(request.sender.finals))
    error = request.sender.sent[-1].error()
    assert error is not None
    assert error.code() == "INVALID_ARG"
    assert model.events("request-end")[-1]["finish"] == "refused"
    model.served.finalize()


@pytest.mark.parametrize("drafts", [0, 4])
def test_what_the_target_does_not_take_is_the_clients_mistake(repository: Path, drafts: int) -> None:
    def hook(model: str) -> None:
        if model != "preprocessing":
            raise RuntimeError("refused: this engine has no beams")

    model = Model(repository, hook=hook)
    request = model.begin(num_draft_tokens=drafts)
    assert eventually(lambda: bool(request.sender.finals))
    error = request.sender.sent[-1].error()
    assert error is not None
    assert (error.message(), error.code()) == ("refused: this engine has no beams", "INVALID_ARG")
    assert model.events("request-end")[-1]["finish"] == "refused"
    assert model.counted("trtspec_requests_total", finish="refused") == 1
    assert model.counted("trtspec_requests_total", finish="failed") == 0
    model.served.finalize()


def test_requests_that_leave_are_no_failures_of_the_draft(repository: Path) -> None:
    model = Model(repository, hook=lambda name: time.sleep(0.12) if name.endswith("draft") else None)
    for _ in range(4):
        request = model.begin()
        request.sender._gone_after = 0
        assert eventually(lambda request=request: bool(request.sender.finals))  # type: ignore[misc]
    assert model.served.house.breaker.refuses() == ""
    assert {event["finish"] for event in model.events("request-end")} == {"cancelled"}
    model.served.finalize()


def test_the_log_of_a_request_holds_figures_and_no_text(repository: Path) -> None:
    model = Model(repository)
    model.ask(task="code", text_input="secret")
    [event] = model.events("request-end")
    assert event["request"] == "r1"
    assert (event["mode"], event["finish"], event["tokens"], event["task"]) == ("speculative", "end_id", 30, "other")
    assert event["tested"] == event["accepted"] == event["drafted"] > 0
    assert not any("secret" in line or "fox" in line for line in model.modules["pb"].Logger.lines)
    assert model.counted("trtspec_requests_total", finish="end_id", mode="speculative") == 1
    assert model.counted("trtspec_requests_in_flight") == 0
    model.served.finalize()


def test_load_is_a_reason_of_its_own(tmp_path: Path) -> None:
    repository = small_repository(tmp_path)
    path = repository / "tensorrt_llm_bls" / "1" / "policy.json"
    model = Model(repository)
    path.write_text('{"version": 1, "default": {"draft_len": 4}, "by_concurrency": [[1, 0]]}')
    assert model.mode() == "target-only:load"
    path.write_text('{"version": 1, "default": {"draft_len": 0}')
    assert model.mode() == "target-only:load"
    path.unlink()
    assert model.mode() == "target-only:load"
    path.write_text('{"version": 1, "default": {"draft_len": 0}}')
    assert model.mode() == "target-only:policy"
    assert [event["ok"] for event in model.events("policy-reload")] == [True, False, False, True]
    model.served.finalize()


@pytest.mark.parametrize("broken", [None, "{", '{"version": 1}'])
def test_a_server_does_not_start_with_a_policy_it_cannot_read(tmp_path: Path, broken: str | None) -> None:
    repository = small_repository(tmp_path)
    path = repository / "tensorrt_llm_bls" / "1" / "policy.json"
    path.unlink() if broken is None else path.write_text(broken)
    with pytest.raises(RuntimeError, match=r"^policy.json cannot be used: .*; `trtspec repo` writes a new one$"):
        Model(repository)


def test_the_end_can_be_asked_for_and_is_told(repository: Path, tmp_path: Path) -> None:
    drain: ModuleType = Model(repository).modules["drain"]
    closed = threading.Event()

    def close() -> None:
        assert closed.wait(5)

    drain.follow(close, str(tmp_path))
    assert eventually(lambda: any(tmp_path.glob("serving.*")))
    (tmp_path / "drain").touch()
    time.sleep(2 * drain.PERIOD)
    assert not any(tmp_path.glob("drained.*"))
    closed.set()
    assert eventually(lambda: any(tmp_path.glob("drained.*")))


def test_text_is_in_the_log_where_it_may_be(tmp_path: Path) -> None:
    model = Model(small_repository(tmp_path, serving=Serving(log_prompts=True)))
    model.ask(text_input="secret")
    [event] = model.events("request-end")
    assert (event["prompt"], event["answer"]) == (["secret"], TRUTH)
    model.served.finalize()


@pytest.mark.parametrize("timeout", ['"soon"', "-1", "true", "NaN", "Infinity", "[1]"])
def test_a_timeout_that_is_none_is_refused(repository: Path, timeout: str) -> None:
    model = Model(repository)
    tensors = {"text_input": tensor("p"), "max_tokens": tensor(4)}
    request = fakepb.Request(tensors, parameters_json=f'{{"timeout": {timeout}}}')
    model.served.execute([request])
    [answer] = request.sender.sent
    assert answer.error().message() == "timeout is not a number of microseconds"  # type: ignore[union-attr]
    model.served.finalize()


def test_whatever_breaks_the_client_is_answered_and_the_place_is_free(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In reading, in the accounts, in the last words of the log."""
    model = Model(repository)

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(model.modules["answer"].Answer, "account", broken)
        assert model.mode() == "speculative"
    with monkeypatch.context() as patch:
        patch.setattr(model.served.limits.__class__, "check", broken)
        request = model.begin()
    [answer] = request.sender.sent
    assert answer.error().message() == "internal error (KeyError); see the server's log"  # type: ignore[union-attr]
    assert [event["kind"] for event in model.events("internal-error")] == ["KeyError", "KeyError"]
    assert eventually(lambda: model.served.house.admission.in_flight == 0)
    assert not any("secret" in line for line in model.modules["pb"].Logger.lines)
    model.served.finalize()

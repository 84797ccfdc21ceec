"""Load against a scripted client: who is asked what, in which order, and what happens when it goes wrong."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measurement.fake import FakeClient, prompts, validation
from trtspec.errors import ConfigError, ServingError
from trtspec.measurement.load import MeasurementInterrupted, measure, plan
from trtspec.measurement.records import MODES
from trtspec.triton.generation import GenerateRequest, Generation


def alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("load")]


def test_every_prompt_is_answered_once_in_each_mode() -> None:
    client, asked = FakeClient(), prompts(9) + prompts(5, "law")
    seen: list[tuple[int, int, str]] = []
    samples = measure(lambda: client, asked, validation(), 4, lambda *step: seen.append(step))
    assert Counter((a.prompt, a.mode) for a in samples.answers) == Counter((p, m) for p in asked for m in MODES)
    assert [a.prompt for a in samples.of("code", "speculative")] == asked[:9]
    assert [step[:2] for step in seen] == [(i + 1, 28) for i in range(28)]
    assert {label for _, _, label in seen} == {f"{d}, {m}" for d in ("code", "law") for m in MODES}


def test_requests_say_what_was_declared() -> None:
    client = FakeClient()
    measure(lambda: client, prompts(4), validation(temperature=0.7, top_p=0.9, seed=10, request_timeout=3), 5)
    for model, request in client.asked:
        assert request.draft_len == (5 if model == "tensorrt_llm_bls" else None)
        assert (request.temperature, request.timeout, request.stream, request.task) == (0.7, 3, True, None)
        assert (request.top_k, request.top_p) == (None, 0.9)
    seeds = {(r.prompt, r.seed) for _, r in client.asked}
    assert sorted(seed for _, seed in seeds) == [10, 11, 12, 13]
    assert len({r.request_id for _, r in client.asked}) == 8


def test_greedy_requests_have_no_seed_and_logits_only_where_they_verify() -> None:
    client = FakeClient()
    measure(lambda: client, prompts(2), validation(), 4, stream=False, use_draft_logits=True)
    assert {(m, r.seed, r.use_draft_logits, r.stream) for m, r in client.asked} == {
        ("ensemble", None, False, False),
        ("tensorrt_llm_bls", None, True, False),
    }


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_declared_concurrency_is_kept(concurrency: int) -> None:
    client = FakeClient(seconds=lambda model: 0.01)
    measure(lambda: client, prompts(12), validation(concurrency=concurrency), 4)
    assert client.most_running == concurrency


def test_throughput_is_that_of_the_blocks() -> None:
    """Sixteen requests of 30 or 10 ms, two in flight, take at least 240 or 80 ms."""
    client = FakeClient(seconds=lambda model: 0.03 if model == "ensemble" else 0.01)
    samples = measure(lambda: client, prompts(16), validation(concurrency=2), 4)
    wall = {mode: sum(b.wall_seconds for b in samples.blocks if b.mode == mode) for mode in MODES}
    # Sleeps never end early: the floors hold on any machine, however loaded.
    assert wall["target-only"] >= 0.24
    assert wall["speculative"] >= 0.08
    tokens = sum(a.output_tokens for a in samples.of("code", "speculative"))
    assert sum(b.output_tokens for b in samples.blocks if b.mode == "speculative") == tokens


@given(st.integers(1, 300), st.integers(0, 40), st.integers(1, 16))
def test_a_plan_asks_everything_in_pairs_of_blocks(first: int, second: int, concurrency: int) -> None:
    asked = prompts(first) + prompts(second, "law")
    jobs = plan(asked, concurrency)
    for mode in MODES:
        own = [p for j in jobs if j.mode == mode for p in j.prompts]
        assert sorted(own, key=lambda p: p.id) == sorted(asked, key=lambda p: p.id)
    for a, b in zip(jobs[::2], jobs[1::2], strict=True):
        assert (a.domain, a.index, a.prompts) == (b.domain, b.index, b.prompts)
        assert {a.mode, b.mode} == set(MODES)
    if first > 1 and not second:
        leads = Counter(job.mode for job in jobs[::2])
        assert leads["target-only"] == leads["speculative"]
    assert all(j.prompts == tuple(p for p in asked if p.domain == j.domain)[j.first :][: len(j.prompts)] for j in jobs)


def test_warm_up_is_sent_and_not_counted() -> None:
    client = FakeClient()
    samples = measure(lambda: client, prompts(8), validation(warmup=3), 4)
    assert len(client.asked) == 16 + 6
    assert len(samples.answers) == 16
    assert {r.prompt for _, r in client.asked[:6]} == {p.text for p in prompts(8)[-3:]}


def failing(*words: str, model: str = "tensorrt_llm_bls") -> FakeClient:
    def lie(asked: str, request: GenerateRequest, answer: Generation) -> Generation:
        if asked == model and any(word in request.prompt for word in words):
            raise ServingError("the model broke", where=model)
        return answer

    return FakeClient(lie=lie)


def test_a_failed_request_is_an_unusable_answer() -> None:
    samples = measure(lambda: failing("import"), prompts(10), validation(), 4)
    failed = [a for a in samples.answers if not a.usable]
    assert [(a.prompt.id, a.mode) for a in failed] == [("code-1", "speculative"), ("code-6", "speculative")]
    assert all("the model broke" in (a.fault or "") for a in failed)
    assert len(samples.pairs("code")) == 8


def test_a_server_that_answers_nothing_is_given_up() -> None:
    client = failing("", model="ensemble")
    with pytest.raises(ServingError, match="8 requests in a row failed"):
        measure(lambda: client, prompts(200), validation(), 4)
    assert len(client.asked) < 12
    assert alive() == []


def test_a_warm_up_without_any_answer_ends_it() -> None:
    with pytest.raises(ServingError, match=r"no speculative request of the warm-up.*the model broke"):
        measure(lambda: failing(""), prompts(20), validation(warmup=2), 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"histogram": np.ones((2, 3, 3), np.int32)}, "more than they drafted"),
        ({"histogram": np.ones((3, 3), np.int32)}, r"\[2, K\+1, K\+1\]"),
        ({"finish_reason": "error"}, "error"),
        ({"finish_reason": "cancelled"}, "cancelled"),
    ],
)
def test_answers_that_contradict_themselves_are_unusable(changes: dict[str, object], message: str) -> None:
    client = FakeClient(lie=lambda model, request, answer: replace(answer, **changes) if answer.mode else answer)  # type: ignore[arg-type]
    samples = measure(lambda: client, prompts(3), validation(), 4)
    faults = [a.fault or "" for a in samples.of("code", "speculative")]
    assert all(re.search(message, fault) for fault in faults)


def test_counters_that_were_not_reported_are_none() -> None:
    client = FakeClient(lie=lambda model, request, answer: replace(answer, histogram=None))
    samples = measure(lambda: client, prompts(2), validation(), 4)
    assert {(a.rounds, a.drafted, a.tested, a.accepted, a.histogram) for a in samples.answers} == {(None,) * 5}


def test_a_fault_of_our_own_is_not_hidden() -> None:
    def broken(model: str, request: GenerateRequest, answer: Generation) -> Generation:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        measure(lambda: FakeClient(lie=broken), prompts(50), validation(), 4)
    assert alive() == []


def test_ctrl_c_ends_running_requests_and_keeps_what_was_measured() -> None:
    clients: list[FakeClient] = []
    started = time.monotonic()

    def interrupt(model: str, request: GenerateRequest, answer: Generation) -> Generation:
        if sum(len(c.asked) for c in clients) > 20:
            while not clients[0].closed:  # a request that would run for ever, were it not cut off
                time.sleep(0.005)
            raise ServingError("the request was cancelled")
        return answer

    def factory() -> FakeClient:
        clients.append(FakeClient(lie=interrupt))
        return clients[-1]

    def progress(done: int, total: int, label: str) -> None:
        if done == 18:
            import _thread

            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt) as caught:
        measure(factory, prompts(40), validation(), 4, progress)
    assert isinstance(caught.value, MeasurementInterrupted)
    kept = caught.value.samples
    assert 18 <= len(kept.answers) < 80
    assert all(a.usable for a in kept.answers)
    assert alive() == []
    assert all(c.closed for c in clients)
    assert time.monotonic() - started < 10


def test_clients_are_closed_when_all_is_well() -> None:
    clients = [FakeClient(), FakeClient()]
    spare = iter(clients)
    measure(lambda: next(spare), prompts(6), validation(), 4)
    assert all(c.closed for c in clients)
    assert alive() == []


def test_no_prompts_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no prompts"):
        measure(FakeClient, [], validation(), 4)

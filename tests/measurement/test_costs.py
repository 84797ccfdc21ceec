"""Step costs, against a server whose steps take a known time."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from trtspec.analysis.prediction import StepTimes
from trtspec.errors import ServingError
from trtspec.measurement import costs as module
from trtspec.measurement.costs import (
    DRAFT,
    Wanted,
    cost_of,
    lengths,
    overhead_of,
    step_costs,
    times_of,
    token_seconds,
)
from trtspec.measurement.parts import StepCosts
from trtspec.measurement.prompts import Prompt
from trtspec.triton.generation import Array, Chunk, GenerateRequest, Generation

CALL, STEP, DRAFTED, VERIFIED, ADDED = 0.005, 0.030, 0.002, 0.001, 0.004
PROMPT = 0.5
"""What a request takes before its first round or token: it must be found in no step."""


@dataclass
class Server:
    """A client of steps of known length; no time passes."""

    fails: bool = False
    calls: list[tuple[str, int, int]] = field(default_factory=list)
    closed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tokens(self, prompt: str) -> tuple[int, ...]:
        return tuple(range(len(prompt)))

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        return (7, 8, 9)[:max_tokens]

    def timed(self, model: str, ids: tuple[int, ...], new_tokens: int, drafts: tuple[int, ...] = ()) -> float:
        if self.fails:
            raise ServingError("gone")
        with self.lock:
            self.calls.append((model, new_tokens, len(drafts)))
        if model == DRAFT:
            return CALL + DRAFTED * new_tokens
        return CALL + STEP + VERIFIED * len(drafts) if drafts else CALL + STEP * new_tokens

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        k, n = request.draft_len or 0, request.max_tokens
        first, histogram, rounds = PROMPT + STEP + CALL, None, 0
        seconds = first + (n - 1) * (STEP + CALL)
        if k:
            # Every round accepts one token of k; the last one drafts what may still be written.
            drafted = [min(k, n - at - 1) for at in range(0, n, 2)]
            took = [d * DRAFTED + STEP + VERIFIED * d + ADDED for d in drafted]
            first, seconds, rounds = PROMPT + took[0], PROMPT + sum(took), len(took)
            histogram = counted(k, drafted)
        chunks = tuple(Chunk(s, t) for s, t in ((first, 2 if k else 1), (seconds, n)))
        return Generation("x", "length", "", histogram, 0, rounds, 0, 0, 3, n, seconds, first, chunks)

    def close(self) -> None:
        self.closed += 1


def counted(k: int, drafted: list[int]) -> Array:
    found = np.zeros((2, k + 1, k + 1), np.int32)
    for d in drafted:
        found[0, d, min(1, d)] += 1
    return found


def prompts(count: int, length: int = 10) -> list[Prompt]:
    return [Prompt(str(i), "d", "x" * length, 64) for i in range(count)]


def wanted(**changes: int) -> Wanted:
    return Wanted(**({"k": 4, "ks": (1, 2, 4, 8), "longest": 512, "repeats": 3} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_a_call_costs_is_in_no_step(concurrency: int) -> None:
    made: list[Server] = []

    def client() -> Server:
        made.append(Server())
        return made[-1]

    found = step_costs(client, prompts(4), concurrency, wanted())
    assert found is not None
    assert found.draft_step is not None
    assert found.target_step is not None
    assert found.token is not None
    assert found.overhead is not None
    assert found.draft_step.seconds == pytest.approx(DRAFTED)
    assert found.target_step.seconds == pytest.approx(STEP)
    assert {k: c.seconds for k, c in found.verify.items()} == pytest.approx(
        {k: STEP + VERIFIED * k for k in (1, 2, 4, 8)}
    )
    assert found.token.seconds == pytest.approx(STEP + CALL)
    assert found.overhead.seconds == pytest.approx(ADDED)
    assert {k: c.seconds for k, c in found.overheads.items()} == pytest.approx(dict.fromkeys((1, 4, 8), ADDED))
    assert (found.concurrency, found.k, len(made)) == (concurrency, 4, concurrency)
    assert found.target_step.n == 3 * concurrency
    assert found.overhead.n == module.ANSWERS * concurrency
    assert all(server.closed == 1 for server in made)


def test_prompts_that_leave_no_room_are_left_out() -> None:
    server = Server()
    mixed = [*prompts(2, length=505), *prompts(1, length=20)]
    assert step_costs(lambda: server, mixed, 1, wanted()) is not None
    assert step_costs(lambda: server, prompts(2, length=505), 1, wanted()) is None


def test_clients_are_closed_when_a_call_fails() -> None:
    server = Server(fails=True)
    with pytest.raises(ServingError, match="gone"):
        step_costs(lambda: server, prompts(2), 2, wanted())
    assert server.closed == 2


def test_lengths_to_time() -> None:
    assert lengths(5, 10) == (1, 2, 4, 5, 8, 10)
    assert lengths(1, 1) == (1,)


def test_noise_larger_than_a_step_is_no_step() -> None:
    assert cost_of([-0.1, -0.2, 0.1]) is None
    assert cost_of([]) is None
    negative = cost_of([-0.1, -0.2, 0.1], signed=True)
    assert negative is not None
    assert negative.seconds == pytest.approx(-0.1)


def test_answers_that_say_nothing_are_left_out() -> None:
    request = GenerateRequest("x", 1, draft_len=4)
    short = Server().generate("tensorrt_llm_bls", request)
    known = StepTimes(token=1.0, draft=0.1, verify={0: 1.0, 4: 1.0}, overhead={4: 0.0})
    assert overhead_of(short, known) is None
    long = Server().generate("tensorrt_llm_bls", GenerateRequest("x", 20, draft_len=4))
    assert overhead_of(long, known) is not None
    assert overhead_of(long, replace(known, verify={0: 1.0, 2: 1.0})) is None
    assert token_seconds(Server().generate("ensemble", GenerateRequest("x", 1))) is None


def test_times_need_every_part() -> None:
    whole = step_costs(Server, prompts(1), 1, wanted())
    assert whole is not None
    found = times_of(whole)
    assert found is not None
    assert found.token == pytest.approx(STEP + CALL)
    assert found.verifying(0) == pytest.approx(STEP)
    for part in ("draft_step", "target_step", "overhead"):
        assert times_of(whole.model_copy(update={part: None})) is None
    assert times_of(whole.model_copy(update={"verify": {}})) is None
    assert times_of(StepCosts()) is None
    assert times_of(None) is None

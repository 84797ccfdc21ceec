"""What /metrics and the log of a real Triton say, held against the answers themselves; and what no error text says."""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.processes import eventually
from tests.triton.faultyllm import BLS, FAIL, Switch, answer, faulty_repository
from tests.triton.throwaway import serving
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.generation import Generation
from trtspec.triton.repository import POLICY_FILE
from trtspec.triton.server import TritonServer
from trtspec.triton.serverlog import events

pytestmark = pytest.mark.triton

POLICY = {
    "version": 1,
    "default": {"draft_len": 4},
    "tasks": {"code": {"draft_len": 4}, "chat": {"draft_len": 2}, "legal": {"draft_len": 0, "reason": "α 0.4 < 0.55"}},
}
TASKS = ("code", "chat", "legal", None, "not in the policy")
SECRET = "the patient's name is Ada"
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")


class Served:
    """A server and a client of it."""

    def __init__(self, server: TritonServer, repository: Path, client: TritonClient) -> None:
        self.server, self.repository, self.client = server, repository, client

    def ask(self, prompt: str, max_tokens: int = 30, **how: Any) -> Generation:
        return self.client.generate(BLS, GenerateRequest(prompt, max_tokens, **how))

    def totals(self, name: str, *labels: str) -> Counter[tuple[str, ...]]:
        """Sums of a family over all labels but the named ones."""
        found: Counter[tuple[str, ...]] = Counter()
        for pairs, value in self.server.metrics().get(f"trtspec_{name}", {}).items():
            found[tuple(dict(pairs)[label] for label in labels)] += round(value)
        return found

    def processes(self) -> set[str]:
        """Processes that have series."""
        return {dict(pairs)["process"] for pairs in self.server.metrics().get("trtspec_rounds_total", {})}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("observed")
    settings = serving()
    repository = faulty_repository(folder, serving=settings)
    (repository / POLICY_FILE).write_text(json.dumps(POLICY))
    with (
        TritonServer.start(repository, settings, folder / "log", through=lambda words: [*words, *EXPLICIT]) as server,
        TritonClient(server.grpc_url) as client,
    ):
        yield Served(server, repository, client)
        assert server.running
        assert "Traceback" not in server.log.read_text()


def _counted(found: Generation) -> Counter[str]:
    assert found.histogram is not None
    histogram = RoundHistogram.from_wire(found.histogram)
    return Counter(
        rounds=histogram.rounds,
        drafted_tokens=histogram.drafted,
        tested_tokens=histogram.tested,
        accepted_tokens=histogram.accepted,
        emitted_tokens=histogram.emitted,
    )


def test_the_counters_are_the_sums_of_the_answers(served: Served) -> None:
    requests = [(TASKS[i % 5], i % 4 or None, bool(i % 2)) for i in range(40)]
    names = ("rounds", "drafted_tokens", "tested_tokens", "accepted_tokens", "emitted_tokens", "output_tokens")
    before = {name: served.totals(f"{name}_total", "task") for name in names}
    timed = served.totals("round_seconds_count")[()]

    def one(request: tuple[str | None, int | None, bool]) -> Generation:
        task, k, stream = request
        return served.ask(f"{SECRET} {task} {k}", task=task, draft_len=k, stream=stream)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, requests))
    expected: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in names}
    for (task, _, _), found in zip(requests, answers, strict=True):
        label = (task if task in POLICY["tasks"] else "other" if task else "",)
        for name, count in (_counted(found) + Counter(output_tokens=found.output_tokens)).items():
            expected[name][label] += count
    assert expected["accepted_tokens"].total() > 0
    assert ("legal",) not in expected["rounds"]

    def risen() -> dict[str, Counter[tuple[str, ...]]]:
        return {name: served.totals(f"{name}_total", "task") - before[name] for name in names}

    assert eventually(lambda: risen() == expected), (risen(), expected)
    assert served.totals("round_seconds_count")[()] - timed == expected["rounds"].total()
    assert served.totals("round_seconds_bucket", "le")["+Inf",] - timed == expected["rounds"].total()
    modes = Counter(found.mode for found in answers)
    assert modes["target-only:policy"] == 8
    assert served.totals("requests_total", "mode", "finish")["target-only:policy", "length"] >= 8
    assert served.totals("policy_decisions_total", "task", "reason", "draft_len")["legal", "policy", "0"] >= 8
    assert eventually(lambda: served.totals("requests_in_flight")[()] == 0)


def test_a_request_that_lost_its_draft_is_counted(served: Served) -> None:
    def lost() -> int:
        return served.totals("fallbacks_total", "task", "reason")["chat", "draft-failed"]

    before = lost()
    with Switch(served.repository, FAIL):
        found = served.ask("x", task="chat")
    assert (found.text, found.mode) == (answer("x", 30), "target-only:draft-failed")
    assert eventually(lambda: lost() == before + 1)
    assert eventually(lambda: served.ask("well?", 12).mode == "speculative", 15.0)


def test_a_reload_begins_anew_and_leaves_no_series_behind(served: Served) -> None:
    """The old process must not take the new one's series with it, which in Triton would be a use after free."""
    served.ask("before", task="code")
    [old] = served.processes()
    os.utime(served.repository / BLS / "1" / "model.py")
    url = f"http://{served.server.http_url}/v2/repository/models/{BLS}/load"
    urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=30).read()
    assert eventually(lambda: len(served.processes()) == 1 and served.processes() != {old})
    found = served.ask("after", task="code")
    assert eventually(lambda: served.totals("rounds_total", "task")["code",] == found.rounds)


def test_the_log_tells_every_request_and_no_prompt(served: Served) -> None:
    found = served.ask(SECRET, request_id="client-7", task="chat", stop_words=("Ada",))
    [event] = [each for each in events(served.server.log, "request-end") if each["request"] == "client-7"]
    seconds = event.pop("seconds")
    assert 0 < seconds < 60
    assert event == {
        "event": "request-end",
        "request": "client-7",
        "task": "chat",
        "mode": "speculative",
        "finish": found.finish_reason,
        "prompt_tokens": found.input_tokens,
        "tokens": found.output_tokens,
        "rounds": found.rounds,
        "drafted": found.drafted,
        "tested": found.tested,
        "accepted": found.accepted,
    }
    text = served.server.log.read_text()
    assert "Ada" not in text
    assert found.text not in text

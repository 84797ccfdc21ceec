"""Mixed requests to a built pair on a real Triton, for minutes: what is wrong, lost, crashed, left over or growing?

    python scripts/soak.py configs/tiny.yaml --minutes 30 --concurrency 16 --seed 1 --out benchmarks/soak.json

Greedy answers must equal the target's own (`ensemble`), cut before the first stop word. One client in five leaves in
the middle; others send what cannot be done, or what is no request at all, and must get one clear line. The memory of
every process is taken each minute. Ends with 1 if anything is wrong. Numbers hold for the machine and load of the run.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import random
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtspec.config import RunConfig, load_config
from trtspec.errors import ServingError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.prompts import load_all
from trtspec.triton.client import SPECULATIVE, TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.triton.server import TritonServer
from trtspec.triton.stubs import running_models

STOPS = (("return",), ("\n\n", "zzz"), ("self", "def"))
DRAFT_LENGTHS = (0, 1, 2, 4, 8)
KINDS = {"greedy": 50, "stop words": 10, "sampled": 10, "leaves": 20, "impossible": 5, "no request": 5}
"""Requests of each kind in a hundred."""
NO_REQUESTS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 0},
    {"max_tokens": -3},
    {"num_draft_tokens": -1},
    {"text_input": None},
    {"temperature": "warm"},
    {"beam_width": 3, "num_draft_tokens": 4},
    {"stop_words": ["x" * 100_000]},
)
"""Changes to a good request that make it a bad one."""
GROWTH = 1.05
"""Most that a process may hold in the last third of a run, over the third before it: room for noise, not for a leak."""
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Tally:
    """What happened, counted under a lock."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, fault: str | None = None) -> None:
        """One request of this kind; `fault` if it went wrong."""
        with self.lock:
            self.counts[kind] += 1
            if fault is not None:
                self.faults.append(f"{kind}: {fault}")


@dataclass(frozen=True)
class Soak:
    """One client's view: the server, the known answers and the dice."""

    client: TritonClient
    answers: dict[tuple[str, int], str]
    tally: Tally
    longest: int
    http_url: str

    def one(self, number: int, seed: int) -> None:
        """Request `number`; its kind follows from the seed alone."""
        dice = random.Random(f"{seed}/{number}")
        prompt, max_tokens = dice.choice(list(self.answers))
        kind = dice.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        request: dict[str, Any] = {"draft_len": dice.choice(DRAFT_LENGTHS), "stream": dice.random() < 0.5}
        try:
            fault = getattr(self, f"_{kind.replace(' ', '_')}")(prompt, max_tokens, request, dice)
        except Exception as error:  # whatever it is, it is a request without its answer
            fault = f"{type(error).__name__}: {error}"
        self.tally.add(kind, fault)

    def _greedy(self, prompt: str, max_tokens: int, request: dict[str, Any], _: random.Random) -> str | None:
        got = self.client.generate(SPECULATIVE, GenerateRequest(prompt, max_tokens, **request))
        same = got.text == self.answers[prompt, max_tokens]
        if request["draft_len"] and got.mode != "speculative":
            return f"mode {got.mode}"
        return None if same else f"{request}: another text"

    def _stop_words(self, prompt: str, max_tokens: int, request: dict[str, Any], dice: random.Random) -> str | None:
        words = dice.choice(STOPS)
        got = self.client.generate(SPECULATIVE, GenerateRequest(prompt, max_tokens, stop_words=words, **request))
        whole = self.answers[prompt, max_tokens]
        ends = [(whole.find(w) + len(w), whole.find(w)) for w in words if w in whole]
        return None if got.text == (whole[: min(ends)[1]] if ends else whole) else f"{request} {words}: another text"

    def _sampled(self, prompt: str, max_tokens: int, request: dict[str, Any], dice: random.Random) -> str | None:
        ask = GenerateRequest(
            prompt, max_tokens, temperature=0.8, top_p=0.95, seed=3, use_draft_logits=dice.random() < 0.5, **request
        )
        got = self.client.generate(SPECULATIVE, ask)
        return None if 0 < got.output_tokens <= max_tokens else f"{got.output_tokens} tokens"

    def _leaves(self, prompt: str, max_tokens: int, request: dict[str, Any], dice: random.Random) -> str | None:
        ask = GenerateRequest(prompt, max_tokens, **(request | {"stream": True}))
        patience = dice.randrange(1, 4)
        with self.client.open(SPECULATIVE, ask) as exchange:
            for seen, _ in enumerate(exchange, 1):
                if seen >= patience:
                    break
        return None

    def _impossible(self, prompt: str, max_tokens: int, request: dict[str, Any], _: random.Random) -> str | None:
        try:
            self.client.generate(SPECULATIVE, GenerateRequest(prompt * 1000, max_tokens, **request))
        except ServingError as error:
            return None if f"takes at most {self.longest}" in str(error) else f"unclear: {error}"
        return "was answered"

    def _no_request(self, prompt: str, max_tokens: int, _: dict[str, Any], dice: random.Random) -> str | None:
        asked = {"text_input": prompt, "max_tokens": max_tokens, "stream": False} | dice.choice(NO_REQUESTS)
        status, body = _post(self.http_url, {name: value for name, value in asked.items() if value is not None})
        lines = str(body.get("error", "")).splitlines()
        return None if status >= 400 and len(lines) == 1 else f"{status} {body} for {sorted(asked)}"


def _post(http_url: str, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and body of one request to Triton's generate endpoint."""
    data = json.dumps(document).encode()
    request = urllib.request.Request(f"http://{http_url}/v2/models/{SPECULATIVE}/generate", data)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


Answers = dict[tuple[str, int], str]
"""{(prompt, max_tokens): the target's own greedy answer}"""


def known_answers(client: TritonClient, config: RunConfig, prompts: int, dice: random.Random) -> Answers:
    """Ask the target alone about prompts of the configuration's files."""
    chat = ChatTemplate.read(config.repository_dir / "preprocessing" / "1" / "tokenizer")
    texts = [prompt.text for prompt in load_all(config.validation, chat)]
    chosen = dice.sample(texts, min(prompts, len(texts)))
    asked = [(text, dice.choice((1, 8, 24, 48))) for text in chosen]
    return {(t, n): client.generate(TARGET_ONLY, GenerateRequest(t, n)).text for t, n in asked}


def memory(server_pid: int) -> dict[str, int]:
    """Private kilobytes of the server and of each model's process, and what lies in shared memory."""
    found = {"tritonserver": _private(server_pid)}
    for file in Path(f"/proc/{server_pid}/task").glob("*/children"):
        for pid in file.read_text().split():
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            found[Path(arguments[1]).parts[-3]] = _private(int(pid))
    shared = sum((SHARED_MEMORY / name).stat().st_blocks for name in regions())
    return found | {"shared": shared // 2}


def _private(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


def regions() -> set[str]:
    """Shared-memory regions of this process's server; their names hold our process id."""
    return {p.name for p in SHARED_MEMORY.iterdir() if re.match(rf"trtspec-[0-9a-f]+-{os.getpid()}-", p.name)}


def run(config: RunConfig, given: argparse.Namespace) -> dict[str, Any]:
    """Start the server, send everything, stop it; the result as a document."""
    tally = Tally()
    # Short: Triton 2.51 never unloads a model whose client left just as its last response went out.
    private = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "stop_timeout": 8.0}
    serving = config.serving.model_copy(update=private)
    environment = {"OMP_NUM_THREADS": "1"}
    with TritonServer.start(config.repository_dir, serving, given.log, environment=environment) as server:
        stubs = running_models(server.pid)
        with TritonClient(server.grpc_url) as client:
            answers = known_answers(client, config, 24, random.Random(given.seed))
            soak = Soak(client, answers, tally, config.engine.max_input_len, server.http_url)
            began = time.monotonic()
            kilobytes = send(soak, server, given)
            seconds = time.monotonic() - began
        crashed = sorted((stubs - running_models(server.pid)).elements())
        dead = [] if server.running else ["tritonserver"]
    return {
        "command": _command(given),
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} x {platform.machine()}, Python {platform.python_version()}",
        "requests": sum(tally.counts.values()),
        "concurrency": given.concurrency,
        "seed": given.seed,
        "seconds": round(seconds, 1),
        "kinds": dict(tally.counts),
        "faults": tally.faults[:20],
        "fault_count": len(tally.faults),
        "crashed": dead + crashed,
        "leftover_regions": sorted(regions()),
        "growth": growth(kilobytes),
        "growing": sorted(name for name, ratio in growth(kilobytes).items() if ratio > GROWTH),
        "memory_kb": kilobytes,
    }


def send(soak: Soak, server: TritonServer, given: argparse.Namespace) -> list[dict[str, int]]:
    """Send requests until the time is up or all are sent; memory at the start and at each look."""
    numbers = itertools.count() if given.requests is None else iter(range(given.requests))
    end = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    lock = threading.Lock()

    def client() -> None:
        while time.monotonic() < end:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            soak.one(number, given.seed)

    kilobytes = [memory(server.pid)]
    with ThreadPoolExecutor(given.concurrency) as pool:
        running = [pool.submit(client) for _ in range(given.concurrency)]
        while not all(future.done() for future in running):
            wait(running, timeout=given.look)
            kilobytes.append(memory(server.pid))
            counts, faults = sum(soak.tally.counts.values()), len(soak.tally.faults)
            print(f"{counts} requests, {faults} faults, {kilobytes[-1]}", file=sys.stderr, flush=True)
    return kilobytes


def growth(kilobytes: list[dict[str, int]]) -> dict[str, float]:
    """Mean of the last third of the looks ÷ that of the third before, by process; empty for a short run."""
    third = len(kilobytes) // 3
    if third < 2:
        return {}

    def mean(name: str, looks: list[dict[str, int]]) -> float:
        return sum(look.get(name, 0) for look in looks) / len(looks)

    last, before = kilobytes[-third:], kilobytes[-2 * third : -third]
    return {name: round(mean(name, last) / max(1.0, mean(name, before)), 4) for name in sorted(kilobytes[0])}


def _command(given: argparse.Namespace) -> str:
    """How to send the same requests again; where results lie is nobody else's business."""
    length = f"--minutes {given.minutes:g}" if given.minutes else f"--requests {given.requests}"
    return f"scripts/soak {length} --concurrency {given.concurrency} --seed {given.seed} --look {given.look:g}"


def main() -> int:
    """Parse, run, print; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--minutes", type=float, help="send for so long")
    parser.add_argument("--requests", type=int, help="send so many (default 400 unless --minutes is given)")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--look", type=float, default=60.0, help="seconds between two looks at the memory")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--log", type=Path, default=Path("soak-triton.log"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    given = parser.parse_args()
    if given.minutes is None and given.requests is None:
        given.requests = 400
    result = run(load_config(given.config, given.overrides), given)
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    return 1 if any(result[what] for what in ("fault_count", "crashed", "leftover_regions", "growing")) else 0


if __name__ == "__main__":
    sys.exit(main())

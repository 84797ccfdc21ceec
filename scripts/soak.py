"""Many mixed requests to a built pair on a real Triton: wrong texts, lost requests, crashes and leftovers are counted.

    python scripts/soak.py configs/tiny.yaml --requests 600 --concurrency 8 --seed 1 --out soak.json

Greedy answers must equal the target's own (`ensemble`), cut before the first stop word. Some clients leave in the
middle, some ask for the impossible. Ends with 1 if anything is wrong. Numbers hold for the machine and load of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
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

    def one(self, number: int, seed: int) -> None:
        """Request `number`; its kind follows from the seed alone."""
        dice = random.Random(f"{seed}/{number}")
        prompt, max_tokens = dice.choice(list(self.answers))
        kind = dice.choices(("greedy", "stop words", "sampled", "leaves", "impossible"), (60, 10, 10, 15, 5))[0]
        request: dict[str, Any] = {"draft_len": dice.choice(DRAFT_LENGTHS), "stream": dice.random() < 0.5}
        try:
            fault = getattr(self, f"_{kind.replace(' ', '_')}")(prompt, max_tokens, request, dice)
        except ServingError as error:
            fault = str(error)
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


def run(config: RunConfig, requests: int, concurrency: int, seed: int, log: Path) -> dict[str, Any]:
    """Start the server, send everything, stop it; the result as a document."""
    tally = Tally()
    # Short: Triton 2.51 never unloads a model whose client left just as its last response went out.
    private = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "stop_timeout": 8.0}
    serving = config.serving.model_copy(update=private)
    with TritonServer.start(config.repository_dir, serving, log, environment={"OMP_NUM_THREADS": "1"}) as server:
        stubs = running_models(server.pid)
        with TritonClient(server.grpc_url) as client:
            answers = known_answers(client, config, 24, random.Random(seed))
            soak = Soak(client, answers, tally, config.engine.max_input_len)
            kilobytes = [memory(server.pid)]
            began = time.monotonic()
            with ThreadPoolExecutor(concurrency) as pool:
                for part in range(4):
                    numbers = range(part * requests // 4, (part + 1) * requests // 4)
                    list(pool.map(lambda n: soak.one(n, seed), numbers))
                    kilobytes.append(memory(server.pid))
            seconds = time.monotonic() - began
        crashed = sorted((stubs - running_models(server.pid)).elements())
        dead = [] if server.running else ["tritonserver"]
    return {
        "requests": requests,
        "concurrency": concurrency,
        "seed": seed,
        "seconds": round(seconds, 1),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "kinds": dict(tally.counts),
        "faults": tally.faults[:20],
        "fault_count": len(tally.faults),
        "crashed": dead + crashed,
        "memory_kb": kilobytes,
        "leftover_regions": sorted(regions()),
    }


def main() -> int:
    """Parse, run, print; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--log", type=Path, default=Path("soak-triton.log"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    given = parser.parse_args()
    result = run(load_config(given.config, given.overrides), given.requests, given.concurrency, given.seed, given.log)
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    return 1 if result["fault_count"] or result["crashed"] or result["leftover_regions"] else 0


if __name__ == "__main__":
    sys.exit(main())

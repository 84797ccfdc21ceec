"""Is what a served pair draws at temperature 1 distributed as the target's own answers? Through a real Triton.

    python -m benchmarks.distribution --samples 10000 --out benchmarks/distribution.json

The pair is that of letterpair.py, whose answers can all be counted: the joint distribution of the first three tokens
(the end token is one) against the exact one from the target's logits, by chi-square. For K = 2 and 4, each with token
and logits acceptance, and for the target alone. Each sample has a seed of its own, so a run repeats. As a control, the
same counts are held against the distribution at a slightly different temperature: that must fail.
Ends with 1 if a test fails at p < 0.001 or a control passes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.letterpair import END, LETTERS, ids_of, write_letter_pair
from trtspec.measurement.distribution import ChiSquare, chi_square, joint, probabilities
from trtspec.triton.client import SPECULATIVE, TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.workflows.build import build
from trtspec.workflows.serve import serving

PROMPT = "bead"
FIRST = 3
"""Tokens whose joint distribution is tested."""
LIMIT = 0.001
CONTROL_TEMPERATURE = 1.15
Path3 = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One way of answering; K = 0 is the target alone."""

    k: int
    acceptance: str = "tokens"

    @property
    def name(self) -> str:
        """As it stands in the result."""
        return f"K={self.k}, {self.acceptance} acceptance" if self.k else "target alone"


CASES = (Case(0), Case(2), Case(4), Case(2, "logits"), Case(4, "logits"))


@dataclass
class Drawn:
    """Counted answers of one case."""

    counts: Counter[Path3]
    accepted: int = 0
    tested: int = 0


@contextmanager
def letter_server(*overrides: str) -> Iterator[TritonClient]:
    """A client of the letter pair on a server of its own; `overrides` change its configuration."""
    with tempfile.TemporaryDirectory() as folder:
        config = write_letter_pair(Path(folder) / "letters", *overrides)
        build(config)
        with serving(config, _silent) as server, TritonClient(server.grpc_url) as client:
            yield client


def exact(client: TritonClient, temperature: float = 1.0) -> dict[Path3, float]:
    """The joint distribution of the first tokens after the prompt, from the target's own logits."""
    prompt = client.tokens(PROMPT)
    return joint(lambda path: probabilities(client.next_logits((*prompt, *path)), temperature), {END}, tokens=FIRST)


def draw(client: TritonClient, case: Case, seeds: Iterable[int], concurrency: int) -> Drawn:
    """One answer per seed. An answer is as long as one full round, so that it can be made in one or in many."""
    drawn, length = Drawn(Counter()), max(FIRST, case.k + 1)

    def one(seed: int) -> Any:
        request = GenerateRequest(
            PROMPT,
            length,
            draft_len=case.k,
            temperature=1.0,
            top_p=1.0,
            seed=seed,
            use_draft_logits=case.acceptance == "logits",
        )
        return client.generate(SPECULATIVE if case.k else TARGET_ONLY, request)

    with ThreadPoolExecutor(concurrency) as pool:
        for answer in pool.map(one, seeds):
            if case.k and answer.mode != "speculative":
                raise SystemExit(f"{case.name}: the server answered {answer.mode}")
            drawn.counts[ids_of(answer.text, ended=len(answer.text) < length)[:FIRST]] += 1
            drawn.accepted += answer.accepted
            drawn.tested += answer.tested
    return drawn


def run(samples: int, seed: int, concurrency: int) -> dict[str, Any]:
    """All cases; the result as a document."""
    with letter_server() as client:
        truth, control = exact(client), exact(client, CONTROL_TEMPERATURE)
        rows = []
        for number, case in enumerate(CASES):
            first = seed + number * samples
            drawn = draw(client, case, range(first, first + samples), concurrency)
            row = _row(case, drawn, truth, control, samples) | {"seeds": [first, first + samples - 1]}
            print(json.dumps(row), file=sys.stderr, flush=True)
            rows.append(row)
    return {
        "command": f"python -m benchmarks.distribution --samples {samples} --seed {seed} --concurrency {concurrency}",
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {version('torch')}",
        "prompt": PROMPT,
        "vocabulary": 1 + len(LETTERS),
        "first_tokens": FIRST,
        "control_temperature": CONTROL_TEMPERATURE,
        "cases": rows,
    }


def _row(case: Case, drawn: Drawn, truth: Any, control: Any, samples: int) -> dict[str, Any]:
    found, other = chi_square(drawn.counts, truth, samples), chi_square(drawn.counts, control, samples)
    return {
        "case": case.name,
        "samples": samples,
        **_numbers(found),
        "alpha": round(drawn.accepted / drawn.tested, 4) if drawn.tested else None,
        "control_p": other.p,
        "passed": found.p >= LIMIT and other.p < LIMIT,
    }


def _numbers(test: ChiSquare) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(test).items()}


def _silent(_: str) -> None:
    """The server's start needs no line here."""


def main() -> int:
    """Parse, run, print; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000, help="answers of each case")
    parser.add_argument("--seed", type=int, default=1, help="the first sample's seed")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = run(given.samples, given.seed, given.concurrency)
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    return 0 if all(row["passed"] for row in result["cases"]) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Does a served pair write what the target alone writes? Every prompt, every K, streamed or not, alone and in a crowd.

    python -m benchmarks.exactness configs/tiny.yaml --out benchmarks/exactness.json

Greedy answers of `tensorrt_llm_bls` against those of `ensemble`, through a real Triton: in float32 they must be equal;
in bfloat16 a difference is diagnosed and only a near-tie of the two best logits is forgiven (and counted).
Builds pairs of its own beside the configuration's. Ends with 1 if a text is wrong or a request was lost.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trtspec.config import RunConfig, load_config
from trtspec.errors import ServingError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.exactness import diagnose
from trtspec.measurement.prompts import Prompt, load_all
from trtspec.triton.client import SPECULATIVE, TARGET_ONLY, GenerateRequest, TritonClient
from trtspec.workflows.build import build
from trtspec.workflows.serve import serving

CROWD = 16


@dataclass(frozen=True)
class Case:
    """One way of asking."""

    k: int
    stream: bool
    concurrency: int

    @property
    def name(self) -> str:
        """As it stands in the result."""
        return f"K={self.k}, {'streamed' if self.stream else 'one response'}, {self.concurrency} at once"


def run(config: RunConfig, tokens: int, most: int, count: int) -> dict[str, Any]:
    """All cases on one server; the result as a document. `count` prompts, 0 for all."""
    build(config)
    prompts = load_all(
        config.validation, ChatTemplate.read(config.repository_dir / "preprocessing" / "1" / "tokenizer")
    )[: count or None]
    with serving(config, _tell) as server, TritonClient(server.grpc_url, timeout=300.0) as client:
        with ThreadPoolExecutor(CROWD) as pool:
            asked = [GenerateRequest(prompt.text, tokens) for prompt in prompts]
            texts = [answer.text for answer in pool.map(lambda a: client.generate(TARGET_ONLY, a), asked)]
        rows = []
        for k, stream, concurrency in itertools.product(range(1, most + 1), (False, True), (1, CROWD)):
            case = Case(k, stream, concurrency)
            rows.append(_compare(client, case, prompts, texts, tokens, config.gates.near_tie))
            _tell(json.dumps(rows[-1]))
    return {"compute_dtype": config.engine.compute_dtype, "prompts": len(prompts), "tokens": tokens, "cases": rows}


def _compare(
    client: TritonClient, case: Case, prompts: list[Prompt], texts: list[str], tokens: int, near_tie: float
) -> dict[str, Any]:
    found: Counter[str] = Counter()

    def one(place: int) -> str:
        request = GenerateRequest(prompts[place].text, tokens, draft_len=case.k, stream=case.stream)
        try:
            answer = client.generate(SPECULATIVE, request)
        except ServingError as error:
            _tell(f"{case.name}: {error}")
            return "lost"
        if answer.mode != "speculative":
            return f"mode {answer.mode}"
        if answer.text == texts[place]:
            return "equal"
        return diagnose(client, prompts[place], texts[place], answer.text, near_tie).kind

    began = time.monotonic()
    with ThreadPoolExecutor(case.concurrency) as pool:
        found.update(pool.map(one, range(len(prompts))))
    return {"case": case.name, "seconds": round(time.monotonic() - began, 1), **found}


def _wrong(document: dict[str, Any]) -> int:
    forgiven = {"case", "seconds", "equal", *(["near-tie"] if document["compute_dtype"] != "float32" else [])}
    return sum(n for row in document["cases"] for kind, n in row.items() if kind not in forgiven)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Parse, run, print; 1 if a text was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--tokens", type=int, default=32, help="longest answer")
    parser.add_argument("--draft-len", type=int, default=8, help="largest K")
    parser.add_argument("--count", type=int, default=0, help="only this many prompts")
    parser.add_argument("--dtype", action="append", choices=("float32", "bfloat16"), help="default: both")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    documents = []
    with tempfile.TemporaryDirectory() as folder:
        for dtype in given.dtype or ("float32", "bfloat16"):
            own = [f"output.{name}={folder}/{name}" for name in ("engines", "model_repo", "reports")]
            # The policy must let every K through.
            own += [
                f"name=exactness-{dtype}",
                f"engine.compute_dtype={dtype}",
                f"speculation.draft_len={given.draft_len}",
            ]
            documents.append(run(load_config(given.config, own), given.tokens, given.draft_len, given.count))
    result = {
        "command": "python -m benchmarks.exactness " + " ".join(sys.argv[1:]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {version('torch')}",
        "wrong": sum(map(_wrong, documents)),
        "runs": documents,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

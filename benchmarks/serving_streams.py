"""Throughput through Triton: speculation against the target alone, and eight requests at once against one.

Everything alternates in one run, on the tiny pair and with the widened target. Answers have a fixed length (end tokens
are ignored). For eight at once the draft length is the policy's: each of the candidates is measured first, the best one
goes into policy.json as `by_concurrency`, and only then is it compared with the target alone.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import serving_pair as served
from benchmarks.common import arguments, print_table, spread, workspace
from trtspec.config import RunConfig
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.repository import POLICY_FILE

STREAMS = 8
FLOORS = {"tiny": ("-", "2.5", "-"), "widened": ("1.3", "1.8", "0.97")}
"""One stream against the target alone; eight against one; eight with the policy's draft length against the target."""
CANDIDATES = (0, 1, 2, 4)
GAIN = 1.05


class Rates:
    """Tokens per second by what was measured, one figure per repetition."""

    def __init__(self, client: TritonClient, texts: Sequence[str], tokens: int) -> None:
        self._client, self._texts, self._tokens = client, texts, tokens
        self._found: dict[str, list[float]] = {}
        self.tested: Counter[str] = Counter()

    def add(self, name: str, model: str, draft_len: int | None, streams: int) -> float:
        """Measure once more; a single stream answers half of the prompts."""
        texts = self._texts if streams > 1 else self._texts[: len(self._texts) // 2]
        requests = [GenerateRequest(text, self._tokens, draft_len=draft_len, ignore_eos=True) for text in texts]
        load = served.load(self._client, model, requests, streams)
        self._found.setdefault(name, []).append(load.rate)
        self.tested[name + " tested"] += sum(answer.tested for answer in load.answers)
        self.tested[name + " accepted"] += sum(answer.accepted for answer in load.answers)
        return load.rate

    def ratio(self, name: str, base: str) -> str:
        """Median and range of the ratios of the repetitions."""
        return spread([a / b for a, b in zip(self._found[name], self._found[base], strict=True)])

    def rate(self, name: str) -> str:
        """Median."""
        return f"{statistics.median(self._found[name]):.0f}"

    def alpha(self, name: str) -> str:
        """accepted ÷ tested."""
        tested = self.tested[name + " tested"]
        return f"{self.tested[name + ' accepted'] / tested:.2f}" if tested else "-"


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(count=16, repeat=3, tokens=64)
    parser.add_argument("--draft-len", type=int, default=4)
    parser.add_argument("--only", choices=("tiny", "widened"))
    parser.add_argument("--pipeline", choices=("bls", "fused"), default="bls")
    args = parser.parse_args()
    texts = served.prompts(args.prompts, args.pair[0], args.count)
    rows = []
    for name in ("tiny", "widened"):
        if args.only in (None, name):
            with workspace() as folder:
                layout = [f"serving.pipeline={args.pipeline}"]
                config = served.build(folder, padded=name == "widened", overrides=layout)
                rows += measured(name, config, texts, args.tokens, args.draft_len, args.repeat)
    header = ["target", "what", "tokens / s", "baseline", "tokens / s", "ratio", "floor", "α"]
    title = f"Through Triton, pipeline {args.pipeline}, {len(texts)} prompts x {args.tokens} tokens"
    print_table(title, header, rows)


def measured(
    name: str, config: RunConfig, texts: Sequence[str], tokens: int, draft_len: int, repeat: int
) -> list[list[str]]:
    """The rows of one target."""
    repository = served.write(config, {"version": 1, "default": {"draft_len": draft_len}})
    with served.serve(config) as server, TritonClient(server.grpc_url) as client:
        rates = Rates(client, texts, tokens)
        served.load(client, served.ALONE, [GenerateRequest(texts[0], tokens)], 1)
        served.load(client, served.BLS, [GenerateRequest(text, tokens) for text in texts], STREAMS)
        best = best_draft_len(Rates(client, texts, tokens), draft_len)
        policy = {
            "version": 1,
            "default": {"draft_len": draft_len},
            "by_concurrency": [[1, draft_len], [STREAMS, best]],
        }
        set_policy(repository, policy)
        cases = [("alone", served.ALONE, None, 1), ("pair", served.BLS, draft_len, 1),
                 ("pair, many", served.BLS, draft_len, STREAMS), ("alone, many", served.ALONE, None, STREAMS),
                 ("policy, many", served.BLS, None, STREAMS)]  # fmt: skip
        for _ in range(repeat):
            for what, model, k, streams in cases:
                # What is asked for explicitly is not to meet the policy for many.
                set_policy(repository, policy if k is None else policy | {"by_concurrency": []})
                rates.add(what, model, k, streams)
            cases.reverse()
    return rows_of(name, rates, draft_len, best)


def best_draft_len(rates: Rates, draft_len: int) -> int:
    """The candidate with the highest throughput of eight at once; drafts must gain more than repetitions differ."""
    candidates = [k for k in CANDIDATES if k <= draft_len]
    found = {k: max(rates.add(str(k), served.BLS, k, STREAMS) for _ in range(2)) for k in candidates}
    best = max(found, key=lambda k: found[k])
    return best if found[best] > GAIN * found[0] else 0


def set_policy(repository: Path, policy: dict[str, object]) -> None:
    """The server reads it again by itself."""
    path = repository / POLICY_FILE
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(policy))
    beside.replace(path)


def rows_of(name: str, rates: Rates, draft_len: int, best: int) -> list[list[str]]:
    """What is compared with what."""
    one, many, policy_floor = FLOORS[name]
    k, policy = f"K = {draft_len}", f"policy's K = {best}"
    streams, alone = f"{STREAMS} streams", "target alone"
    compared = (
        (f"1 stream, {k}", "pair", f"1 stream, {alone}", "alone", one),
        (f"{streams}, {k}", "pair, many", f"1 stream, {k}", "pair", many),
        (f"{streams}, {k}", "pair, many", f"{streams}, {alone}", "alone, many", "-"),
        (f"{streams}, {policy}", "policy, many", f"{streams}, {alone}", "alone, many", policy_floor),
    )
    return [
        [name, what, rates.rate(ours), against, rates.rate(base), rates.ratio(ours, base), floor, rates.alpha(ours)]
        for what, ours, against, base, floor in compared
    ]


if __name__ == "__main__":
    main()

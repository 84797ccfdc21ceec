"""Speculation inside one process on a memory-bound target, against its own plain decoding; greedy, one stream.

The target is the tiny one with every FFN widened to about 300M parameters in all: the same function at a real cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.common import (
    Clock,
    arguments,
    build_engine,
    measure,
    print_table,
    prompt_ids,
    spread,
    total,
    workspace,
)
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.backends.reference import Request, Result, open_engine, open_pair
from trtspec.backends.reference.engine import ReferenceEngine
from trtspec.backends.reference.speculation import SpeculativePair
from trtspec.backends.reference.worker import Worker

FLOOR = 1.4


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(repeat=1, tokens=48, count=24)
    parser.add_argument("--draft-len", type=int, nargs="+", default=[4], help="values of K")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ids = prompt_ids(args.prompts, args.pair[0], args.count)
    requests = [Request(f"p{i}", one, args.tokens) for i, one in enumerate(ids)]
    rows = []
    with workspace() as folder:
        target = build_engine(args.pair[0], "target", folder / "target", "bfloat16", padded=True)
        draft = build_engine(args.pair[1], "draft", folder / "draft", "bfloat16")
        with open_engine(target, threads=1) as plain:
            for k in args.draft_len:
                with open_pair(target, draft, draft_len=k, threads=1) as pair:
                    rows.append(compare(k, plain, pair, requests, args.repeat))
    title = f"Speculation on the widened target, {len(ids)} prompts x {args.tokens} tokens, {args.repeat} repetition(s)"
    speeds = ["plain, tokens / CPU s", "speculative, tokens / CPU s", "ratio (CPU)", "ratio (wall)"]
    print_table(title, ["K", *speeds, "α", "tokens / round", "same tokens"], rows)
    print(f"\nFloor at K = 4: {FLOOR}. Same tokens: answers equal to plain decoding.")


def compare(
    k: int, plain: ReferenceEngine, pair: SpeculativePair, requests: Sequence[Request], repeat: int
) -> list[str]:
    """One K: plain and speculative alternate prompt by prompt."""
    for engine in (plain, pair):
        engine.generate(requests[0])
    a: list[Clock] = []
    b: list[Clock] = []
    histogram, equal = RoundHistogram.empty(k), 0
    for _ in range(repeat):
        plain.forget()
        pair.forget()
        results: list[tuple[Result, Result]] = []
        clocks: list[tuple[Clock, Clock]] = []
        for request in requests:
            one: list[Result] = []
            clocks.append((measure(partial(run, plain, request, one)), measure(partial(run, pair, request, one))))
            results.append((one[0], one[1]))
        a.append(total([clock for clock, _ in clocks]))
        b.append(total([clock for _, clock in clocks]))
        equal += sum(x.ids == y.ids for x, y in results)
        for _, y in results:
            histogram += RoundHistogram.from_wire(y.histogram if y.histogram is not None else [])
    return [
        str(k),
        spread([c.cpu_rate for c in a]),
        spread([c.cpu_rate for c in b]),
        spread([y.cpu_rate / x.cpu_rate for x, y in zip(a, b, strict=True)]),
        spread([y.wall_rate / x.wall_rate for x, y in zip(a, b, strict=True)]),
        f"{histogram.alpha() or 0:.2f}",
        f"{histogram.acceptance_length() or 0:.2f}",
        f"{equal}/{len(requests) * repeat}",
    ]


def run(engine: Worker[Any], request: Request, results: list[Result]) -> int:
    """Generate, keep the result, return its tokens."""
    results.append(engine.generate(request))
    return len(results[-1].ids)


if __name__ == "__main__":
    main()

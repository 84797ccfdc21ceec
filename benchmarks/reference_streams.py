"""Eight concurrent streams against one: the throughput that batching gains, plain and speculative.

The same requests run one after the other and with eight in flight, alternately, with one torch thread. Answers are
long (192 tokens, end tokens ignored), so that it is decoding that is compared: prompts cost the same either way.
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
    run_all,
    spread,
    workspace,
)
from trtspec.backends.reference import Request, open_engine, open_pair
from trtspec.backends.reference.worker import Worker

STREAMS = 8


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(count=16, repeat=5, tokens=192)
    parser.add_argument("--draft-len", type=int, default=4)
    parser.add_argument("--wide-repeat", type=int, default=1, help="repetitions on the widened target")
    args = parser.parse_args()
    torch.set_num_threads(1)
    requests = [
        Request(f"p{i}", ids, args.tokens) for i, ids in enumerate(prompt_ids(args.prompts, args.pair[0], args.count))
    ]
    rows = []
    cases = (("tiny", False, args.repeat, ("2.5", "2.5")), ("widened", True, args.wide_repeat, ("-", "1.8")))
    with workspace() as folder:
        draft = build_engine(args.pair[1], "draft", folder / "draft", "bfloat16")
        for name, padded, repeat, floors in cases:
            target = build_engine(args.pair[0], "target", folder / name, "bfloat16", padded)
            with open_engine(target, threads=1) as plain:
                rows.append([f"{name}, plain", *compare(plain, requests, repeat), floors[0]])
            with open_pair(target, draft, draft_len=args.draft_len, threads=1) as pair:
                rows.append([f"{name}, K = {args.draft_len}", *compare(pair, requests, repeat), floors[1]])
    speeds = ["1 stream, tokens / CPU s", f"{STREAMS} streams, tokens / CPU s", "ratio (CPU)", "ratio (wall)"]
    title = f"{STREAMS} streams against one, {len(requests)} prompts x {args.tokens} tokens"
    print_table(title, ["target", *speeds, "floor"], rows)


def compare(engine: Worker[Any], requests: Sequence[Request], repeat: int) -> list[str]:
    """Rates one by one and with eight in flight, and their ratio."""
    run_all(engine, requests[:2])
    one: list[Clock] = []
    many: list[Clock] = []
    for _ in range(repeat):
        for clocks, size in ((one, 1), (many, STREAMS)):
            engine.forget()
            clocks.append(measure(partial(in_flight, engine, requests, size)))
    return [
        spread([c.cpu_rate for c in one]),
        spread([c.cpu_rate for c in many]),
        spread([b.cpu_rate / a.cpu_rate for a, b in zip(one, many, strict=True)]),
        spread([b.wall_rate / a.wall_rate for a, b in zip(one, many, strict=True)]),
    ]


def in_flight(engine: Worker[Any], requests: Sequence[Request], size: int) -> int:
    """Run all requests with `size` of them in flight until the last ones are left."""
    if size == 1:
        return sum(run_all(engine, [request]) for request in requests)
    return run_all(engine, requests)  # the engine is built for STREAMS sequences and admits no more at once


if __name__ == "__main__":
    main()

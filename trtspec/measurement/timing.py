"""Speed: throughput of blocks and windows, percentiles of what users wait for, and goodput under limits.

Time per token is taken from counts of tokens. The time between chunks of a stream is not a time per token: a round of
speculation sends several at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trtspec.measurement.parts import CurvePoint, Goodput, Percentiles, Slo
from trtspec.measurement.records import Answer, Block, Mode
from trtspec.measurement.result import BlockRow, Performance
from trtspec.measurement.sweep import Window


def performance(answers: Sequence[Answer], blocks: Sequence[Block], mode: Mode, slo: Slo) -> Performance | None:
    """Of the usable answers of one mode, and of all blocks of that mode. None where there is nothing."""
    own = [b for b in blocks if b.mode == mode]
    usable = [a for a in answers if a.usable]
    if not usable or not own:
        return None
    tokens, wall = sum(b.output_tokens for b in own), sum(b.wall_seconds for b in own)
    requests = sum(b.requests for b in own)
    return Performance(
        requests=requests,
        output_tokens=tokens,
        wall_seconds=wall,
        tokens_per_second=tokens / wall if wall > 0 else None,
        requests_per_second=requests / wall if wall > 0 else None,
        latency=percentiles(a.seconds for a in usable),
        first_token=percentiles(a.first_token_seconds for a in usable),
        per_token=percentiles(a.per_token_seconds for a in usable),
        inter_chunk=percentiles(gap for a in usable for gap in a.gaps),
        goodput=_goodput(answers, [0.0] * len(answers), wall, slo),
        blocks=tuple(
            BlockRow(
                domain=b.domain,
                index=b.index,
                wall_seconds=b.wall_seconds,
                requests=b.requests,
                output_tokens=b.output_tokens,
            )
            for b in own
        ),
    )


def curve_point(window: Window, slo: Slo) -> CurvePoint:
    """One point of the curve of throughput against latency."""
    usable = [t for t in window.requests if t.answer.usable]
    return CurvePoint(
        mode=window.mode,
        concurrency=window.load.concurrency,
        arrival_rate=window.load.rate,
        requests=len(window.requests),
        failed=len(window.requests) - len(usable),
        output_tokens=round(window.output_tokens),
        wall_seconds=window.seconds,
        tokens_per_second=window.output_tokens / window.seconds,
        requests_per_second=window.finished / window.seconds,
        first_token=percentiles(
            None if (first := t.answer.first_token_seconds) is None else t.waited + first for t in usable
        ),
        per_token=percentiles(t.answer.per_token_seconds for t in usable),
        latency=percentiles(t.waited + t.answer.seconds for t in usable),
        in_flight=window.busy / window.seconds,
        goodput=_goodput([t.answer for t in window.requests], [t.waited for t in window.requests], window.seconds, slo),
    )


def _goodput(answers: Sequence[Answer], waited: Sequence[float], wall: float, slo: Slo) -> Goodput | None:
    """None without any limit: then every answer is good."""
    if slo == Slo():
        return None
    good = sum(_keeps(a, w, slo) for a, w in zip(answers, waited, strict=True))
    return Goodput(slo=slo, good=good, requests=len(answers), requests_per_second=good / wall if wall > 0 else None)


def _keeps(answer: Answer, waited: float, slo: Slo) -> bool:
    """Whether an answer keeps every limit. What it does not have (a second chunk), it cannot break."""
    first = None if answer.first_token_seconds is None else waited + answer.first_token_seconds
    limits = (
        (slo.first_token, first),
        (slo.per_token, answer.per_token_seconds),
        (slo.latency, waited + answer.seconds),
    )
    return answer.usable and all(limit is None or found is None or found <= limit for limit, found in limits)


def percentiles(seconds: Iterable[float | None]) -> Percentiles | None:
    """Over what was measured; None where nothing was."""
    known = [s for s in seconds if s is not None]
    if not known:
        return None
    p50, p90, p99 = (float(x) for x in np.percentile(known, [50, 90, 99]))
    return Percentiles(p50=p50, p90=p90, p99=p99)

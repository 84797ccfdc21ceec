"""A result with every part filled, and one whose every text is hostile."""

from __future__ import annotations

from typing import Any

from tests.release.made import result
from trtspec.measurement.result import (
    Cost,
    CounterCheck,
    CounterRow,
    CurvePoint,
    DatasetRow,
    DomainResult,
    MemoryRow,
    Percentiles,
    ProblemRow,
    ResultDocument,
    StepCosts,
    Unusable,
)

HOSTILE = (
    "</title></style></script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    "\"'`onmouseover=alert(1) {{7*7}} ]]> --> &amp; \x00\x1b[31m\u202e @everyone #12 http://evil.example/?a=1&b=2 "
    "**bold** [link](javascript:alert(1)) | cell\nnew line ![i](http://evil.example/p.png) $x$ \ud83d\ude00".encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16")
)


def point(mode: Any, load: float, tokens: float, p50: float, *, opened: bool = False) -> CurvePoint:
    spread = Percentiles(p50=p50, p90=1.5 * p50, p99=2 * p50)
    return CurvePoint(
        mode=mode,
        concurrency=None if opened else int(load),
        arrival_rate=load if opened else None,
        requests=60,
        failed=0,
        output_tokens=6000,
        wall_seconds=60.0,
        tokens_per_second=tokens,
        requests_per_second=tokens / 100,
        first_token=spread,
        per_token=spread,
        latency=spread,
        in_flight=load,
        goodput=None,
    )


def full(**how: Any) -> ResultDocument:
    """Two domains that keep drafts and one that does not, with a sweep, costs, counters and memory."""
    settings: dict[str, Any] = {"differences": (("near-tie", 0.02), ("near-tie", 0.05))} | how
    made = result({"code": 0.75, "a-domain-with-a-rather-long-name-that-must-wrap": 0.72, "law": 0.35}, **settings)
    loads = (1, 2, 4, 8)
    closed = [point("target-only", n, 100 * n / (1 + 0.1 * n), 1 + 0.1 * n) for n in loads]
    closed += [point("speculative", n, 160 * n / (1 + 0.2 * n), 0.6 + 0.12 * n) for n in loads]
    opened = [
        point(mode, 0.5 * n, 60 * n, 1.1 * n, opened=True) for mode in ("target-only", "speculative") for n in loads
    ]
    rows = (CounterRow(name="trtspec_accepted_tokens_total", server=120, answers=120),)
    files = (DatasetRow(domain="code", file="code.jsonl", sha256="ab" * 32, prompts=60, available=200, duplicates=1),)
    changes: dict[str, Any] = {
        "curve": (*closed, *opened),
        "costs": StepCosts(
            draft_step=Cost(seconds=0.002, n=40),
            target_step=Cost(seconds=0.012, n=40),
            verify={4: Cost(seconds=0.014, n=40)},
            overhead=Cost(seconds=0.002, n=40),
            concurrency=4,
        ),
        "counters": CounterCheck(outcome="agree", reason="both scrapes agree with the answers", rows=rows),
        "memory": MemoryRow(device="gpu GPU-1", total_bytes=80 << 30, used_bytes=60 << 30),
        "datasets": files,
    }
    return made.model_copy(update=changes)


def hostile() -> ResultDocument:
    """Every text that a user or a model can choose, chosen by someone who means harm."""
    made = full()
    first, *rest = made.domains
    assert first.exactness is not None
    differences = tuple(
        d.model_copy(update=dict.fromkeys(("prompt", "before", "target_only", "speculative", "reason"), HOSTILE))
        for d in first.exactness.differences
    )
    evil = first.model_copy(
        update={
            "domain": HOSTILE,
            "exactness": first.exactness.model_copy(update={"differences": differences}),
            "unusable": (Unusable(prompt=HOSTILE, mode="speculative", reason=HOSTILE),),
        }
    )
    domains: tuple[DomainResult, ...] = (evil, *rest)
    problem = ProblemRow(code=HOSTILE, domain=HOSTILE, message=HOSTILE, count=1)
    changes: dict[str, Any] = {
        "pair": HOSTILE,
        "domains": domains,
        "problems": (problem,),
        "release_valid": False,
        "environment": {HOSTILE: HOSTILE},
        "datasets": tuple(d.model_copy(update={"domain": HOSTILE, "file": HOSTILE}) for d in made.datasets),
        "conditions": made.conditions.model_copy(update={"gpu": HOSTILE, "backend": HOSTILE}),
    }
    return made.model_copy(update=changes)

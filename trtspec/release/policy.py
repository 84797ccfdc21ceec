"""The serving policy: which domain drafts how many tokens (`tensorrt_llm_bls/1/policy.json`).

`{"version": 1, "default": {"draft_len": K}, "tasks": {domain: {"draft_len", "reason"}}, "by_concurrency": [[n, K]]}`.
A task's entry replaces the default; a domain that keeps speculation at the default needs none. `by_concurrency` ends
speculation from the load on from which every load that was measured lost by it. `trtspec policy` writes one from
several K (release/policies).
"""

from __future__ import annotations

import json
from pathlib import Path

from trtspec.errors import EvidenceError
from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import Judgement
from trtspec.release.policies.study import curve_gains
from trtspec.store import write_atomic


def policy_document(result: ResultDocument, judgement: Judgement) -> dict[str, object]:
    """The policy that follows from a passed judgement; EvidenceError for any other: nothing else may be served."""
    if judgement.verdict != "pass":
        raise EvidenceError("a policy follows from a passed validation", found=judgement.verdict)
    steps = [[load, 0] for load in losing(result)[:1]]
    tasks = {domain: {"draft_len": 0, "reason": reason} for domain, reason in judgement.switched_off.items()}
    return {"version": 1, "default": {"draft_len": result.conditions.k}, "tasks": tasks, "by_concurrency": steps}


def losing(result: ResultDocument) -> list[int]:
    """The loads, from the smallest of them on, at which speculation lost wherever it was measured.

    At the declared load only where the whole interval lies below 1; the windows of a curve have none.
    """
    gains: dict[int, float] = dict(curve_gains(result))
    declared = result.overall.speedup
    if declared is not None:
        gains[result.conditions.concurrency] = declared.point if declared.high is None else declared.high
    found: list[int] = []
    for load in sorted(gains, reverse=True):
        if gains[load] >= 1.0:
            break
        found.insert(0, load)
    return found


def write_policy(path: Path, result: ResultDocument, judgement: Judgement) -> None:
    """Write the policy file whole; a server that runs reads it at its next request."""
    text = json.dumps(policy_document(result, judgement), indent=1, ensure_ascii=False)
    write_atomic(path, text + "\n")

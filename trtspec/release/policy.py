"""The serving policy: which domain drafts how many tokens (`tensorrt_llm_bls/1/policy.json`).

`{"version": 1, "default": {"draft_len": K}, "tasks": {domain: {"draft_len", "reason"}}, "by_concurrency": []}`.
A task's entry replaces the default; a domain that keeps speculation at the default needs none.
"""

from __future__ import annotations

import json
from pathlib import Path

from trtspec.errors import EvidenceError
from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import Judgement
from trtspec.store import write_atomic


def policy_document(result: ResultDocument, judgement: Judgement) -> dict[str, object]:
    """The policy that follows from a passed judgement; EvidenceError for any other: nothing else may be served."""
    if judgement.verdict != "pass":
        raise EvidenceError("a policy follows from a passed validation", found=judgement.verdict)
    tasks = {domain: {"draft_len": 0, "reason": reason} for domain, reason in judgement.switched_off.items()}
    return {"version": 1, "default": {"draft_len": result.conditions.k}, "tasks": tasks, "by_concurrency": []}


def write_policy(path: Path, result: ResultDocument, judgement: Judgement) -> None:
    """Write the policy file whole; a server that runs reads it at its next request."""
    text = json.dumps(policy_document(result, judgement), indent=1, ensure_ascii=False)
    write_atomic(path, text + "\n")

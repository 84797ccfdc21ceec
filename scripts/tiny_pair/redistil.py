"""Distil the tiny draft once more from the shipped target, and compare it with the shipped draft.

    python -m scripts.tiny_pair.redistil --out redistilled

In steps instead of minutes, so that the machine's speed does not matter; more of them than the shipped draft
had, and a last stage on the target's own texts alone. Nothing that is shipped is changed. Ends with 1 when a
domain's alpha is more than 0.02 below the shipped draft's. Run it again with the same folder to go on after
a kill.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from trtspec.store import write_atomic

from .measure import BAR_DRAFT_LENGTH, Row, measure
from .train import run_stage

STEPS = {"draft-base": 880, "draft": 640, "polish": 300}
TOLERANCE = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pair", type=Path, default=Path("configs/tiny"))
    parser.add_argument("--work", type=Path, default=Path("tiny-pair-work"))
    parser.add_argument("--out", type=Path, required=True, help="folder for the draft and result.json")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="faster after a minute; needs gcc")
    parser.add_argument("--limit", type=int, default=None, help="prompts per domain; default all")
    options = parser.parse_args()
    for stage, steps in STEPS.items():
        settings = {"stage": stage, "steps": steps, "minutes": 0.0}
        run_stage(argparse.Namespace(**(vars(options) | settings)))
    again = _measured(options, options.out / "draft")
    shipped = _measured(options, options.pair / "draft")
    write_atomic(
        options.out / "result.json",
        json.dumps({"again": [asdict(r) for r in again], "shipped": [asdict(r) for r in shipped]}, indent=2) + "\n",
    )
    return 1 if report(again, shipped) else 0


def report(again: list[Row], shipped: list[Row]) -> list[str]:
    """Print both side by side; returns the domains that fell short."""
    short = []
    for one, other in zip(again, shipped, strict=True):
        gap = one.alpha - other.alpha
        print(f"{one.domain}: alpha {one.alpha:.3f} again, {other.alpha:.3f} shipped, difference {gap:+.3f}")
        if gap < -TOLERANCE:
            short.append(one.domain)
    return short


def _measured(options: argparse.Namespace, draft: Path) -> list[Row]:
    print(f"measuring {draft}", flush=True)
    lengths = {"draft": draft, "draft_lengths": [BAR_DRAFT_LENGTH], "show": 0}
    return measure(argparse.Namespace(**(vars(options) | lengths)))


if __name__ == "__main__":
    raise SystemExit(main())

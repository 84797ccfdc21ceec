"""How often intervals and verdicts are right, by simulation of measurements whose truth is known.

`scripts/statistics` runs it and writes benchmarks/statistics.json; tests/release/test_statistics.py runs a short form.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from benchmarks.simulated import Counts, Population, document
from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.analysis.sequential import Looks, side
from trtspec.config.gates import Gates
from trtspec.measurement.result import LooksRow, ResultDocument
from trtspec.release.gates import judge
from trtspec.release.stopping import FEWEST, open_rules
from trtspec.store import write_atomic

OUT = Path(__file__).with_suffix(".json")
BLOCKS = 6
"""Pairs of blocks in which 100 prompts of a domain are asked at the default concurrency; after each there is a look."""
Method = Callable[[Sequence[float], Sequence[float], int], Interval | None]


def ours(num: Sequence[float], den: Sequence[float], seed: int) -> Interval | None:
    """What trtspec reports."""
    del seed
    return ratio_interval(num, den)


def percentiles(num: Sequence[float], den: Sequence[float], seed: int) -> Interval | None:
    """The plain bootstrap over prompts (Efron 1979), for comparison."""
    above, below = np.asarray(num, np.float64), np.asarray(den, np.float64)
    n = len(above)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), 1000)
    low, high = np.quantile(times @ above / (times @ below), [0.025, 0.975])
    return Interval(float(low), float(high), float(above.sum() / below.sum()), n)


def independent(num: Sequence[float], den: Sequence[float], seed: int) -> Interval | None:
    """Every tested token as a trial of its own, for comparison: rounds of a prompt are not independent."""
    del seed
    tested = float(np.sum(den))
    p = float(np.sum(num)) / tested
    half = 1.96 * float(np.sqrt(p * (1 - p) / tested))
    return Interval(p - half, p + half, p, len(num))


def coverage(
    population: Population, prompts: int, runs: int, seed: int, method: Method = ours, *, of: str = "alpha"
) -> float:
    """Share of simulated runs whose 95 % interval holds the truth."""
    rng = np.random.default_rng(seed)
    found = population.counts(rng, *population.prompts(rng, (runs, prompts)))
    parts = (found.accepted, found.tested) if of == "alpha" else (found.emitted, found.rounds)
    truth, hits = population.truth(of), 0
    for run in range(runs):
        if of == "alpha":
            interval = method(parts[0][run], parts[1][run], run)
        else:
            interval = ratio_interval(parts[0][run], parts[1][run], bounds=(0.0, population.k + 1.0))
        hits += interval is not None and interval.low <= truth <= interval.high
    return hits / runs


def speed_coverage(blocks: int, runs: int, seed: int, noise: float = 0.05) -> float:
    """The same for a speed-up of 1.5 over blocks whose times differ by `noise` in the logarithm."""
    rng = np.random.default_rng(seed)
    tokens = rng.uniform(800, 1600, (runs, blocks))
    plain = tokens * 0.015 * np.exp(rng.normal(0, noise, tokens.shape))
    spec = tokens * 0.010 * np.exp(rng.normal(0, noise, tokens.shape))
    found = [ratio_interval(a, b, bounds=None) for a, b in zip(plain, spec, strict=True)]
    return sum(i is not None and i.low <= 1.5 <= i.high for i in found) / runs


@dataclass(frozen=True)
class Scenario:
    """Pairs measured twice: the baseline in full, then with stopping. `fell`: the drop of α in each domain."""

    fell: tuple[float, ...]
    alpha: float = 0.75
    prompts: int = 100
    same_prompts: bool = True


def verdicts(scenario: Scenario, runs: int, seed: int, gates: Gates | None = None) -> tuple[Counter[str], float]:
    """(verdicts, mean share of the budget that was measured): the real judge, the real rule for stopping."""
    rng, gates = np.random.default_rng(seed), gates or Gates()
    before = Population(scenario.alpha)
    worse = {drop: before.worse_by(drop) if drop else before for drop in set(scenario.fell)}
    sides: dict[str, tuple[Counts, Counts]] = {}
    for i, drop in enumerate(scenario.fell):
        asked = before.prompts(rng, (runs, scenario.prompts))
        others = asked if scenario.same_prompts else before.prompts(rng, (runs, scenario.prompts))
        sides[f"d{i}"] = before.counts(rng, *asked), worse[drop].counts(rng, *others)
    found: Counter[str] = Counter()
    measured = 0.0
    for run in range(runs):
        baseline = document({name: then.run(run) for name, (then, _) in sides.items()})
        verdict, share = _stopped({name: now.run(run) for name, (_, now) in sides.items()}, gates, baseline,
                                  rename=not scenario.same_prompts)  # fmt: skip
        found[verdict] += 1
        measured += share / runs
    return found, measured


def _stopped(
    domains: dict[str, Counts], gates: Gates, baseline: ResultDocument | None, *, rename: bool = False
) -> tuple[str, float]:
    """One measurement that stops as soon as the gates are decided."""
    prompts = len(next(iter(domains.values())).tested)
    edges = [prompts * i // BLOCKS for i in range(1, BLOCKS + 1)]
    for i, edge in enumerate(edges):
        looks = LooksRow(budget=prompts * len(domains), at=tuple(e * len(domains) for e in edges[: i + 1]))
        last = edge == prompts
        part = {
            name: Counts(*(c[:edge] for c in (n.accepted, n.tested, n.rounds, n.emitted)))
            for name, n in domains.items()
        }
        result = document(part, looks, "all" if last else "decided", salt="again" if rename else "")
        if edge < FEWEST and not last:
            continue
        judgement = judge(result, gates, baseline, allow_different=("datasets",) if baseline else ())
        if last or not open_rules(judgement, gates):
            return judgement.verdict, edge / prompts
    raise AssertionError("a measurement ends")


def false_passes(runs: int, seed: int, *, naive: bool, prompts: int = 100) -> float:
    """Share of runs that release a pair whose α is exactly the floor; naive: 95 % looked at after every block."""
    population, rng = Population(0.65), np.random.default_rng(seed)
    floor = population.truth()
    found = population.counts(rng, *population.prompts(rng, (runs, prompts)))
    edges = [prompts * i // BLOCKS for i in range(1, BLOCKS + 1)]
    passed = 0
    for run in range(runs):
        for i, edge in enumerate(edges):
            if edge < FEWEST:
                continue
            level = 0.95 if naive else Looks(prompts, tuple(edges[: i + 1])).level()
            one = found.run(run, edge)
            interval = ratio_interval(one.accepted, one.tested, level=level)  # type: ignore[arg-type]
            where = side(interval, floor) if interval else "between"
            if where != "between":
                passed += where == "above"
                break
    return passed / runs


COVERED = [(alpha, spread) for spread in (3.0, 8.0, 30.0) for alpha in (0.3, 0.55, 0.65, 0.75, 0.9)]
SIZES = (20, 50, 100, 400)
SCENARIOS = {
    "unchanged": Scenario((0.0,)),
    "drop of 0.05": Scenario((0.05,)),
    "unchanged, α 0.85": Scenario((0.0,), 0.85),
    "drop of 0.05, α 0.85": Scenario((0.05,), 0.85),
    "three domains, unchanged": Scenario((0.0, 0.0, 0.0)),
    "three domains, all drop by 0.05": Scenario((0.05, 0.05, 0.05)),
    "three domains, one drops by 0.05": Scenario((0.05, 0.0, 0.0)),
    "40 prompts, unchanged": Scenario((0.0,), prompts=40),
    "40 prompts, drop of 0.05": Scenario((0.05,), prompts=40),
    "other prompts, unchanged": Scenario((0.0,), same_prompts=False),
    "other prompts, drop of 0.05": Scenario((0.05,), same_prompts=False),
}


def simulate(runs: int, seed: int, say: Callable[[str], None] = print) -> dict[str, object]:
    """Everything, as the document that is written."""
    began = time.monotonic()
    alpha = []
    for a, spread in COVERED:
        row = {str(n): coverage(Population(a, spread), n, runs, seed + n) for n in SIZES}
        alpha.append({"alpha": a, "spread": spread, "covered": row})
        say(f"α {a} spread {spread}: {row}")
    hard = Population(0.75, 8.0)
    compared = {
        name: {str(n): coverage(hard, n, runs, seed + n, method) for n in (6, 10, 20, 100)}
        for name, method in (("ours", ours), ("percentile bootstrap", percentiles), ("independent tokens", independent))
    }
    say(f"methods: {compared}")
    length = {str(n): coverage(hard, n, runs, seed + n, of="length") for n in SIZES}
    speed = {str(n): speed_coverage(n, runs, seed + n) for n in (4, 8, 16)}
    looking = {
        "spent over looks": false_passes(runs, seed, naive=False),
        "95 % at each": false_passes(runs, seed, naive=True),
    }
    say(f"length {length}, speed {speed}, looking {looking}")
    judged = []
    for name, scenario in SCENARIOS.items():
        found, share = verdicts(scenario, runs, seed)
        row = {verdict: found[verdict] / runs for verdict in ("pass", "fail", "undecided", "invalid")}
        judged.append({"scenario": name, "prompts": scenario.prompts, "verdicts": row, "measured": round(share, 3)})
        say(f"{name}: {row}, {share:.0%} of the budget measured")
    return {
        "command": f"scripts/statistics --runs {runs} --seed {seed}",
        "seed": seed,
        "runs": runs,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "seconds": round(time.monotonic() - began),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}",
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "alpha": alpha,
        "methods": compared,
        "length": length,
        "speed": speed,
        "release_at_the_floor": looking,
        "judged": judged,
    }


def table(found: dict[str, Any]) -> str:
    """The tables of docs/gates.md."""
    lines = [f"| α | spread | {' | '.join(f'{n} prompts' for n in SIZES)} |", "|---|---|" + "---|" * len(SIZES)]
    for row in found["alpha"]:
        covered = " | ".join(_per_cent(row["covered"][str(n)]) for n in SIZES)
        lines.append(f"| {row['alpha']:g} | {row['spread']:g} | {covered} |")
    lines += ["", "| method, α 0.75, spread 8 | 6 | 10 | 20 | 100 prompts |", "|---|---|---|---|---|"]
    for name, covered in found["methods"].items():
        lines.append(f"| {name} | {' | '.join(map(_per_cent, covered.values()))} |")
    lines += ["", "| scenario | pass | fail | undecided | measured |", "|---|---|---|---|---|"]
    for row in found["judged"]:
        shares = " | ".join(_per_cent(row["verdicts"][v]) for v in ("pass", "fail", "undecided"))
        lines.append(f"| {row['scenario']} | {shares} | {row['measured']:.0%} |")
    return "\n".join(lines) + "\n"


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true", help="print the tables of the committed file; simulate nothing")
    asked = parser.parse_args()
    if asked.table:
        print(table(json.loads(asked.out.read_bytes())), end="")
        return
    found = simulate(asked.runs, asked.seed, lambda line: print(line, flush=True))
    write_atomic(asked.out, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

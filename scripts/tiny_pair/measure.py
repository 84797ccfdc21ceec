"""Measure the shipped pair on its held-out prompts: acceptance, tokens per round, repetition.

    python -m scripts.tiny_pair.measure                  the bar: K = 4, exit 1 below it
    python -m scripts.tiny_pair.measure --draft-lengths 1 4 8

alpha is accepted / tested: in each round the drafted tokens are tested from the left up to and
including the first rejection. Intervals are a bootstrap over prompts.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from .corpus import DOMAINS
from .decode import Counts, speculate
from .export import load_model
from .tokenizer import chat_prompt

MAIN_DOMAINS = ("api-reference",)
ALPHA_BAR = 0.70
DEGENERATE_LIMIT = 0.10
BAR_DRAFT_LENGTH = 4
RESAMPLES = 4000
LONGEST_LOOP = 12


@dataclass(frozen=True)
class Row:
    """One domain at one draft length."""

    domain: str
    draft_length: int
    prompts: int
    alpha: float
    low: float
    high: float
    tokens_per_round: float
    output_tokens: float
    degenerate: float
    distinct_4grams: float


def prompt_ids(tokenizer: Tokenizer, line: str) -> tuple[list[int], int]:
    entry = json.loads(line)
    if "messages" in entry:
        text = chat_prompt(entry["messages"][0]["content"])
        return tokenizer.encode(text, add_special_tokens=False).ids, entry["max_tokens"]
    return tokenizer.encode(entry["prompt"]).ids, entry["max_tokens"]


def is_degenerate(output: list[int]) -> bool:
    """Whether the last half of an answer is a short sequence said three times or more."""
    tail = output[len(output) // 2 :]
    for period in range(1, LONGEST_LOOP + 1):
        if len(tail) >= max(3 * period, 12) and tail[period:] == tail[:-period]:
            return True
    return False


def distinct_4grams(output: list[int]) -> float:
    grams = [tuple(output[i : i + 4]) for i in range(len(output) - 3)]
    return len(set(grams)) / len(grams) if grams else 1.0


def alpha_interval(counts: list[Counts], seed: int = 0) -> tuple[float, float]:
    """95% percentile bootstrap; prompts are the units, for tokens of one answer hang together."""
    accepted = np.array([c.accepted for c in counts])
    tested = np.array([c.tested for c in counts])
    picks = np.random.default_rng(seed).integers(len(counts), size=(RESAMPLES, len(counts)))
    ratios = accepted[picks].sum(axis=1) / tested[picks].sum(axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def summarise(domain: str, draft_length: int, counts: list[Counts]) -> Row:
    outputs = [c.output for c in counts]
    tokens = sum(map(len, outputs))
    low, high = alpha_interval(counts)
    return Row(
        domain=domain,
        draft_length=draft_length,
        prompts=len(counts),
        alpha=sum(c.accepted for c in counts) / sum(c.tested for c in counts),
        low=low,
        high=high,
        tokens_per_round=tokens / sum(c.rounds for c in counts),
        output_tokens=tokens / len(counts),
        degenerate=sum(map(is_degenerate, outputs)) / len(counts),
        distinct_4grams=sum(map(distinct_4grams, outputs)) / len(counts),
    )


def table_line(row: Row) -> str:
    cells = [row.domain, str(row.draft_length), str(row.prompts), f"{row.alpha:.3f}"]
    cells += [f"{row.low:.3f}-{row.high:.3f}", f"{row.tokens_per_round:.2f}"]
    cells += [f"{row.output_tokens:.0f}", f"{row.degenerate:.1%}", f"{row.distinct_4grams:.2f}"]
    return "| " + " | ".join(cells) + " |"


def failures(rows: list[Row]) -> list[str]:
    found = []
    for row in rows:
        if row.domain not in MAIN_DOMAINS:
            continue
        if row.draft_length == BAR_DRAFT_LENGTH and row.alpha < ALPHA_BAR:
            found.append(f"{row.domain}: alpha {row.alpha:.3f} is below {ALPHA_BAR:.2f}")
        if row.degenerate > DEGENERATE_LIMIT:
            found.append(f"{row.domain}: {row.degenerate:.1%} of the answers degenerate")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", type=Path, default=Path("configs/tiny"))
    parser.add_argument("--draft", type=Path, default=None, help="another draft of the same shape; default the pair's")
    parser.add_argument("--draft-lengths", type=int, nargs="+", default=[BAR_DRAFT_LENGTH])
    parser.add_argument("--limit", type=int, default=None, help="prompts per domain; default all")
    parser.add_argument("--show", type=int, default=0, help="print so many answers per domain")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)  # steps this small gain nothing from a second thread
    started = time.monotonic()
    rows = measure(options)
    print(f"{time.monotonic() - started:.0f} s")
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2) + "\n")
    for failure in failures(rows):
        print("below the bar:", failure)
    return 1 if failures(rows) else 0


def measure(options: argparse.Namespace) -> list[Row]:
    """Every domain at every draft length; prints a line for each."""
    target = load_model(options.pair / "target", "target")
    draft = load_model(options.draft or options.pair / "draft", "draft")
    tokenizer = Tokenizer.from_file(str(options.pair / "target" / "tokenizer.json"))
    rows = []
    print("| domain | K | prompts | alpha | 95% | tokens/round | tokens | degenerate | distinct |")
    print("|---|---|---|---|---|---|---|---|---|")
    for draft_length in options.draft_lengths:
        for domain in DOMAINS:
            path = options.pair / "prompts" / f"{domain}.jsonl"
            lines = path.read_text(encoding="utf-8").splitlines()[: options.limit]
            asked = [prompt_ids(tokenizer, line) for line in lines]
            counts = [speculate(target, draft, ids, most, draft_length) for ids, most in asked]
            rows.append(summarise(domain, draft_length, counts))
            print(table_line(rows[-1]), flush=True)
            for (ids, _), count in list(zip(asked, counts, strict=True))[: options.show]:
                print(tokenizer.decode(ids), "--->", tokenizer.decode(count.output), sep="\n")
    return rows


if __name__ == "__main__":
    raise SystemExit(main())

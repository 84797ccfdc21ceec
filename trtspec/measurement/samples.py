"""A few prompts for a first number where the user gave none: general ones, and token ids for models without words."""

from __future__ import annotations

import random

SAMPLES: tuple[str, ...] = (
    "Explain in three sentences why the sky looks blue.",
    "Write a Python function that returns the median of a list of numbers.",
    "Summarize the plot of a story about a lighthouse keeper who finds a message in a bottle.",
    "What is the difference between a virus and a bacterium?",
    "List five things to check before a long drive in winter.",
    "Translate into French: The library closes at six on weekdays.",
    "Write a polite email that asks a supplier for a new delivery date.",
    "A train leaves at 9:40 and arrives at 13:05. How long does the journey take?",
    "Give a short recipe for tomato soup with its ingredients first.",
    "Complete this SQL query: SELECT customer_id, COUNT(*) FROM orders",
    "Describe how a bill becomes a law in a parliamentary democracy.",
    "Write a JSON object that describes a book with its title, author and year.",
    "What should a beginner know before investing in bonds?",
    "Rewrite more formally: we can't ship this week, sorry about that.",
    "Tell me about the causes of the First World War.",
    "Write a haiku about a quiet harbour.",
)
"""English, one task each: questions, code, rewriting, arithmetic, lists. They say little about a special domain."""


def random_ids(count: int, length: int, vocab_size: int, seed: int = 0) -> list[tuple[int, ...]]:
    """`count` seeded sequences of `length` token ids: enough to compare two implementations of one model."""
    rng = random.Random(f"{seed}:{vocab_size}")  # noqa: S311 (not for secrets)
    return [tuple(rng.randrange(vocab_size) for _ in range(length)) for _ in range(count)]

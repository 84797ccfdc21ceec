"""Fetch the corpora, train the tokenizer and write the held-out prompts: the first step."""

from __future__ import annotations

import argparse
from pathlib import Path

from .corpus import load_all, split
from .prompts import write_prompts
from .tokenizer import save_tokenizer, train_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("tiny-pair-work"))
    parser.add_argument("--out", type=Path, default=Path("configs/tiny"))
    options = parser.parse_args()
    train, held_out = split(load_all(options.work / "wheels"))
    tokenizer = train_tokenizer(train)
    for role in ("target", "draft"):
        save_tokenizer(tokenizer, options.out / role)
    write_prompts(tokenizer, held_out, options.out / "prompts")


if __name__ == "__main__":
    main()

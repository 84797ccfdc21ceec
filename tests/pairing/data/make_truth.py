"""Writes truth.json: how the nine real tokenizers compare, in all 72 ordered pairs.

Independent of the package on purpose: nothing but json, and another method (sets of (id, string) pairs).
Usage: python tests/pairing/data/make_truth.py $TRTSPEC_REAL_DATA > tests/pairing/data/truth.json
"""

from __future__ import annotations

import json
import sys
from itertools import permutations
from pathlib import Path
from typing import Any


def tokens(path: Path) -> tuple[set[tuple[int, str]], set[int], int]:
    """(id, string) of every token, the ids of special tokens, and the number of base tokens."""
    document = json.loads(path.read_text(encoding="utf-8"))
    strings = {number: text for text, number in document["model"]["vocab"].items()}
    base = len(strings)
    special = set()
    for token in document["added_tokens"]:
        strings[token["id"]] = token["content"]
        if token["special"]:
            special.add(token["id"])
    return set(strings.items()), special, base


def compare(target: Any, draft: Any) -> dict[str, Any]:
    """Counts, the first differing ids, and the codes that follow from them."""
    one, other = target[0], draft[0]
    ids, draft_ids = {i for i, _ in one}, {i for i, _ in other}
    apart = {i for i, _ in one ^ other} & ids & draft_ids
    renamed = apart & target[1] & draft[1]
    clashing = sorted(apart - renamed)
    counts = {
        "same": len(one & other),
        "clashing": len(clashing),
        "renamed": len(renamed),
        "draft_only": len(draft_ids - ids),
        "target_only": len(ids - draft_ids),
    }
    codes = {
        "vocab.ids-differ": counts["clashing"],
        "vocab.special-renamed": counts["renamed"],
        "vocab.draft-only": counts["draft_only"],
        "vocab.target-only": counts["target_only"],
        "vocab.equal": one == other,
    }
    fails = bool(counts["clashing"] or counts["draft_only"])
    return counts | {"first": clashing[:3], "codes": sorted(c for c, n in codes.items() if n), "fails": fails}


def main() -> None:
    """Read the folder given and print the table."""
    folder = Path(sys.argv[1]) / "tokenizers"
    read = {path.parent.name: tokens(path) for path in sorted(folder.glob("*/tokenizer.json"))}
    models = {
        name: {"tokens": len(t), "base": base, "special": len(special), "last_id": max(t)[0]}
        for name, (t, special, base) in read.items()
    }
    pairs = {f"{a} {b}": compare(read[a], read[b]) for a, b in permutations(read, 2)}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in pairs.items()]
    print('{"models": ' + json.dumps(models) + ',\n "pairs": {\n' + ",\n".join(lines) + "\n}}")


if __name__ == "__main__":
    main()

"""The releases that a STAND-IN can imitate, and what is known about when behaviour changed between them.

Source: facts about TensorRT-LLM gathered from its public repository, release notes and container recipes; sections
are named in README.md of the folder above.
"""

from __future__ import annotations

import re

LABEL = "STAND-IN: nothing was built"

VERSIONS = ("0.17.0.post1", "0.18.2", "0.19.0", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.2.1")
"""One release of each line, and both of 1.2."""
ALSO = ("0.17.0", "0.18.0", "0.18.1")
"""Accepted as well: the spelling in the container of 0.17.0.post1, and the earlier patches of 0.18."""
LAST = VERSIONS[-1]

TENSORRT = {
    "0.17": "10.8.0.43", "0.18": "10.9.0.34", "0.19": "10.9.0.34", "0.20": "10.10.0.31", "0.21": "10.11.0.33",
    "1.0": "10.11.0.33", "1.1": "10.13.3.9", "1.2": "10.14.1.48",
}  # fmt: skip
"""TensorRT per line (§0.1, §0.2). The patch digits of 0.18 (10.9) and 0.20 (10.10) are those of the container."""

EARLY, LATE = "early", "late"
"""Two trees of the source are known completely: a development tree of December 2024, before 0.17 (`early`), and one of
February 2026, 1.3.0rc3 (`late`). What differs between them changed in some release in between."""
GENERATIONS = {
    "0.17": (EARLY, LATE), "0.18": (EARLY, LATE), "0.19": (EARLY, LATE),
    "0.20": (LATE,), "0.21": (LATE,), "1.0": (LATE,), "1.1": (LATE,), "1.2": (LATE,),
}  # fmt: skip
"""Which of the two a release may behave like in defaults and silent rewrites. The release of the flip is not known;
that 0.20 has the new default is (NVIDIA-NeMo/Export-Deploy pull request 131). Tests run every possibility."""


def order(version: str) -> tuple[int, ...]:
    """Sorts releases; 0.17.0.post1 comes after 0.17.0."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def known(version: str) -> str:
    """`version` when it can be imitated; ValueError otherwise."""
    if version not in VERSIONS + ALSO:
        raise ValueError(f"no stand-in for TensorRT-LLM {version}; there are {', '.join(VERSIONS + ALSO)}")
    return version


def line(version: str) -> str:
    """`0.17` of `0.17.0.post1`."""
    major, minor = order(version)[:2]
    return f"{major}.{minor}"


def generations(version: str) -> tuple[str, ...]:
    """How the release may behave; the first is the stand-in's own choice when nothing is said."""
    return GENERATIONS[line(version)]


def tensorrt(version: str) -> str:
    """The TensorRT that the release was built with."""
    return TENSORRT[line(version)]

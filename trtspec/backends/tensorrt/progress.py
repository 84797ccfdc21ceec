"""How far a build is, read from what `trtllm-build` prints. Tolerant: a line that is not known says nothing.

The lines are those of tensorrt_llm (builder.py, commands/build.py, models/modeling_utils.py) and of TensorRT's builder,
0.17 - 1.2.1. With several ranks each prints its own; the shares below are a guess at the time that each phase takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOTAL = 100
PHASES: tuple[tuple[str, re.Pattern[str], int], ...] = (
    ("starting", re.compile(r"TensorRT[- ]LLM version|\[TRT-LLM\] \[[IW]\] (Setting|Set|Implicitly|Compute)"), 2),
    ("loading weights", re.compile(r"Loading weights|Time to load|Loading .*safetensors"), 8),
    ("network", re.compile(r"Total time of constructing network|optimization profiles? added"), 15),
    ("weights in network", re.compile(r"Total time to initialize the weights"), 20),
    ("choosing kernels", re.compile(r"Build TensorRT engine|timing cache in use|Compiler backend is used"), 30),
    ("compiling", re.compile(r"Detected \d+ inputs?|Total Host Persistent|Engine generation completed"), 80),
    ("built", re.compile(r"Total time of building (?!all)"), 88),
    ("writing", re.compile(r"Serializing engine"), 92),
    ("written", re.compile(r"Engine serialized"), 97),
    ("done", re.compile(r"Total time of building all engines"), TOTAL),
)  # fmt: skip
"""Phase, its lines, and the percent of one rank's build that is done once such a line is seen."""
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3})(?:\.\d+)?\s?%")
_RANK_DONE = "written"


@dataclass
class Progress:
    """Fed with lines; `percent` never falls, and is 100 only when the tool has said that all is done."""

    ranks: int = 1
    phase: str = ""
    percent: int = 0
    _written: int = field(default=0)

    def feed(self, line: str) -> bool:
        """Take one line; True if there is something new to show."""
        before = (self.phase, self.percent)
        for name, text, share in PHASES:
            if text.search(line):
                self._reach(name, share)
                return (self.phase, self.percent) != before
        self._bar(line)
        return (self.phase, self.percent) != before

    def _reach(self, name: str, share: int) -> None:
        if name == "done":
            self.phase, self.percent = name, TOTAL
            return
        if name == _RANK_DONE:
            self._written = min(self._written + 1, self.ranks)
        # Ranks beyond the number of GPUs are built in later turns: what is written counts whole.
        within = 0 if name == _RANK_DONE else share * (1 if self._written < self.ranks else 0)
        found = (self._written * 97 + within) // self.ranks if self.ranks > 1 else share
        self.phase, self.percent = name, max(self.percent, min(found, TOTAL - 1))

    def _bar(self, line: str) -> None:
        """A percentage of the tool's own, such as a loading bar's: a part of the phase that runs."""
        match = _PERCENT.search(line)
        if match is None or not self.phase or int(match[1]) > TOTAL:
            return
        names = [name for name, _, _ in PHASES]
        at = names.index(self.phase)
        low, high = PHASES[at][2], PHASES[min(at + 1, len(PHASES) - 2)][2]
        if self.ranks == 1:
            self.percent = max(self.percent, min(low + (high - low) * int(match[1]) // TOTAL, TOTAL - 1))

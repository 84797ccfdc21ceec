"""Read engines and a repository back and say what would not load, would hang, or would not work together.

What is compared is what stands in the files, not what was meant when they were written: the symptoms of most of these
faults at run time are a hang, a silent fallback or a wrong answer. :data:`RULES` lists every code.
"""

from __future__ import annotations

from trtspec.triton.lint.codes import RULES, lint_page
from trtspec.triton.lint.engine import Engine, read_engine
from trtspec.triton.lint.engines import lint_engines
from trtspec.triton.lint.problem import Problem
from trtspec.triton.lint.repository import MODELS, lint

__all__ = ["MODELS", "RULES", "Engine", "Problem", "lint", "lint_engines", "lint_page", "read_engine"]

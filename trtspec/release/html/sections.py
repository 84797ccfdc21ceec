"""The page from top to bottom."""

from __future__ import annotations

from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import Judgement
from trtspec.release.html.acceptance import acceptance
from trtspec.release.html.evidence import data, environment, exactness, gates, problems, quality
from trtspec.release.html.section import Section
from trtspec.release.html.speed import speed


def sections(result: ResultDocument, judgement: Judgement) -> tuple[Section, ...]:
    """In the order in which they are asked for: the decision, its evidence, its conditions."""
    found = (
        gates(judgement),
        problems(result),
        acceptance(result, judgement),
        speed(result, judgement),
        exactness(result),
        quality(result),
        data(result),
        environment(result),
    )
    return tuple(section for section in found if section)

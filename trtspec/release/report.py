"""The report of a validation as files: one JSON document for machines, a page, a short text, and JUnit for CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from trtspec.config.gates import Gates
from trtspec.errors import EvidenceError
from trtspec.measurement.documents import read_document
from trtspec.measurement.result import Record, ResultDocument
from trtspec.measurement.resultfile import load_result, require_sound
from trtspec.release.gates import Judgement, verdict_of
from trtspec.release.html.page import html
from trtspec.release.junit import junit
from trtspec.release.markdown import markdown
from trtspec.store import write_atomic

RESULT, REPORT = "result.json", "report.json"
PAGE, SUMMARY, JUNIT = "report.html", "report.md", "junit.xml"
FILES = (RESULT, REPORT, PAGE, SUMMARY, JUNIT)
_AGAIN = "validate again, or give the result.json beside it"


class Report(Record):
    """What was measured, by which rules it was judged, and the verdict."""

    version: Literal[2] = 2
    result: ResultDocument
    gates: Gates
    judgement: Judgement


def report_schema() -> dict[str, object]:
    """JSON Schema of report.json; `result` within it is that of result.json."""
    return Report.model_json_schema()


def write_report(
    folder: Path, result: ResultDocument, judgement: Judgement, gates: Gates, *, details: str = PAGE
) -> Path:
    """Write all `FILES` into `folder`, each whole; returns the path of report.json.

    report.json comes last: where it is new, the others are too. `details` is where the short text says the page is.
    """
    report = Report(result=result, gates=gates, judgement=judgement)
    texts = {
        RESULT: result.model_dump_json(indent=1) + "\n",
        PAGE: html(result, judgement),
        SUMMARY: markdown(result, judgement, details),
        JUNIT: junit(result, judgement),
        REPORT: report.model_dump_json(indent=1) + "\n",
    }
    for name, text in texts.items():
        write_atomic(folder / name, text)
    return folder / REPORT


def load_report(path: Path) -> Report:
    """Read a report.json; EvidenceError where it is none, or says two things."""
    found = read_document(Report, path, "report", fix=_AGAIN)
    require_sound(found.result, path, "result.")
    verdict = verdict_of(found.judgement.rows)
    if found.judgement.verdict != verdict:
        raise EvidenceError(
            "the report contradicts itself at judgement.verdict",
            where=path, found=found.judgement.verdict, expected=f"{verdict}, by its rows", fix=_AGAIN,
        )  # fmt: skip
    return found


def load_any(path: Path) -> ResultDocument | Report:
    """A result.json, a report.json, or a folder that holds one of them."""
    if path.is_dir():
        names = [name for name in (REPORT, RESULT) if (path / name).is_file()]
        if not names:
            raise EvidenceError(f"the folder holds neither {REPORT} nor {RESULT}", where=path)
        path = path / names[0]
    return load_report(path) if _is_report(path) else load_result(path)


def result_at(path: Path) -> ResultDocument:
    """The result document that `load_any` finds."""
    found = load_any(path)
    return found.result if isinstance(found, Report) else found


def _is_report(path: Path) -> bool:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False  # the reader of results says what is wrong with it
    return isinstance(document, dict) and "judgement" in document

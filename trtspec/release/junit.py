"""The judgement as JUnit XML, which every CI shows: one test case for each gate and subject.

fail → failure; undecided, not measured and invalid → error, since nothing may be released on them; switched off and not
judged → skipped, with the reason.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as xml

from trtspec.measurement.result import ResultDocument
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.rows import GateRow, Outcome

_ELEMENTS: dict[Outcome, str] = {
    "fail": "failure",
    "undecided": "error",
    "invalid": "error",
    "not measured": "error",
    "off": "skipped",
    "not judged": "skipped",
}
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: ResultDocument, judgement: Judgement) -> str:
    """One document with one suite."""
    kinds = [_ELEMENTS.get(row.outcome) for row in judgement.rows]
    counts = {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }
    name = _clean(f"trtspec.{result.pair}")
    top = xml.Element("testsuites", {"name": "trtspec", **counts})
    suite = xml.SubElement(
        top, "testsuite", {"name": name, **counts, "timestamp": result.created[:19], "time": f"{_seconds(result):.3f}"}
    )
    for row in judgement.rows:
        _case(suite, name, row)
    output = xml.SubElement(suite, "system-out")
    output.text = _clean(f"{judgement.headline()}\n{result.conditions.summary()}")
    xml.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(top, encoding="unicode") + "\n"


def _case(suite: xml.Element, name: str, row: GateRow) -> None:
    case = xml.SubElement(
        suite,
        "testcase",
        {"classname": f"{name}.{_clean(row.subject)}", "name": _clean(f"{row.name}: {row.subject}"), "time": "0"},
    )
    kind = _ELEMENTS.get(row.outcome)
    if kind is None:
        return
    message = _clean(row.reason)
    if kind == "skipped":
        xml.SubElement(case, kind, {"message": message})
        return
    found = xml.SubElement(case, kind, {"message": message, "type": row.outcome})
    found.text = f"{message}\nfound {words.found_of(row)}, limit {words.limit_of(row)}"


def _seconds(result: ResultDocument) -> float:
    """Time in which requests ran."""
    modes = (result.overall.target_only, result.overall.speculative)
    return sum(each.wall_seconds for each in modes if each)


def _clean(text: str) -> str:
    """XML cannot hold control signs, not even escaped."""
    return _ILLEGAL.sub("\ufffd", words.visible(text))

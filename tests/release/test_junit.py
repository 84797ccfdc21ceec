"""JUnit XML as CI systems read it: the counts are those of its cases, and a verdict that blocks is never green."""

from __future__ import annotations

from xml.etree import ElementTree as xml

import pytest

from tests.release.full import full, hostile
from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import judge
from trtspec.release.junit import junit

# What the common schema (Jenkins' junit-10.xsd and those derived from it) allows: attributes and children.
SCHEMA: dict[str, tuple[set[str], set[str], list[str]]] = {
    # element: (required, optional, children)
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors", "skipped"}, ["testsuite"]),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
        ["properties", "testcase", "system-out", "system-err"],
    ),
    "testcase": ({"name"}, {"classname", "time", "assertions", "status"}, ["skipped", "error", "failure"]),
    "failure": (set(), {"message", "type"}, []),
    "error": (set(), {"message", "type"}, []),
    "skipped": (set(), {"message"}, []),
    "system-out": (set(), set(), []),
}


def check(element: xml.Element) -> None:
    required, optional, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= required | optional
    order = [children.index(child.tag) for child in element]
    assert order == sorted(order)
    for name in ("tests", "failures", "errors", "skipped"):
        assert element.get(name, "0").isdigit()
    float(element.get("time", "0"))
    for child in element:
        check(child)


def suite_of(made: ResultDocument, gates: Gates | None = None) -> xml.Element:
    top = xml.fromstring(junit(made, judge(made, gates or Gates())))
    check(top)
    (suite,) = top
    for name in ("tests", "failures", "errors", "skipped"):
        assert top.get(name) == suite.get(name)
    cases = suite.findall("testcase")
    assert int(suite.get("tests", "")) == len(cases)
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(name, "")) == sum(case.find(kind) is not None for case in cases)
    return suite


def test_every_gate_of_every_domain_is_a_case() -> None:
    made = full()
    suite = suite_of(made)
    names = [(case.get("classname"), case.get("name")) for case in suite.findall("testcase")]
    assert len(names) == len(judge(made, Gates()).rows)
    assert ("trtspec.toy.code", "domain α: code") in names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("made", "kind", "verdict"),
    [
        (result({"code": 0.5}), "failure", "fail"),
        (result({"code": 0.8}, differences=(("undiagnosed", None),)), "error", "undecided"),
        (result({"code": 0.75, "law": 0.3}), "skipped", "pass"),
    ],
    ids=["fail", "undecided", "off"],
)
def test_outcomes_are_what_ci_takes_them_for(made: ResultDocument, kind: str, verdict: str) -> None:
    assert judge(made, Gates()).verdict == verdict
    found = [e for case in suite_of(made).findall("testcase") for e in case if e.tag == kind]
    assert found
    assert all(e.get("message") for e in found)


def test_only_a_pass_is_green() -> None:
    for made in (
        result({"code": 0.5}),
        result({"code": 0.8}, differences=(("undiagnosed", None),)),
        result({"a": 0.8}),
    ):
        suite = suite_of(made)
        red = int(suite.get("failures", "")) + int(suite.get("errors", ""))
        assert (red == 0) == (judge(made, Gates()).verdict == "pass")


def test_hostile_text_is_well_formed() -> None:
    suite = suite_of(hostile())
    assert suite.get("name", "").startswith("trtspec.</title>")

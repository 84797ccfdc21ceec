"""Verdicts and codes."""

from __future__ import annotations

import re

import pytest

from tests.conftest import PROJECT
from trtspec.pairing.codes import CODES
from trtspec.pairing.findings import Finding, Severity, Verdict


def finding(severity: Severity, code: str = "size.ratio") -> Finding:
    return Finding(code, severity, "pair", "m")


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [([], "pass"), (["info"], "pass"), (["info", "warning"], "warn"), (["warning", "error", "info"], "fail")],
)
def test_only_the_verdict_decides(severities: list[Severity], verdict: str) -> None:
    assert Verdict(tuple(map(finding, severities)), {}).verdict == verdict


def test_undocumented_codes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"size\.ration"):
        finding("info", "size.ration")


def test_every_documented_code_is_used() -> None:
    package = PROJECT / "trtspec"
    files = [*(package / "pairing").glob("*.py"), package / "backends/tensorrt/check.py", package / "triton/check.py"]
    source = "".join(p.read_text() for p in files if p.name not in ("findings.py", "codes.py"))
    used = set(re.findall(r'"([a-z]+\.[a-z-]+)"', source))
    assert set(CODES) - used == set()


def test_every_documented_code_is_in_a_test() -> None:
    tests = "".join(p.read_text() for p in (PROJECT / "tests").rglob("*.py"))
    assert {code for code in CODES if f'"{code}"' not in tests} == set()

"""Dashboard, alerts and their page speak of metrics and labels that exist, in a language that parses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.conftest import PROJECT

FOLDER = PROJECT / "docs" / "monitoring"
PAGE = (PROJECT / "docs" / "monitoring.md").read_text(encoding="utf-8")
FUNCTIONS = {"sum", "max", "rate", "increase", "histogram_quantile", "absent"}
WORDS = {"by", "and", "bool"}
LABELS = {"model", "version", "process", "task", "mode", "finish", "reason", "draft_len", "le"}
PIECES = re.compile(
    r"""(?P<text>"[^"]*") | (?P<range>\[(?:\d+[smhd]|\$__rate_interval)\]) | (?P<name>[A-Za-z_]\w*)
        | (?P<number>\d+(?:\.\d+)?) | (?P<bracket>[(){}]) | (?P<sign>==|=~|!=|!~|>=|<=|[=<>+*/,-]) | (?P<space>\s+)""",
    re.VERBOSE,
)
SELECTOR = re.compile(r"(trtspec_\w+)(?:\{([^}]*)\})?")


def dashboard() -> dict[str, Any]:
    document = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    found = group["rules"]
    assert isinstance(found, list)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of all three."""
    for panel in dashboard()["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL):
        yield from (("monitoring.md", line) for line in block.splitlines() if line and not line.startswith("#"))


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize(("where", "query"), EXPRESSIONS)
def test_a_query_is_made_of_what_exists(bls: dict[str, ModuleType], where: str, query: str) -> None:
    pieces = list(PIECES.finditer(query))
    assert "".join(piece[0] for piece in pieces) == query, where
    names = {piece["name"] for piece in pieces if piece["name"]}
    assert names - FUNCTIONS - WORDS - LABELS <= set(bls["metrics"].FAMILIES)
    depth: list[str] = []
    for bracket in (piece["bracket"] for piece in pieces if piece["bracket"]):
        if bracket in "({":
            depth.append(bracket)
        else:
            assert depth.pop() + bracket in ("()", "{}")
    assert not depth


@pytest.mark.parametrize(("where", "query"), EXPRESSIONS)
def test_labels_are_those_of_the_family_and_so_are_their_values(
    bls: dict[str, ModuleType], where: str, query: str
) -> None:
    metrics = bls["metrics"]
    modes = {"speculative", *(f"target-only:{reason}" for reason in metrics.REASONS)}
    known = {"finish": set(metrics.FINISHES), "reason": set(metrics.DECISIONS), "mode": modes}
    for family, labels in SELECTOR.findall(query):
        for name, value in re.findall(r'(\w+)(?:=~|!=|!~|=)"([^"]*)"', labels):
            assert name in labels_of(bls)[family], where
            if name in known:
                assert set(alternatives(value)) <= known[name], where
    for by in re.findall(r"by \(([^)]*)\)", query):
        families = [family for family, _ in SELECTOR.findall(query)]
        assert all(set(by.replace(" ", "").split(",")) <= labels_of(bls)[family] for family in families), where


def alternatives(value: str) -> list[str]:
    """`a|b` and `x:(a|b)` written out."""
    prefix, _, inner = value.rpartition("(")
    return [prefix + each for each in inner.removesuffix(")").split("|")]


def labels_of(bls: dict[str, ModuleType]) -> dict[str, set[str]]:
    """Labels of each family, as a page really has them after one of everything."""
    metrics = bls["metrics"].Metrics(bls["pb"], "m", "1")
    round_done = bls["rounds"].RoundDone(drafted=4, tested=3, accepted=2, emitted=3, seconds=0.1)
    metrics.round("", round_done)
    metrics.request("", "speculative", "length", 3)
    metrics.fallback("", "policy")
    metrics.decision("", "policy", 4)
    metrics.in_flight(1)
    metrics.waiting(1)
    metrics.guard("", True)
    metrics.close()
    found: dict[str, set[str]] = {}
    for name, labels in bls["pb"].MetricFamily.page:
        found.setdefault(name, set()).update(dict(labels))
    return found


def test_the_page_lists_every_family_with_its_labels(bls: dict[str, ModuleType]) -> None:
    rows = re.findall(r"^\| (`trtspec_[^|]*) \| [^|]+ \|([^|]*)\|", PAGE, re.MULTILINE)
    listed: dict[str, set[str]] = {}
    for names, labels in rows:
        first, *suffixes = re.findall(r"`(\w+)`", names)
        stem = first.removesuffix("_bucket")
        for name in (first, *(stem + suffix for suffix in suffixes)):
            listed[name] = set(re.findall(r"`(\w+)`", labels)) - ({"le"} if not name.endswith("_bucket") else set())
    everywhere = {"model", "version", "process", "task"}
    assert listed == {name: labels - everywhere for name, labels in labels_of(bls).items()}


def test_every_family_is_shown(bls: dict[str, ModuleType]) -> None:
    shown = {family for panel in dashboard()["panels"] for t in panel.get("targets", ()) for family, _ in
             SELECTOR.findall(t["expr"])}  # fmt: skip
    assert shown == set(bls["metrics"].FAMILIES)


def test_grafana_can_import_the_dashboard() -> None:
    document = dashboard()
    assert document["schemaVersion"] >= 36
    assert "id" not in document
    assert document["title"]
    assert document["uid"]
    variables = {each["name"]: each for each in document["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["description"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    used = set(re.findall(r"\$(\w+)", json.dumps([panel.get("targets") for panel in panels])))
    assert used <= {*variables, "__rate_interval"}


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        taken |= cells


def test_the_floor_is_drawn() -> None:
    [panel] = [panel for panel in dashboard()["panels"] if panel["title"] == "α by task"]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps] == [None, 0.55, 0.65]
    assert panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {"mode": "line"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert set(rule["annotations"]) == {"summary", "description"}
    assert f"`{rule['alert']}`" in PAGE
    grouped = {label for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in by.split(", ")}
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    assert used <= grouped

"""The page says everything that was measured, needs nothing else, and obeys no text that it shows."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.release.full import HOSTILE, full, hostile
from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import judge
from trtspec.release.html import charts
from trtspec.release.html.page import html
from trtspec.release.html.speed import predicted

GATES = Gates(min_speedup=1.2)
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Read(HTMLParser):
    """Elements, attributes and text; an element that is closed out of turn is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(made: ResultDocument) -> str:
    return html(made, judge(made, GATES))


def test_everything_is_there_in_words() -> None:
    read = Read(page(full()))
    for part in (
        "Pass: may be released",
        "PASS: speculation is released for code, a-domain-with-a-rather-long-name-that-must-wrap",
        "By position",
        "By domain",
        "Accepted per round",
        "Predicted and measured speed-up",
        "Throughput and latency",
        "requests arriving at random",
        "First difference of each text",
        "○ off",
        "✓ pass",
        "≥ 0.65",
        "25.0 % free on gpu GPU-1",
        "agree: both scrapes agree",
        "draft step 2.0 ms 40",
        "code.jsonl",
        "numpy",
        "accepted ÷ tested",
    ):
        assert part in read.text, part


def test_it_needs_nothing_and_runs_nothing() -> None:
    read = Read(page(full()))
    assert not {"script", "img", "link", "iframe", "object", "embed", "form"} & set(read.elements)
    names = {name for name, _ in read.attributes}
    assert not {n for n in names if n.startswith("on")} | ({"href", "src", "srcset", "style"} & names)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'") in (
        read.attributes
    )
    assert "url(" not in page(full())


def test_hostile_text_stays_text() -> None:
    text = page(hostile())
    read = Read(text)
    assert "script" not in read.elements
    assert "img" not in read.elements
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    shown = read.text
    assert "<script>window.pwned=1</script>" in shown
    assert "{{7*7}}" in shown
    for sign in ("\x00", "\x1b", "\u202e"):
        assert sign in HOSTILE
        assert sign not in text
    assert "␀␛[31m\\u202e" in shown


def test_every_chart_says_in_words_what_it_shows() -> None:
    text = page(full())
    drawn = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    assert len(drawn) == 6
    for svg in drawn:
        (named,) = re.findall(r'aria-labelledby="(\S+) (\S+)"', svg)
        assert re.search(rf'<title id="{named[0]}">.+</title>', svg)
        assert re.search(rf'<desc id="{named[1]}">.+</desc>', svg)
    identities = re.findall(r'\sid="([^"]+)"', text)
    assert len(identities) == len(set(identities))


def test_what_was_not_measured_says_so_and_draws_nothing() -> None:
    made = result({"code": 0.75}, exact=False, blocks=0)
    bare = made.model_copy(
        update={
            "overall": made.overall.model_copy(update={"per_position": None, "histogram": None}),
            "domains": tuple(
                d.model_copy(update={"figures": d.figures.model_copy(update={"alpha": None, "per_position": None})})
                for d in made.domains
            ),
        }
    )
    text = page(bare)
    assert "<svg" not in text
    read = Read(text)
    assert "not measured (no sweep)" in read.text
    assert "Not measured: answers were sampled" in read.text
    assert "memory head-room not measured" in read.text


def test_an_interrupted_or_unfit_measurement_says_so_first() -> None:
    made = full().model_copy(update={"interrupted": True, "release_valid": False})
    text = Read(page(made)).text
    assert text.index("was interrupted") < text.index("Gates")
    assert "not valid for a release" in text


def test_few_of_many_differences_are_shown_and_the_rest_is_counted() -> None:
    made = result({"code": 0.75}, differences=tuple(("near-tie", 0.01) for _ in range(45)))
    assert "the first 30 of 45; result.json has all" in Read(page(made)).text


def test_the_prediction_is_the_formula_on_measured_parts() -> None:
    made = full()
    length = made.overall.acceptance_length
    assert length is not None
    # E ÷ (v + K·c + o) with c = 2/12, v = 14/12, o = 2/12; the last round of an answer is not worth a whole one
    found = predicted(made)
    assert found is not None
    assert found.speedup.point == pytest.approx(length / ((14 + 4 * 2 + 2) / 12), rel=0.02)
    assert found.scope == "decoding"  # the made answers were not streamed
    assert predicted(made.model_copy(update={"costs": None})) is None


def test_intervals_by_position_are_drawn_where_they_were_measured() -> None:
    bars = [charts.Bar("1", 0.6, 0.5, 0.7), charts.Bar("2", None), charts.Bar("3", 0.2)]
    svg = str(charts.columns("p", "t", bars, across="position", top=1.0))
    assert svg.count('class="whisker"') == 3
    assert svg.count("<rect") == 2
    assert "1: 0.60 [0.50, 0.70]; 2: not measured; 3: 0.20" in svg


@pytest.mark.parametrize(("top", "last"), [(1.0, 1.0), (0.07, 0.06), (3248.0, 3000.0), (17.0, 15.0)])
def test_axes_have_round_numbers(top: float, last: float) -> None:
    ticks = charts.nice(top)
    assert ticks[0] == 0
    assert ticks[-1] == pytest.approx(last)
    assert 3 <= len(ticks) <= 6


def test_a_lower_bound_of_alpha_is_never_shown_as_alpha() -> None:
    made = result({"code": 0.75})
    (only,) = made.domains
    figures = only.figures.model_copy(update={"alpha": None, "alpha_bound": only.figures.alpha})
    bound = made.model_copy(update={"domains": (only.model_copy(update={"figures": figures}),)})
    text = Read(page(bound)).text
    assert "≥ 0.75 [" in text
    assert not re.search(r"(?<!≥ )0\.75 \[0\.7\d, 0\.7\d\] 0\.7", text)


def test_positions_that_were_never_drafted_are_not_drawn() -> None:
    made = result({"code": 0.75})
    shares = (*made.overall.per_position, None, None)  # type: ignore[misc]
    wide = tuple(tuple((*row, 0, 0) for row in half) + ((0,) * 7,) * 2 for half in made.overall.histogram or ())
    overall = made.overall.model_copy(update={"per_position": shares, "histogram": wide, "position_intervals": None})
    drawn = re.findall(r"<svg .*?</svg>", page(made.model_copy(update={"overall": overall})), re.DOTALL)
    assert [svg.count("<rect") for svg in drawn[:3]] == [4, 0, 5]

"""Charts as inline SVG: no script, no fonts of their own; colours come from the page, so that they follow its theme.

Drawn here and not by a plotting library because a page that is light, dark and printed needs its colours from CSS.
A chart is about as wide as a phone (360 units) and grows with the page; each has a title and a description in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from trtspec.release.words import visible

Kind = Literal["without", "with"]
WIDTH = 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 352.0, 16.0, 40.0
_LABEL_SIGNS = 26  # of a label above a row, at the chart's size of type


@dataclass(frozen=True)
class Bar:
    """One column; `value` None is not measured and leaves its place empty."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Span:
    """A point with its interval, on a row of its own."""

    label: str
    point: float
    low: float | None
    high: float | None
    text: str
    hollow: bool = False


@dataclass(frozen=True)
class Series:
    """Points (x, y, label) joined by a line. `kind` chooses marker and dash, so that colour never stands alone."""

    name: str
    kind: Kind
    points: tuple[tuple[float, float, str], ...]


def columns(name: str, title: str, bars: Sequence[Bar], *, across: str, top: float, digits: int = 2) -> Markup:
    """Columns with whiskers. `top` is the height of the axis."""
    height, base = 220.0, 220.0 - _BOTTOM
    scale = (base - _TOP) / top
    step = (_RIGHT - _LEFT) / max(1, len(bars))
    parts = [*_rules(nice(top), lambda value: base - value * scale)]
    every = max(1, math.ceil(len(bars) / 12))
    for i, bar in enumerate(bars):
        x = _LEFT + step * (i + 0.5)
        parts += _column(bar, x, min(step * 0.62, 36), base, scale, digits, crowded=every > 1)
        if i % every == 0:
            parts.append(_text(x, base + 14, bar.label, "middle"))
    parts.append(_text((_LEFT + _RIGHT) / 2, height - 8, across, "middle", "soft"))
    return _svg(name, title, _said(bars, digits), height, parts)


def spans(
    name: str, title: str, rows: Sequence[Span], *, top: float, marks: Sequence[tuple[float, str]] = ()
) -> Markup:
    """A point and its interval on each row, from 0 to `top`, with named vertical marks."""
    left, each = 8.0, 40.0
    height = _TOP + each * len(rows) + _BOTTOM
    base = height - _BOTTOM

    def at(value: float) -> float:
        return left + (_RIGHT - left) * min(max(value / top, 0.0), 1.0)

    parts = [_line(at(tick), _TOP, at(tick), base, "grid") for tick in nice(top)]
    parts += [_text(at(tick), base + 14, f"{tick:g}", "middle") for tick in nice(top) if 0 < tick < top]
    for i, (value, label) in enumerate(marks):
        parts.append(_line(at(value), _TOP - 4, at(value), base, "floor"))
        anchor = "end" if at(value) > WIDTH / 2 else "start"
        parts.append(_text(at(value), base + 28 if i == 0 else _TOP - 6, label, anchor, "soft"))
    for i, row in enumerate(rows):
        parts += _span(row, _TOP + each * i, at)
    said = "; ".join(f"{row.label}: {row.text}" for row in rows)
    return _svg(name, title, said + "".join(f"; {label} at {value:g}" for value, label in marks), height, parts)


def curves(name: str, title: str, series: Sequence[Series], *, across: str, up: str) -> Markup:
    """Lines through points; both axes begin at 0."""
    height, base = 250.0, 250.0 - _BOTTOM
    wide = _ceiling(max(x for each in series for x, _, _ in each.points))
    tall = _ceiling(max(y for each in series for _, y, _ in each.points))

    def at(x: float, y: float) -> tuple[float, float]:
        return _LEFT + (_RIGHT - 10 - _LEFT) * x / wide, base - (base - _TOP - 10) * y / tall

    parts = [*_rules(nice(tall), lambda value: at(0, value)[1])]
    parts += [_text(at(tick, 0)[0], base + 14, f"{tick:g}", "middle") for tick in nice(wide)]
    for each in series:
        parts += _curve(each, at)
    parts.append(_text((_LEFT + _RIGHT) / 2, height - 8, across, "middle", "soft"))
    parts.append(_text(4, 10, up, "start", "soft"))
    said = "; ".join(
        f"{each.name}: " + ", ".join(f"{label} {x:.4g} at {y:.4g}" for x, y, label in each.points) for each in series
    )
    return _svg(name, title, f"{across} against {up}. {said}", height, parts)


def nice(top: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to `top`, about `count` steps."""
    raw = top / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(f * size for f in (1, 2, 2.5, 5, 10) if f * size >= raw * 0.999)
    return [round(i * step, 12) for i in range(int(top / step + 1e-9) + 1)]


def _ceiling(value: float) -> float:
    """The end of an axis that holds `value`."""
    return value * 1.1 if value > 0 else 1.0


def _said(bars: Iterable[Bar], digits: int) -> str:
    def one(bar: Bar) -> str:
        if bar.value is None:
            return f"{bar.label}: not measured"
        span = "" if bar.low is None or bar.high is None else f" [{bar.low:.{digits}f}, {bar.high:.{digits}f}]"
        return f"{bar.label}: {bar.value:,.{digits}f}{span}"

    return "; ".join(map(one, bars))


def _column(bar: Bar, x: float, wide: float, base: float, scale: float, digits: int, *, crowded: bool) -> list[Markup]:
    if bar.value is None:
        return [_text(x, base - 4, "–", "middle")]
    top = base - bar.value * scale
    found = [
        Markup('<rect class="with" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            x - wide / 2, top, wide, base - top
        )
    ]
    if bar.low is not None and bar.high is not None:
        low, high = base - bar.low * scale, base - bar.high * scale
        found += [_line(x, low, x, high, "whisker"), _line(x - 4, low, x + 4, low, "whisker")]
        found.append(_line(x - 4, high, x + 4, high, "whisker"))
        top = min(top, high)
    if not crowded:
        found.append(_text(x, max(top - 4, 9), f"{bar.value:,.{digits}f}", "middle"))
    return found


def _span(row: Span, y: float, at: Callable[[float], float]) -> list[Markup]:
    middle = y + 26
    found = [_text(8, y + 12, _short(row.label), "start"), _text(_RIGHT, y + 12, row.text, "end")]
    if row.low is not None and row.high is not None:
        found += [_line(at(row.low), middle, at(row.high), middle, "whisker")]
        found += [_line(at(end), middle - 4, at(end), middle + 4, "whisker") for end in (row.low, row.high)]
    found.append(_marker(at(row.point), middle, "without" if row.hollow else "with"))
    return found


def _curve(each: Series, at: Callable[[float, float], tuple[float, float]]) -> list[Markup]:
    places = [(*at(x, y), label) for x, y, label in each.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    found = [Markup('<polyline class="{}-line" points="{}"/>').format(each.kind, path)]
    # Labels of the two lines stand on opposite sides of their points.
    shift = -8 if each.kind == "without" else 16
    for x, y, label in places:
        found += [_marker(x, y, each.kind), _text(x, y + shift, label, "middle", "soft")]
    return found


def _marker(x: float, y: float, kind: Kind) -> Markup:
    if kind == "with":
        return Markup('<circle class="with" cx="{:.1f}" cy="{:.1f}" r="5"/>').format(x, y)
    return Markup('<rect class="without" x="{:.1f}" y="{:.1f}" width="9" height="9"/>').format(x - 4.5, y - 4.5)


def _rules(ticks: Sequence[float], at: Callable[[float], float]) -> list[Markup]:
    found = [_line(_LEFT, at(tick), _RIGHT, at(tick), "grid") for tick in ticks]
    return found + [_text(_LEFT - 5, at(tick) + 4, f"{tick:g}", "end") for tick in ticks]


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_SIGNS else f"{label[: _LABEL_SIGNS - 1]}…"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(kind, x1, y1, x2, y2)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> Markup:
    shown = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>')
    return shown.format(x, y, anchor, Markup(' class="{}"').format(kind) if kind else "", visible(text))


def _svg(name: str, title: str, said: str, height: float, parts: Iterable[Markup]) -> Markup:
    head = Markup(
        '<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        '<title id="{name}-t">{}</title><desc id="{name}-d">{}</desc>'
    ).format(WIDTH, height, title, visible(said), name=name)
    return head + Markup("").join(parts) + Markup("</svg>")

"""How numbers and foreign text are written in every report. What was not measured says so."""

from __future__ import annotations

from trtspec.measurement.result import Estimate, Figures, Percentiles, Performance, ResultDocument
from trtspec.release.gates import Judgement
from trtspec.release.rows import GateRow, Outcome, interval_text

NOT_MEASURED = "not measured"
SIGNS: dict[Outcome, str] = {
    "pass": "✓",
    "fail": "✗",
    "undecided": "?",
    "invalid": "!",
    "not measured": "?",
    "off": "○",
    "not judged": "–",
}
# Rules whose figure must not be above their limit, and the digits of those that are small.
_CEILINGS = ("ttft.", "tpot.", "regression.", "twin.", "quality.drop")
_DIGITS = dict.fromkeys(("ttft.", "tpot."), 4) | dict.fromkeys(("regression.", "twin.", "quality."), 3)
DEFINITIONS = (
    "α = accepted ÷ tested draft tokens (drafts behind a rejection were never tested); [95 %] is an interval over "
    "prompts for α, over blocks of requests for the speed-up; gates use a wider one where measuring looked at its "
    "figures to stop early. Tokens a round count the target's own. Speed-up is throughput with ÷ without speculation, "
    "both measured in turns in this run."
)


def visible(text: str) -> str:
    """Text of a model or a user, safe to put into any document: control signs are shown, not obeyed."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(_shown(sign) for sign in whole)


def _shown(sign: str) -> str:
    code = ord(sign)
    if code < 0x20 and sign not in "\n\t":
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    # C1 controls, non-characters, and signs that reverse the direction of what follows them.
    hidden = 0x80 <= code < 0xA0 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or (code & 0xFFFE) == 0xFFFE
    return f"\\u{code:04x}" if hidden else sign


def number(value: float | None, digits: int = 2) -> str:
    """A dash where it was not measured."""
    return "–" if value is None else f"{value:,.{digits}f}"


def count(value: int | None) -> str:
    """With thousands apart."""
    return "–" if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """As percent."""
    return "–" if value is None else f"{100 * value:.1f} %"


def estimate(found: Estimate | None, digits: int = 2) -> str:
    """`0.70 [0.64, 0.75]`, or a dash."""
    return "–" if found is None else interval_text(found, digits)


def alpha(figures: Figures) -> str:
    """α with its interval; `≥ 0.41 [0.38, 0.44]` where only a lower bound of it was measured."""
    if figures.alpha is None and figures.alpha_bound is not None:
        return f"≥ {interval_text(figures.alpha_bound)}"
    return estimate(figures.alpha)


def seconds(value: float | None) -> str:
    """`12.3 ms` or `1.23 s`."""
    if value is None:
        return "–"
    return f"{1000 * value:.1f} ms" if value < 1.0 else f"{value:.2f} s"


def percentiles(found: Percentiles | None) -> tuple[str, str, str]:
    """p50, p90, p99."""
    return ("–", "–", "–") if found is None else (seconds(found.p50), seconds(found.p90), seconds(found.p99))


def rate(speed: Performance | None, digits: int = 0) -> str:
    """Tokens per second."""
    return "–" if speed is None else number(speed.tokens_per_second, digits)


def found_of(row: GateRow) -> str:
    """What a gate found, with its interval where it has one."""
    if row.measured is None:
        return "–"
    digits = next((n for start, n in _DIGITS.items() if row.rule.startswith(start)), 2)
    if row.low is None and row.high is None:
        return f"{row.measured:.{digits}f}"
    ends = ", ".join("open" if end is None else f"{end:.{digits}f}" for end in (row.low, row.high))
    return f"{row.measured:.{digits}f} [{ends}]"


def limit_of(row: GateRow) -> str:
    """What a gate demands."""
    if row.limit is None:
        return "–"
    return f"{'≤' if row.rule.startswith(_CEILINGS) else '≥'} {row.limit:g}"


def drafts_of(domain: str, judgement: Judgement, result: ResultDocument) -> str:
    """`K=4`, or `off` where a domain is served without speculation."""
    return "off" if domain in judgement.switched_off else f"K={result.conditions.k}"


def cautions(result: ResultDocument) -> tuple[str, ...]:
    """What must be known before any number is read."""
    found = []
    if result.interrupted:
        found.append("the measurement was interrupted; this is what was measured until then")
    if not result.release_valid:
        found.append("not valid for a release; the problems say why")
    return tuple(found)

"""Are the answers right? Exact match with references, or a command of the user's, in both modes alike.

Acceptance and equality say that speculation changes nothing; this says whether what it does not change is any good, and
it is the only check of texts where answers are sampled.
"""

from __future__ import annotations

import json
import re
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from trtspec.config.quality import Quality
from trtspec.errors import EvidenceError
from trtspec.measurement.parts import QualityRow
from trtspec.measurement.records import Answer, Samples, domains_of
from trtspec.runner import Runner, SubprocessRunner

Normaliser = Callable[[str], str]
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_SAYS_NO = 1


def assess(quality: Quality, samples: Samples, log: Path, runner: Runner | None = None) -> tuple[QualityRow, ...]:
    """Every check that is configured, over the prompts answered in both modes.

    EvidenceError when the command fails to run or writes no such result: that is neither right nor wrong.
    """
    domains = domains_of([a.prompt for a in samples.answers])
    pairs = [pair for domain in domains for pair in samples.pairs(domain)]
    rows: list[QualityRow] = []
    if quality.reference != "off":
        rows += [row for d in domains if (row := _against_references(quality.reference, d, samples.pairs(d)))]
    if quality.command and pairs:
        rows.append(_by_command(quality, pairs, log, runner or SubprocessRunner()))
    return tuple(rows)


def matches(kind: str, answer: str, reference: str) -> bool:
    """Whether an answer is the reference, once both are put into one form. An empty form matches nothing."""
    normalise = NORMALISERS[kind]
    wanted = normalise(reference)
    return bool(wanted) and normalise(answer) == wanted


def _letters(text: str) -> str:
    return text.strip()


def _words(text: str) -> str:
    """Words without case, punctuation and kinds of space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"\w+", folded))


def _last_number(text: str) -> str:
    """`#### 1,234.50` → `1234.5`: what a reasoned answer ends with."""
    found = _NUMBER.findall(text)
    if not found:
        return ""
    whole, _, part = found[-1].replace(",", "").partition(".")
    sign, digits = ("-" if whole.startswith("-") else ""), whole.lstrip("+-").lstrip("0") or "0"
    part = part.rstrip("0")
    value = f"{digits}.{part}" if part else digits
    return value if value == "0" else sign + value


NORMALISERS: dict[str, Normaliser] = {"exact": _letters, "words": _words, "number": _last_number}


def _against_references(kind: str, domain: str, pairs: Sequence[tuple[Answer, Answer]]) -> QualityRow | None:
    judged = [
        (matches(kind, plain.text, wanted), matches(kind, spec.text, wanted))
        for plain, spec in pairs
        if (wanted := plain.prompt.reference) is not None
    ]
    if not judged:
        return None
    return QualityRow(
        domain=domain,
        check=f"reference, {kind}",
        n=len(judged),
        target_only=sum(plain for plain, _ in judged) / len(judged),
        speculative=sum(spec for _, spec in judged) / len(judged),
        only_target_only=sum(plain and not spec for plain, spec in judged),
        only_speculative=sum(spec and not plain for plain, spec in judged),
    )


def _by_command(quality: Quality, pairs: Sequence[tuple[Answer, Answer]], log: Path, runner: Runner) -> QualityRow:
    with tempfile.TemporaryDirectory(prefix="trtspec-quality-") as folder:
        answers, result = Path(folder) / "answers.jsonl", Path(folder) / "result.json"
        answers.write_text("".join(map(_line, pairs)), encoding="utf-8")
        words = [w.replace("{answers}", str(answers)).replace("{result}", str(result)) for w in quality.command]
        process = runner.start(words, log=log)
        try:
            code = process.wait(quality.timeout)
        except TimeoutError:
            raise EvidenceError(f"the quality command did not end within {quality.timeout:g} s", where=log) from None
        finally:
            process.stop()
        if code not in (0, _SAYS_NO):
            raise EvidenceError("the quality command failed", where=log, found=f"exit {code}", expected="exit 0 or 1")
        scores = _scores(result, log) if result.exists() else {}
    return QualityRow(
        domain="",
        check=" ".join(quality.command),
        n=len(pairs),
        target_only=scores.get("target_only"),
        speculative=scores.get("speculative"),
        says_no=code == _SAYS_NO,
    )


def _line(pair: tuple[Answer, Answer]) -> str:
    plain, spec = pair
    row = {
        "id": plain.prompt.id,
        "domain": plain.prompt.domain,
        "prompt": plain.prompt.text,
        "reference": plain.prompt.reference,
        "target_only": plain.text,
        "speculative": spec.text,
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _scores(path: Path, log: Path) -> dict[str, float]:
    """`{"target_only": 0.81, "speculative": 0.80}`: shares of right answers."""
    expected = '{"target_only": share, "speculative": share}, shares between 0 and 1'
    try:
        found = json.loads(path.read_bytes())
        scores = {name: float(found[name]) for name in ("target_only", "speculative") if found.get(name) is not None}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise EvidenceError("the quality command wrote no result", where=log, expected=expected) from None
    if not scores or not all(0.0 <= score <= 1.0 for score in scores.values()):
        raise EvidenceError("the quality command wrote no result", where=log, found=found, expected=expected)
    return scores

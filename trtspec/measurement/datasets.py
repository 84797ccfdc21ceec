"""What the prompts of a measurement are: counted, looked at, and whether a release may rest on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from trtspec.measurement.parts import DatasetRow, Severity
from trtspec.measurement.prompts import PromptSet
from trtspec.measurement.result import ProblemRow
from trtspec.measurement.textcheck import near_duplicates, random_looking
from trtspec.measurement.tokens import PromptEncoder

MANY = 0.1
"""Share of a domain's prompts from which near-duplicates or random tokens speak against the whole set."""


class Vocabulary:
    """Tokens of the deployment: what texts become, and how many there are."""

    def __init__(self, folder: Path) -> None:
        self._encoder = PromptEncoder(folder)
        self._around = self._encoder.ids("")
        self.size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without the begin token that encoding puts in front."""
        found, own = self._encoder.ids(text), len(self._around)
        return found[own:] if found[:own] == self._around else found


def dataset_rows(sets: Sequence[PromptSet], vocabulary: Vocabulary | None, ignore_eos: bool) -> tuple[DatasetRow, ...]:
    """One row for each domain. Without a vocabulary nobody can say which prompts are random tokens: null."""
    return tuple(_row(each, vocabulary, ignore_eos) for each in sets)


def _row(found: PromptSet, vocabulary: Vocabulary | None, ignore_eos: bool) -> DatasetRow:
    texts = [p.text for p in found.prompts]
    salad = None if vocabulary is None else len(random_looking(texts, vocabulary.ids, vocabulary.size))
    return DatasetRow(
        domain=found.domain,
        file=found.file,
        sha256=found.sha256,
        prompts=len(texts),
        available=found.available,
        duplicates=found.duplicates,
        near_duplicates=len(near_duplicates(texts)),
        random_tokens=salad,
        references=sum(p.reference is not None for p in found.prompts),
        skipped=found.skipped,
        ignore_eos=ignore_eos or any(p.ignore_eos for p in found.prompts),
        synthetic=found.synthetic or _many(salad or 0, len(texts)),
    )


def dataset_problems(rows: Sequence[DatasetRow]) -> Iterator[ProblemRow]:
    """What speaks against the prompts, and what is only to be known."""
    for row in rows:
        salad = row.random_tokens or 0
        if row.ignore_eos:
            text = "answers went on behind the end token (ignore_eos): no user gets such text"
            yield _problem("dataset.ignore-eos", row, text, row.prompts, "release")
        if row.synthetic and not _many(salad, row.prompts):
            yield _problem("dataset.synthetic", row, "the prompts are declared synthetic", row.prompts, "release")
        if salad:
            text = f"{salad} of {row.prompts} prompts look like random tokens: a draft is not asked for such text"
            yield _problem("dataset.random-tokens", row, text, salad, _how_bad(salad, row))
        if row.near_duplicates:
            text = f"{row.near_duplicates} of {row.prompts} prompts nearly repeat an earlier one"
            severity = _how_bad(row.near_duplicates, row)
            yield _problem("dataset.near-duplicates", row, text, row.near_duplicates, severity)
        if row.duplicates:
            text = f"{row.duplicates} prompts of {row.file} repeat an earlier one and were left out"
            yield _problem("dataset.duplicates", row, text, row.duplicates, "note")
        if row.skipped:
            text = f"{row.skipped} entries of {row.file} hold no question and were left out"
            yield _problem("dataset.skipped", row, text, row.skipped, "note")


def _many(count: int, of: int) -> bool:
    return count > MANY * of


def _how_bad(count: int, row: DatasetRow) -> Severity:
    return "release" if _many(count, row.prompts) else "note"


def _problem(code: str, row: DatasetRow, message: str, count: int, severity: Severity) -> ProblemRow:
    return ProblemRow(code=code, domain=row.domain, message=message, count=count, severity=severity)

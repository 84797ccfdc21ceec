"""Files of prompts as rows: JSON Lines, CSV (or TSV), and ShareGPT-like lists of conversations."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trtspec.config.validation import Dataset
from trtspec.errors import ConfigError

HUMAN = frozenset({"human", "user"})
ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".json": "sharegpt"}
# A cell of a whole document is longer than Python's default of 128 KiB.
_LONGEST_CELL = 2**27


@dataclass(frozen=True)
class Row:
    """One prompt as it stands in the file; `where` names the file and the line or entry."""

    number: int
    where: str
    data: dict[str, object]

    def fault(self, what: str, found: str | None = None, fix: str | None = None) -> ConfigError:
        """An error that says where."""
        shown = found if found is None or len(found) <= 80 else f"{found[:77]}..."
        return ConfigError(what, where=self.where, found=shown, fix=fix)


def rows_of(dataset: Dataset, text: str) -> Iterator[Row]:
    """The rows of a dataset's file; ConfigError names the line that is none."""
    chosen = _ENDINGS.get(dataset.path.suffix.lower(), "jsonl") if dataset.format == "auto" else dataset.format
    readers: dict[str, Callable[[Path, str], Iterator[Row]]] = {"jsonl": _lines, "csv": _table, "sharegpt": _list}
    return readers[chosen](dataset.path, text)


def usable(row: Row) -> bool:
    """False for a conversation that no user begins: public collections hold many halves of longer ones."""
    if "conversations" not in row.data:
        return True
    turns = row.data["conversations"]
    if not isinstance(turns, list):
        raise row.fault("`conversations` is a list of turns", type(turns).__name__)
    return any(speaker in HUMAN for speaker, _ in _opening(row, turns))


def conversation(row: Row) -> tuple[list[dict[str, object]], str | None]:
    """The first question of a conversation as messages, its system text before it, and the answer it got."""
    turns = row.data["conversations"]
    messages: list[dict[str, object]] = []
    for speaker, said in _opening(row, turns if isinstance(turns, list) else []):
        if speaker == "system":
            messages.append({"role": "system", "content": said})
        elif speaker in HUMAN:
            messages.append({"role": "user", "content": said})
        else:
            return messages, said
    return messages, None


def _opening(row: Row, turns: list[object]) -> list[tuple[str, str]]:
    """System text, first question and first answer, as far as they come in this order."""
    found: list[tuple[str, str]] = []
    for turn in turns:
        speaker, said = _turn(row, turn)
        asked = any(earlier in HUMAN for earlier, _ in found)
        if (speaker == "system" and not found) or (speaker in HUMAN and not asked):
            found.append((speaker, said))
        elif speaker in ANSWERS and asked:
            return [*found, (speaker, said)]
        else:
            break
    return found


def _turn(row: Row, turn: object) -> tuple[str, str]:
    speaker, said = (
        (turn.get("from", turn.get("role")), turn.get("value", turn.get("content")))
        if isinstance(turn, dict)
        else (None, None)
    )
    if not isinstance(speaker, str) or not isinstance(said, str):
        raise row.fault("a turn of a conversation has the texts `from` and `value`", repr(turn))
    return speaker.lower(), said


def _lines(path: Path, text: str) -> Iterator[Row]:
    # Only "\n" ends a line of JSON Lines; str.splitlines would also cut at U+2028 inside a text.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            row = Row(number, f"{path}:{number}", {})
            yield Row(number, row.where, _object(row, _parsed(row, line)))


def _table(path: Path, text: str) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    header: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            row = Row(line, f"{path}:{line}", {})
            line = reader.line_num + 1
            if not any(cells):
                continue
            if header is None:
                header = cells
                continue
            if len(cells) != len(header):
                raise row.fault(f"a row of {len(cells)} cells", ", ".join(cells), f"the header has {len(header)}")
            yield Row(row.number, row.where, {name: _cell(name, c) for name, c in zip(header, cells, strict=True) if c})
    except csv.Error as error:
        raise ConfigError(f"not a table of comma-separated values: {error}", where=f"{path}:{line}") from None


def _cell(name: str, value: str) -> object:
    """A table holds text only; of the keys we read, one is a number and one a yes or no."""
    if name == "max_tokens" and value.strip().isdecimal():
        return int(value)
    if name == "ignore_eos" and value.strip().lower() in ("true", "false", "0", "1"):
        return value.strip().lower() in ("true", "1")
    return value


def _list(path: Path, text: str) -> Iterator[Row]:
    whole = Row(1, str(path), {})
    entries = _parsed(whole, text)
    if not isinstance(entries, list):
        expected = "name JSON Lines *.jsonl, or set the dataset's `format`"
        raise whole.fault("a .json file of prompts is one list of entries", type(entries).__name__, expected)
    for number, entry in enumerate(entries, start=1):
        row = Row(number, f"{path}, entry {number}", {})
        yield Row(number, row.where, _object(row, entry))


def _parsed(row: Row, text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.fault(f"not valid JSON: {getattr(error, 'msg', 'nested too deeply')}") from None
    return found


def _object(row: Row, data: object) -> dict[str, object]:
    if not isinstance(data, dict):
        raise row.fault("a prompt is a JSON object", type(data).__name__)
    return data

"""A result document as a file: read, and held against itself."""

from __future__ import annotations

import json
from pathlib import Path

from trtspec.errors import EvidenceError
from trtspec.measurement.consistency import contradictions
from trtspec.measurement.documents import read_document
from trtspec.measurement.result import VERSION, ResultDocument

AGAIN = "measure again with `trtspec measure` or `trtspec validate`"


def load_result(path: Path) -> ResultDocument:
    """Read a result document; EvidenceError where it is none, one of another version, or contradicts itself."""
    try:
        found = read_document(ResultDocument, path, "result", "result document", fix=AGAIN)
    except EvidenceError:
        _require_version(path)
        raise
    require_sound(found, path)
    return found


def require_sound(result: ResultDocument, path: Path, key: str = "") -> None:
    """EvidenceError at the first place where the document says two things; `key` is where it stands in the file."""
    found = list(contradictions(result))
    if found:
        first = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        what = f"the result contradicts itself at {key}{first.key}{more}"
        raise EvidenceError(what, where=path, found=first.found, expected=first.expected, fix=AGAIN)


def _require_version(path: Path) -> None:
    """A document of another version is told apart from one that is broken."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # the reader has said what is wrong with it
    number = found.get("version", VERSION) if isinstance(found, dict) else VERSION
    if number != VERSION:
        fix, expected = AGAIN, f"version {VERSION}"
        if isinstance(number, int) and number > VERSION:
            fix = "read it with the trtspec that wrote it, or a newer one"
        raise EvidenceError(
            "a result document of another version", where=path, found=number, expected=expected, fix=fix
        ) from None

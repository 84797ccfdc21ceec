"""Documents as files. A file is whatever somebody made of it: one line says what is wrong with it, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from trtspec.errors import EvidenceError
from trtspec.measurement.parts import Record

Document = TypeVar("Document", bound=Record)
_LONGEST = 60


def read_document(
    kind: type[Document], path: Path, name: str, whole_name: str | None = None, fix: str | None = None
) -> Document:
    """Read a document that was written as JSON; EvidenceError where it is none, in these names."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise EvidenceError(f"cannot read the {name}: {error.strerror}", where=path) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "document"
        what = f"not a {whole_name or name}: {place}: {first['msg']}"
        found = None if first["type"] == "json_invalid" else _shown(first["input"])  # else: the whole file
        raise EvidenceError(what, where=path, found=found, fix=fix) from None


def _shown(value: object) -> str | None:
    """What stood there, where it is short enough to help."""
    if isinstance(value, (dict, list, tuple)):
        return None
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

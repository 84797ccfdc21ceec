"""Can a tokenizer's pipeline be run at all? Tried in a process with limits before it is loaded here.

A tokenizer.json is a stranger's program: thirty replacements of one letter by two make eight gigabytes of a sentence
(and end the process that tries), and a regular expression can run for hours within the library's own limit of ten
million steps a match. Normalizer, pre-tokenizer and added tokens are therefore run on the sample texts by
`python -m trtspec.pairing.trial` first. Model and post-processor are left out: they are data, and add no more than the
file has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtspec.pairing.corpus import CORPUS
from trtspec.pairing.worker import serve

WORKER = "trtspec.pairing.trial"
CPU_SECONDS = 5
"""Published pipelines take a few hundredths."""
MEMORY = 1 << 30
"""Address space of the process, in bytes."""
STOPPED = "its pipeline needs more than 5 s or 1 GiB for a few sample texts"
FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
"""What an added token says about how it is found in a text."""
_TEMPERATE = frozenset((
    *("Sequence", "ByteLevel", "Metaspace", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "Split"),
    *("Replace", "Prepend", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt"),
    *("BertNormalizer", "BertPreTokenizer", "UnicodeScripts", "TemplateProcessing"),
))  # fmt: skip
"""Parts whose work is in proportion to the text, as long as they hold no regular expression."""
_NOTHING: dict[str, Any] = {
    "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": None,
    "model": {"type": "BPE", "vocab": {}, "merges": []},
}  # fmt: skip
"""The rest of a tokenizer around a pipeline."""
_FEW, _SHORT = 8, 4
"""Parts of a pipeline, and characters that a part may put in front of a text, of which no trial is needed."""


def job_of(document: Mapping[str, Any]) -> str | None:
    """What is to be tried of a tokenizer.json, or None where nothing in it could run away."""
    parts = [part for key in ("normalizer", "pre_tokenizer") for part in _parts(document.get(key))]
    if len(parts) <= _FEW and all(map(_temperate, parts)):
        return None
    hull = {key: document.get(key) for key in ("version", "normalizer", "pre_tokenizer")} | _NOTHING
    return json.dumps({"hull": hull, "added": document.get("added_tokens")})


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    """A part of the pipeline and all inside it; what is no part is refused by the library later."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            for key in ("normalizers", "pretokenizers"):
                waiting += part[key] if isinstance(part.get(key), list) else []


def _temperate(part: Mapping[str, Any]) -> bool:
    pattern, content, prepended = part.get("pattern"), part.get("content", ""), part.get("prepend", "")
    text = pattern.get("String") if isinstance(pattern, dict) else pattern
    if part.get("type") not in _TEMPERATE or not isinstance(content, str) or not isinstance(prepended, str):
        return False
    if pattern is not None and not (isinstance(text, str) and text):
        return False  # a regular expression, or an empty text, which stands between any two letters
    return len(content) <= len(text or "") and len(prepended) <= _SHORT


def tried(jobs: Sequence[str]) -> list[bool]:
    """Whether each job came to an end within the limits."""
    from trtspec.pairing import limited  # not in the worker, whose start is part of every check

    distinct = list(dict.fromkeys(jobs))
    if not distinct:
        return []
    with limited.answering(WORKER, distinct) as answers:
        ended = dict(zip(distinct, answers(), strict=True))
    return [ended[job] is not None for job in jobs]


def _run(job: str) -> str:
    """Cut all sample texts; errors are found again, and told, when the whole tokenizer is loaded."""
    from tokenizers import AddedToken, Tokenizer

    given = json.loads(job)
    try:
        hull = Tokenizer.from_str(json.dumps(given["hull"]))
        hull.add_tokens([
            AddedToken(entry["content"], **{flag: entry.get(flag) is True for flag in FLAGS})
            for entry in given["added"] or []
        ])  # fmt: skip
        for texts in CORPUS.values():
            for text in texts:
                hull.encode(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return "refused"
    return "done"


if __name__ == "__main__":
    serve(_run, cpu_seconds=CPU_SECONDS, memory=MEMORY)

"""All that is checked of the two tokenizers: ids, segmentation, special and stop tokens, chat templates.

Called by the whole check: :func:`read_tokenizers` fills `words` and `vocabulary` of both models, and
:func:`check_tokenizers` yields the findings. A broken file is a finding, never an exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtspec.checkpoint.jsonfile import ABSENT
from trtspec.checkpoint.known import near
from trtspec.config import RunConfig
from trtspec.errors import ModelFileError
from trtspec.pairing.conversations import rendering
from trtspec.pairing.findings import Finding, error_finding
from trtspec.pairing.model import Model
from trtspec.pairing.rebuilt import check_rebuilt
from trtspec.pairing.segmentation import check_segmentation
from trtspec.pairing.special import check_special
from trtspec.pairing.stops import check_stops
from trtspec.pairing.template import check_template
from trtspec.pairing.tokenizer import Vocabulary, read_vocabularies
from trtspec.pairing.vocabulary import Differences, compare, examine
from trtspec.pairing.words import Words


def read_tokenizers(target: Model, draft: Model) -> None:
    """Read both sides' documents once; their chat templates are rendered meanwhile. Broken files become findings."""
    models = (target, draft)
    documents = [Words.read(model.role, model.folder) for model in models]
    with rendering(documents):
        read = read_vocabularies(target.folder, draft.folder)
    for model, words, vocabulary in zip(models, documents, read, strict=True):
        model.words = words
        model.findings += words.findings
        if isinstance(vocabulary, Vocabulary):
            model.vocabulary = words.vocabulary = vocabulary
        elif model.published is None:  # else the check of published facts has the finding
            model.findings.append(_unreadable(model, vocabulary))


def _unreadable(model: Model, error: ModelFileError) -> Finding:
    if not model.here:
        # An error, not *not measured*: a verdict that never compared token ids must not read as a pass.
        name = model.origin.name.text if model.origin.name else str(model.folder)
        message = f"{name}: not on this machine; nothing can be said about its token ids"
        like = near(name)
        fix = f"did you mean {like}, whose facts are known? If not," if like else "correct the id, or"
        fix += f" pin pair.{model.role}.revision (in the file, or by --set) and fetch it with --download"
        return Finding("tokenizer.missing", "error", model.role, message, fix)
    code = "tokenizer.missing" if error.what == ABSENT else "tokenizer.broken"
    return error_finding(code, model.role, error)


def check_tokenizers(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Everything about the two tokenizers. Both have been read before."""
    if target.words is None or draft.words is None:
        return
    rows: dict[str, int | None] = {
        model.role: None if model.facts is None else model.facts.vocab_size for model in (target, draft)
    }
    yield from check_words(target.words, draft.words, rows, own=config.engine.backend != "pytorch")


def check_words(target: Words, draft: Words, rows: Mapping[str, int | None], *, own: bool = True) -> Iterator[Finding]:
    """The same for documents alone. `rows`: embedding rows by role, where known; `own`: prompts are made by the
    repository's preprocessing, not by the engine's tokenizer."""
    for words in (target, draft):
        if words.vocabulary is not None:
            yield from examine(words.role, words.vocabulary)
    if target.vocabulary is None or draft.vocabulary is None:
        yield Finding("vocab.not-measured", "info", "pair", f"token ids are not compared: {_lacking(target, draft)}")
        return
    found = Differences.of(target.vocabulary, draft.vocabulary)
    yield from compare(target.vocabulary, draft.vocabulary, found)
    try:
        yield from _encoded(target, draft, found, rows, own)
    except ModelFileError as error:  # a tokenizer that loads, and then fails on a text
        fix = "restore the tokenizer.json that came with the model"
        yield Finding("tokenizer.broken", "error", "pair", str(error), fix)


def _lacking(*both: Words) -> str:
    """Which tokenizers there are none of, and why."""
    why = {
        words.role: "could not be read" if words.folder.is_dir() else "is not on this machine"
        for words in both
        if words.vocabulary is None
    }
    if len(set(why.values())) == 1:
        return f"the tokenizer of {' and '.join(why)} {next(iter(why.values()))}"
    return " and ".join(f"the {role}'s tokenizer {reason}" for role, reason in why.items())


def _encoded(
    target: Words, draft: Words, found: Differences, rows: Mapping[str, int | None], own: bool
) -> Iterator[Finding]:
    yield from check_segmentation(target, draft, found)
    yield from check_special(target, draft, found, rows, own=own)
    for words in (target, draft):
        yield from check_rebuilt(words)
    yield from check_stops(target, draft, rows, comparable=found.comparable)
    yield from check_template(target, draft)

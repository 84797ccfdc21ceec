"""Beam search: the target alone, one call, all beams in one response, as TensorRT-LLM's own pipeline answers."""

from __future__ import annotations

from job import Job
from pair import Pair
from vocabulary import Vocabulary
from wire import Array


def answer(pair: Pair, vocabulary: Vocabulary, job: Job) -> tuple[list[str], dict[str, Array], int]:
    """Texts of all beams, the target's tensors, and the tokens of all beams together.

    A stream has one response, too, for beams change until the end.
    """
    found = pair.search(job.beams)
    lengths = found["sequence_length"].reshape(-1)
    lines = found["output_ids"].reshape(len(lengths), -1)
    beams = [line[:length].tolist() for line, length in zip(lines, lengths, strict=True)]
    return [_text(pair, vocabulary, job, beam) for beam in beams], found, int(lengths.sum())


def _text(pair: Pair, vocabulary: Vocabulary, job: Job, tokens: list[int]) -> str:
    """One beam's text up to its first stop word."""
    text = vocabulary.decode(tokens)
    found = [(at, len(word)) for word in job.stop_texts if (at := text.find(word)) >= 0]
    if found:
        at, length = min(found)
        text = text[: at + length if pair.limits().include_stop_words else at]
    if job.exclude_input:
        return text
    return vocabulary.decode(pair.prompt.ids) + text if found else vocabulary.decode(pair.prompt.ids + tokens)

"""Do text, tokens and log-probabilities of an answer have one length? A few prompts, asked once more in one piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trtspec.measurement.asking import Asker
from trtspec.measurement.endpoints import BLS, ENSEMBLE, Endpoint
from trtspec.measurement.parts import Severity
from trtspec.measurement.records import Answer, Mode, Samples
from trtspec.measurement.result import ProblemRow

PROMPTS = 2
"""Asked in each mode: what a pipeline does to lengths it does to every answer."""


def length_problems(asker: Asker, endpoints: Mapping[Mode, Endpoint], samples: Samples) -> Iterator[ProblemRow]:
    """Asks the server. Where it gives no log-probabilities, that is a note."""
    whole = replace(asker, stream=False, log_probs=True)
    for mode, endpoint in endpoints.items():
        if endpoint.model not in (ENSEMBLE, BLS):
            continue  # the LLM API's model sends one sum of them
        known = [a for a in samples.answers if a.mode == mode and a.usable and a.output_tokens > 1][:PROMPTS]
        yield from _of_mode(whole, endpoint, mode, known)


def _of_mode(asker: Asker, endpoint: Endpoint, mode: Mode, known: Sequence[Answer]) -> Iterator[ProblemRow]:
    client = endpoint.clients()
    try:
        for before in known:
            found = asker.ask(client, endpoint, mode, before.prompt, 0, "lengths")
            problem = _compare(mode, before, found, greedy=asker.validation.temperature == 0.0)
            if problem is not None:
                yield problem
                return
    finally:
        client.close()


def _compare(mode: Mode, before: Answer, found: Answer, *, greedy: bool) -> ProblemRow | None:
    prompt = f"{mode}, prompt {before.prompt.id}"
    domain = before.prompt.domain
    if not found.usable:
        return _row("lengths.none", domain, f"{prompt}: lengths were not compared: {found.fault}", "note")
    if not found.log_probs:
        return _row("lengths.none", domain, f"{prompt}: the server sent no log-probabilities", "note")
    if found.log_probs != found.output_tokens:
        text = f"{prompt}: {found.log_probs} log-probabilities for {found.output_tokens} output tokens"
        return _row("lengths.log-probs", domain, text, "invalid")
    if greedy and found.text == before.text and found.output_tokens != before.output_tokens:
        text = f"{prompt}: one text, {before.output_tokens} tokens streamed and {found.output_tokens} in one piece"
        return _row("lengths.streamed", domain, text, "invalid")
    return None


def _row(code: str, domain: str, message: str, severity: Severity) -> ProblemRow:
    return ProblemRow(code=code, domain=domain, message=message, count=1, severity=severity)

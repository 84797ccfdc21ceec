"""One prompt as a request, and its answer as a record."""

from __future__ import annotations

from dataclasses import dataclass

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.validation import Validation
from trtspec.errors import ServingError
from trtspec.measurement.endpoints import Endpoint
from trtspec.measurement.generator import Answering
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.records import Answer, Mode
from trtspec.triton.generation import GenerateRequest, Generation

_MOST = 2**53
"""Beyond it a float holds no whole number, and no answer has so many tokens."""


@dataclass(frozen=True)
class Asker:
    """How requests are made: the declared sampling settings, the same in every mode."""

    validation: Validation
    stream: bool = True
    log_probs: bool = False

    def ask(self, client: Answering, endpoint: Endpoint, mode: Mode, prompt: Prompt, place: int, name: str) -> Answer:
        """The answer of one request; a failure is an unusable answer."""
        request = self._request(endpoint, mode, prompt, place, name)
        try:
            got = client.generate(endpoint.model, request)
        except ServingError as error:
            return Answer(prompt, mode, fault=str(error))
        return _answer(got, prompt, mode, totals_only=endpoint.totals_only, streamed=self.stream)

    def _request(self, endpoint: Endpoint, mode: Mode, prompt: Prompt, place: int, name: str) -> GenerateRequest:
        how = self.validation
        greedy = how.temperature == 0.0
        return GenerateRequest(
            prompt=prompt.text,
            max_tokens=prompt.max_tokens,
            draft_len=endpoint.draft_len,
            temperature=how.temperature,
            top_k=None if greedy or not how.top_k else how.top_k,
            top_p=None if greedy else how.top_p,
            seed=None if greedy else how.seed + place,
            task=None,  # the policy in force must not decide what is measured to decide the policy
            stream=self.stream,
            use_draft_logits=endpoint.use_draft_logits,
            request_id=f"{name}-{mode}-{place}",
            timeout=how.request_timeout,
            ignore_eos=how.ignore_eos or prompt.ignore_eos,
            return_log_probs=self.log_probs,
        )


def _answer(got: Generation, prompt: Prompt, mode: Mode, *, totals_only: bool, streamed: bool) -> Answer:
    """The client's answer as a record; what contradicts itself at once is a fault."""
    histogram, fault = None, None
    if got.histogram is not None and mode == "speculative":
        try:
            histogram = RoundHistogram.from_wire(got.histogram)
        except ValueError as error:
            fault = f"the server's histogram is none: {error}"
    if got.finish_reason in ("error", "cancelled"):
        fault = f"the server ended the answer with {got.finish_reason!r}"
    counts = (got.input_tokens, got.output_tokens, got.rounds, got.drafted, got.tested, got.accepted)
    if wrong := [c for c in counts if c is not None and not 0 <= c <= _MOST]:
        fault, histogram = f"the server reports a count of {wrong[0]}", None
    counted = histogram is not None
    told = counted or (totals_only and got.mode == "speculative" and not wrong)
    return Answer(
        prompt=prompt,
        mode=mode,
        text=got.text,
        finish_reason=got.finish_reason,
        spec_mode=got.mode,
        input_tokens=got.input_tokens,
        output_tokens=0 if wrong else got.output_tokens,
        seconds=got.seconds,
        first_token_seconds=got.first_token_seconds,
        histogram=histogram,
        rounds=got.rounds if told and (counted or got.rounds) else None,
        drafted=got.drafted if told else None,
        tested=got.tested if counted else None,
        accepted=got.accepted if told else None,
        fault=fault,
        chunks=got.chunks if streamed else (),
        totals_only=totals_only,
        log_probs=got.log_probs,
    )

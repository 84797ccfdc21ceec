"""A scriptable client: a toy model over characters, honest unless told to lie."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.validation import Validation
from trtspec.measurement.prompts import Prompt
from trtspec.triton.generation import Array, GenerateRequest, Generation

ALPHABET = "abcdefghijklmnopqrstuvwxyz .\n"
END = len(ALPHABET)
Lie = Callable[[str, GenerateRequest, Generation], Generation]
Logits = Callable[[tuple[int, ...]], Array]


def honest(model: str, request: GenerateRequest, answer: Generation) -> Generation:
    return answer


def hashed(ids: Sequence[int], salt: str = "") -> int:
    return int.from_bytes(hashlib.sha256((salt + ",".join(map(str, ids))).encode()).digest()[:4], "little")


def toy_logits(ids: tuple[int, ...]) -> Array:
    """A clear winner that depends on all ids; the end token wins now and then."""
    logits = np.array([(hashed(ids, str(i)) % 1000) / 1000 for i in range(END + 1)], np.float32)
    logits[END if hashed(ids) % 40 == 0 else hashed(ids) % END] += 5.0
    return logits


@dataclass
class FakeClient:
    """`agrees` is the draft's α; `forks` are places, by prompt, where speculation takes the second best token."""

    agrees: float = 0.7
    logits: Logits = toy_logits
    lie: Lie = honest
    forks: dict[str, int] = field(default_factory=dict)
    seconds: Callable[[str], float] = lambda model: 0.0
    asked: list[tuple[str, GenerateRequest]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    closed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        with self.lock:
            self.asked.append((model, request))
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            time.sleep(self.seconds(model))
            answer = self._plain(request) if model == "ensemble" else self._speculative(request)
            return self.lie(model, request, answer)
        finally:
            with self.lock:
                self.running -= 1

    def _plain(self, request: GenerateRequest) -> Generation:
        ids, ended = self._continue(self.tokens(request.prompt), request.max_tokens)
        return self._generation(request, ids, ended)

    def _speculative(self, request: GenerateRequest) -> Generation:
        ids, ended = self._continue(self.tokens(request.prompt), request.max_tokens, self.forks.get(request.prompt, -1))
        counted = self._rounds(request, len(ids), ended)
        return replace(
            self._generation(request, ids, ended),
            mode="speculative",
            histogram=counted.to_wire().astype(np.int32),
            rounds=counted.rounds,
            drafted=counted.drafted,
            tested=counted.tested,
            accepted=counted.accepted,
        )

    def _rounds(self, request: GenerateRequest, tokens: int, ended: bool) -> RoundHistogram:
        """Rounds that emit `tokens`, as a draft of acceptance `agrees` would need; the end token is the target's."""
        k, full, cut = request.draft_len or 0, [], []
        rng, left = np.random.default_rng(hashed(self.tokens(request.prompt))), tokens + int(ended)
        while left:
            drafted = min(k, left)
            accepted = int(np.append(rng.random(drafted) >= self.agrees, True).argmax())
            (cut if accepted == left else full).append((accepted, drafted))
            left -= min(left, accepted + 1)
        return RoundHistogram.from_rounds(full, cut) + RoundHistogram.empty(k)

    def _generation(self, request: GenerateRequest, ids: tuple[int, ...], ended: bool) -> Generation:
        return Generation(
            text=self.decode(ids),
            finish_reason="end_id" if ended else "length",
            mode="",
            histogram=None,
            tested=0,
            rounds=0,
            accepted=0,
            drafted=0,
            input_tokens=len(request.prompt),
            output_tokens=len(ids),
            seconds=0.01,
            first_token_seconds=0.002 if request.stream else None,
        )

    def _continue(self, ids: tuple[int, ...], count: int, fork: int = -1) -> tuple[tuple[int, ...], bool]:
        new: tuple[int, ...] = ()
        while len(new) < count:
            best = np.argsort(-self.logits(ids + new), kind="stable")
            token = int(best[1] if len(new) == fork else best[0])
            if token == END:
                return new, True
            new = (*new, token)
        return new, False

    def tokens(self, prompt: str) -> tuple[int, ...]:
        return tuple(ALPHABET.index(c) for c in prompt)

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        return self._continue(prompt_ids, max_tokens)[0]

    def next_logits(self, input_ids: tuple[int, ...]) -> Array:
        return self.logits(input_ids)

    def decode(self, ids: tuple[int, ...]) -> str:
        return "".join(ALPHABET[i] for i in ids if i != END)

    def close(self) -> None:
        self.closed += 1


def prompts(count: int, domain: str = "code", max_tokens: int = 24) -> list[Prompt]:
    words = ("def run", "import os", "return none", "class thing", "while true")
    letters = [ALPHABET[i // 26] + ALPHABET[i % 26] for i in range(count)]
    return [Prompt(f"{domain}-{i}", domain, f"{words[i % 5]} {domain} {letters[i]}", max_tokens) for i in range(count)]


def validation(**changes: object) -> Validation:
    return Validation.model_validate({"concurrency": 2, "warmup": 0} | changes)

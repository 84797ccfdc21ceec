"""What a new draft is worth: its measured acceptance, what it would need to pay, and plain words for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtspec.analysis.speedup import break_even_alpha, speedup
from trtspec.backends.reference.request import Sampling
from trtspec.backends.scoring import open_scorer
from trtspec.backends.scoring.base import GREEDY
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.jsonfile import Keys, read_object
from trtspec.measurement.offline import OfflineAcceptance, measure
from trtspec.measurement.reading import RULES, Setting, TokenPrompt
from trtspec.pairing.counts import active_parameters

if TYPE_CHECKING:
    from trtspec.backends.scoring import Device

K_MAX = 8
FEW_PROMPTS = 30
"""Below this an interval over prompts is wide, and the words say so."""


@dataclass(frozen=True)
class Measured:
    """Acceptance of a draft on its target's answers. `cost`: draft step ÷ target step, by the weights each reads."""

    acceptance: OfflineAcceptance
    conditions: Mapping[str, str]
    cost: float | None
    k: int

    @property
    def sampled(self) -> bool:
        """Whether tokens were drawn; the rejection rule then decides acceptance."""
        return not self.acceptance.setting.sampling.greedy

    def gain(self, k: int) -> float | None:
        """Speed-up with k draft tokens a round, v = 1 and o = 0; None where nothing was measured or c is unknown."""
        length = self._histogram(k).acceptance_length()
        return None if length is None or self.cost is None else speedup(length, k, self.cost)

    def best(self) -> tuple[int, float] | None:
        """(K, speed-up) of the best of K = 1..8; None as `gain`."""
        gains = [(k, gain) for k in range(1, K_MAX + 1) if (gain := self.gain(k)) is not None]
        return max(gains, key=lambda found: found[1], default=None)

    def _histogram(self, k: int, domain: str | None = None) -> Any:
        return self.acceptance.histogram(k, self._rule, domain)

    @property
    def _rule(self) -> Any:
        return RULES[2] if self.sampled else RULES[0]

    def as_dict(self) -> dict[str, Any]:
        """For `--json` and the manifest: everything with its conditions."""
        best = self.best()
        return {
            "k": self.k,
            "temperature": self.acceptance.setting.sampling.temperature if self.sampled else 0.0,
            "conditions": dict(self.conditions),
            "prompts": len(self.acceptance.readings),
            "all": self._figures(None),
            "domains": {domain: self._figures(domain) for domain in self.acceptance.domains},
            "cost_ratio": self.cost,
            "break_even_alpha": None if self.cost is None else break_even_alpha(self.k, self.cost),
            "speedup": self.gain(self.k),
            "best": None if best is None else {"k": best[0], "speedup": best[1]},
            "verdict": words(self),
        }

    def _figures(self, domain: str | None) -> dict[str, Any]:
        counted = self._histogram(self.k, domain)
        interval = self.acceptance.alpha(self.k, self._rule, domain)
        return {
            "prompts": len(self.acceptance.of(domain)),
            "tokens": sum(reading.tokens for reading in self.acceptance.of(domain)),
            "alpha": counted.alpha(),
            "interval": None if interval is None else [interval.low, interval.high],
            "tokens_per_round": counted.acceptance_length(),
            "per_position": counted.per_position(),
        }


def measure_draft(
    target: Path,
    draft: Path,
    prompts: Sequence[TokenPrompt],
    source: str,
    *,
    temperature: float = 0.0,
    device: Device = "cpu",
    k: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Measured:
    """Measure `draft` against `target`, two Hugging Face folders; `source` says where the prompts are from.

    MissingError without torch; ModelFileError for a broken model.
    """
    with open_scorer(target, device=device) as judge, open_scorer(draft, device=device, role="draft") as proposer:
        sampling = Sampling(temperature=temperature) if temperature else GREEDY
        setting = Setting(k_max=max(K_MAX, k), sampling=sampling, end_ids=end_ids(target), tails=False)
        found = measure(judge, proposer, prompts, setting, progress=progress)
        conditions = {f"target {name}": value for name, value in judge.conditions.items()}
        conditions["prompts"] = source
    return Measured(found, conditions, cost_ratio(target, draft), k)


def end_ids(folder: Path) -> tuple[int, ...]:
    """The ids that end an answer: generation_config.json's, else config.json's, as the pipeline takes them."""
    path = folder / "generation_config.json"
    named = Keys(read_object(path), path).ids("eos_token_id") if path.is_file() else ()
    return named or ModelFacts.read(folder).eos_ids


def cost_ratio(target: Path, draft: Path) -> float | None:
    """c: weights that a draft step reads over those of a target step, both in the same type; None: not known here."""
    read = [_read_per_step(ModelFacts.read(folder)) for folder in (draft, target)]
    return None if read[0] is None or read[1] is None else read[0] / read[1]


def _read_per_step(facts: ModelFacts) -> int | None:
    active = active_parameters(facts)
    # One row of an embedding is read; of a head, which a tied embedding is too, all of them.
    return active if active is None or facts.tie_word_embeddings else active - facts.vocab_size * facts.hidden_size


def words(measured: Measured) -> list[str]:
    """The verdict in sentences: α with its interval and conditions, what it would need, what that means."""
    figures = measured.acceptance
    interval = figures.alpha(measured.k, measured._rule)
    if interval is None:
        return ["Nothing was measured: the target's answers are empty."]
    tokens = sum(reading.tokens for reading in figures.readings)
    said = [
        f"α {interval.point:.3f} (95% {interval.low:.3f}–{interval.high:.3f}) at K = {measured.k}: "
        f"{interval.n} prompts, {tokens} tokens, {'sampled' if measured.sampled else 'greedy'}."
    ]
    if interval.n < FEW_PROMPTS:
        said.append(f"{interval.n} prompts are few: measure on {FEW_PROMPTS} or more of your own before you decide.")
    return said + _economics(measured)


def _economics(measured: Measured) -> list[str]:
    best = measured.best()
    if measured.cost is None or best is None:
        return ["What it must accept to pay is not known: the size of one of the models is not."]
    needed = break_even_alpha(measured.k, measured.cost)
    base = f"A draft step reads {measured.cost:.2f} of what a target step reads"
    if needed is None:
        need = f"{base}: at K = {measured.k} no acceptance pays."
    else:
        need = f"{base}: at K = {measured.k} it breaks even at α {needed:.2f}."
    here, (k, most) = measured.gain(measured.k) or 0.0, best
    if most > 1.0:
        end = f"It pays with K = {k} ({most:.2f}×); with K = {measured.k} decoding would run at {here:.2f}×"
    else:
        end = f"No K makes decoding faster: {most:.2f}× at best (K = {k}), {here:.2f}× with K = {measured.k}"
    return [need, f"{end}, if a verify step costs one target step."]

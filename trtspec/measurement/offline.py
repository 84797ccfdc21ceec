"""Acceptance of a pair without a server: the target answers, and the draft is asked at every place of the answers.

The draft reads prompt and answer in one forward pass. What it says at a place is what it would propose there in a
round, because up to its first rejection a round's draft has the target's own tokens before it; rounds of every draft
length are then replayed (:mod:`trtspec.analysis.simulation`). Three rules of acceptance are told apart:

* `tokens`: the draft's token equals the target's. Greedy, or both drawn with the request's random numbers, one number
  for each place, as the reference engine draws them for a pair in one process.
* `tokens-independent`: the same, but the draft draws with numbers of its own, as in the served pipeline.
* `logits`: the rejection rule of speculative sampling (Leviathan et al. 2023). Given the target's token x, the draft's
  proposal was x and was accepted with probability min(1, q(x) ÷ p(x)): the target's token has probability p(x), and
  being drafted and accepted q(x) · min(1, p(x) ÷ q(x)) = min(p(x), q(x)).

Distributions p and q are those that are drawn from, after temperature, top-k and top-p.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.analysis.simulation import expected, histogram
from trtspec.backends.scoring.base import Scorer
from trtspec.measurement.reading import PairReader, Reading, Rule, Setting, TokenPrompt


@dataclass(frozen=True)
class OfflineAcceptance:
    """All readings of one measurement; every figure is derived from them."""

    readings: tuple[Reading, ...]
    setting: Setting

    @property
    def domains(self) -> tuple[str, ...]:
        """In the order in which they first appear."""
        return tuple(dict.fromkeys(r.domain for r in self.readings))

    def of(self, domain: str | None) -> tuple[Reading, ...]:
        """The readings of one domain, or all."""
        return tuple(r for r in self.readings if domain in (None, r.domain))

    def histogram(self, k: int, rule: Rule = "tokens", domain: str | None = None) -> RoundHistogram:
        """Rounds with at most k draft tokens."""
        return histogram((r.traces[rule] for r in self.of(domain)), k)

    def alpha(self, k: int, rule: Rule = "tokens", domain: str | None = None) -> Interval | None:
        """Accepted ÷ tested with a 95 % interval over prompts; None where nothing was tested."""
        each = [histogram([r.traces[rule]], k) for r in self.of(domain)]
        return ratio_interval([h.accepted for h in each], [h.tested for h in each])

    def expected_alpha(self, k: int, rule: Rule, domain: str | None = None) -> float | None:
        """Mean accepted ÷ mean tested over the draft's random choices, the answers being given."""
        each = [expected(r.match[rule], r.untested[rule], r.max_tokens, k) for r in self.of(domain) if rule in r.match]
        tested = sum(e.tested for e in each)
        return sum(e.accepted for e in each) / tested if tested else None


def measure(
    target: Scorer,
    draft: Scorer,
    prompts: Sequence[TokenPrompt],
    setting: Setting | None = None,
    *,
    known: Mapping[tuple[str, str], Reading] | None = None,
    keep: Callable[[Sequence[Reading]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    chunk: int = 16,
) -> OfflineAcceptance:
    """Acceptance of the pair on `prompts`; each must fit both models with its answer.

    `known` holds readings of an earlier, interrupted run by (domain, id); `keep` gets each chunk's new ones as soon as
    they are there. `progress(done, all)` in prompts.
    """
    setting = setting or Setting()
    reader = PairReader(target, draft, setting)
    found = dict(known or {})
    todo = [p for p in prompts if (p.domain, p.id) not in found]
    for start in range(0, len(todo), chunk):
        new = reader.read(todo[start : start + chunk])
        found |= {(r.domain, r.id): r for r in new}
        if keep is not None:
            keep(new)
        if progress is not None:
            progress(len(prompts) - len(todo) + start + len(new), len(prompts))
    return OfflineAcceptance(tuple(found[p.domain, p.id] for p in prompts), setting)

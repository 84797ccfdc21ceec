"""The draft length of one request, from the acceptance it has seen so far. Pure arithmetic.

The rule is the house's formula for a round: with α the chance that a tested draft token is accepted, K of them give
(1 - α^(K+1)) / (1 - α) tokens for the price of one target step and K draft steps; the K with most tokens per price is
the next one. Three choices, all fixed, so that the same answers always lead to the same lengths:

* a draft step costs a tenth of a target step. The best K is flat around its place: were it a twentieth or a fifth,
  at most 4 or 6 per cent would be lost;
* α is accepted ÷ tested of this request, where a round's weight falls by a fifth with each further round. Text
  changes (a list, then prose), so old rounds must fade: acceptance that drops from all to none brings K from 8 to 1
  in 13 rounds. Where α stays what it is, the wandering estimate costs 1.5 % at most against the best fixed K
  (simulated, α from 0.1 to 0.97);
* it begins as if one round had been accepted whole, so that a request starts with the limit that others set for it.

Never below 1: without drafts nothing would be seen any more. Switching speculation off is the policy's business.
"""

from __future__ import annotations

DRAFT_COST = 0.1
FADING = 0.8


class Adaptive:
    """Draft lengths between 1 and `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._accepted = self._tested = float(max(1, most))

    def limit(self) -> int:
        """Most draft tokens of the next round."""
        alpha = self._accepted / self._tested
        best, best_value, tokens = 1, 0.0, 1.0
        for length in range(1, self._most + 1):
            tokens += alpha**length
            value = tokens / (1.0 + DRAFT_COST * length)
            if value > best_value:
                best, best_value = length, value
        return best

    def saw(self, drafted: int, accepted: int) -> None:
        """A round; one without draft tokens teaches nothing."""
        if drafted:
            self._accepted = FADING * self._accepted + accepted
            self._tested = FADING * self._tested + min(accepted + 1, drafted)

"""What speculation gains, in units of one target step.

    speed-up = E / (v + K·c + o)

E tokens per round, c = draft step ÷ target step, v = verifying K+1 positions ÷ one target step, o = overhead of a
round ÷ one target step (Leviathan et al. 2023, theorem 3.8, with v and o made explicit there as 1 and 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trtspec.analysis.acceptance import expected_tokens

VerifyCost = float | Callable[[int], float]


def speedup(tokens: float, k: int, c: float, v: float = 1.0, o: float = 0.0) -> float:
    """Speed-up of rounds that emit `tokens` on average and cost v + k·c + o target steps."""
    return tokens / break_even_tokens(k, c, v, o)


def break_even_tokens(k: int, c: float, v: float = 1.0, o: float = 0.0) -> float:
    """Tokens a round must emit to cost no more than plain decoding: the round's length in target steps."""
    if k < 0 or c < 0 or v <= 0 or o < 0:
        raise ValueError(f"costs are not negative and v is positive: k={k} c={c} v={v} o={o}")
    return v + k * c + o


def break_even_alpha(k: int, c: float, v: float = 1.0, o: float = 0.0) -> float | None:
    """The per-token acceptance at which speculation neither gains nor loses; None where even 1.0 loses."""
    return alpha_for(break_even_tokens(k, c, v, o), k)


def alpha_for(needed: float, k: int) -> float | None:
    """The acceptance with which rounds of k drafts emit `needed` tokens on average; None where even 1.0 does not.

    E is increasing in α, so the interval is halved until it is as narrow as doubles can be (scipy.optimize does the
    same in fewer steps, and takes half a second to import: more than the whole of `check`).
    """
    if needed > k + 1:
        return None
    if needed <= 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, k) < needed else (low, middle)
    return high


def best_k(alpha: float, c: float, max_k: int, v: VerifyCost = 1.0, o: float = 0.0) -> tuple[int, float]:
    """(K, speed-up) with the largest speed-up for K in 1..max_k, the smallest K of equals; (0, 1.0) if none gains.

    `v` may depend on K: verifying more positions costs more once the step is bound by arithmetic.
    """
    ks = range(1, max_k + 1)
    rounds = [break_even_tokens(k, c, v(k) if callable(v) else v, o) for k in ks]
    return best_of([expected_tokens(alpha, k) for k in ks], rounds)


def best_of(tokens: Sequence[float], rounds: Sequence[float]) -> tuple[int, float]:
    """(K, speed-up) of the best K = 1, 2, …, given tokens and target steps of a round of each; (0, 1.0) if none gains.

    Of equals the smallest K.
    """
    best, gain = 0, 1.0
    for k, (emitted, cost) in enumerate(zip(tokens, rounds, strict=True), 1):
        if emitted / cost > gain * (1 + 1e-12):
            best, gain = k, emitted / cost
    return best, gain


def speedup_table(
    alphas: Sequence[float], ks: Sequence[int], c: float, v: float = 1.0, o: float = 0.0
) -> list[list[float]]:
    """Speed-up for each alpha (rows) and each K (columns)."""
    return [[speedup(expected_tokens(alpha, k), k, c, v, o) for k in ks] for alpha in alphas]

"""What speculation gains, in units of one target step.

    speed-up = E / (v + K·c + o)

E tokens per round, c = draft step ÷ target step, v = verifying K+1 positions ÷ one target step, o = overhead of a
round ÷ one target step (Leviathan et al. 2023, theorem 3.8, with v and o made explicit there as 1 and 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scipy.optimize import brentq

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
    needed = break_even_tokens(k, c, v, o)
    if needed > k + 1:
        return None
    if needed <= 1:
        return 0.0
    return float(brentq(lambda alpha: expected_tokens(alpha, k) - needed, 0.0, 1.0))


def best_k(alpha: float, c: float, max_k: int, v: VerifyCost = 1.0, o: float = 0.0) -> tuple[int, float]:
    """(K, speed-up) with the largest speed-up for K in 1..max_k, the smallest K of equals; (0, 1.0) if none gains.

    `v` may depend on K: verifying more positions costs more once the step is bound by arithmetic.
    """
    best, gain = 0, 1.0
    for k in range(1, max_k + 1):
        cost = v(k) if callable(v) else v
        here = speedup(expected_tokens(alpha, k), k, c, cost, o)
        if here > gain * (1 + 1e-12):
            best, gain = k, here
    return best, gain


def speedup_table(
    alphas: Sequence[float], ks: Sequence[int], c: float, v: float = 1.0, o: float = 0.0
) -> list[list[float]]:
    """Speed-up for each alpha (rows) and each K (columns)."""
    return [[speedup(expected_tokens(alpha, k), k, c, v, o) for k in ks] for alpha in alphas]

"""The rejection rule of speculative sampling (Leviathan et al. 2023, Chen et al. 2023), on one position."""

from __future__ import annotations

from trtspec.backends.reference.sampling import Probabilities


def accepts(target: Probabilities, draft: Probabilities, token: int, u: float) -> bool:
    """Keep a draft's `token` when p_target > u · p_draft; `u` is uniform, or a fixed threshold (then not exact)."""
    return bool(target[token] > u * draft[token])


def residual(target: Probabilities, draft: Probabilities) -> Probabilities:
    """max(p_target - p_draft, 0), unnormalised: what a rejected position is drawn from.

    Where nothing is left (equal distributions, rejected by a fixed threshold or by rounding) the target's own.
    """
    rest = target - draft
    rest[rest < 0] = 0.0
    return rest if rest.any() else target

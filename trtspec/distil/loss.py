"""What the draft is trained for: to say at every position what its target would say there.

All functions take the logits of counted positions only, [N, vocab], and give one value per position, [N].
"""

# The project's mypy does not look into torch.
# mypy: no-warn-return-any
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def divergence(student: Tensor, target: Tensor, temperature: float = 1.0) -> Tensor:
    """Forward KL(target ‖ student) in nats, both softened by `temperature` and scaled by its square.

    The square keeps the gradient's size (Hinton et al. 2015, section 2).
    """
    given = functional.log_softmax(student.float() / temperature, dim=-1)
    wanted = functional.log_softmax(target.float() / temperature, dim=-1)
    return (wanted.exp() * (wanted - given)).sum(-1) * temperature**2


def divergence_of_top(student: Tensor, ids: Tensor, wanted: Tensor, temperature: float = 1.0) -> Tensor:
    """Forward KL when only the target's most likely tokens were kept: `ids` and `wanted` log-probabilities, [N, k].

    All other tokens are one outcome more, with what probability is left: by the log-sum inequality (Cover and Thomas,
    theorem 2.7.1) a lower bound of the whole divergence, and zero only where the kept tokens agree.
    """
    given = functional.log_softmax(student.float() / temperature, dim=-1).gather(-1, ids)
    wanted = wanted.float()
    kept = (wanted.exp() * (wanted - given)).sum(-1)
    rest = (1.0 - wanted.exp().sum(-1)).clamp_min(0.0)
    # Rounding may bring the student's kept mass to 1 or above it; a floor keeps the logarithm finite.
    left = (1.0 - given.exp().sum(-1)).clamp_min(1e-7)
    other = torch.where(rest > 0, rest * (rest.clamp_min(1e-12).log() - left.log()), torch.zeros_like(rest))
    return (kept + other) * temperature**2


def first_choice(student: Tensor, best: Tensor) -> Tensor:
    """Cross-entropy to the target's most likely token `best` [N]: greedy decoding asks for that one and no other."""
    return functional.cross_entropy(student.float(), best, reduction="none")

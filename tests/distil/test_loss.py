"""The losses against their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from trtspec.distil import loss  # noqa: E402

pytestmark = pytest.mark.torch


def logits(seed: int, rows: int = 5, vocab: int = 11, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def kept(target: torch.Tensor, k: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    values, ids = torch.log_softmax(target / temperature, -1).topk(k, -1)
    return ids, values


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_divergence_is_torchs_own(temperature: float) -> None:
    student, target = logits(1), logits(2)
    want = torch.nn.functional.kl_div(
        torch.log_softmax(student / temperature, -1), torch.log_softmax(target / temperature, -1),
        reduction="none", log_target=True,
    ).sum(-1) * temperature**2  # fmt: skip
    torch.testing.assert_close(loss.divergence(student, target, temperature), want)


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), k=st.integers(1, 10), temperature=st.sampled_from([0.7, 1.0, 1.5]))
def test_kept_tokens_give_a_lower_bound(seed: int, k: int, temperature: float) -> None:
    student, target = logits(seed), logits(seed + 1)
    whole = loss.divergence(student, target, temperature)
    part = loss.divergence_of_top(student, *kept(target, k, temperature), temperature)
    assert (part <= whole + 1e-4).all()
    assert (part >= -1e-5).all()


def test_all_tokens_kept_give_the_whole_divergence() -> None:
    student, target = logits(3), logits(4)
    torch.testing.assert_close(
        loss.divergence_of_top(student, *kept(target, 11, 1.0), 1.0),
        loss.divergence(student, target),
        atol=1e-4,
        rtol=0,
    )


def test_equal_models_lose_nothing_and_pull_nowhere() -> None:
    student = logits(5).requires_grad_()
    value = loss.divergence_of_top(student, *kept(student.detach(), 4, 1.0), 1.0).sum()
    value.backward()
    assert abs(value.item()) < 1e-5
    assert student.grad.abs().max() < 1e-5


def test_a_gradient_step_brings_the_student_nearer() -> None:
    student, target = logits(6).requires_grad_(), logits(7)
    top = kept(target, 4, 1.0)
    loss.divergence_of_top(student, *top, 1.0).sum().backward()
    nearer = (student - 0.05 * student.grad).detach()
    assert (loss.divergence(nearer, target) < loss.divergence(student.detach(), target)).all()


def test_extreme_logits_stay_finite() -> None:
    student = torch.tensor([[80.0, -80.0, 0.0]]).requires_grad_()
    value = loss.divergence_of_top(student, torch.tensor([[1]]), torch.tensor([[math.log(0.999)]]), 1.0)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(student.grad).all()


def test_first_choice_is_cross_entropy() -> None:
    student = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    assert loss.first_choice(student, torch.tensor([1])).item() == pytest.approx(math.log(4))

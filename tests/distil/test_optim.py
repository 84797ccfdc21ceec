"""Muon's update and the learning rate."""

from __future__ import annotations

import pytest

from trtspec.distil.budget import Budget, rate_factor

torch = pytest.importorskip("torch")
from trtspec.distil import optim  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(8, 8), (24, 6), (5, 30)])
def test_orthogonal_updates_have_singular_values_about_one(shape: tuple[int, int]) -> None:
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 1e-3
    values = torch.linalg.svdvals(optim.orthogonal(gradient))
    assert 0.5 < values.min() <= values.max() < 1.4


def test_muon_takes_layer_matrices_and_adamw_the_rest() -> None:
    from tests.distil.test_state import Net

    model = Net()
    optimizers = optim.muon(model)
    (muon, _), (adam, _) = optimizers.each
    matrices = {id(p) for group in muon.param_groups for p in group["params"]}
    assert matrices == {id(layer.weight) for layer in model.layers}
    assert {id(p) for group in adam.param_groups for p in group["params"]} == {
        id(p) for p in model.parameters()
    } - matrices


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_a_small_problem_is_learned(kind: str) -> None:
    from tests.distil.test_state import made

    model, optimizers = made(kind)
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
    first = model(x).sub(x).square().mean().item()
    for _ in range(120):
        loss = model(x).sub(x).square().mean()
        loss.backward()
        optimizers.step(0.2)
    assert loss.item() < first / 2


def test_the_rate_warms_up_and_ends_at_zero() -> None:
    assert rate_factor(0.0) < 0.1
    assert rate_factor(0.02) == pytest.approx(1.0)
    assert rate_factor(1.0) == pytest.approx(0.0)
    rates = [rate_factor(0.02 + i / 100) for i in range(98)]
    assert rates == sorted(rates, reverse=True)


def test_a_budget_counts_steps_or_minutes() -> None:
    steps = Budget(minutes=1.0, steps=4)
    for _ in range(3):
        steps.advance()
    assert steps.progress() == 0.75
    minutes = Budget(minutes=2.0, spent=60.0)
    assert minutes.progress() == pytest.approx(0.5)
    assert Budget(minutes=1.0, spent=1e9).progress() == 1.0

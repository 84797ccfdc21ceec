"""The loop: resumed to the bit, stopped in time, best weights kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.distil.test_state import Net, made  # noqa: E402
from trtspec.distil.budget import Budget  # noqa: E402
from trtspec.distil.train import Fit, Trainer  # noqa: E402
from trtspec.errors import BuildError  # noqa: E402

pytestmark = pytest.mark.torch


class Stop(Exception):
    """A kill in the middle."""


def fit(folder: Path, alphas: list[float], steps: int = 12, patience: int = 0, die_at: int = -1, kind: str = "adamw",
        seed: int = 0) -> tuple[Net, Fit]:  # fmt: skip
    """A loop on a toy model; the evaluation after step 2 i gives alphas[i]."""
    model, optimizers = made(kind, seed=seed)
    trainer = Trainer(model, optimizers, Budget(1.0, steps), folder)
    trainer.resume()

    def loss(step: int) -> Any:
        if step == die_at:
            raise Stop
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
        return model(x).square().mean()

    return model, Fit(trainer, loss, lambda: alphas[trainer.budget.step // 2], 2, patience)


RISING = [0.1 * i for i in range(10)]


@pytest.mark.parametrize("kind", ["muon", "adamw"])
@pytest.mark.parametrize("deaths", [(1,), (5,), (8,), (1, 5, 8)], ids=str)
def test_a_killed_run_ends_where_an_unbroken_one_does_to_the_bit(
    kind: str, deaths: tuple[int, ...], tmp_path: Path
) -> None:
    straight, whole = fit(tmp_path / "a", RISING, kind=kind)
    whole.run()
    for die_at in deaths:
        _, killed = fit(tmp_path / "b", RISING, die_at=die_at, kind=kind)
        with pytest.raises(Stop):
            killed.run()
    resumed, second = fit(tmp_path / "b", RISING, kind=kind, seed=5)
    second.run()
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [(e.step, e.alpha, e.loss) for e in whole.history] == [(e.step, e.alpha, e.loss) for e in second.history]


def test_the_best_weights_are_kept_not_the_last(tmp_path: Path) -> None:
    model, loop = fit(tmp_path, [0.1, 0.2, 0.9, 0.3, 0.3, 0.3, 0.3])
    seen = {}

    def remember(found: Any) -> None:
        seen[found.step] = [p.clone() for p in model.parameters()]

    loop.said = remember
    loop.run()
    assert loop.ended == "budget"
    for one, other in zip(model.parameters(), seen[4], strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(next(iter(model.parameters())), seen[12][0])


def test_patience_ends_a_run_that_no_longer_gains(tmp_path: Path) -> None:
    _, loop = fit(tmp_path, [0.1, 0.5, 0.5004, 0.49, 0.5, 0.9, 0.9], patience=3)
    loop.run()
    assert (loop.ended, loop.history[-1].step) == ("patience", 8)
    # Asked to go on, it has nothing left to try.
    _, again = fit(tmp_path, RISING, patience=3)
    again.run()
    assert len(again.history) == len(loop.history)


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_state(tmp_path: Path) -> None:
    model, loop = fit(tmp_path, RISING)
    good = loop.loss

    def bad(step: int) -> Any:
        return good(step) * (float("nan") if step == 5 else 1.0)

    loop.loss = bad
    with pytest.raises(BuildError, match="no longer a number"):
        loop.run()
    assert all(torch.isfinite(p).all() for p in model.parameters())
    _, again = fit(tmp_path, RISING)
    assert again.trainer.budget.step == 4

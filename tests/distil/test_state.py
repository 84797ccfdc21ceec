"""Training states on disk: whole or absent, and only for the model they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from trtspec.distil import optim, state  # noqa: E402
from trtspec.errors import BuildError, ModelFileError  # noqa: E402

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    """Matrices inside `layers`, a vector and a matrix outside, and one parameter under two names."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(width, width, bias=False)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self.head = torch.nn.Linear(width, width, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def made(kind: str, width: int = 6, seed: int = 0) -> tuple[Net, optim.Optimizers]:
    torch.manual_seed(seed)
    model = Net(width)
    return model, optim.muon(model) if kind == "muon" else optim.adamw(model, 1e-2)


def step(model: Net, optimizers: optim.Optimizers, seed: int) -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
    model(x).square().sum().backward()
    optimizers.step(0.3)


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_a_loaded_state_goes_on_to_the_bit(kind: str, tmp_path: Path) -> None:
    model, optimizers = made(kind)
    for i in range(3):
        step(model, optimizers, i)
    state.save(tmp_path, 3, model, optimizers, {"note": "x"})
    other, others = made(kind, seed=9)
    found = state.newest(tmp_path)
    assert found is not None
    assert state.load(found, other, others) == {"version": 1, "step": 3, "note": "x"}
    for i in range(3, 6):
        step(model, optimizers, i)
        step(other, others, i)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_only_the_newest_stays_and_halves_do_not_count(tmp_path: Path) -> None:
    model, optimizers = made("adamw")
    assert state.newest(tmp_path / "absent") is None
    for number in (5, 40, 7):
        state.save(tmp_path, number, model, optimizers, {})
    (tmp_path / "step-000000099").mkdir()  # no state.json: never finished
    assert state.newest(tmp_path) == tmp_path / "step-000000007"
    assert (tmp_path / "step-000000007" / "state.json").exists()


def test_nothing_is_pickled(tmp_path: Path) -> None:
    model, optimizers = made("muon")
    step(model, optimizers, 0)
    out = state.save(tmp_path, 1, model, optimizers, {})
    assert sorted(p.name for p in out.iterdir()) == ["state.json", "state.safetensors"]
    json.loads((out / "state.json").read_text())


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    model, optimizers = made("adamw")
    out = state.save(tmp_path, 1, model, optimizers, {})
    wider, others = made("adamw", width=8)
    with pytest.raises(ModelFileError, match="is not of this model"):
        state.load(out, wider, others)
    torch.save  # noqa: B018 (the library is there; the state just does not use it)
    (out / "state.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match="cannot be read"):
        state.load(out, model, optimizers)


def test_a_failed_save_keeps_the_state_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizers = made("adamw")
    state.save(tmp_path, 1, model, optimizers, {})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state, "_sync", full)
    with pytest.raises(BuildError, match="No space left"):
        state.save(tmp_path, 2, model, optimizers, {})
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000001"]

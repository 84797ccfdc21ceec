"""Everything a distillation depends on besides the target and the prompts, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from trtspec.errors import ConfigError

Optimizer = Literal["auto", "adamw", "muon"]
BUDGETS = ("tokens", "minutes", "steps", "eval_every", "patience", "device")
"""What may change between a run and its resume: how much, not what."""


@dataclass(frozen=True)
class Scratch:
    """Sizes of a draft that starts from nothing. `like_target`: its target's architecture instead of Llama's."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    like_target: bool = False

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ConfigError(
                "the attention heads are not a multiple of the KV heads", found=f"{self.heads} and {self.kv_heads}"
            )
        if self.head_dim % 2:
            raise ConfigError("the head size is odd; rotary embedding turns pairs", found=self.head_dim)


@dataclass(frozen=True)
class Recipe:
    """One distillation. The draft starts from `keep_layers` of the target, or from `scratch`: exactly one is set."""

    keep_layers: tuple[int, ...] = ()
    scratch: Scratch | None = None
    tokens: int = 50_000
    """Answer tokens the target writes for training."""
    minutes: float = 10.0
    steps: int = 0
    """Instead of minutes."""
    batch: int = 16
    """Texts of one step."""
    rate: float = 0.0
    """AdamW's learning rate; 0: chosen by how the draft starts."""
    optimizer: Optimizer = "auto"
    temperature: float = 0.0
    """How the deployment decodes; 0 is greedy."""
    soften: float = 0.0
    """Temperature inside the loss; 0: the deployment's, 1 for greedy."""
    first_choice: float = -1.0
    """Weight of the cross-entropy to the target's first choice; negative: 0.5 for greedy, 0 for sampling."""
    top: int = 64
    """Likeliest target tokens kept of each position; 0: the target's logits are computed anew at every step."""
    draft_len: int = 4
    """K of the rounds that are counted in evaluation."""
    eval_every: int = 50
    patience: int = 6
    seed: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["bfloat16", "float32"] = "bfloat16"

    def resolved(self) -> Recipe:
        """With every choice made that was left open. ConfigError where they contradict each other."""
        if bool(self.keep_layers) == (self.scratch is not None):
            raise ConfigError(
                "a draft starts either from layers of the target or from nothing",
                expected="--keep-layers, or --layers with --hidden, --intermediate and --heads",
            )
        greedy = self.temperature == 0
        optimizer: Optimizer = ("adamw" if self.keep_layers else "muon") if self.optimizer == "auto" else self.optimizer
        return replace(
            self,
            optimizer=optimizer,
            rate=self.rate or (3e-3 if optimizer == "muon" else 1e-3),
            soften=self.soften or (1.0 if greedy else self.temperature),
            first_choice=self.first_choice if self.first_choice >= 0 else (0.5 if greedy else 0.0),
        )

    def identity(self) -> dict[str, Any]:
        """What a resumed run must share with the run it continues."""
        return {name: value for name, value in asdict(self).items() if name not in BUDGETS}

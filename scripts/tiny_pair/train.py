"""Train the target, and the draft in stages: on the corpus alone, then distilled, then on the target's texts alone.

    python -m scripts.tiny_pair.train target --minutes 34
    python -m scripts.tiny_pair.train draft-base --steps 880
    python -m scripts.tiny_pair.train draft --steps 402
    python -m scripts.tiny_pair.train polish --steps 300

The first two do not need each other. Run a stage again with the same work folder to go on
after a kill. `prepare` comes first. The tokenizer is read from `--pair`, and so is the target when
the work folder has none: the draft alone can be distilled again from what is shipped.
"""

# The project's mypy does not look into torch.
# mypy: no-warn-return-any
from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from trtspec.distil import optim
from trtspec.distil.budget import Budget
from trtspec.distil.loss import divergence, first_choice
from trtspec.distil.train import Trainer

from .corpus import load_all, split
from .data import WINDOW, Stream, mixture
from .export import load_model, load_state, save_model
from .generate import own_texts
from .model import SHAPES, Llama, causal_mask

SEED = 7
ROWS = 24
STAGES = {"target": "target", "draft-base": "draft", "draft": "draft", "polish": "draft"}  # whose shape it has
BEFORE = {"draft": "draft-base", "polish": "draft"}  # the stage whose weights it starts from
POLISH_TEXTS = 1600
POLISH_RATES = (0.0125, 1.5e-3)  # half of the others: it starts from weights that are good already
# The draft sees no Python source: that domain is there to be hard for it.
SHARES = {
    "target": {"api-reference": 0.72, "type-stubs": 0.16, "python-source": 0.12},
    "draft": {"api-reference": 0.8, "type-stubs": 0.2},
}
IGNORED = -100
FIRST_CHOICE_WEIGHT = 0.5
Loss = Callable[[Tensor, Tensor], Tensor]


def corpus_loss(model: Llama) -> Loss:
    mask = causal_mask(WINDOW)

    def loss(ids: Tensor, counted: Tensor) -> Tensor:
        wanted = ids[:, 1:].masked_fill(~counted[:, 1:], IGNORED)
        logits = model(ids[:, :-1], mask).float()
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    return loss


def draft_loss(model: Llama, target: Llama) -> Loss:
    """KL to the target, plus the target's own first choice: greedy decoding asks for that one."""
    mask = causal_mask(WINDOW)

    def loss(ids: Tensor, counted: Tensor) -> Tensor:
        # Every position is computed, counted or not: one shape for torch.compile.
        with torch.no_grad():
            wanted = target(ids[:, :-1], mask)
        given = model(ids[:, :-1], mask)
        first = first_choice(given.flatten(0, 1), wanted.argmax(-1).flatten()).view(wanted.shape[:2])
        weights = counted[:, 1:].float()
        return ((divergence(given, wanted) + FIRST_CHOICE_WEIGHT * first) * weights).sum() / weights.sum()

    return loss


def run(trainer: Trainer, loss: Loss, streams: list[Stream]) -> None:
    """Batches alternate between the streams until the budget is spent."""
    budget, total, seen = trainer.budget, 0.0, 0
    budget.start()
    while budget.progress() < 1.0:
        ids, counted = streams[budget.step % len(streams)].batch(ROWS)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(ids, counted)
        total, seen = total + trainer.update(value), seen + 1
        if budget.step % 20 == 0:
            tokens = budget.step * ROWS * WINDOW
            print(
                f"step {budget.step} loss {total / seen:.3f} tokens {tokens / 1e6:.2f}M "
                f"minutes {budget.spent / 60:.1f} ({budget.progress():.0%})",
                flush=True,
            )
            total, seen = 0.0, 0
    trainer.save()


def build(stage: str, options: argparse.Namespace) -> tuple[Trainer, Loss, list[Stream]]:
    """The model, what it is trained for, and on what."""
    role, work = STAGES[stage], options.work
    tokenizer = Tokenizer.from_file(str(options.pair / role / "tokenizer.json"))
    documents, _ = split(load_all(work / "wheels"))
    pieces = mixture(tokenizer, documents, SHARES[role], SEED)
    model = Llama(SHAPES[role])
    if stage in BEFORE:
        load_state(model, work / BEFORE[stage]).train()
    optimizers = optim.muon(model, *POLISH_RATES) if stage == "polish" else optim.muon(model)
    trainer = Trainer(model, optimizers, Budget(options.minutes, options.steps), work / stage)
    if trainer.resume():
        print(f"resumed {stage} at step {trainer.budget.step}", flush=True)
    # After a resume the streams start over in another order, not where they stopped.
    seed = SEED + trainer.budget.step
    streams = [Stream(pieces, seed)]
    if stage not in BEFORE:
        return trainer, corpus_loss(model), streams
    target = target_of(options)
    if stage == "polish":
        texts = own_texts(target, pieces, work / "polish-texts.json", POLISH_TEXTS)
        return trainer, draft_loss(model, target), [Stream(texts, seed)]
    own = Stream(own_texts(target, pieces, work / "own-texts.json"), seed)
    # The own texts are few, for making them takes long: every fourth batch.
    return trainer, draft_loss(model, target), streams * 3 + [own]


def target_of(options: argparse.Namespace) -> Llama:
    """The target that this work folder trained, or the shipped one."""
    if (options.work / "target").is_dir():
        return load_state(Llama(SHAPES["target"]), options.work / "target").eval()
    return load_model(options.pair / "target", "target")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=list(STAGES))
    parser.add_argument("--work", type=Path, default=Path("tiny-pair-work"))
    parser.add_argument(
        "--pair", type=Path, default=Path("configs/tiny"), help="where the tokenizer and the target are"
    )
    parser.add_argument("--out", type=Path, default=Path("configs/tiny"))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=0, help="instead of --minutes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="faster after a minute; needs gcc")
    run_stage(parser.parse_args())


def run_stage(options: argparse.Namespace) -> None:
    """Train one stage, or go on with it, and write its model folder."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    trainer, loss, streams = build(options.stage, options)
    if options.compile:
        loss = torch.compile(loss, dynamic=False)
    run(trainer, loss, streams)
    save_model(trainer.model, options.out / STAGES[options.stage])


if __name__ == "__main__":
    main()

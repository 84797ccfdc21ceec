"""Pairs that are not Llamas, through `trtspec build` and the speculative loop: the text is the target's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.families import oracle  # noqa: E402
from tests.workflows.pair import outputs, own_pair  # noqa: E402
from trtspec.backends.reference import Request, open_engine, open_pair  # noqa: E402
from trtspec.cli._main import run  # noqa: E402
from trtspec.config import load_config  # noqa: E402

pytestmark = pytest.mark.torch
SHAPE: dict[str, Any] = {"vocab_size": 2048, "max_position_embeddings": 2048, "tie_word_embeddings": False}
NOISE = 0.15
PROMPTS = [tuple(int(i) for i in np.random.default_rng(s).integers(0, 2048, 6 + 9 * s)) for s in range(4)]


def put(model: Any, folder: Path) -> None:
    """The model in the place of a shipped one, whose tokenizer and end ids stay."""
    shipped = json.loads((folder / "config.json").read_text())
    generation = (folder / "generation_config.json").read_bytes()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(model.config, name, shipped.get(name))
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_bytes(generation)


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "qwen3-moe", "gemma2"])
def test_greedy_speculation_is_plain_text(tmp_path: Path, family: str) -> None:
    own_pair(tmp_path)
    target = oracle(family, 1, **SHAPE)
    draft = oracle(family, 1, **SHAPE)
    with torch.no_grad():  # a draft that is sometimes right
        for layer in draft.model.layers:
            weight = layer.self_attn.o_proj.weight
            weight += NOISE * weight.std() * torch.randn(weight.shape)
    put(target, tmp_path / "tiny/target")
    put(draft, tmp_path / "tiny/draft")
    flags = [f"--set={line}" for line in (*outputs(tmp_path), "engine.max_batch_size=4")]
    assert run(["build", str(tmp_path / "tiny.yaml"), *flags]) == 0
    config = load_config(tmp_path / "tiny.yaml", outputs(tmp_path), environ={})
    engines = config.engine_dir("target"), config.engine_dir("draft")
    with open_engine(engines[0], threads=1) as engine, open_pair(*engines, draft_len=4, threads=1) as pair:
        for ids in PROMPTS:
            plain, fast = engine.generate(Request("r", ids, 40)), pair.generate(Request("r", ids, 40))
            assert fast.ids == plain.ids
            assert len(set(plain.ids)) > 5, "no constant text, which anything would predict"
        alpha = pair.histogram.alpha()
    assert alpha is not None
    assert 0.05 < alpha < 1.0

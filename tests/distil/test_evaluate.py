"""Acceptance while training is what the pair measures afterwards."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from tests.distil.tiny import END, write_target  # noqa: E402
from trtspec.backends.scoring import open_scorer  # noqa: E402
from trtspec.checkpoint.early_exit import plan_early_exit, write_early_exit  # noqa: E402
from trtspec.distil.evaluate import acceptance, greedy_trace  # noqa: E402
from trtspec.distil.generate import Asked, Writing, answer  # noqa: E402
from trtspec.distil.student import load_target  # noqa: E402
from trtspec.distil.texts import Text  # noqa: E402
from trtspec.measurement.offline import measure  # noqa: E402
from trtspec.measurement.reading import Setting, TokenPrompt  # noqa: E402

pytestmark = pytest.mark.torch
PROMPTS = [tuple(random.Random(i).choices(range(4, 48), k=3 + i % 4)) for i in range(12)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pair")
    target = write_target(root / "target")
    (root / "draft").mkdir()
    write_early_exit(plan_early_exit(target, [0, 2]), root / "draft")
    return target, root / "draft"


@pytest.mark.parametrize("k", [1, 3, 5])
def test_greedy_rounds_are_those_of_the_measured_pair(pair: tuple[Path, Path], k: int) -> None:
    model, draft = (load_target(folder, "cpu") for folder in pair)
    texts = answer(model, [Asked(p, 20) for p in PROMPTS], Writing(0.0, frozenset({END}), 0))
    with open_scorer(pair[0]) as target, open_scorer(pair[1]) as proposer:
        asked = [TokenPrompt(str(i), "d", p, 20) for i, p in enumerate(PROMPTS)]
        found = measure(target, proposer, asked, Setting(k_max=k, end_ids=(END,), tails=False))
    counted = acceptance(draft, texts, k, (END,))
    assert sum(counted[1:], counted[0]) == found.histogram(k)


def test_a_model_accepts_itself_entirely_however_it_is_sampled(pair: tuple[Path, Path]) -> None:
    model = load_target(pair[0], "cpu")
    for temperature in (0.0, 0.8):
        how = Writing(temperature, frozenset({END}), 48, soften=temperature or 1.0)
        texts = answer(model, [Asked(p, 16) for p in PROMPTS], how)
        counted = acceptance(model, texts, 4, (END,), temperature=temperature)
        assert sum(counted[1:], counted[0]).alpha() == pytest.approx(1.0, abs=0.02)


def test_sampled_acceptance_is_what_the_distributions_share(pair: tuple[Path, Path]) -> None:
    model, draft = (load_target(folder, "cpu") for folder in pair)
    texts = answer(model, [Asked(p, 24) for p in PROMPTS * 4], Writing(1.0, frozenset(), 48))
    shared = []
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([text.ids.tolist()[:-1]])
            p, q = (torch.softmax(m(ids).logits[0, text.prompt - 1 :], -1) for m in (model, draft))
            shared += torch.minimum(p, q).sum(-1).tolist()
    # With one token a round every position that a round begins at is tested; they are like the others.
    counted = acceptance(draft, texts, 1, (), temperature=1.0)
    assert sum(counted[1:], counted[0]).alpha() == pytest.approx(np.mean(shared), abs=0.05)


@given(said=st.lists(st.sampled_from([END, 5, 6]), min_size=1, max_size=30), ended=st.booleans())
def test_a_trace_has_a_place_for_each_token(said: list[int], ended: bool) -> None:
    own = [5] * (len(said) - 1) + [END if ended else 5]
    trace = greedy_trace(said, Text(np.array([9, *own], np.int32), 1, 40), (END,))
    wanted = ["." if s == END else "+" if s == o else "-" for s, o in zip(said, own, strict=True)]
    assert trace.outcomes == "".join(wanted)
    assert trace.max_tokens == (40 if ended else len(said))


def test_an_end_token_that_is_proposed_cuts_its_round() -> None:
    # Llama 3 has several end ids: only the first is kept back.
    text = Text(np.array([9, 5, 7], np.int32), 1, 8)
    assert greedy_trace([5, 7], text, (END, 7)).outcomes == "+|"

"""A small profile made from the toy models."""

from __future__ import annotations

from pathlib import Path

from tests.measurement.toyscorer import ToyScorer
from trtspec.backends.reference.request import Sampling
from trtspec.config import RunConfig
from trtspec.config.schema import ModelSource, Pair
from trtspec.measurement.offline import measure
from trtspec.measurement.profile_result import ProfileDocument
from trtspec.measurement.profile_store import profile_key
from trtspec.measurement.profile_summary import Measured, build_profile
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.reading import Setting, TokenPrompt

GREEDY, SAMPLED = Sampling(top_k=1), Sampling(temperature=0.9, top_p=0.95)


def config(**sections: object) -> RunConfig:
    """A configuration around nothing."""
    model = ModelSource(path=Path("nowhere"))
    given = {"name": "toy", "pair": Pair(target=model, draft=model)} | sections
    return RunConfig.model_validate(given)


def toy_profile(
    sampling: Sampling = GREEDY,
    likeness: float = 0.85,
    k_max: int = 4,
    files: tuple[dict[str, str], dict[str, str]] = ({"config.json": "t"}, {"config.json": "d"}),
) -> ProfileDocument:
    """Two domains of six prompts each; one more prompt was left out."""
    target, draft = ToyScorer("t", likeness), ToyScorer("d", likeness)
    prompts = tuple(TokenPrompt(str(i), "ab"[i % 2], (2, i), 10, i) for i in range(12))
    setting = Setting(k_max, sampling, (0,))
    left = [(Prompt("x", "a", "text", 10), "too long")]
    hashes = {"target": files[0], "draft": files[1]}
    measured = Measured(
        {"target": Path("models/t"), "draft": Path("models/d")}, hashes, {}, (target, draft), prompts, left
    )
    key = profile_key([hashes], prompts, setting, [target.conditions, draft.conditions])
    return build_profile(config(), key, measured, measure(target, draft, prompts, setting))

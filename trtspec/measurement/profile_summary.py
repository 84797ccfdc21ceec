"""From readings to the figures of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.analysis.intervals import ratio_interval
from trtspec.analysis.simulation import histogram
from trtspec.backends.scoring import Scorer
from trtspec.config import ROLES, Role, RunConfig
from trtspec.measurement.figures import estimate, nested
from trtspec.measurement.offline import OfflineAcceptance
from trtspec.measurement.profile_result import (
    AtK,
    DomainProfile,
    LeftOut,
    ModelRecord,
    ProfileConditions,
    ProfileDocument,
    PromptRecord,
)
from trtspec.measurement.profile_store import prompts_hash
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.reading import Reading, Rule, Setting, TokenPrompt
from trtspec.measurement.summary import versions


@dataclass(frozen=True)
class Measured:
    """What was put to the test: both models, the prompts, and the prompts that could not be used."""

    folders: Mapping[Role, Path]
    hashes: Mapping[Role, Mapping[str, str]]
    """Of the models; those of the built checkpoints that were run in their place are in `checkpoints`."""
    checkpoints: Mapping[Role, Mapping[str, str]]
    scorers: tuple[Scorer, Scorer]
    """Target, draft."""
    prompts: tuple[TokenPrompt, ...]
    left_out: Sequence[tuple[Prompt, str]]


def build_profile(config: RunConfig, key: str, measured: Measured, found: OfflineAcceptance) -> ProfileDocument:
    """The document of one measurement."""
    seed = config.validation.seed
    target, draft = (_model(role, measured) for role in ROLES[::-1])
    return ProfileDocument(
        pair=config.name,
        key=key,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        target=target,
        draft=draft,
        conditions=_conditions(found.setting, seed, prompts_hash(measured.prompts)),
        environment=versions(),
        domains=tuple(domain_profile(d, found, d) for d in found.domains),
        overall=domain_profile("all", found, None),
        left_out=tuple(LeftOut(domain=p.domain, id=p.id, reason=reason) for p, reason in measured.left_out),
        prompts=tuple(prompt_record(r) for r in found.readings),
    )


def how(setting: Setting) -> str:
    """Sampling and draft lengths in a few words."""
    return _conditions(setting, 0, "").summary().rsplit(", seed", 1)[0]


def _model(role: Role, measured: Measured) -> ModelRecord:
    scorer = measured.scorers[0 if role == "target" else 1]
    return ModelRecord(
        folder=str(measured.folders[role]),
        files=dict(measured.hashes[role]),
        checkpoint=dict(measured.checkpoints[role]) if role in measured.checkpoints else None,
        vocab_size=scorer.vocab_size,
        conditions=dict(scorer.conditions),
    )


def _conditions(setting: Setting, seed: int, prompts: str) -> ProfileConditions:
    s = setting.sampling
    return ProfileConditions(
        k_max=setting.k_max,
        temperature=0.0 if s.greedy else s.temperature,
        top_k=0 if s.greedy else s.top_k,
        top_p=1.0 if s.greedy else s.top_p,
        seed=seed,
        end_ids=setting.end_ids,
        tails=setting.tails,
        prompts=prompts,
    )


def domain_profile(name: str, found: OfflineAcceptance, domain: str | None) -> DomainProfile:
    """Figures of one domain; of all where `domain` is None."""
    readings = found.of(domain)
    return DomainProfile(
        domain=name,
        prompts=len(readings),
        tokens=sum(r.tokens for r in readings),
        ended=sum(r.ended for r in readings),
        degenerate=sum(r.degenerate for r in readings) / len(readings),
        rules={
            rule: tuple(_at(found, domain, k, rule) for k in range(1, found.setting.k_max + 1))
            for rule in found.setting.rules
        },
    )


def prompt_record(reading: Reading) -> PromptRecord:
    """One prompt, replayable."""
    return PromptRecord(
        domain=reading.domain,
        id=reading.id,
        prompt_tokens=reading.prompt_tokens,
        tokens=reading.tokens,
        max_tokens=reading.max_tokens,
        degenerate=reading.degenerate,
        outcomes={rule: trace.outcomes for rule, trace in reading.traces.items()},
    )


def _at(found: OfflineAcceptance, domain: str | None, k: int, rule: Rule) -> AtK:
    each = [histogram([r.traces[rule]], k) for r in found.of(domain)]
    whole = sum(each, RoundHistogram.empty(k))
    own = [h.accepted / h.tested for h in each if h.tested]
    return AtK(
        k=k,
        histogram=nested(whole),
        alpha=estimate(ratio_interval([h.accepted for h in each], [h.tested for h in each])),
        alpha_macro=sum(own) / len(own) if own else None,
        alpha_expected=found.expected_alpha(k, rule, domain),
        draft_acceptance_rate=whole.draft_acceptance_rate(),
        acceptance_length=estimate(
            ratio_interval([h.emitted for h in each], [h.rounds for h in each], bounds=(1.0, k + 1.0))
        ),
        per_position=tuple(whole.per_position()),
    )

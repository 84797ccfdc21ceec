"""The profile of a pair: acceptance measured offline, with everything it depends on, as one JSON file.

`reports/<name>/profile.json` is that of the configured pair; other candidates' lie in `reports/<name>/profiles/`.
A profile belongs to two models by the hashes of their files, not by their names. What was not measured is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from pydantic import Field

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.schema import RunConfig
from trtspec.measurement.documents import read_document
from trtspec.measurement.reading import Rule
from trtspec.measurement.result import Count, Estimate, Record
from trtspec.pairing import measured
from trtspec.store import write_atomic

PROFILE = "profile.json"


class AtK(Record):
    """Acceptance in rounds of at most k draft tokens."""

    k: int
    histogram: tuple[tuple[tuple[Count, ...], ...], ...]
    """[2, k+1, k+1]: rounds that ran out uncut, rounds cut short; rows drafted, columns accepted."""
    alpha: Estimate | None
    """Accepted ÷ tested, over tokens; the interval is over prompts."""
    alpha_macro: float | None
    """The mean of the prompts' own α."""
    alpha_expected: float | None
    """Mean accepted ÷ mean tested over the draft's draws, the answers being given; null for what draws nothing."""
    draft_acceptance_rate: float | None
    """Accepted ÷ drafted. Falls as k grows; never ranks two."""
    acceptance_length: Estimate | None
    """Tokens a round, the target's own included."""
    per_position: tuple[float | None, ...]
    """P(position i of a round is accepted), i = 1..k."""

    @property
    def rounds(self) -> RoundHistogram:
        """The histogram as counters."""
        return RoundHistogram.from_wire(self.histogram)


class DomainProfile(Record):
    """One domain, or all."""

    domain: str
    prompts: Count
    tokens: Count
    """Tokens of the target's answers."""
    ended: Count
    """Answers that the target ended by itself."""
    degenerate: float
    """Share of answers whose last half is a loop, which is easy to draft."""
    rules: dict[Rule, tuple[AtK, ...]]
    """k = 1 .. k_max for each rule of acceptance that was measured."""


class ModelRecord(Record):
    """What was measured on one side: the folder then, and the hashes of its files, which identify it."""

    folder: str
    files: dict[str, str]
    """File name: SHA-256 of the model's config.json and weights."""
    checkpoint: dict[str, str] | None
    """The same of the checkpoint that was built from the model and measured in its place; null without one."""
    vocab_size: int
    conditions: dict[str, str]
    """Engine, dtype and device it ran with."""


class ProfileConditions(Record):
    """What every number depends on."""

    k_max: int
    temperature: float
    top_k: int
    """0 is no limit; no meaning at temperature 0."""
    top_p: float
    seed: int
    end_ids: tuple[int, ...]
    tails: bool
    """The draft was followed behind its misses; where false, tokens drafted are an upper bound."""
    prompts: str
    """SHA-256 over the prompts' token ids, lengths and seeds."""

    def summary(self) -> str:
        """In one line, to stand beside numbers."""
        how = measured.sampling_text(self.temperature, self.top_k, self.top_p)
        return f"{how}, K up to {self.k_max}, seed {self.seed}"


class LeftOut(Record):
    """A prompt that could not be measured."""

    domain: str
    id: str
    reason: str


class PromptRecord(Record):
    """One prompt: enough to replay its rounds for any K (see :mod:`trtspec.analysis.simulation` for the letters)."""

    domain: str
    id: str
    prompt_tokens: Count
    tokens: Count
    max_tokens: Count
    degenerate: bool
    outcomes: dict[Rule, str]


class ProfileDocument(Record):
    """One offline measurement of a pair."""

    version: Literal[1] = 1
    pair: str
    key: str
    """Hash of both models' files, the prompts and the settings: equal keys mean the same measurement."""
    created: str
    """UTC, ISO 8601."""
    target: ModelRecord
    draft: ModelRecord
    conditions: ProfileConditions
    environment: dict[str, str]
    domains: tuple[DomainProfile, ...] = Field(min_length=1)
    overall: DomainProfile
    left_out: tuple[LeftOut, ...]
    prompts: tuple[PromptRecord, ...]

    def at(self, k: int, rule: Rule = "tokens", domain: str | None = None) -> AtK | None:
        """Figures at draft length k (beyond k_max: those of k_max, whose α hardly differs); None if not measured."""
        found = self.overall if domain is None else next((d for d in self.domains if d.domain == domain), None)
        rows = () if found is None else found.rules.get(rule, ())
        return rows[min(k, len(rows)) - 1] if rows and k >= 1 else None

    def alpha(self, k: int, rule: Rule = "tokens", domain: str | None = None) -> Estimate | None:
        """α with its interval; None if not measured."""
        found = self.at(k, rule, domain)
        return None if found is None else found.alpha

    def belongs_to(self, target: Mapping[str, str], draft: Mapping[str, str]) -> bool:
        """Whether models with these file hashes are the ones that were measured."""
        return self.target.files == dict(target) and self.draft.files == dict(draft)


def rule_of(config: RunConfig) -> Rule:
    """The rule of acceptance that `config` will be served with.

    Sampled token acceptance: each call of an engine has a seed of its own, so the two models draw apart.
    """
    return cast(Rule, measured.rule_of(config))


def profile_path(config: RunConfig) -> Path:
    """reports/<name>/profile.json"""
    return config.report_dir / PROFILE


def profiles_of(config: RunConfig) -> list[ProfileDocument]:
    """Every profile that lies in the configuration's report folder; EvidenceError for one that is broken."""
    own, others = profile_path(config), sorted((config.report_dir / "profiles").glob("*.json"))
    return [read_profile(path) for path in ([own] if own.is_file() else []) + others]


def read_profile(path: Path) -> ProfileDocument:
    """Read a profile; EvidenceError where it is none."""
    return read_document(ProfileDocument, path, "profile", fix="measure again with `trtspec profile`")


def write_profile(path: Path, document: ProfileDocument) -> None:
    """Write it whole."""
    write_atomic(path, document.model_dump_json(indent=1) + "\n")


def profile_schema() -> dict[str, object]:
    """JSON Schema of profile.json."""
    return ProfileDocument.model_json_schema()

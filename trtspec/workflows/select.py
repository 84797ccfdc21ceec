"""select: candidate drafts of one target side by side, from files, profiles and published facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.checkpoint.facts import CONFIG
from trtspec.config import ModelSource, RunConfig
from trtspec.errors import ConfigError, MissingError
from trtspec.hashing import HashMemo
from trtspec.measurement.profile_result import ProfileDocument, profiles_of, rule_of
from trtspec.pairing.measured import Acceptance, Basis, file_hashes, sampling_of
from trtspec.pairing.selection import Judged, Selection, cut_finding, cut_target, judge, known_by, plain_row, rank
from trtspec.workflows.check import folders_of
from trtspec.workflows.reporter import Reporter, Silent

if TYPE_CHECKING:
    from trtspec.workflows.profile import ProfileOptions

OTHER_SAMPLING = "measured for other sampling"


@dataclass(frozen=True)
class Options:
    """`alphas`: acceptance given for candidates by name. `measure`: profile now what works and has none.

    `cut`: choose the target's tensor-parallel size, the smallest with which it fits the GPUs.
    """

    alphas: Mapping[str, float]
    measure: ProfileOptions | None = None
    cut: bool = False
    download: bool = False


def select(
    config: RunConfig,
    others: Sequence[ModelSource],
    options: Options | None = None,
    reporter: Reporter | None = None,
) -> Selection:
    """The matrix of the configuration's own draft and `others`. Reads no weights beyond their headers and hashes."""
    return _Selecting(config, options or Options({}), reporter or Silent()).run(others)


class _Selecting:
    """One selection in the making."""

    def __init__(self, config: RunConfig, options: Options, reporter: Reporter) -> None:
        self._options, self._reporter, self._memo = options, reporter, HashMemo()
        self._target = folders_of(config, download=options.download)["target"]
        self._notes: list[str] = []
        self._config = self._cut(config)
        self._profiles = sorted(profiles_of(config), key=lambda d: d.created, reverse=True)

    def run(self, others: Sequence[ModelSource]) -> Selection:
        sources = [self._config.pair.draft, *others]
        names = _names(sources)
        self._refuse_unknown([*names, *map(_whole, sources)], names)
        held, asked = self._config.engine.max_batch_size, self._config.validation.concurrency
        if asked > held:
            self._notes.append(f"engine.max_batch_size holds {asked} requests in flight down to {held}.")
        found = [self._judged(n, s, own=i == 0) for i, (n, s) in enumerate(zip(names, sources, strict=True))]
        self._memo.save()
        plain = plain_row(self._config, self._target, found)
        return Selection(self._config, rank(found), plain, tuple(dict.fromkeys(self._notes)))

    def _refuse_unknown(self, known: Sequence[str], names: Sequence[str]) -> None:
        unknown = [name for name in self._options.alphas if name not in known]
        if unknown:
            expected = ", ".join(names)
            raise ConfigError(f"an acceptance is given for {unknown[0]!r}, which is no candidate", expected=expected)

    def _cut(self, config: RunConfig) -> RunConfig:
        cut = cut_target(config, self._target) if self._options.cut else config
        if cut is not config:
            text = cut_finding(cut).message
            self._notes.append(f"{text[0].upper()}{text[1:]}.")
        return cut

    def _judged(self, name: str, source: ModelSource, own: bool) -> Judged:
        config = _with_draft(self._config, source, own)
        folders = self._target, folders_of(config, download=self._options.download)["draft"]
        candidate = judge(name, folders, config)
        for given in (name, _whole(source)):
            if given in self._options.alphas:
                return known_by(candidate, _given(self._options.alphas[given], "given on the command line"))
        if own and config.checks.acceptance is not None:
            return known_by(candidate, _given(config.checks.acceptance, "given as checks.acceptance"))
        candidate = self._profiled(candidate, self._profiles)
        if candidate.status == "unmeasured" and self._options.measure is not None:
            candidate = self._measured(candidate, self._options.measure, own)
        return candidate

    def _profiled(self, candidate: Judged, profiles: Sequence[ProfileDocument]) -> Judged:
        """With the newest profile of these very models under the configuration's sampling."""
        note = ""
        for document in profiles:
            if not self._is_of(document, candidate.folder):
                continue
            found = _basis(document, candidate.config)
            if found is not None:
                return known_by(candidate, *found)
            note = f"{OTHER_SAMPLING}: {document.conditions.summary()}"
        if note:
            self._notes.append(f"{candidate.name}: {note}")
        return known_by(candidate, candidate.basis, note=note)

    def _is_of(self, document: ProfileDocument, draft: Path) -> bool:
        """By the small file first: hashing weights takes a while the first time."""
        for folder, record in ((self._target, document.target), (draft, document.draft)):
            path = folder / CONFIG
            if not path.is_file() or self._memo.sha256(path) != record.files.get(CONFIG):
                return False
        return document.belongs_to(file_hashes(self._target, self._memo), file_hashes(draft, self._memo))

    def _measured(self, candidate: Judged, options: ProfileOptions, own: bool) -> Judged:
        from trtspec.workflows.profile import profile

        try:
            done = profile(candidate.config, self._reporter, replace(options, candidate=not own))
        except MissingError as error:
            self._notes.append(f"{candidate.name}: not measured: {error.what}")
            return known_by(candidate, candidate.basis, note=error.what)
        return self._profiled(candidate, [done.document])


def _basis(document: ProfileDocument, config: RunConfig) -> tuple[Basis, tuple[float, float] | None] | None:
    """Acceptance for the rule that will be served, with its interval; None where it was not measured so."""
    c = document.conditions
    found = document.at(c.k_max, rule_of(config))
    if (c.temperature, c.top_k, c.top_p) != sampling_of(config) or found is None or found.alpha is None:
        return None
    shares = tuple(share for share in found.per_position if share is not None)
    alpha = found.alpha
    source = f"measured on {alpha.n} prompts, {c.summary()}, {document.created[:10]}"
    ends = None if alpha.low is None or alpha.high is None else (alpha.low, alpha.high)
    return Basis((Acceptance(alpha.point, shares),), source, known=True), ends


def _given(alpha: float, source: str) -> Basis:
    return Basis((Acceptance(alpha),), source, known=True)


def _with_draft(config: RunConfig, source: ModelSource, own: bool) -> RunConfig:
    """The configuration with another draft; what was given for its own draft's figures does not hold for others."""
    if own:
        return config
    draft = config.pair.draft.model_copy(update={"path": source.path, "hub": source.hub, "revision": source.revision})
    unknown = {"acceptance": None, "cost_ratio": None, "draft_step_ms": None, "target_step_ms": None}
    return config.model_copy(
        update={
            "pair": config.pair.model_copy(update={"draft": draft}),
            "checks": config.checks.model_copy(update=unknown),
        }
    )


def _names(sources: Sequence[ModelSource]) -> list[str]:
    """What each candidate is called: the last part of its path or hub id, or all of it where two are alike."""
    whole = [_whole(source) for source in sources]
    names = [name.rstrip("/").rpartition("/")[2] for name in whole]
    names = [long if names.count(short) > 1 else short for short, long in zip(names, whole, strict=True)]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"the candidate {twice[0]!r} is named twice")
    return names


def _whole(source: ModelSource) -> str:
    return str(source.hub) if source.path is None else str(source.path)

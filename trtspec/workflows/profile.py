"""profile: the acceptance of a candidate pair, measured in this process before any engine exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trtspec.backends.reference.request import Sampling
from trtspec.backends.scoring import Device, Scorer, ScoringEngine, engine_for, is_checkpoint, open_scorer
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.hub import locate
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import CheckFailed, ConfigError, EvidenceError, ModelFileError, context
from trtspec.hashing import HashMemo
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.offline import OfflineAcceptance, measure
from trtspec.measurement.profile_result import ProfileDocument, profile_path, write_profile
from trtspec.measurement.profile_store import Unfinished, profile_key
from trtspec.measurement.profile_summary import Measured, build_profile, how
from trtspec.measurement.prompts import Prompt, load_all
from trtspec.measurement.reading import Setting, TokenPrompt
from trtspec.measurement.tokens import TOKENIZER, Limits, PromptEncoder, token_prompts
from trtspec.pairing.measured import file_hashes
from trtspec.store import lock, read_manifest
from trtspec.triton.plan import special_ids
from trtspec.workflows.build import verdict_on
from trtspec.workflows.reporter import Reporter, Silent

PARITY = ("vocab.", "tokenizer.")
"""Codes of findings that make a measurement meaningless: the two models do not mean the same by an id."""
BATCH = 8
Folders = dict[Role, Path]


@dataclass(frozen=True)
class ProfileOptions:
    """How to measure. `checkpoints`: the built TensorRT-LLM checkpoints instead of the models they were made from.

    `candidate`: the pair is not the configuration's own, so its profile lies apart. `tokenizer`: the folder of the
    tokenizer of models that come without one. `fresh`: forget what an interrupted run left.
    """

    device: Device = "cpu"
    engine: ScoringEngine | None = None
    dtype: str | None = None
    limit: int | None = None
    max_tokens: int | None = None
    tails: bool = True
    checkpoints: bool = False
    candidate: bool = False
    tokenizer: Path | None = None
    fresh: bool = False
    download: bool = False


@dataclass(frozen=True)
class Profile:
    """What was measured, and where it is written."""

    document: ProfileDocument
    path: Path


def profile(config: RunConfig, reporter: Reporter | None = None, options: ProfileOptions | None = None) -> Profile:
    """Measure the pair on the configuration's prompts. A pair whose token ids clash is refused before that."""
    return _Profiling(config, reporter or Silent(), options or ProfileOptions()).run()


@dataclass
class _Profiling:
    """One measurement in the making."""

    config: RunConfig
    reporter: Reporter
    options: ProfileOptions
    memo: HashMemo = field(default_factory=HashMemo)

    def run(self) -> Profile:
        sources, models, words = self._folders()
        self._check(words)
        prompts = self._prompts(words["target"])
        with context(stage="profile"), self._opened(models) as scorers:
            encoder = PromptEncoder(words["target"])
            taken, left = token_prompts(
                prompts, encoder, self._limits(scorers), [s.vocab_size for s in scorers], self.config.validation.seed
            )
            self._refuse_nothing(prompts, taken, left)
            hashes = {role: file_hashes(sources[role], self.memo) for role in ROLES}
            built = {r: file_hashes(models[r], self.memo) for r in ROLES} if self.options.checkpoints else {}
            measured = Measured(models, hashes, built, scorers, tuple(taken), left)
            setting = self._setting(words["target"])
            key = profile_key([hashes, built], taken, setting, [s.conditions for s in scorers])
            unfinished = Unfinished(self.config.report_dir, key)
            found = self._measure(scorers, taken, setting, unfinished)
            document = build_profile(self.config, key, measured, found)
        path = self._path(sources["draft"], key)
        with lock(path, self.reporter.note):
            write_profile(path, document)
        unfinished.forget()
        self.memo.save()
        return Profile(document, path)

    def _folders(self) -> tuple[Folders, Folders, Folders]:
        """The configuration's models, what will be run in their place, and where each one's tokenizer is."""
        sources: Folders = {}
        for role in ROLES:
            with context(role=role):
                sources[role] = locate(self.config.pair[role], download=self.options.download)
        models = {r: self._checkpoint(r) if self.options.checkpoints else sources[r] for r in ROLES}
        given = self.options.tokenizer
        bare = {role for role in ROLES if given is not None and not (sources[role] / TOKENIZER).is_file()}
        return sources, models, {r: given if given is not None and r in bare else sources[r] for r in ROLES}

    def _checkpoint(self, role: Role) -> Path:
        folder = self.config.checkpoint_dir(role)
        if read_manifest(folder) is None:
            raise ConfigError(
                f"no checkpoint of the {role} was built here", where=folder, fix="run `trtspec convert` first"
            )
        return folder

    def _check(self, words: dict[Role, Path]) -> None:
        with context(stage="check"):
            for role in ROLES:
                if is_checkpoint(words[role]) and not (words[role] / TOKENIZER).is_file():
                    raise ConfigError(
                        f"the {role} is a TensorRT-LLM checkpoint, which holds no tokenizer",
                        where=words[role],
                        fix="name the folder of its tokenizer with --tokenizer",
                    )
            verdict = verdict_on(self.config, words)
            clashes = [f for f in verdict.findings if f.severity == "error" and f.code.startswith(PARITY)]
            if clashes:
                more = f" (and {len(clashes) - 1} more)" if len(clashes) > 1 else ""
                raise CheckFailed(
                    f"the pair does not speak the same token ids: {clashes[0].code}: {clashes[0].message}{more}",
                    fix="choose another draft; `trtspec check` shows every finding",
                )

    def _prompts(self, words: Path) -> list[Prompt]:
        o, validation = self.options, self.config.validation
        if o.limit is not None:
            datasets = tuple(d.model_copy(update={"limit": o.limit}) for d in validation.datasets)
            validation = validation.model_copy(update={"datasets": datasets})
        prompts = load_all(validation, ChatTemplate.read(words))
        if o.max_tokens is None:
            return prompts
        return [Prompt(p.id, p.domain, p.text, min(p.max_tokens, o.max_tokens)) for p in prompts]

    @contextmanager
    def _opened(self, models: dict[Role, Path]) -> Iterator[tuple[Scorer, Scorer]]:
        """(target, draft), loaded."""
        with self._open("target", models["target"]) as target, self._open("draft", models["draft"]) as draft:
            yield target, draft

    def _open(self, role: Role, folder: Path) -> Scorer:
        o = self.options
        engine = o.engine or engine_for(folder, o.device)
        self.reporter.note(f"Loading the {role} ({engine}, {o.device}): {folder}")
        try:
            with context(role=role):
                return open_scorer(
                    folder,
                    device=o.device,
                    engine=engine,
                    dtype=o.dtype or self._dtype(engine),
                    max_len=self.config.engine.max_seq_len,
                    batch=BATCH,
                    role=role,
                )
        except ModelFileError as error:
            if engine == "reference" and not is_checkpoint(folder):
                error.fix = "; or ".join(filter(None, (error.fix, "let transformers run it: --engine transformers")))
            raise

    def _dtype(self, engine: ScoringEngine) -> str:
        """What the pair will be served with, where that is this very engine; else as the engine likes."""
        settings = self.config.engine
        if engine == "reference" and settings.backend == "reference":
            return "bfloat16" if settings.compute_dtype == "auto" else settings.compute_dtype
        return "auto"

    def _limits(self, scorers: tuple[Scorer, Scorer]) -> Limits:
        engine = self.config.engine
        return Limits(engine.max_input_len, min(engine.max_seq_len, *(s.max_len for s in scorers)))

    def _refuse_nothing(
        self, prompts: Sequence[Prompt], taken: Sequence[TokenPrompt], left: Sequence[tuple[Prompt, str]]
    ) -> None:
        if left:
            prompt, reason = left[0]
            self.reporter.note(f"Left out: {len(left)} of {len(prompts)} prompts, first {prompt.id}: {reason}")
        if not taken:
            raise EvidenceError("no prompt can be measured", found=left[0][1], fix="raise the limits under `engine`")

    def _setting(self, words: Path) -> Setting:
        v = self.config.validation
        greedy = v.temperature == 0.0
        return Setting(
            k_max=self.config.speculation.max_draft_len,
            sampling=Sampling(top_k=1) if greedy else Sampling(v.temperature, v.top_k, v.top_p),
            end_ids=special_ids(words, ModelFacts.read(words))[0],
            tails=self.options.tails,
        )

    def _measure(
        self, scorers: tuple[Scorer, Scorer], prompts: Sequence[TokenPrompt], setting: Setting, unfinished: Unfinished
    ) -> OfflineAcceptance:
        known = {} if self.options.fresh else unfinished.read()
        if known:
            self.reporter.note(f"Going on with {len(known)} of {len(prompts)} prompts of an interrupted run")
        if self.config.speculation.acceptance_threshold is not None and not setting.sampling.greedy:
            self.reporter.note("Not measured: speculation.acceptance_threshold; `logits` is the random rule")
        self.reporter.note(f"Measuring {len(prompts)} prompts, {how(setting)}")
        return measure(
            *scorers,
            prompts,
            setting,
            known=known,
            keep=unfinished.keep,
            progress=lambda done, total: self.reporter.progress("prompts", done, total),
            chunk=2 * BATCH,
        )

    def _path(self, draft: Path, key: str) -> Path:
        if not self.options.candidate:
            return profile_path(self.config)
        return self.config.report_dir / "profiles" / f"{draft.name}-{key[:8]}.json"

"""build: check → convert → engine → repository, each reused when nothing it depends on has changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trtspec.checkpoint.hub import locate
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import BuildError, CheckFailed, TrtspecError, context
from trtspec.hashing import HashMemo
from trtspec.store import Outcome, Stage, publish, staleness
from trtspec.workflows import llmapi
from trtspec.workflows.reporter import Reporter, Silent
from trtspec.workflows.stages import Stages

if TYPE_CHECKING:
    from trtspec.pairing.findings import Verdict

Step = Literal["convert", "engine", "repo"]


def build(
    config: RunConfig,
    reporter: Reporter | None = None,
    *,
    until: Step = "repo",
    roles: tuple[Role, ...] = ROLES,
    check: bool = True,
    download: bool = False,
    strict: bool = False,
) -> Build:
    """The whole story. What this machine cannot do is said before anything is fetched, hashed or written.

    `strict`: NaN or infinite weights are an error, also in a checkpoint that would be reused.
    """
    if until != "convert":
        from trtspec.backends.base import builder_for

        builder_for(config).require(config)
    walk = Build.of(config, reporter, download=download)
    walk.strict = strict
    return walk.run(until, roles=roles, check=check)


@dataclass
class Build:
    """One walk over the stages. `outcomes` tells what was built and what was reused."""

    config: RunConfig
    stages: Stages
    reporter: Reporter
    outcomes: list[Outcome] = field(default_factory=list)
    strict: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the walk was interrupted: an engine build ends at once instead of in an hour."""

    @classmethod
    def of(cls, config: RunConfig, reporter: Reporter | None = None, *, download: bool = False) -> Build:
        """Find both model folders; ConfigError or MissingError where one is not there."""
        sources = {role: _located(config, role, download) for role in ROLES}
        return cls(config, Stages(config, sources, HashMemo()), reporter or Silent())

    @property
    def did_nothing(self) -> bool:
        """Everything was there already."""
        return all(o.action == "reused" for o in self.outcomes)

    def run(self, until: Step = "repo", *, roles: tuple[Role, ...] = ROLES, check: bool = True) -> Build:
        """Walk up to `until`. Errors carry the stage and role they came from."""
        if check:
            self._check()
        self._check_recipes(roles)
        self._each(roles, "convert", self._convert)
        if until in ("engine", "repo"):
            self._each(roles, "engine", self._engine)
        if until == "repo":
            self._repository()
        self.stages.memo.save()
        return self

    def _check(self) -> None:
        with context(stage="check"):
            self._publish(self.stages.check, self._write_verdict)

    def _write_verdict(self, out: Path) -> None:
        verdict = verdict_on(self.config, self.stages.sources)
        if verdict.verdict == "fail":
            raise CheckFailed(
                f"the pair does not fit: {_first_error(verdict)}",
                fix="see every finding with `trtspec check`; nothing was converted",
            )
        (out / "verdict.json").write_text(json.dumps(verdict.as_dict(), indent=1, default=str) + "\n", encoding="utf-8")

    def _convert(self, role: Role) -> None:
        from trtspec.checkpoint.convert import refuse_nonfinite, stored_warnings

        if self.stages.native:
            self.outcomes += llmapi.prepare(self.stages, role, self.reporter)
            return
        stage, recipe = self.stages.checkpoint(role), self.stages.recipe(role)
        calibration = self.stages.calibration(role)
        if calibration is not None and staleness(stage, self.stages.memo):
            self._publish(calibration, lambda out: recipe.calibrate(out, self.reporter, calibration.key))

        def fill(out: Path) -> None:
            def progress(done: int, total: int) -> None:
                self.reporter.progress(stage.title, done, total)

            recipe.write(out, strict=self.strict, progress=progress)

        self._publish(stage, fill)
        if self.strict:
            refuse_nonfinite(stage.out)
        for line in stored_warnings(stage.out):
            self.reporter.note(f"  {stage.title}: {line}")

    def _check_recipes(self, roles: tuple[Role, ...]) -> None:
        """Before hours are spent on one role: can every quantized checkpoint that is not there be made?"""
        for role in roles:
            if not self.config.pair[role].quantization.plain and staleness(
                self.stages.checkpoint(role), self.stages.memo
            ):
                with context(stage="quantize", role=role):
                    if self.stages.native:
                        llmapi.check_recipe(self.stages, role)
                    else:
                        self.stages.recipe(role).check()

    def _engine(self, role: Role) -> None:
        from trtspec.backends.base import builder_for

        def fill(out: Path) -> None:
            builder = builder_for(self.config, Watched(self.reporter, self.stop))
            builder.build(self.config, role, self.stages.checkpoint(role).out, out)

        self._publish(self.stages.engine(role), fill)

    def _repository(self) -> None:
        from trtspec.triton.lint import lint

        with context(stage="repository"):
            write = self._writer()
            engines = None if self.stages.native else {role: self.config.engine_dir(role) for role in ROLES}

            def fill(out: Path) -> None:
                write(out)
                # Read back before it is published: Triton would say the same later, and less clearly.
                found = lint(out, engines)
                problems = [problem for problem in found if problem.severity == "error"]
                if problems:
                    raise BuildError(f"the repository would not load: {problems[0]}", found=f"{len(problems)} problems",
                                     fix=problems[0].fix)  # fmt: skip
                for problem in found:
                    self.reporter.note(f"  model repository: {problem}")

            self._publish(self.stages.repository(), fill)

    def _writer(self) -> Callable[[Path], None]:
        """What fills the repository's folder."""
        if self.stages.native:
            from trtspec.triton.llmapi import write_llmapi

            served = llmapi.repository_plan(self.stages)
            return lambda out: write_llmapi(out, served)
        from trtspec.triton.repository import plan_for, write_repository

        plan = plan_for(self.config, self.stages.sources["target"], self.stages.sources["draft"])
        return lambda out: write_repository(out, plan)

    def _publish(self, stage: Stage, fill: Callable[[Path], None]) -> None:
        outcome = publish(stage, fill, self.stages.memo, notice=self.reporter.note)
        self.outcomes.append(outcome)
        self.reporter.finished(outcome)

    def _each(self, roles: tuple[Role, ...], step: str, work: Callable[[Role], None]) -> None:
        """Both roles side by side; they share nothing but the hash memo. The first error is raised."""

        def one(role: Role) -> None:
            with context(stage=step, role=role):
                try:
                    work(role)
                except TrtspecError as error:
                    if step == "engine" and len(roles) > 1:  # the other one may take an hour
                        self.reporter.note(f"  the {role} failed: {error.what}; what else runs is brought to its end")
                    raise

        with ThreadPoolExecutor(len(roles), thread_name_prefix=step) as pool:
            try:
                for done in [pool.submit(one, role) for role in roles]:
                    done.result()
            except Exception:
                raise
            except BaseException:  # Ctrl-C or SIGTERM: leaving the pool waits for its threads, and a build takes hours
                self.stop.set()
                raise


@dataclass(frozen=True)
class Watched:
    """The reporter as those who build engines see it."""

    reporter: Reporter
    stop: threading.Event

    def note(self, text: str) -> None:
        """One line of news."""
        self.reporter.note(text)

    def progress(self, title: str, done: int, total: int) -> None:
        """How far it is."""
        self.reporter.progress(title, done, total)

    def cancelled(self) -> bool:
        """Whether the walk was interrupted."""
        return self.stop.is_set()


def verdict_on(config: RunConfig, sources: dict[Role, Path]) -> Verdict:
    """The checks of the pair on its two folders."""
    from trtspec.backends.tensorrt.check import check_engines
    from trtspec.pairing.check import check_pair
    from trtspec.triton.check import check_serving

    return check_pair(sources["target"], sources["draft"], config, (check_engines, check_serving))


def stored_verdict(build: Build) -> dict[str, Any]:
    """The verdict of this build's check stage, as it was written."""
    text = (build.stages.check.out / "verdict.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _located(config: RunConfig, role: Role, download: bool) -> Path:
    with context(role=role):
        return locate(config.pair[role], download=download)


def _first_error(verdict: Verdict) -> str:
    errors = [f for f in verdict.findings if f.severity == "error"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0].code}: {errors[0].message}{more}"

"""build: check → convert → engine → repository, each reused when nothing it depends on has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trtspec.checkpoint.hub import locate
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import BuildError, CheckFailed, context
from trtspec.hashing import HashMemo
from trtspec.store import Outcome, Stage, publish
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
) -> Build:
    """The whole story. What this machine cannot do is said before anything is fetched, hashed or written."""
    if until != "convert":
        from trtspec.backends.base import builder_for

        builder_for(config).require(config)
    return Build.of(config, reporter, download=download).run(until, roles=roles, check=check)


@dataclass
class Build:
    """One walk over the stages. `outcomes` tells what was built and what was reused."""

    config: RunConfig
    stages: Stages
    reporter: Reporter
    outcomes: list[Outcome] = field(default_factory=list)

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
        from trtspec.checkpoint.convert import convert

        stage = self.stages.checkpoint(role)
        model = self.config.pair[role]
        split = model.parallelism

        def fill(out: Path) -> None:
            def progress(done: int, total: int) -> None:
                self.reporter.progress(stage.title, done, total)

            convert(
                self.stages.sources[role],
                out,
                dtype=model.dtype,
                tensor=split.tensor,
                pipeline=split.pipeline,
                progress=progress,
            )

        self._publish(stage, fill)

    def _engine(self, role: Role) -> None:
        from trtspec.backends.base import builder_for

        def fill(out: Path) -> None:
            builder_for(self.config).build(self.config, role, self.stages.checkpoint(role).out, out)

        self._publish(self.stages.engine(role), fill)

    def _repository(self) -> None:
        from trtspec.triton.lint import lint
        from trtspec.triton.repository import plan_for, write_repository

        with context(stage="repository"):
            plan = plan_for(self.config, self.stages.sources["target"])

            def fill(out: Path) -> None:
                write_repository(out, plan)
                # Read back before it is published: Triton would say the same later, and less clearly.
                problems = lint(out)
                if problems:
                    raise BuildError(f"the repository would not load: {problems[0]}", found=f"{len(problems)} problems")

            self._publish(self.stages.repository(), fill)

    def _publish(self, stage: Stage, fill: Callable[[Path], None]) -> None:
        outcome = publish(stage, fill, self.stages.memo, notice=self.reporter.note)
        self.outcomes.append(outcome)
        self.reporter.finished(outcome)

    def _each(self, roles: tuple[Role, ...], step: str, work: Callable[[Role], None]) -> None:
        """Both roles side by side; they share nothing but the hash memo. The first error is raised."""

        def one(role: Role) -> None:
            with context(stage=step, role=role):
                work(role)

        with ThreadPoolExecutor(len(roles), thread_name_prefix=step) as pool:
            for done in [pool.submit(one, role) for role in roles]:
                done.result()


def verdict_on(config: RunConfig, sources: dict[Role, Path]) -> Verdict:
    """The checks of the pair on its two folders."""
    from trtspec.pairing.check import check_pair

    return check_pair(sources["target"], sources["draft"], config)


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

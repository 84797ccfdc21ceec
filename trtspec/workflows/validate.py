"""validate: serve → measure → judge → report → record, and the serving policy that follows from a pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trtspec.config import RunConfig
from trtspec.errors import ConfigError, EvidenceError, context
from trtspec.measurement.result import ResultDocument
from trtspec.release import signing
from trtspec.release.gates import Judgement, judge
from trtspec.release.policy import write_policy
from trtspec.release.provenance import write_record
from trtspec.release.record import record_of
from trtspec.release.report import write_report
from trtspec.release.signing import Signer
from trtspec.release.stopping import stopper
from trtspec.store import lock, read_manifest, write_atomic
from trtspec.triton.repository import POLICY_FILE
from trtspec.workflows.measure import Decide, measured_on, prepared
from trtspec.workflows.reporter import Reporter, Silent
from trtspec.workflows.serve import current_repository, measured_serving

INTERRUPTED = "interrupted.json"
"""What was measured until Ctrl-C; no reports, record or policy follow from it."""


@dataclass(frozen=True)
class Validation:
    """What was measured, what the gates said, and where it is written."""

    result: ResultDocument
    judgement: Judgement
    report: Path
    policy: Path | None
    """The policy file, where the verdict allowed one to be written."""
    record: Path
    """The release record; its provenance and signatures lie beside it."""

    @property
    def exit_code(self) -> int:
        """0 pass, 1 a gate says no, 6 invalid or undecided."""
        return self.judgement.exit_code

    def as_dict(self) -> dict[str, object]:
        """For `--json`: the judgement and the paths; the report holds the rest."""
        return {
            "verdict": self.judgement.verdict,
            "judgement": self.judgement.model_dump(mode="json"),
            "report": self.report,
            "policy": self.policy,
            "record": self.record,
        }


def validate(
    config: RunConfig,
    reporter: Reporter | None = None,
    signer: Signer | None = None,
    baseline: ResultDocument | None = None,
) -> Validation:
    """Measure the built pair on its prompts and judge it. Bad prompts are found before the server starts.

    `baseline` is a result that this one must not fall behind.
    """
    reporter = reporter or Silent()
    if signer is not None:
        signing.require(signer.tool)
    if config.engine.backend == "pytorch":
        raise ConfigError(
            "validate compares both modes on one server; the LLM API has one mode to a server",
            found="engine.backend: pytorch", expected="reference or tensorrt",
            fix="use `trtspec measure --url … --target-only-url …`, then `trtspec gate`",
        )  # fmt: skip
    repository = current_repository(config, reporter.note)
    asked = prepared(config, reporter)
    measured = read_manifest(repository)
    with measured_serving(config, repository, reporter.note) as server, context(stage="measure"):
        result = measured_on(config, server, asked, reporter, decide=_decide(config, baseline))
    if result.interrupted:
        # Not over the result of the validation before: its record still stands.
        write_atomic(config.report_dir / INTERRUPTED, result.model_dump_json(indent=1) + "\n")
        reporter.note(f"Interrupted; what was measured is in {config.report_dir / INTERRUPTED}")
        raise KeyboardInterrupt
    judgement = judge(result, config.gates, baseline)
    report = write_report(config.report_dir, result, judgement, config.gates)
    policy = _apply_policy(repository, measured, result, judgement)
    record = _record(config, result, judgement, policy)
    if signer is not None:
        signer.sign(config.report_dir, repository)
    return Validation(result, judgement, report, policy, record)


def _decide(config: RunConfig, baseline: ResultDocument | None) -> Decide | None:
    """Who says when enough was measured; nobody, where all prompts are to be asked."""
    return partial(stopper, config, baseline=baseline) if config.validation.stop_early else None


def _apply_policy(
    repository: Path, measured: dict[str, object] | None, result: ResultDocument, judgement: Judgement
) -> Path | None:
    """A passed validation decides what is served. Any other leaves the policy in force as it is.

    EvidenceError when a build replaced the repository meanwhile: what was measured is no longer what is there.
    """
    with lock(repository):
        if read_manifest(repository) != measured:
            raise EvidenceError(
                "the repository was rebuilt while it was measured; its policy was left alone",
                where=repository,
                fix="validate again",
            )
        if judgement.verdict != "pass":
            return None
        write_policy(repository / POLICY_FILE, result, judgement)
    return repository / POLICY_FILE


def _record(config: RunConfig, result: ResultDocument, judgement: Judgement, policy: Path | None) -> Path:
    """Of a fail too: what was tried, and on which files. A signature of an earlier record is worth nothing now."""
    signing.remove(config.report_dir)
    return write_record(config.report_dir, record_of(config, result, judgement, policy_written=policy is not None))

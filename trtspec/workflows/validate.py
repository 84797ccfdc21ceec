"""validate: serve → measure → judge → report, and the serving policy that follows from a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.config import RunConfig
from trtspec.errors import ConfigError, EvidenceError, context
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.exactness import compare
from trtspec.measurement.load import measure
from trtspec.measurement.prompts import Prompt, load_all
from trtspec.measurement.result import ResultDocument
from trtspec.measurement.summary import build_result
from trtspec.release.gates import Judgement, judge
from trtspec.release.policy import write_policy
from trtspec.release.report import write_report
from trtspec.store import lock, read_manifest
from trtspec.triton.pipeline import PREPROCESSING
from trtspec.triton.repository import POLICY_FILE
from trtspec.workflows.reporter import Reporter, Silent
from trtspec.workflows.serve import current_repository, serving_on

if TYPE_CHECKING:
    from trtspec.triton.server import TritonServer


@dataclass(frozen=True)
class Validation:
    """What was measured, what the gates said, and where it is written."""

    result: ResultDocument
    judgement: Judgement
    report: Path
    policy: Path | None
    """The policy file, where the verdict allowed one to be written."""

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
        }


def validate(config: RunConfig, reporter: Reporter | None = None) -> Validation:
    """Measure the built pair on its prompts and judge it. Bad prompts are found before the server starts."""
    reporter = reporter or Silent()
    if config.engine.backend == "pytorch":
        raise ConfigError(
            "validate measures the engine path; it does not speak to the LLM API's model yet",
            found="engine.backend: pytorch", expected="reference or tensorrt", fix="docs/llm-api.md says what there is",
        )  # fmt: skip
    repository = current_repository(config, reporter.note)
    # The template that is deployed, not the one beside the weights.
    template = ChatTemplate.read(repository / PREPROCESSING / "1" / "tokenizer")
    prompts = load_all(config.validation, template)
    measured = read_manifest(repository)
    with serving_on(config, repository, reporter.note) as server, context(stage="measure"):
        result = _measure(config, prompts, server, reporter)
    judgement = judge(result, config.gates)
    report = write_report(config.report_dir, result, judgement, config.gates)
    policy = _apply_policy(repository, measured, result, judgement)
    return Validation(result, judgement, report, policy)


def _measure(config: RunConfig, prompts: Sequence[Prompt], server: TritonServer, reporter: Reporter) -> ResultDocument:
    from trtspec.triton.client import TritonClient

    def client() -> TritonClient:
        return TritonClient(server.grpc_url, config.validation.request_timeout)

    reporter.note(f"Measuring {len(prompts)} prompts twice, {config.validation.concurrency} in flight")
    samples = measure(
        client,
        prompts,
        config.validation,
        config.speculation.k,
        lambda done, total, _what: reporter.progress("requests", done, total),
        use_draft_logits=config.speculation.acceptance == "logits",
    )
    server.check()
    with client() as one:
        exactness = compare(
            one, prompts, samples, temperature=config.validation.temperature, near_tie=config.gates.near_tie
        )
    return build_result(config, prompts, samples, exactness)


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

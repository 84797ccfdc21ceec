"""convert on bare folders: one Hugging Face model to one TensorRT-LLM checkpoint, published whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtspec.checkpoint.convert import FORMAT, convert, stored_warnings
from trtspec.checkpoint.facts import CONFIG
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.prequantized import MODELOPT_CONFIG
from trtspec.errors import ConfigError
from trtspec.hashing import HashMemo
from trtspec.store import Outcome, Stage, publish
from trtspec.workflows.reporter import Reporter, Silent


@dataclass(frozen=True)
class Conversion:
    """What to convert, how, and whether NaN or infinite weights are an error."""

    model: Path
    out: Path
    dtype: str = "auto"
    tensor: int = 1
    pipeline: int = 1
    tensorrt_llm_version: str | None = None
    strict: bool = False

    def stage(self, memo: HashMemo) -> Stage:
        """The folder to have, keyed by everything it depends on; hashes the model's files."""
        plan = plan_conversion(
            self.model,
            dtype=self.dtype,
            tensor=self.tensor,
            pipeline=self.pipeline,
            tensorrt_llm_version=self.tensorrt_llm_version,
        )
        files = {self.model / CONFIG, *(info.path for info in plan.sources.values())}
        files |= {path for path in (self.model / MODELOPT_CONFIG,) if path.is_file()}
        inputs = {
            "stage": "checkpoint",
            "format": FORMAT,
            "files": {path.name: memo.sha256(path) for path in sorted(files)},
            "dtype": self.dtype,
            "parallelism": {"tensor": self.tensor, "pipeline": self.pipeline},
            # A checkpoint with such weights must not be reused where they are refused.
            "strict": self.strict,
        }
        return Stage("checkpoint", self.out, inputs)


def convert_folder(conversion: Conversion, reporter: Reporter | None = None) -> tuple[Outcome, tuple[str, ...]]:
    """Convert, or reuse what stands there and is up to date; the warnings of the conversion, reused or not.

    ConfigError: no such folder, or something stands at `out` that is not a checkpoint of ours.
    """
    reporter = reporter or Silent()
    if not conversion.model.is_dir():
        raise ConfigError("no such model folder", where=conversion.model, fix="give the folder with config.json")
    memo = HashMemo()
    stage = conversion.stage(memo)

    def fill(out: Path) -> None:
        convert(
            conversion.model,
            out,
            dtype=conversion.dtype,
            tensor=conversion.tensor,
            pipeline=conversion.pipeline,
            tensorrt_llm_version=conversion.tensorrt_llm_version,
            strict=conversion.strict,
            progress=lambda done, total: reporter.progress(stage.title, done, total),
        )

    outcome = publish(stage, fill, memo, notice=reporter.note)
    memo.save()
    reporter.finished(outcome)
    return outcome, stored_warnings(stage.out)

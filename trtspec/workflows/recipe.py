"""How one quantized checkpoint is made: what it depends on, what can be refused early, and the filling of its folders.

The calibration (what activations were seen; kilobytes to megabytes) is a result of its own: a change of parallelism
or a killed conversion does not calibrate again. The weights are quantized while they stream from the model's files.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtspec.checkpoint.convert import FORMAT, ConvertResult, check_finite, check_room, write_checkpoint
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.plan import Plan, plan_conversion
from trtspec.checkpoint.quantize import layerwise, separate
from trtspec.checkpoint.quantize.calibration import Calibration, Promised, write_about
from trtspec.checkpoint.quantize.plan import quantized
from trtspec.config.quantization import Quantization
from trtspec.errors import ConfigError
from trtspec.hashing import HashMemo
from trtspec.runner import Runner
from trtspec.store import Stage
from trtspec.workflows.reporter import Reporter

CALIBRATION_FORMAT = 1
"""Raised when the same prompts would be seen differently."""
QUANTIZED_FORMAT = 1
"""Raised when the same weights would get other codes."""
LEAST_TOKENS = 1000
"""Fewer are worth a warning. TensorRT-LLM's quantize.py takes 512 prompts of up to 512 tokens, and 32 for AWQ."""
FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "hf_quant_config.json")
WORDS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
Hashes = dict[str, str]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a quantized checkpoint; `calibration` is where the calibration is kept."""

    model: Path
    quantization: Quantization
    calibration: Path
    prompts: tuple[Path, ...] = ()
    """Files to calibrate with; those of `quantization.calibration.prompts` alone where that is set."""
    dtype: str = "auto"
    tensor: int = 1
    pipeline: int = 1
    tensorrt_llm_version: str | None = None
    python: Path | None = None
    """Python that has nvidia-modelopt; None: this one."""
    title: str = ""
    """Whose this is, for progress lines: ` of the draft`."""
    runner: Runner | None = field(default=None, compare=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """The prompt files."""
        own = self.quantization.calibration.prompts
        return self.prompts if own is None else (own,)

    def check(self) -> None:
        """What can be refused before anything is calibrated or written: model, split, format, environment."""
        plan = self._plan()
        q = self.quantization
        if not q.calibrates:
            quantized(plan, q.weights, q.kv_cache, q.group_size)
            return
        quantized(plan, q.weights, q.kv_cache, q.group_size, Promised(self.model, {}, {}))
        self.tokens()
        if q.method == "modelopt":
            separate.require(plan.facts, self.python)
        else:
            layerwise.require()

    def _plan(self) -> Plan:
        return plan_conversion(
            self.model,
            dtype=self.dtype,
            tensor=self.tensor,
            pipeline=self.pipeline,
            tensorrt_llm_version=self.tensorrt_llm_version,
        )

    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """The prompts to calibrate with: drawn with the seed, in the model's tokens, cut to their longest length."""
        from trtspec.measurement.promptfiles import token_prompts

        settings = self.quantization.calibration
        if not self.files:
            raise ConfigError(
                f"{self.quantization.weights} weights with kv_cache {self.quantization.kv_cache} are calibrated",
                found="no prompts",
                fix="set quantization.calibration.prompts, validation.datasets or --prompts to prompts like those "
                "that will be served; fp8_pc_pt, int8_wo, int4_wo and int4_rtn need none",
            )
        found = [prompt.ids for prompt in token_prompts(self.model, self.files, seed=settings.seed)]
        if len(found) > settings.samples:
            found = random.Random(settings.seed).sample(found, settings.samples)  # noqa: S311 - not for secrets
        return tuple(ids[: settings.max_tokens] for ids in found)

    def calibration_stage(self, memo: HashMemo) -> Stage | None:
        """What was seen, as a stage; None where nothing has to be."""
        q = self.quantization
        if not q.calibrates:
            return None
        versions = separate.versions(self.python) if q.method == "modelopt" else {}
        inputs = {
            "stage": "calibration",
            "format": CALIBRATION_FORMAT,
            "files": hashes(self.model, (*FILES, *WORDS), memo),
            "dtype": self.dtype,
            "weights": q.weights,
            "kv_cache": q.kv_cache,
            "group_size": q.group_size if q.weights in ("int4_awq", "w4a8_awq") else None,
            "method": q.method,
            "versions": {name: versions.get(name) for name in ("nvidia-modelopt", "transformers", "torch")},
            "prompts": [memo.sha256(path) for path in self.files if path.is_file()],
            **q.calibration.model_dump(mode="json", exclude={"prompts"}),
        }
        return Stage(f"calibration{self.title}", self.calibration, inputs)

    def inputs(self, memo: HashMemo) -> dict[str, object]:
        """What the checkpoint depends on besides the model's files, type and split; empty for an unquantized one."""
        q, stage = self.quantization, self.calibration_stage(memo)
        if q.plain:
            return {}
        given = q.model_dump(mode="json", include={"weights", "kv_cache", "group_size"})
        return {"quantization": given | {"format": QUANTIZED_FORMAT}, "calibration": stage.key if stage else None}

    def stage(self, out: Path, memo: HashMemo) -> Stage:
        """The checkpoint at `out`, as a stage."""
        inputs = {
            "stage": "checkpoint",
            "format": FORMAT,
            "files": hashes(self.model, FILES, memo),
            "dtype": self.dtype,
            "parallelism": {"tensor": self.tensor, "pipeline": self.pipeline},
            **self.inputs(memo),
        }
        return Stage(f"checkpoint{self.title}", out, inputs)

    # Filling the stages' folders.

    def calibrate(self, out: Path, reporter: Reporter, key: str) -> None:
        """Run the model on the prompts and keep what was seen in `out`; `key` is that of the calibration's stage."""
        q, prompts = self.quantization, self.tokens()
        facts = ModelFacts.read(self.model)
        about: dict[str, Any] = {
            "method": q.method, "weights": q.weights, "kv_cache": q.kv_cache,
            "samples": len(prompts), "tokens": sum(map(len, prompts)),
        }  # fmt: skip
        title = f"calibration{self.title}"

        def progress(done: int, total: int) -> None:
            reporter.progress(title, done, total)

        if q.method == "layerwise":
            # Beside the stage's own folder, which is thrown away when a run is killed.
            work = self.calibration.with_name(f".{self.calibration.name}.layers")
            layerwise.calibrate(self.model, prompts, out, work=_work(work, key), dtype=self.dtype, progress=progress)
            write_about(out, **about)
            return
        about["versions"] = separate.require(facts, self.python)
        job = separate.Job(
            self.model, q.weights, q.kv_cache, prompts, q.group_size, q.calibration.seed, self.dtype
        )  # fmt: skip
        log = self.calibration.with_name(f"{self.calibration.name}.log")
        separate.calibrate(
            job, out, log, python=self.python, about=about, runner=self.runner, progress=progress, note=reporter.note
        )

    def write(self, out: Path, *, strict: bool, progress: Callable[[int, int], None] | None) -> ConvertResult:
        """The checkpoint, into the empty folder `out`; the calibration must be there where one is needed."""
        plan = self._plan()
        q = self.quantization
        calibration = Calibration.open(self.calibration) if q.calibrates else None
        plan = plan if q.plain else quantized(plan, q.weights, q.kv_cache, q.group_size, calibration)
        check_room(out, plan.nbytes)
        warnings = (*plan.warnings, *_scarce(calibration), *check_finite(plan, strict=strict))
        return write_checkpoint(plan, out, warnings=warnings, progress=progress)


def _scarce(calibration: Calibration | None) -> tuple[str, ...]:
    tokens = LEAST_TOKENS if calibration is None else calibration.about.get("tokens", LEAST_TOKENS)
    if tokens >= LEAST_TOKENS:
        return ()
    return (f"calibrated on {tokens} tokens: inputs larger than theirs will be clipped; use more prompts, or longer",)


def _work(folder: Path, key: str) -> Path:
    """The folder of finished layers; emptied when it belongs to other prompts or another model."""
    mark = folder / "key"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        mark.write_text(key, encoding="utf-8")
    return folder


def hashes(folder: Path, patterns: tuple[str, ...], memo: HashMemo) -> Hashes:
    """SHA-256 of the folder's files that match, by name."""
    files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    return {path.name: memo.sha256(path) for path in files}

"""Configurations, checkpoints and an imitated `trtllm-build` for tests of the TensorRT backend. Nothing is built."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import FakeProcess, FakeRunner
from trtspec.backends.tensorrt.flags import Flags
from trtspec.backends.tensorrt.rewrites import predict
from trtspec.backends.tensorrt.subject import Subject, of_checkpoint
from trtspec.checkpoint.formats import FORMATS, KV_ALGOS
from trtspec.config import Role, RunConfig
from trtspec.environment import DetectedGpu, Environment, Installed
from trtspec.versions import version


def pair(folder: Path | None = None, **changes: Any) -> RunConfig:
    """A pair on H100s. `changes`: `target`, `draft` (their blocks), `engine`, `speculation`, `hardware` to merge in."""
    root = folder or Path("/results")
    document: dict[str, Any] = {
        "name": "pair",
        "pair": {
            "target": {"path": root / "t", **changes.get("target", {})},
            "draft": {"path": root / "d", **changes.get("draft", {})},
        },
        "speculation": {"max_draft_len": 5, "draft_len": 4} | changes.get("speculation", {}),
        "engine": {"backend": "tensorrt", "max_batch_size": 4, "max_input_len": 512, "max_seq_len": 1024}
        | changes.get("engine", {}),
        "hardware": {"gpu": "h100-80gb", "count": 8} | changes.get("hardware", {}),
        "output": {"engines": root / "engines", "model_repo": root / "repo", "reports": root / "reports"},
    }
    return RunConfig.model_validate(document)


def formats(weights: str = "none", kv_cache: str = "auto") -> dict[str, Any]:
    """A model's block with these formats."""
    return {"quantization": {"weights": weights, "kv_cache": kv_cache}}


def environment(llm: str | None = "1.2.1", gpus: int = 8, sm: int = 90, trt: str = "10.14.1.48") -> Environment:
    """A machine as detection would find it."""
    packages = {"tensorrt": trt if llm else None, "tensorrt-llm": llm}
    return Environment(
        python="3.12.3",
        system="Linux x86_64",
        cpus=64,
        packages=packages,
        tools={"trtllm-build": Path("/usr/local/bin/trtllm-build") if llm else None},
        tensorrt_llm=Installed(llm, "package metadata") if llm else None,
        tool_flags=None,
        driver="590.44",
        gpus=tuple(DetectedGpu(i, "NVIDIA H100 80GB HBM3", sm, 80 << 30, False, "h100-80gb") for i in range(gpus)),
        image=None,
        server=None,
        examples=None,
        disk_free=None,
        probes=(),
    )


def checkpoint(config: RunConfig, role: Role, **changes: Any) -> Path:
    """config.json of the role's checkpoint; the builder reads nothing else itself."""
    folder, source = config.checkpoint_dir(role), config.pair[role]
    tensor, pipeline = source.parallelism.tensor, source.parallelism.pipeline
    document = {
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "logits_dtype": "float16",
        "mapping": {"world_size": tensor * pipeline, "tp_size": tensor, "pp_size": pipeline},
        "quantization": {
            "quant_algo": FORMATS[source.quantization.weights].quant_algo,
            "kv_cache_quant_algo": KV_ALGOS[source.quantization.kv_cache],
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document | changes))
    return folder


def parsed(words: Sequence[str]) -> Flags:
    """Flags of a command line, numbers as numbers."""
    flags: Flags = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            flags[name] = True
        elif name:
            flags[name] = int(word) if word.isdigit() else word
    return flags


def record(flags: Flags, subject: Subject, llm: str = "1.2.1") -> dict[str, Any]:
    """config.json of an engine as the tool writes it for these flags, with its own changes."""
    now = predict(flags, subject).flags
    plugins = {
        name: {"enable": True, "disable": False}.get(str(value), value)
        for name, value in now.items()
        if value in ("enable", "disable") or name in ("tokens_per_block", "gemm_plugin")
    }
    numbers = {name: value for name, value in now.items() if isinstance(value, int) and not isinstance(value, bool)}
    return {
        "version": llm,
        "pretrained_config": {
            "logits_dtype": now["logits_dtype"],
            "mapping": {"tp_size": subject.tensor, "pp_size": subject.pipeline},
            "quantization": {"quant_algo": subject.quant_algo, "kv_cache_quant_algo": subject.kv_algo},
        },
        "build_config": numbers
        | {
            "max_draft_len": now.get("max_draft_len", 0),
            "speculative_decoding_mode": 2 if "speculative_decoding_mode" in now else 1,
            "kv_cache_type": "PAGED",
            "gather_context_logits": False,
            "gather_generation_logits": "gather_generation_logits" in now,
            "plugin_config": plugins,
        },
    }


Change = Callable[[Path, dict[str, Any]], None]


@dataclass
class Tool(FakeRunner):
    """An imitated `trtllm-build`: fills --output_dir unless its outcome is a failure. `spoil` changes what it wrote."""

    llm: str = "1.2.1"
    sm: int = 90
    spoil: Change | None = None
    made: list[Path] = field(default_factory=list)

    def start(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        grace: float = 5.0,
        remove: Sequence[str] = (),
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> FakeProcess:
        process = super().start(command, log=log, grace=grace, remove=remove, cwd=cwd, environment=environment)
        words = [str(word) for word in command]
        if process.code == 0 and "--output_dir" in words:
            self._fill(parsed(words))
        return process

    def _fill(self, flags: Flags) -> None:
        out = Path(str(flags["output_dir"]))
        role: Role = "target" if "speculative_decoding_mode" in flags else "draft"
        subject = of_checkpoint(Path(str(flags["checkpoint_dir"])), role, version(self.llm), sm=self.sm)
        document = record(flags, subject, self.llm)
        for rank in range(subject.ranks):
            (out / f"rank{rank}.engine").write_bytes(b"imitation")
        Path(str(flags["output_timing_cache"])).write_bytes(b"times")
        if self.spoil is not None:
            self.spoil(out, document)
        if not (out / "config.json").exists():
            (out / "config.json").write_text(json.dumps(document))
        self.made.append(out)


@dataclass
class Notes:
    """A watcher that remembers."""

    notes: list[str] = field(default_factory=list)
    percents: list[int] = field(default_factory=list)
    stop: bool = False

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, title: str, done: int, total: int) -> None:
        self.percents.append(done)

    def cancelled(self) -> bool:
        return self.stop

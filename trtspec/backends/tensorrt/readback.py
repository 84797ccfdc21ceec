"""What an engine folder records, against what was asked for: a build may end well and have built another engine.

`config.json` holds `version`, `pretrained_config` (the checkpoint's) and `build_config` (tensorrt_llm/builder.py,
`EngineConfig.to_dict`, 0.17 - 1.2.1); beside it lies `rank<r>.engine` for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.backends.tensorrt.flags import MODE, Flags
from trtspec.backends.tensorrt.rewrites import Prediction
from trtspec.backends.tensorrt.subject import Subject, read_object
from trtspec.errors import BuildError, ModelFileError
from trtspec.versions import parse, same_release

MODES = {None: 1, MODE: 2}
"""SpeculativeDecodingMode as recorded: NONE and DRAFT_TOKENS_EXTERNAL."""
BUILD = ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "max_beam_width")
PLUGINS = ("use_paged_context_fmha", "use_fp8_context_fmha", "tokens_per_block", "context_fmha",
           "remove_input_padding")  # fmt: skip
OPTIONS = ("opt_num_tokens", "weight_sparsity", "weight_streaming", "profiling_verbosity", "enable_debug_output")
WHY_BY_FLAG = {
    "use_paged_context_fmha": "trtllm-build turns it off for KV-cache formats without paged-context attention",
    "max_seq_len": "the target's is recorded with max_draft_len added",
    "speculative_decoding_mode": "without the mode an engine cannot verify drafts",
}


@dataclass(frozen=True)
class Mismatch:
    """One value that is not what was asked for."""

    key: str
    asked: object
    recorded: object
    why: str

    def __str__(self) -> str:
        return f"{self.key} is {self.recorded}, asked for {self.asked}" + (f" ({self.why})" if self.why else "")


def check_engine(folder: Path, asked: Flags, prediction: Prediction, subject: Subject) -> None:
    """BuildError when a file is missing or empty, or the record is not the engine that was asked for."""
    _check_files(folder, subject)
    path = folder / "config.json"
    try:
        document = read_object(path)
    except ModelFileError as error:
        raise BuildError("the engine's record cannot be read", where=path, found=error.what) from None
    wrong = list(mismatches(document, asked, prediction, subject))
    if wrong:
        raise BuildError(
            f"the engine is not the one that was asked for: {wrong[0]}",
            where=path,
            found=f"{wrong[0].key} {wrong[0].recorded}" + (f", and {len(wrong) - 1} more" if wrong[1:] else ""),
            expected=str(wrong[0].asked),
            fix="; ".join(map(str, wrong[1:])) or "the log shows what trtllm-build warned of",
        )


def _check_files(folder: Path, subject: Subject) -> None:
    wanted = ["config.json", *(f"rank{rank}.engine" for rank in range(subject.ranks))]
    missing = [name for name in wanted if not (folder / name).is_file()]
    empty = [name for name in wanted if name not in missing and (folder / name).stat().st_size == 0]
    if missing or empty:
        said = [f"no {', '.join(missing)}"] if missing else []
        said += [f"empty {', '.join(empty)}"] if empty else []
        raise BuildError(
            "trtllm-build ended well, but the engine is not whole",
            where=folder,
            found="; ".join(said),
            expected=f"config.json and {subject.ranks} rank files",
            fix="the log says what happened; nothing of it was kept",
        )


def mismatches(
    document: Mapping[str, Any], asked: Flags, prediction: Prediction, subject: Subject
) -> Iterator[Mismatch]:
    """Everything recorded otherwise than predicted, in the order of importance."""
    built, model = _object(document, "build_config"), _object(document, "pretrained_config")
    expected = prediction.flags
    yield from _version(document, subject)
    yield from _speculation(built, expected)
    for name in PLUGINS:
        yield from _differs(
            f"plugin_config.{name}", expected[name], _object(built, "plugin_config").get(name), _why(name, subject)
        )
    yield from _cache(built)
    for name in BUILD:
        shown = f" (recorded as {expected[name]})" if expected[name] != asked[name] else ""
        why = _why(name, subject)
        yield from _differs(name, expected[name], built.get(name), why, asked=f"{asked[name]}{shown}")
    yield from _logits(built, model, expected)
    yield from _others(built, expected)
    yield from _split(model, subject)


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _differs(key: str, wanted: object, recorded: object, why: str, *, asked: object = None) -> Iterator[Mismatch]:
    if _plain(recorded) != _plain(wanted):
        shown = "not recorded" if recorded is None else recorded
        yield Mismatch(key, wanted if asked is None else asked, shown, why)


def _plain(value: object) -> object:
    """`enable`, True and 1 of a feature alike; numbers of the command line as numbers."""
    if isinstance(value, str):
        word = value.lower()
        return {"enable": True, "disable": False, "true": True, "false": False}.get(word, word)
    return value


def _why(name: str, subject: Subject) -> str:
    formats = f"weights {subject.quant_algo or subject.dtype or 'plain'}, KV cache {subject.kv_algo or '16 bit'}"
    reason = WHY_BY_FLAG.get(name, "")
    return f"{reason}; {formats}" if name == "use_paged_context_fmha" else reason


def _version(document: Mapping[str, Any], subject: Subject) -> Iterator[Mismatch]:
    recorded = str(document.get("version"))
    try:
        same = same_release(parse(recorded), subject.version.number)
    except Exception:  # any text may stand there
        same = False
    if not same:
        why = "another TensorRT-LLM built it than was found or planned for"
        yield Mismatch("version", str(subject.version), recorded, why)


def _speculation(built: Mapping[str, Any], expected: Flags) -> Iterator[Mismatch]:
    mode = expected.get("speculative_decoding_mode")
    wanted = MODES[None if mode is None else str(mode)]
    recorded = built.get("speculative_decoding_mode")
    names = {1: "none", 2: "draft_tokens_external"}
    if recorded != wanted and str(recorded).lower().rpartition(".")[2] != names[wanted]:
        yield Mismatch("speculative_decoding_mode", wanted, recorded, WHY_BY_FLAG["speculative_decoding_mode"])
    yield from _differs("max_draft_len", expected.get("max_draft_len", 0), built.get("max_draft_len"), "")


def _cache(built: Mapping[str, Any]) -> Iterator[Mismatch]:
    recorded = str(built.get("kv_cache_type")).lower().rpartition(".")[2]
    if recorded != "paged":
        yield Mismatch("kv_cache_type", "paged", recorded, "only a paged cache can be reused")


def _logits(built: Mapping[str, Any], model: Mapping[str, Any], expected: Flags) -> Iterator[Mismatch]:
    if expected.get("gather_generation_logits"):
        yield from _differs("gather_generation_logits", True, built.get("gather_generation_logits"), "")
    if built.get("gather_context_logits"):
        yield Mismatch("gather_context_logits", False, True, "it cannot be together with drafts")
    why = "draft and target must have equal logits, and the repository declares them"
    yield from _differs("logits_dtype", expected["logits_dtype"], model.get("logits_dtype"), why)


def _others(built: Mapping[str, Any], expected: Flags) -> Iterator[Mismatch]:
    """Flags besides those above, wherever the record has them; `auto` may become any type."""
    plugins = _object(built, "plugin_config")
    for name, value in expected.items():
        if name in (*BUILD, *PLUGINS) or value == "auto":
            continue
        if name in plugins:
            recorded = plugins[name]
            yield from _differs(f"plugin_config.{name}", value, False if recorded is None else recorded, "")
        elif name in built and name in OPTIONS:
            yield from _differs(name, value, built[name], "")


def _split(model: Mapping[str, Any], subject: Subject) -> Iterator[Mismatch]:
    mapping, quantization = _object(model, "mapping"), _object(model, "quantization")
    for name, wanted in (("tp_size", subject.tensor), ("pp_size", subject.pipeline)):
        yield from _differs(f"mapping.{name}", wanted, mapping.get(name, 1), "")
    for name, algo in (("quant_algo", subject.quant_algo), ("kv_cache_quant_algo", subject.kv_algo)):
        yield from _differs(f"quantization.{name}", algo, quantization.get(name), "the checkpoint's")

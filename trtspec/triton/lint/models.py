"""Rules on the LLM models: their settings, their engines, their version, and what they share with the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.errors import ConfigError
from trtspec.triton import pipeline, versioned
from trtspec.triton.lint.engine import Engine
from trtspec.triton.lint.problem import Problem
from trtspec.triton.lint.seen import Seen
from trtspec.triton.wiring import wiring_problems
from trtspec.versions import TrtLlm, engine_version, parse, same_release

_LOGITS = ("draft_logits", "context_logits", "generation_logits")
_STREAMING = (pipeline.TARGET, pipeline.DRAFT, pipeline.BLS)
_TYPES = {"float32": "TYPE_FP32", "float16": "TYPE_FP16"}
_SAMPLING = ("top_k", "top_p", "top_k_top_p")
_INFLIGHT = ("inflight_fused_batching", "inflight_batching")


def check_llms(seen: Seen) -> Iterator[Problem]:
    """Each LLM model's settings, and those against its engine."""
    version = _version(seen)
    for role, name, engine in seen.pairs():
        yield from _settings(seen, name)
        if engine is not None:
            yield from _engine(seen, name, engine)
            if role == "target":
                yield from _draft_len(seen, engine)
        if seen.tensorrt and version is not None:
            yield from _tensors(seen, name, version)
            if engine is not None and not _same(version, engine.version):
                yield Problem(name, f"the engine was built by TensorRT-LLM {engine.version}, the repository is written "
                              f"for {version}", "engine.version", fix="run `trtspec build`")  # fmt: skip


def _settings(seen: Seen, name: str) -> Iterator[Problem]:
    given = seen.given[name]
    if not seen.flag(name, "enable_kv_cache_reuse"):
        text = "enable_kv_cache_reuse is not true; a target refuses draft tokens without it"
        yield Problem(name, text, "repository.reuse")
    if given.get("max_beam_width") != "1":
        yield Problem(name, "max_beam_width is not 1; draft tokens need it", "repository.beams")
    if seen.flag(name, "exclude_input_in_output"):
        text = "exclude_input_in_output is true as a default; clients that count on the prompt get an empty text"
        yield Problem(name, text, "repository.echo", fix="set it to false: requests may still ask for it")
    kind, mode = given.get("gpt_model_type"), given.get("decoding_mode")
    if kind is not None and kind not in _INFLIGHT:
        yield Problem(name, f"gpt_model_type is {kind}, not {_INFLIGHT[0]}", "repository.batching")
    if mode is not None and mode not in _SAMPLING:
        yield Problem(name, f"decoding_mode is {mode}: such a model verifies no drafts", "repository.decoding")


def _engine(seen: Seen, name: str, engine: Engine) -> Iterator[Problem]:
    batch, ours = engine.number("max_batch_size"), seen.configs[name].max_batch_size
    if ours > batch:
        yield Problem(name, f"max_batch_size {ours} is more than the engine's {batch}", "repository.batch")
    served = seen.number(pipeline.PREPROCESSING, "max_seq_len")
    if served is not None and served > engine.length:
        yield Problem(name, f"the pipeline takes {served} tokens, the engine {engine.length}", "repository.length",
                      fix="run `trtspec build`")  # fmt: skip
    step, longest = engine.number("max_num_tokens"), min(engine.number("max_input_len"), engine.length)
    if not engine.reference and 0 < step < longest and not seen.flag(name, "enable_chunked_context"):
        yield Problem(name, f"a step takes {step} tokens, an input up to {longest}: longer ones are refused",
                      "engine.step", "warning", "raise max_num_tokens, or set enable_chunked_context")  # fmt: skip
    wanted = _TYPES.get(str(engine.model.get("logits_dtype")))
    for tensor in (*seen.configs[name].input, *seen.configs[name].output):
        if not engine.reference and wanted and tensor.name in _LOGITS and _type(tensor) != wanted:
            yield Problem(name, f"{tensor.name} is {_type(tensor)}, the engine's logits are {wanted}",
                          "repository.logits-type", fix="run `trtspec repo`")  # fmt: skip
            return


def _type(tensor: object) -> str:
    from tritonclient.grpc.model_config_pb2 import DataType

    return str(DataType.Name(tensor.data_type))  # type: ignore[attr-defined]


def _draft_len(seen: Seen, target: Engine) -> Iterator[Problem]:
    ours, theirs = seen.number(pipeline.BLS, "max_draft_len"), target.number("max_draft_len")
    if ours is not None and ours > theirs:
        text = f"max_draft_len {ours} is more than the target engine's {theirs}"
        yield Problem(pipeline.BLS, text, "engine.draft-len", fix="run `trtspec build`")


def _version(seen: Seen) -> TrtLlm | None:
    """What the repository says it is written for, else the target engine's; None where neither is an engine version."""
    engine = seen.engines.get("target")
    text = (seen.launch or {}).get("tensorrt_llm") or (engine.version if engine else None)
    try:
        return engine_version(str(text))
    except ConfigError:
        return None


def _same(version: TrtLlm, recorded: str) -> bool:
    try:
        return same_release(version.number, parse(recorded))
    except ConfigError:
        return False


def _tensors(seen: Seen, name: str, version: TrtLlm) -> Iterator[Problem]:
    """A name that the backend does not know is never read: what a client asks for silently does not happen."""
    config = seen.configs[name]
    for kind, have, need in (
        ("inputs", config.input, versioned.llm_inputs(version, "FP32")),
        ("outputs", config.output, versioned.llm_outputs(version, "FP32")),
    ):
        extra = sorted({tensor.name for tensor in have} - {tensor.name for tensor in need})
        lacking = sorted({tensor.name for tensor in need} - {tensor.name for tensor in have})
        if extra or lacking:
            said = [f"lacks {', '.join(lacking)}"] if lacking else []
            said += [f"has {', '.join(extra)}"] if extra else []
            yield Problem(name, f"its {kind} are not those of TensorRT-LLM {version}: {'; '.join(said)}",
                          "repository.tensors", fix="run `trtspec repo`")  # fmt: skip


def check_pair(seen: Seen) -> Iterator[Problem]:
    """What all streaming models must have in common."""
    streaming = [name for name in _STREAMING if name in seen.configs]
    alone = [name for name in streaming if not seen.configs[name].model_transaction_policy.decoupled]
    if alone != streaming:  # all of them: serving.decoupled is false
        for name in alone:
            yield Problem(name, "is not decoupled: it can neither stream nor be stopped", "repository.decoupled")
    types = {
        tensor.data_type
        for name in streaming
        for tensor in (*seen.configs[name].input, *seen.configs[name].output)
        if tensor.name in _LOGITS
    }
    if len(types) > 1:
        text = "logits have different types in this repository; draft logits could not be passed on"
        yield Problem(pipeline.TARGET, text, "repository.logits-type")
    if seen.fused:
        yield from _same_target(seen)
        return
    for key in ("tensorrt_llm_model_name", "tensorrt_llm_draft_model_name"):
        named = seen.given[pipeline.BLS].get(key)
        if named not in seen.configs:
            text = f"{key} names {named!r}, which is not in this repository"
            yield Problem(pipeline.BLS, text, "repository.models")


def _same_target(seen: Seen) -> Iterator[Problem]:
    """A fused pipeline and the model for everybody else each load the target: it must be the same one."""
    ours = seen.given[pipeline.BLS].get("target_engine_path")
    theirs = seen.given[pipeline.TARGET].get("gpt_model_path")
    if ours != theirs:
        text = f"target_engine_path is {ours}, {pipeline.TARGET}'s gpt_model_path {theirs}: they answer differently"
        yield Problem(pipeline.BLS, text, "repository.engine", fix="run `trtspec repo`")


def check_ensemble(seen: Seen) -> Iterator[Problem]:
    """The steps fit together."""
    for text in wiring_problems(seen.configs[pipeline.ENSEMBLE], seen.configs):
        yield Problem(pipeline.ENSEMBLE, text, "repository.wiring")

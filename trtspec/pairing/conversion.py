"""Will both models convert? The conversion is planned from config.json and headers: what would stop the build later is
found now, and without weights as much of it as config.json tells."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.checkpoint.document import checkpoint_config
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families import Family, family_of
from trtspec.checkpoint.formats import FORMATS
from trtspec.checkpoint.layout import Layout
from trtspec.checkpoint.plan import Plan, plan_conversion
from trtspec.config import ModelSource, RunConfig
from trtspec.errors import ConfigError, ModelFileError
from trtspec.pairing.findings import Finding, error_finding
from trtspec.pairing.model import Model, converts
from trtspec.pairing.parallel import split_problems
from trtspec.pairing.shape import group_size


def check_conversion(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Errors of the plan for each model whose files were found sound so far."""
    if not converts(config):
        return
    for model in (target, draft):
        sound = not any(finding.severity == "error" for finding in model.findings)
        if model.facts is not None and model.here and sound:
            yield from _planned(model, model.facts, config)


def _planned(model: Model, facts: ModelFacts, config: RunConfig) -> Iterator[Finding]:
    split = config.pair[model.role].parallelism
    try:
        family = family_of(facts.architecture, facts.path)
        checkpoint_config(facts, family, Layout(split.tensor, split.pipeline), head=True)
    except ModelFileError as error:
        yield error_finding("config.unsupported", model.role, error)
        return
    yield from _cautions(model, facts, family, config)
    if model.source is not None:
        yield from _with_weights(model, facts, config)


def _cautions(model: Model, facts: ModelFacts, family: Family, config: RunConfig) -> Iterator[Finding]:
    """What TensorRT-LLM does not read of this config.json; the reference engine reads all of it."""
    for text in family.cautions(facts) if config.engine.backend == "tensorrt" else ():
        yield Finding("config.caution", "warning", model.role, text, "measure on the engine before you rely on it")


def _with_weights(model: Model, facts: ModelFacts, config: RunConfig) -> Iterator[Finding]:
    source = config.pair[model.role]
    split = source.parallelism
    version = config.engine.tensorrt_llm_version if config.engine.backend == "tensorrt" else None
    try:
        plan = plan_conversion(
            model.folder,
            dtype=source.dtype,
            tensor=split.tensor,
            pipeline=split.pipeline,
            tensorrt_llm_version=version,
        )
        if not source.quantization.plain:
            plan = _quantized(plan, source)
    except ModelFileError as error:
        yield error_finding("weights.broken", model.role, error)
    except ConfigError as error:
        if not _explained(model, facts, config):
            yield error_finding("weights.uncut", model.role, error)
    else:
        for text in plan.warnings:
            if text.startswith("only the text model"):
                yield Finding("weights.left-out", "info", model.role, text, brief="only the text model is converted")


def _quantized(plan: Plan, source: ModelSource) -> Plan:
    """The plan of the quantized checkpoint, as if it had been calibrated."""
    from trtspec.checkpoint.quantize.calibration import Promised
    from trtspec.checkpoint.quantize.plan import quantized

    q = source.quantization
    calibration = Promised(plan.facts.path.parent, {}, {}) if q.calibrates else None
    return quantized(plan, q.weights, q.kv_cache, q.group_size, calibration)


def _explained(model: Model, facts: ModelFacts, config: RunConfig) -> bool:
    """Whether the preflight has this fault, with the settings that work."""
    source = config.pair[model.role]
    weights, split = source.quantization.weights, source.parallelism
    problems = split_problems(facts, split.tensor, weights, group_size(model.role, config))
    mixture = facts.moe is not None and not FORMATS[weights].experts
    return bool(problems) or mixture or split.pipeline > facts.num_hidden_layers

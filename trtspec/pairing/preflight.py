"""Will both engines build as configured, and can the target verify drafts? On a clash: the settings that do work."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.formats import FORMATS
from trtspec.config import ROLES, Role, RunConfig
from trtspec.pairing import parallel, quantizing
from trtspec.pairing.findings import Finding
from trtspec.pairing.lengths import positions
from trtspec.pairing.model import Model
from trtspec.pairing.placement import gpus_needed
from trtspec.pairing.shape import group_size
from trtspec.pairing.versions import check_version
from trtspec.pairing.widths import padded

UNTESTED_SM = 100
"""Upstream's tests of draft-target engines skip Blackwell."""
USUAL_GPUS = 8


def check_preflight(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Split, formats, GPU generation, versions, room for drafts, number of GPUs; one good line when all is well."""
    facts = {"target": target.facts, "draft": draft.facts}
    found = [*_splits(facts, config), *_machine(facts, config), *check_version(facts, config)]
    found += [*_room(target.facts, config), *_logits(facts, config), *_calibration(config)]
    yield from found
    if target.facts is None or draft.facts is None:
        yield Finding("preflight.not-measured", "info", "pair", "the build is not checked: a config.json is missing")
    elif not any(finding.severity == "error" for finding in found):
        calibrated = all(finding.code != "preflight.calibration" for finding in found)
        yield Finding("preflight.builds", "info", "pair", _summary(facts, config, calibrated))


def _summary(facts: dict[str, ModelFacts | None], config: RunConfig, calibrated: bool) -> str:
    said = []
    for role in ROLES[::-1]:
        source, known = config.pair[role], facts[role]
        assert known is not None
        split = f"tensor {source.parallelism.tensor}"
        split += f" × pipeline {source.parallelism.pipeline}" if source.parallelism.pipeline > 1 else ""
        copies = parallel.copied_heads(known, source.parallelism.tensor)
        split += f", each key-value head on {copies} GPUs" if copies > 1 else ""
        kv_cache = source.quantization.kv_cache
        cache = "" if kv_cache == "auto" else f" with {kv_cache} KV cache"
        said.append(f"{role} {source.quantization.weights} weights{cache}, {split}")
    where = f" on {config.hardware.spec.title}" if _plans_gpu(config) else ""
    once = "" if calibrated else ", once calibrated,"
    return f"both build as configured{once}{where}: {'; '.join(said)}"


def _splits(facts: dict[str, ModelFacts | None], config: RunConfig) -> Iterator[Finding]:
    for role in ROLES[::-1]:
        known = facts[role]
        if known is not None:
            yield from _tensor(role, known, config)
            yield from _pipeline(role, known, config)
            yield from _format(role, known, config)


def _tensor(role: Role, facts: ModelFacts, config: RunConfig) -> Iterator[Finding]:
    source, group = config.pair[role], group_size(role, config)
    tensor, weights = source.parallelism.tensor, source.quantization.weights
    plain = parallel.split_problems(facts, tensor)
    problems = plain or parallel.split_problems(facts, tensor, weights, group)
    if problems:
        code = "preflight.tensor-parallel" if plain else "preflight.groups"
        data = {"tensor": tensor, "weights": weights, "group_size": group, "works": _works(facts, weights, config)}
        yield Finding(code, "error", role, "; ".join(problems), _works_text(facts, weights, config), data)


def _works(facts: ModelFacts, weights: str, config: RunConfig) -> dict[int, list[int]]:
    """Tensor-parallel size → group sizes that work with it (none: the format has no groups to choose)."""
    most = max(config.hardware.count, USUAL_GPUS)
    choose = FORMATS[weights].packs_rows
    found = {t: parallel.group_sizes(facts, t, weights) for t in parallel.tensor_sizes(facts, most)}
    if choose:
        return {t: groups for t, groups in found.items() if groups}
    return {t: [] for t in parallel.tensor_sizes(facts, most, weights)}


def _works_text(facts: ModelFacts, weights: str, config: RunConfig) -> str:
    works = _works(facts, weights, config)
    if not works:
        return f"no tensor-parallel size works with {weights}; choose other weights, such as fp8 or int8_wo"
    by_groups: dict[tuple[int, ...], list[int]] = {}
    for tensor, groups in works.items():
        by_groups.setdefault(tuple(groups), []).append(tensor)
    said = [
        f"parallelism.tensor {', '.join(map(str, sizes))}"
        + (f" with group_size {' or '.join(map(str, groups))}" if groups else "")
        for groups, sizes in by_groups.items()
    ]
    return f"what works: {'; '.join(said)}"


def _pipeline(role: Role, facts: ModelFacts, config: RunConfig) -> Iterator[Finding]:
    layers, stages = facts.num_hidden_layers, config.pair[role].parallelism.pipeline
    whole = [n for n in range(1, max(config.hardware.count, USUAL_GPUS) + 1) if layers % n == 0]
    fix = f"pipeline sizes that divide them: {', '.join(map(str, whole))}"
    if stages > layers:
        yield Finding("preflight.pipeline", "error", role, f"{layers} layers cannot fill {stages} stages", fix)
    elif layers % stages:
        # Refused at 0.17, allowed at 1.3.0rc3; which release between changed it is not known.
        message = f"{layers} layers are not divisible by {stages} stages: older TensorRT-LLM versions refuse that"
        yield Finding("preflight.pipeline", "warning", role, message, fix)


def _format(role: Role, facts: ModelFacts, config: RunConfig) -> Iterator[Finding]:
    weights = config.pair[role].quantization.weights
    if facts.moe is not None and not FORMATS[weights].experts:
        names = ", ".join(name for name, form in FORMATS.items() if form.experts)
        message = f"experts of a mixture cannot be stored as {weights}"
        yield Finding("preflight.mixture", "error", role, message, f"weights that can: {names}")
    if group_size(role, config) == 64 and FORMATS[weights].packs_rows:
        yield Finding(
            "preflight.group-size", "warning", role,
            "groups of 64 were reported to give garbage with some kernels (TensorRT-LLM issue 2445 and its kin)",
            "measure with `trtspec verify-checkpoint` and on the GPU, or use group_size 128",
        )  # fmt: skip


def _calibration(config: RunConfig) -> Iterator[Finding]:
    """Formats whose scales come from prompts, and no prompts: `build` stops before it converts anything."""
    shared = tuple(dataset.path for dataset in config.validation.datasets)
    lacking: list[Role] = []
    for role in ROLES[::-1]:
        quantization = config.pair[role].quantization
        own = quantization.calibration.prompts
        files = shared if own is None else (own,)
        if quantization.calibrates and not (files and all(path.is_file() for path in files)):
            lacking.append(role)
    if lacking:
        formats = {role: config.pair[role].quantization for role in lacking}
        names = {role: f"{q.kv_cache} KV cache" if q.weights == "none" else q.weights for role, q in formats.items()}
        said = " and ".join(f"{name} of the {role}" for role, name in names.items())
        yield Finding(
            "preflight.calibration", "warning", "pair",
            f"scales come from calibration prompts, and there are none here ({said}): build stops before it converts",
            "set validation.datasets, or quantization.calibration.prompts, to prompts like those that will be served",
            {"roles": lacking},
        )  # fmt: skip


def _plans_gpu(config: RunConfig) -> bool:
    return config.engine.backend != "reference" and config.hardware.spec.is_gpu


def _machine(facts: dict[str, ModelFacts | None], config: RunConfig) -> Iterator[Finding]:
    spec, backend = config.hardware.spec, config.engine.backend
    if backend == "reference":
        if spec.is_gpu:
            message = f"the reference backend runs on the CPU: hardware.gpu {config.hardware.gpu} is not used"
            yield Finding("preflight.gpu-unused", "warning", "pair", message, "set engine.backend to tensorrt")
        return
    if not spec.is_gpu:
        yield Finding(
            "preflight.not-measured", "info", "pair", "the GPU generation is not checked: hardware.gpu is cpu",
            "set hardware.gpu and hardware.count",
        )  # fmt: skip
        return
    yield from _count(config)
    assert spec.sm is not None
    for role in ROLES[::-1]:
        yield from _generation(role, facts[role], spec.sm, config)
    if backend == "tensorrt" and spec.sm >= UNTESTED_SM:
        yield Finding(
            "preflight.untested-gpu", "warning", "pair",
            f"draft-target engines are not tested upstream on {quantizing.generation(spec.sm)}",
            "try the pair before relying on it, or choose the pytorch backend",
        )  # fmt: skip


def _count(config: RunConfig) -> Iterator[Finding]:
    needed, here = gpus_needed(config, config.hardware.placement), config.hardware.count
    if needed > here:
        worlds = ", ".join(f"{role} {config.pair[role].parallelism.world_size}" for role in ROLES[::-1])
        apart = " on GPUs of their own" if config.hardware.placement == "separate" else ""
        yield Finding(
            "preflight.gpu-count", "error", "pair",
            f"{needed} GPUs are needed ({worlds}{apart}), hardware.count is {here}",
            "lower parallelism" + (", or set hardware.placement to shared" if apart else ", or raise hardware.count"),
        )  # fmt: skip
    sizes = {config.pair[role].parallelism.tensor for role in ROLES}
    if config.engine.backend == "pytorch" and len(sizes) > 1:
        yield Finding(
            "preflight.draft-parallel", "warning", "draft",
            "the LLM API runs the draft with the target's tensor-parallel size; the draft's own is not used",
            f"set pair.draft.parallelism.tensor to {config.pair.target.parallelism.tensor}",
        )  # fmt: skip


def _generation(role: Role, facts: ModelFacts | None, sm: int, config: RunConfig) -> Iterator[Finding]:
    quantization = config.pair[role].quantization
    weights, kv_cache = quantization.weights, quantization.kv_cache
    cells = quantizing.target_cells(sm, mixture=facts is not None and facts.moe is not None)
    fix = f"what works on {config.hardware.spec.title}: {quantizing.cells_text(cells)}"
    data = {"weights": weights, "kv_cache": kv_cache, "sm": sm, "works": [list(cell) for cell in cells]}
    problem = quantizing.weights_problem(weights, sm)
    if problem:
        yield Finding("preflight.weights", "error", role, f"{problem}, not on {quantizing.generation(sm)}", fix, data)
    problem = quantizing.cache_problem(kv_cache, sm)
    if problem:
        yield Finding("preflight.kv-cache", "error", role, f"{problem}, not on {quantizing.generation(sm)}", fix, data)
    reuse = quantizing.loses_reuse(weights, kv_cache) if config.engine.backend == "tensorrt" and not problem else None
    if reuse and role == "target":
        message = f"{reuse}: the engine builds with a warning, and then cannot verify drafts"
        yield Finding("preflight.kv-cache", "error", role, message, fix, data)
    elif reuse:
        message = f"{reuse}: the draft reads its whole prompt again in every round"
        yield Finding("preflight.draft-kv-cache", "warning", role, message, fix, data)


def _room(target: ModelFacts | None, config: RunConfig) -> Iterator[Finding]:
    """Room for draft tokens beside prompt and answer."""
    engine, drafts = config.engine, config.speculation.max_draft_len
    answer = engine.max_seq_len - engine.max_input_len
    if answer <= drafts:
        yield Finding(
            "preflight.draft-room", "warning", "pair",
            f"answers of at most {answer} tokens (max_seq_len - max_input_len) never fill a round of {drafts} drafts",
            f"set speculation.max_draft_len below {answer}, or raise engine.max_seq_len",
        )  # fmt: skip
    if config.engine.backend == "reference" or target is None:
        return
    limit, built = positions(target), engine.max_seq_len + drafts
    if engine.max_seq_len <= limit < built:
        yield Finding(
            "preflight.draft-room", "warning", "target",
            f"its engine is built for {built:,} tokens (max_seq_len + max_draft_len), it has {limit:,} positions",
            f"set engine.max_seq_len to {limit - drafts}",
        )  # fmt: skip


def _logits(facts: dict[str, ModelFacts | None], config: RunConfig) -> Iterator[Finding]:
    if config.speculation.acceptance != "logits":
        return
    if config.engine.backend == "pytorch":
        yield Finding(
            "preflight.logits", "error", "pair", "the LLM API compares tokens; it has no acceptance by logits",
            "set speculation.acceptance to tokens, or engine.backend to tensorrt",
        )  # fmt: skip
        return
    target, draft = facts["target"], facts["draft"]
    if target is None or draft is None or target.vocab_size != draft.vocab_size:
        return  # widths.logits has that
    rows: dict[str, int] = {role: padded(target.vocab_size, config.pair[role].parallelism.tensor) for role in ROLES}
    if rows["target"] != rows["draft"]:
        yield Finding(
            "preflight.logits-width", "error", "pair",
            f"heads are padded to {rows['target']:,} rows (target) and {rows['draft']:,} (draft): splitting "
            "rounds the vocabulary up, and logits acceptance copies whole rows",
            "use tensor sizes that pad alike, or set speculation.acceptance to tokens", rows,
        )  # fmt: skip
    elif config.engine.backend == "tensorrt":
        message = f"logits of both are {rows['target']:,} wide; both engines must gather generation logits of one type"
        yield Finding("preflight.logits", "info", "pair", message)

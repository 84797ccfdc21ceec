"""The parts of a plan, one for each kind of stage: which folders, which files of how many bytes, which commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from trtspec.config import ROLES, Role
from trtspec.errors import TrtspecError
from trtspec.store import Stage
from trtspec.workflows.plan import Planned, PlannedFile, PlannedStage
from trtspec.workflows.stages import Stages

Part = Callable[[Planned], Iterator[PlannedStage]]
TOKENIZER_COPIES = 3
"""Models of the repository that get the target's tokenizer: preprocessing, postprocessing, BLS."""


def check(planned: Planned) -> Iterator[PlannedStage]:
    """engines/<name>/check."""
    folder = planned.config.output.engines / planned.config.name / "check"
    yield PlannedStage("check", None, folder, planned.action(lambda stages: stages.check, folder))


def calibrations(planned: Planned) -> Iterator[PlannedStage]:
    """engines/<name>/<role>/calibration: what activations were seen, for the formats that need it."""
    for role in ROLES[::-1]:
        if planned.config.engine.backend == "pytorch" or not planned.config.pair[role].quantization.calibrates:
            continue
        folder = planned.config.checkpoint_dir(role).parent / "calibration"
        own = planned.config.pair[role].quantization.calibration.prompts
        prompts = planned.config.validation.datasets if own is None else (own,)
        note = "" if prompts else "needs prompts: none are configured"
        action = planned.action(partial(_calibration, role=role), folder)
        yield PlannedStage(f"calibration of the {role}", role, folder, action, note=note)


def checkpoints(planned: Planned) -> Iterator[PlannedStage]:
    """engines/<name>/<role>/checkpoint: one weight file per rank."""
    for role in ROLES[::-1]:
        folder = planned.config.checkpoint_dir(role)
        if planned.config.engine.backend == "pytorch":
            # The LLM API reads the model folders themselves, or quantized copies.
            if not planned.config.pair[role].quantization.plain:
                action = planned.action(partial(_checkpoint, role=role), folder)
                title = f"Hugging Face checkpoint of the {role}"
                yield PlannedStage(title, role, folder, action, note="quantized by modelopt")
            continue
        action = planned.action(partial(_checkpoint, role=role), folder)
        files, note = _ranks(planned, role, stored=True)
        yield PlannedStage(f"checkpoint of the {role}", role, folder, action, files, note)


def engines(planned: Planned) -> Iterator[PlannedStage]:
    """engines/<name>/<role>/engine, with the `trtllm-build` line of the version that is installed or configured."""
    backend = planned.config.engine.backend
    for role in ROLES[::-1]:
        folder = planned.config.engine_dir(role)
        action = planned.action(partial(_engine, role=role), folder)
        if backend == "pytorch":
            note = "no engine: which weights the LLM API reads"
            yield PlannedStage(f"engine of the {role}", role, folder, action, note=note)
        elif backend == "reference":
            yield PlannedStage(f"engine of the {role}", role, folder, action, note="links to the checkpoint's weights")
        else:
            files, _ = _ranks(planned, role, stored=False)
            commands, note, runs = _build_commands(planned, role)
            yield PlannedStage(f"engine of the {role}", role, folder, action, files, note, commands, runs)


def _build_commands(planned: Planned, role: Role) -> tuple[tuple[tuple[str, ...], ...], str, str]:
    """The command of one engine, a note, and what it is for. Why there is no command: the note, and the check."""
    from trtspec.backends.tensorrt.planning import planned_command

    note = "estimate: weights only"
    try:
        command, runs = planned_command(planned.config, role, planned.facts[role])
    except TrtspecError as error:
        return (), f"{note}; no command: {error}", ""
    return (command,), note, runs


def repository(planned: Planned) -> Iterator[PlannedStage]:
    """model_repo/<name>."""
    folder = planned.config.repository_dir
    action = planned.action(lambda stages: stages.repository(), folder)
    tokenizer = planned.folders["target"] / "tokenizer.json"
    if planned.config.engine.backend == "pytorch":
        note = "one model on the LLM API; trtllm-serve's options"
        yield PlannedStage("model repository", None, folder, action, note=note)
        return
    size = TOKENIZER_COPIES * tokenizer.stat().st_size if tokenizer.is_file() else None
    files = (PlannedFile("tokenizer copies", size),)
    if planned.config.engine.backend == "reference":
        yield PlannedStage("model repository", None, folder, action, files)
        return
    commands, note, runs = _launch_command(planned)
    yield PlannedStage("model repository", None, folder, action, files, note, commands, runs)


def _launch_command(planned: Planned) -> tuple[tuple[tuple[str, ...], ...], str, str]:
    """How the server with TensorRT engines is started, a note, and why it is started so."""
    from trtspec.backends.tensorrt.machine import machine_for
    from trtspec.triton.launch import planned_command
    from trtspec.triton.plan import plan_tensorrt

    target, draft = planned.facts["target"], planned.facts["draft"]
    if target is None or draft is None:
        return (), "no launch line: a model's sizes are not known", ""
    try:
        plan = plan_tensorrt(planned.config, {"target": target, "draft": draft}, machine_for(planned.config).version)
    except TrtspecError as error:
        return (), f"no launch line: {error}", ""
    devices = plan["devices"]
    command = planned_command(devices, str(planned.config.repository_dir), plan["ports"])
    return (command,), str(plan["memory"].get("note", "")), f"to serve it; {devices.mode}: {devices.why}"


PARTS: tuple[Part, ...] = (check, calibrations, checkpoints, engines, repository)
"""Every part in the order of the build: one line adds one."""


def _calibration(stages: Stages, role: Role) -> Stage:
    found = stages.calibration(role)
    assert found is not None
    return found


def _checkpoint(stages: Stages, role: Role) -> Stage:
    return stages.checkpoint(role)


def _engine(stages: Stages, role: Role) -> Stage:
    return stages.engine(role)


def _ranks(planned: Planned, role: Role, *, stored: bool) -> tuple[tuple[PlannedFile, ...], str]:
    """The weight file of each rank with its predicted bytes, and what else there is to say."""
    from trtspec.pairing.placement import weights_of
    from trtspec.pairing.shape import shape_of

    facts, source = planned.facts[role], planned.config.pair[role]
    ending = "safetensors" if stored else "engine"
    names = [f"rank{rank}.{ending}" for rank in range(source.parallelism.world_size)]
    if facts is None:
        return tuple(PlannedFile(name, None) for name in names), "the model's sizes are not known"
    per_stage = weights_of(shape_of(facts), facts, role, planned.config, stored=stored)
    sizes = [nbytes for nbytes in per_stage for _ in range(source.parallelism.tensor)]
    weights = source.quantization.weights
    note = f"{weights} weights" if weights != "none" else ""
    return tuple(map(PlannedFile, names, sizes)), note

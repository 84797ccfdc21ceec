"""Rules on GPUs and processes. TensorRT-LLM's backend ignores `instance_group`; only `gpu_device_ids` counts."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.config import ROLES
from trtspec.triton.lint.problem import Problem
from trtspec.triton.lint.seen import FOLDERS, Seen


def check_placement(seen: Seen) -> Iterator[Problem]:
    """Nothing for the reference engine, which needs no GPU."""
    if not seen.tensorrt:
        return
    for _, name, engine in seen.pairs():
        gpus = seen.ids(name, "gpu_device_ids")
        if not gpus and any(group.gpus for group in seen.configs[name].instance_group):
            yield Problem(name, "only instance_group names GPUs: the backend ignores it", "placement.instance-group",
                          fix="set gpu_device_ids")  # fmt: skip
        if engine is not None and gpus and (len(gpus) != engine.ranks or len(set(gpus)) != len(gpus)):
            yield Problem(name, f"gpu_device_ids names {len(set(gpus))} GPUs, the engine has {engine.ranks} ranks",
                          "placement.gpu-count", fix="name one GPU for each rank")  # fmt: skip
    if len(seen.engines) == len(ROLES):
        yield from _processes(seen)


def _processes(seen: Seen) -> Iterator[Problem]:
    ranks = {role: seen.engines[role].ranks for role in ROLES}
    launched = seen.launch
    if launched is not None and launched.get("mode") == "leader" and ranks["draft"] != ranks["target"]:
        yield Problem("repository", f"leader mode, but the draft has {ranks['draft']} ranks and the target "
                      f"{ranks['target']}", "placement.mode", fix="set serving.mode to auto")  # fmt: skip
    if seen.fast_logits:
        yield from _fast_logits(seen)
    else:
        yield from _world(seen, ranks["target"] if launched and launched.get("mode") == "leader" else 1)


def _fast_logits(seen: Seen) -> Iterator[Problem]:
    for role in ROLES:
        if not seen.flag(FOLDERS[role], "speculative_decoding_fast_logits"):
            yield Problem(FOLDERS[role], "speculative_decoding_fast_logits is on in the other model only",
                          "placement.fast-logits", fix="set it in both")  # fmt: skip
    if seen.launch is not None and (seen.launch.get("mode") != "orchestrator" or seen.launch.get("spawns_processes")):
        yield Problem("repository", "fast logits need an orchestrator whose ranks are started with it: they would be "
                      "ignored", "placement.fast-logits", fix="run `trtspec repo`")  # fmt: skip
    given = {role: seen.ids(FOLDERS[role], "participant_ids") for role in ROLES}
    for role in ROLES:
        if len(given[role]) != seen.engines[role].ranks:
            yield Problem(FOLDERS[role], f"participant_ids names {len(given[role])} MPI ranks, the engine has "
                          f"{seen.engines[role].ranks}", "placement.ranks", fix="name one for each rank")  # fmt: skip
    both = sorted((*given["draft"], *given["target"]))
    if both != list(range(1, len(both) + 1)):
        yield Problem("repository", f"participant_ids are {both}: draft and target must share out 1 - {len(both)}, "
                      "rank 0 is the server's", "placement.ranks", fix="run `trtspec repo`")  # fmt: skip
    yield from _world(seen, 1 + sum(seen.engines[role].ranks for role in ROLES))


def _world(seen: Seen, needed: int) -> Iterator[Problem]:
    started = (seen.launch or {}).get("world_size")
    if isinstance(started, int) and started != needed:
        yield Problem("repository", f"the launch line starts {started} processes, the models need {needed}",
                      "placement.world", fix="run `trtspec repo`")  # fmt: skip

"""README.md of a repository with TensorRT engines: what it needs, how it is started, what was decided and why."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.config import ROLES
from trtspec.triton import launch, versioned
from trtspec.triton.plan import RepositoryPlan

_BYTES = 1 << 30


def readme(plan: RepositoryPlan) -> str:
    """Markdown. Says nothing that was not decided in `plan`."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: RepositoryPlan) -> Iterator[str]:
    devices, version = plan.devices, plan.version
    assert devices is not None
    assert version is not None
    yield f"# {plan.name}: a draft/target pair on TensorRT-LLM {version}"
    yield ""
    yield "Written by trtspec. It has not been run by the one who wrote it."
    yield ""
    yield f"Serve it inside {_image(plan)}, with `./{launch.SCRIPT}`, which is:"
    yield ""
    yield "```"
    yield from (line for line in launch.preamble(devices) if not line.startswith("#"))
    yield launch.shell(launch.planned_command(devices, str(plan.final_dir), plan.ports, launch.CLOSED))
    yield "```"
    yield ""
    yield "It needs:"
    yield ""
    for role in ROLES[::-1]:
        yield f"- the {role}'s engine at `{plan.parameters[role]['gpt_model_path']}`"
    yield f"- {devices.needed} GPUs: {'; '.join(_placed(plan))}"
    yield f"- {_processes(plan)}"
    yield ""
    yield f"**Mode.** {devices.mode.capitalize()}: {devices.why}."
    yield ""
    yield f"**Memory.** {_memory(plan)}"
    yield ""
    yield "**Ask** `tensorrt_llm_bls` for speculation, `ensemble` for the target alone:"
    yield ""
    yield "```"
    yield (
        f"curl http://{plan.ports.host}:{plan.ports.http}/v2/models/tensorrt_llm_bls/generate "
        """-d '{"text_input": "Hello", "max_tokens": 32}'"""
    )
    yield "```"
    yield ""
    most = f"at most {plan.max_draft_len}"
    yield f"It drafts {plan.draft_len} tokens a round unless a request says `num_draft_tokens` ({most})."
    names = ", ".join(f"`{theirs}` for `{ours}`" for ours, theirs in versioned.renamed(version).items())
    if names:
        yield f"`tensorrt_llm` itself has this version's names: {names}; the two above translate."


def _image(plan: RepositoryPlan) -> str:
    assert plan.version is not None
    image = plan.version.image
    return f"`{image}`" if image else f"a Triton image with TensorRT-LLM {plan.version}"


def _placed(plan: RepositoryPlan) -> Iterator[str]:
    assert plan.devices is not None
    for role in ROLES[::-1]:
        yield f"{role} on {', '.join(map(str, plan.devices.gpus[role]))}"


def _processes(plan: RepositoryPlan) -> str:
    devices = plan.devices
    assert devices is not None
    if devices.participants:
        ranks = "; ".join(f"{role} {', '.join(map(str, devices.participants[role]))}" for role in ROLES)
        return f"{devices.world_size} MPI ranks: 0 the server; {ranks}"
    if devices.spawns:
        return "one MPI rank: the server starts a process for each GPU of each model (one node)"
    return f"{devices.world_size} MPI ranks, each a server with its part of both models"


def _memory(plan: RepositoryPlan) -> str:
    if "note" in plan.memory:
        return f"{plan.memory['note']}."
    parts = [
        f"{role} `kv_cache_free_gpu_mem_fraction` {plan.parameters[role]['kv_cache_free_gpu_mem_fraction']}, "
        f"`max_tokens_in_paged_kv_cache` {plan.parameters[role]['max_tokens_in_paged_kv_cache']}"
        for role in ROLES[::-1]
    ]
    return (
        f"Planned for {plan.memory['gpu']} ({plan.memory['bytes'] / _BYTES:.1f} GiB), {plan.memory['placement']}: "
        f"{'; '.join(parts)}. The tokens bind in either load order."
    )

"""GPUs and processes: shared, separate, fast logits, leader; and ids that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.config import ROLES, RunConfig, load_config
from trtspec.errors import ConfigError
from trtspec.triton.devices import devices

TINY = Path(__file__).parents[2] / "configs" / "tiny.yaml"
FAST = ("speculation.acceptance=logits", "speculation.fast_logits=true")


def config(target: int, draft: int, *changes: str, pipeline: int = 1) -> RunConfig:
    """The tiny pair on that many GPUs."""
    sizes = [
        f"pair.target.parallelism={{tensor: {target}, pipeline: {pipeline}}}",
        f"pair.draft.parallelism.tensor={draft}",
    ]
    return load_config(TINY, ["engine.backend=tensorrt", *sizes, *changes], environ={})


def test_a_shared_gpu() -> None:
    found = devices(config(4, 1), separate=False)
    assert found.gpus == {"target": (0, 1, 2, 3), "draft": (0,)}
    assert (found.mode, found.spawns, found.world_size, found.shared) == ("orchestrator", True, 1, True)
    assert "1 rank, the target 4" in found.why
    assert found.participants == {}


def test_separate_gpus() -> None:
    found = devices(config(2, 2, pipeline=2), separate=True)
    assert found.gpus == {"target": (0, 1, 2, 3), "draft": (4, 5)}
    assert (found.shared, found.needed) == (False, 6)


def test_fast_logits_number_the_ranks_after_the_servers() -> None:
    """TensorRT-LLM's example: draft 1; target 2,3. And the report's: 1 and 4 ranks make a world of 6."""
    found = devices(config(2, 1, *FAST), separate=True)
    assert found.participants == {"draft": (1,), "target": (2, 3)}
    assert (found.mode, found.spawns, found.world_size) == ("orchestrator", False, 4)
    assert devices(config(4, 1, *FAST), separate=True).world_size == 6


def test_leader_mode_starts_a_server_for_each_rank() -> None:
    found = devices(config(2, 2, "serving.mode=leader"), separate=False)
    assert (found.mode, found.spawns, found.world_size) == ("leader", False, 2)


@given(st.integers(1, 8), st.integers(1, 4), st.booleans(), st.booleans())
def test_ids_always_fit(target: int, draft: int, separate: bool, fast: bool) -> None:
    found = devices(config(target, draft, *(FAST if fast else ())), separate=separate)
    assert {role: len(found.gpus[role]) for role in ROLES} == {"target": target, "draft": draft}
    assert found.shared is not separate
    assert found.world_size == (1 + target + draft if fast else 1)
    if fast:
        assert sorted((*found.participants["draft"], *found.participants["target"])) == list(
            range(1, 1 + target + draft)
        )


WRONG = [
    ((2, 1, "serving.mode=leader"), "equally many ranks"),
    ((1, 1, "serving.mode=leader", *FAST), "fast logits need an orchestrator"),
    ((2, 1, "serving.target_parameters.gpu_device_ids=[0]"), "one GPU for each rank"),
    ((2, 1, "serving.target_parameters.num_nodes=2"), "its own node only"),
    ((1, 1, "serving.draft_parameters.participant_ids=[1]"), "only where they are started with the server"),
    ((2, 1, *FAST, "serving.target_parameters.participant_ids=[1, 2]"), "share out the MPI ranks"),
    ((2, 1, *FAST, "serving.target_parameters.participant_ids=[2]"), "one MPI rank for each rank"),
    ((2, 1, *FAST, "serving.target_parameters.participant_ids=[3, 4]"), "share out the MPI ranks"),
    ((4, 1, "hardware.gpu=l4", "hardware.count=2"), "would need GPU 3"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_is_refused(given: tuple[int | str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        devices(config(*given), separate=False)  # type: ignore[arg-type]


def test_own_ids_are_kept() -> None:
    found = devices(config(2, 1, "serving.target_parameters.gpu_device_ids=[2, 3]",
                           "serving.draft_parameters.gpu_device_ids=[1]"), separate=False)  # fmt: skip
    assert found.gpus == {"target": (2, 3), "draft": (1,)}
    assert (found.shared, found.needed) == (False, 4)

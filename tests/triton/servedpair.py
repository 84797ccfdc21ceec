"""The shipped tiny pair in float32, built for a test and served by a real Triton."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.triton.throwaway import serving
from trtspec.backends.base import builder_for
from trtspec.checkpoint.convert import convert
from trtspec.config import ROLES, RunConfig, load_config
from trtspec.triton.repository import POLICY_FILE, plan_for, write_repository
from trtspec.triton.server import TritonServer


def engines(config: RunConfig) -> None:
    """Both engines, where the configuration has them."""
    for role in ROLES:
        source = config.pair[role].path
        assert source is not None
        for place in (config.checkpoint_dir(role), config.engine_dir(role)):
            place.mkdir(parents=True)
        convert(source, config.checkpoint_dir(role))
        builder_for(config).build(config, role, config.checkpoint_dir(role), config.engine_dir(role))


def build(tiny_config: Path, folder: Path, *overrides: str, tasks: Mapping[str, object] | None = None) -> Path:
    """Its repository; the policy allows any draft length, but for what `tasks` says."""
    places = [f"output.engines={folder}/engines", f"output.model_repo={folder}/repository"]
    config = load_config(tiny_config, [*places, "engine.compute_dtype=float32", *overrides])
    engines(config)
    target = config.pair.target.path
    assert target is not None
    config.repository_dir.mkdir(parents=True)
    write_repository(config.repository_dir, plan_for(config, target))
    policy = {"version": 1, "default": {"draft_len": 8}, "tasks": dict(tasks or {})}
    (config.repository_dir / POLICY_FILE).write_text(json.dumps(policy))
    return config.repository_dir


@contextmanager
def serve(repository: Path, log: Path) -> Iterator[TritonServer]:
    """On free ports; at the end it still runs, and no model has left a traceback."""
    # Short: Triton 2.51 never unloads a model whose client left just as its last response went out.
    private = serving(stop_timeout=6.0, start_timeout=180.0)
    with TritonServer.start(repository, private, log, environment={"OMP_NUM_THREADS": "1"}) as found:
        yield found
        assert found.running
    assert "Traceback" not in log.read_text()

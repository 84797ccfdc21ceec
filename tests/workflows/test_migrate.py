"""A tensorrt configuration as a pytorch one: golden, what is lost, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import PROJECT
from trtspec.backends.pytorch import require_possible
from trtspec.config import load_config
from trtspec.errors import ConfigError
from trtspec.workflows.migrate import Migration, migrate

LLAMA = PROJECT / "configs" / "llama70b.yaml"


def file(folder: Path, **blocks: Any) -> Path:
    """A small tensorrt configuration; dicts replace keys of their block."""
    document: dict[str, Any] = {
        "name": "t",
        "pair": {"target": {"path": "models/t"} | blocks.pop("target", {}),
                 "draft": {"path": "models/d"} | blocks.pop("draft", {})},
        "engine": {"backend": "tensorrt"} | blocks.pop("engine", {}),
    } | blocks  # fmt: skip
    path = folder / "t.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def keys(found: Migration, kind: str) -> set[str]:
    return {change.key for change in found.changes if change.kind == kind}


def test_the_shipped_pair(tmp_path: Path) -> None:
    found = migrate(LLAMA)
    before = yaml.safe_load(LLAMA.read_text())
    after = found.document
    assert after["engine"] == before["engine"] | {"backend": "pytorch"}
    assert after["speculation"] == {"max_draft_len": 5, "draft_len": 5, "acceptance": "tokens"}
    assert after["pair"]["draft"]["parallelism"] == {"tensor": 8}
    assert after["pair"]["target"] == before["pair"]["target"]
    assert after["hardware"] == before["hardware"]
    assert "pair.draft.parallelism" in keys(found, "lost")
    assert "num_draft_tokens of a request" in keys(found, "lost")
    out = tmp_path / "new.yaml"
    out.write_text(found.text())
    require_possible(load_config(out, environ={}))


@pytest.mark.parametrize("config", ["llama70b.yaml", "qwen2.5.yaml"])
def test_every_shipped_tensorrt_configuration_migrates(config: str) -> None:
    assert migrate(PROJECT / "configs" / config).document["engine"]["backend"] == "pytorch"


def test_acceptance_by_logits_becomes_tokens_and_says_what_that_costs(tmp_path: Path) -> None:
    path = file(tmp_path, speculation={"acceptance": "logits", "acceptance_threshold": 0.5, "draft_len": 8})
    found = migrate(path)
    assert found.document["speculation"] == {"draft_len": 8}
    assert "speculation.acceptance" in keys(found, "changed")
    assert "speculation.acceptance_threshold" in keys(found, "lost")


def test_settings_of_engines_are_dropped_and_listed(tmp_path: Path) -> None:
    engine = {"launcher": "slurm", "slurm": {"partition": "gpu"}, "tensorrt": {"flags": {"reduce_fusion": "enable"}}}
    found = migrate(file(tmp_path, engine=engine, hardware={"placement": "separate"}))
    assert found.document["engine"] == {"backend": "pytorch"}
    assert found.document["hardware"] == {}
    assert {"engine.launcher", "engine.slurm", "engine.tensorrt", "hardware.placement"} <= keys(found, "lost")


def test_serving_settings_of_engines_are_dropped_and_listed(tmp_path: Path) -> None:
    found = migrate(file(tmp_path, serving={"mode": "leader", "max_queue_size": 4, "http_port": 9000}))
    assert found.document["serving"] == {"http_port": 9000}
    assert {"serving.mode", "serving.max_queue_size"} <= keys(found, "lost")


def test_every_key_of_engines_alone_is_known_to_the_schema() -> None:
    from trtspec.config.schema import Engine
    from trtspec.config.serving import Serving
    from trtspec.workflows.migrate import ENGINE_ONLY, SERVING_ONLY

    assert set(ENGINE_ONLY) <= set(Engine.model_fields)
    assert set(SERVING_ONLY) <= set(Serving.model_fields)


def test_an_older_version_becomes_the_default_one(tmp_path: Path) -> None:
    found = migrate(file(tmp_path, engine={"tensorrt_llm_version": "0.19.0"}))
    assert found.document["engine"]["tensorrt_llm_version"] == "1.2.1"
    assert "engine.tensorrt_llm_version" in keys(found, "changed")
    found = migrate(file(tmp_path, engine={"tensorrt_llm_version": "1.0.0"}))
    assert found.document["engine"]["tensorrt_llm_version"] == "1.0.0"


def test_all_that_has_no_counterpart_is_refused_at_once(tmp_path: Path) -> None:
    sources = {"target": {"quantization": {"weights": "int8_sq"}}, "draft": {"quantization": {"weights": "int8_wo"}}}
    with pytest.raises(ConfigError) as caught:
        migrate(file(tmp_path, **sources))
    assert "pair.target.quantization" in caught.value.what
    assert "pair.draft.quantization" in caught.value.what
    assert "nearest is fp8" in caught.value.what


@pytest.mark.parametrize(("backend", "says"), [("pytorch", "already"), ("reference", "only a tensorrt")])
def test_only_tensorrt_configurations(tmp_path: Path, backend: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        migrate(file(tmp_path, engine={"backend": backend}))


def test_relative_paths_are_seen_from_the_new_file(tmp_path: Path) -> None:
    validation = {"datasets": [{"path": "prompts/a.jsonl", "domain": "a"}, {"path": "/abs/b.jsonl", "domain": "b"}]}
    path = file(tmp_path, validation=validation, output={"engines": "out/engines"})
    out = tmp_path / "sub" / "new.yaml"
    found = migrate(path, out).document
    assert found["pair"]["target"]["path"] == "../models/t"
    assert [d["path"] for d in found["validation"]["datasets"]] == ["../prompts/a.jsonl", "/abs/b.jsonl"]
    out.parent.mkdir()
    out.write_text(yaml.safe_dump(found))
    before, after = load_config(path, environ={}), load_config(out, environ={})
    assert before.pair.target.path == after.pair.target.path
    assert before.validation.datasets == after.validation.datasets
    assert before.output.engines == after.output.engines


def policy(path: Path, **document: Any) -> None:
    folder = load_config(path, environ={}).repository_dir / "tensorrt_llm_bls" / "1"
    folder.mkdir(parents=True)
    whole = {"version": 1, "default": {"draft_len": 4}, "tasks": {}, "by_concurrency": []} | document
    (folder / "policy.json").write_text(json.dumps(whole))


def test_a_policy_by_load_becomes_a_schedule_and_tasks_are_lost(tmp_path: Path) -> None:
    path = file(tmp_path, output={"model_repo": "repo", "engines": "e", "reports": "r"})
    policy(path, tasks={"legal": {"draft_len": 0}}, by_concurrency=[[1, 8], [8, 1]])
    found = migrate(path)
    assert found.document["engine"]["pytorch"] == {"draft_len_schedule": {1: 4, 8: 1}}
    assert "policy.json: tasks" in keys(found, "lost")


def test_a_version_without_schedules_loses_the_policy(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        engine={"tensorrt_llm_version": "1.0.0"},
        output={"model_repo": "repo", "engines": "e", "reports": "r"},
    )
    policy(path, default={"draft_len": 2}, by_concurrency=[[8, 1]])
    found = migrate(path)
    assert "pytorch" not in found.document["engine"]
    assert {"policy.json: by_concurrency", "policy.json: default"} <= keys(found, "lost")


def test_a_broken_policy_is_an_error(tmp_path: Path) -> None:
    path = file(tmp_path, output={"model_repo": "repo", "engines": "e", "reports": "r"})
    policy(path, version=2)
    with pytest.raises(ConfigError, match="policy cannot be read"):
        migrate(path)


def test_settings_of_the_engines_models_are_lost_and_named(tmp_path: Path) -> None:
    serving = {"http_port": 0, "mode": "orchestrator", "draft_parameters": {"enable_chunked_context": True}}
    logits = {"acceptance": "logits", "fast_logits": True}
    found = migrate(file(tmp_path, serving=serving, speculation=logits))
    assert found.document["serving"] == {"http_port": 0}
    assert "fast_logits" not in found.document["speculation"]
    assert {"serving.mode", "serving.draft_parameters", "speculation.fast_logits"} <= keys(found, "lost")

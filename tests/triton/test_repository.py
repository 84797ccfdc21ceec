"""The written repository: what each folder holds, what its key depends on, and what a plan is made from."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.triton.modelfolder import byte_tokenizer, small_plan, small_repository
from trtspec.config import ROLES, load_config
from trtspec.config.serving import Serving
from trtspec.errors import MissingError, ModelFileError
from trtspec.store import content_key
from trtspec.triton import pbtxt
from trtspec.triton.repository import POLICY_FILE, key_facts, plan_for, write_repository

MODELS = {"preprocessing", "postprocessing", "tensorrt_llm", "tensorrt_llm_draft", "tensorrt_llm_bls", "ensemble"}


def _files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_six_models_each_with_a_version_folder(tmp_path: Path) -> None:
    repository = small_repository(tmp_path)
    assert {p.name for p in repository.iterdir()} == MODELS
    for name in MODELS:
        assert (repository / name / "1").is_dir()
        assert pbtxt.read(repository / name / "config.pbtxt").name == name


def test_draft_and_target_are_the_same_program_on_their_own_engines(tmp_path: Path) -> None:
    repository = small_repository(tmp_path)
    assert _files(repository / "tensorrt_llm" / "1") == _files(repository / "tensorrt_llm_draft" / "1")
    paths = {
        name: pbtxt.parameters(pbtxt.read(repository / name / "config.pbtxt"))["gpt_model_path"]
        for name in ("tensorrt_llm", "tensorrt_llm_draft")
    }
    assert paths == {"tensorrt_llm": str(tmp_path / "target"), "tensorrt_llm_draft": str(tmp_path / "draft")}


def test_reference_and_tensorrt_differ_only_in_the_language_models_and_the_launch(tmp_path: Path) -> None:
    """With the newest version, whose names the reference engine has."""
    reference = _files(small_repository(tmp_path / "a"))
    tensorrt = _files(small_repository(tmp_path / "b", backend="tensorrt"))
    programs = {n for n in reference if n.startswith(("tensorrt_llm/1/", "tensorrt_llm_draft/1/"))}
    assert programs
    assert set(reference) - set(tensorrt) == programs
    assert set(tensorrt) - set(reference) == {"README.md", "launch.json", "launch.sh"}
    for name in set(tensorrt) & set(reference):
        if name not in ("tensorrt_llm/config.pbtxt", "tensorrt_llm_draft/config.pbtxt"):
            assert tensorrt[name] == reference[name], name
            continue
        ours, theirs = (pbtxt.parse(text[name].decode(), name) for text in (tensorrt, reference))
        assert (ours.backend, theirs.backend) == ("tensorrtllm", "python")
        for config in (ours, theirs):
            config.ClearField("parameters")
            config.ClearField("backend")
        assert ours == theirs


def test_folders_need_nothing_outside_but_the_engines(tmp_path: Path) -> None:
    repository = small_repository(tmp_path)
    for name in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
        assert (repository / name / "1" / "tokenizer" / "tokenizer.json").is_file()
    text = "".join(p.read_text() for p in repository.rglob("config.pbtxt"))
    assert text.count(str(tmp_path)) == 2  # the two engine folders
    assert not any(p.is_symlink() for p in repository.rglob("*"))


def test_a_fused_pipeline_holds_the_draft_and_differs_in_nothing_else(tmp_path: Path) -> None:
    apart = _files(small_repository(tmp_path / "a"))
    fused = _files(small_repository(tmp_path / "b", serving=Serving(pipeline="fused")))
    assert set(apart) - set(fused) == {name for name in apart if name.startswith("tensorrt_llm_draft/")}
    assert set(fused) - set(apart) == {f"tensorrt_llm_bls/1/{name}.py" for name in ("fused", "answers", "parsing")}
    for name in ("answers", "parsing"):
        assert fused[f"tensorrt_llm_bls/1/{name}.py"] == apart[f"tensorrt_llm/1/{name}.py"]
    different = {name for name in set(apart) & set(fused) if apart[name] != fused[name]}
    assert different == {
        "tensorrt_llm/config.pbtxt",
        "tensorrt_llm_bls/config.pbtxt",
    }  # the engines' folders differ here
    given = pbtxt.parameters(pbtxt.parse(fused["tensorrt_llm_bls/config.pbtxt"].decode(), "bls"))
    assert given["pipeline"] == "fused"
    assert [given[f"{role}_engine_path"] for role in ROLES] == [str(tmp_path / "b" / role) for role in ROLES]


def test_the_first_policy_is_the_planned_draft_length(tmp_path: Path) -> None:
    policy = json.loads((small_repository(tmp_path, draft_len=3) / POLICY_FILE).read_text())
    assert policy == {"version": 1, "default": {"draft_len": 3}, "tasks": {}, "by_concurrency": []}


def test_the_key_follows_plan_and_sources_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan(tmp_path)
    key = content_key(**key_facts(plan))
    assert content_key(**key_facts(plan)) == key
    assert content_key(**key_facts(replace(plan, max_batch_size=4))) != key
    assert content_key(**key_facts(replace(plan, tokenizer_dir=tmp_path))) == key  # its content is hashed elsewhere
    sources = tmp_path / "models"
    from trtspec.triton import repository

    shutil.copytree(repository.SOURCES, sources)
    monkeypatch.setattr(repository, "SOURCES", sources)
    assert content_key(**key_facts(plan)) == key
    (sources / "tensorrt_llm_bls" / "rounds.py").write_text("# changed\n")
    assert content_key(**key_facts(plan)) != key


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_repository(tmp_path / name, plan)
    assert _files(tmp_path / "one") == _files(tmp_path / "two")


def _target(folder: Path, **generation: object) -> Path:
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 256,
        "eos_token_id": 7,
    }
    (folder / "config.json").write_text(json.dumps(config))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    if generation:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


@pytest.mark.parametrize(
    ("generation", "end_ids", "pad"),
    [
        ({}, (7,), 7),
        ({"eos_token_id": [9, 7, 11]}, (9, 7, 11), 9),
        ({"eos_token_id": 9, "pad_token_id": 0}, (9,), 0),
    ],
)
def test_end_ids_come_from_the_generation_config_first(
    tmp_path: Path, tiny_config: Path, generation: dict[str, object], end_ids: tuple[int, ...], pad: int
) -> None:
    plan = plan_for(load_config(tiny_config), _target(tmp_path / "t", **generation))
    assert (plan.end_ids, plan.pad_id, plan.vocab_size) == (end_ids, pad, 300)


def test_a_plan_takes_its_limits_from_the_configuration(tmp_path: Path, tiny_config: Path) -> None:
    config = load_config(tiny_config, ["speculation.draft_len=2", "engine.max_batch_size=3"])
    plan = plan_for(config, _target(tmp_path / "t"))
    assert (plan.draft_len, plan.max_draft_len, plan.max_batch_size) == (2, 8, 3)
    assert plan.engine_dirs["draft"] == config.engine_dir("draft")


def test_what_cannot_be_planned_is_said_in_one_line(tmp_path: Path, tiny_config: Path) -> None:
    folder = _target(tmp_path / "t", eos_token_id=[300])
    with pytest.raises(ModelFileError, match="eos_token_id is outside the vocabulary"):
        plan_for(load_config(tiny_config), folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match="no such file"):
        plan_for(load_config(tiny_config), folder)
    with pytest.raises(MissingError, match="pytorch backend"):
        plan_for(load_config(tiny_config, ["engine.backend=pytorch"]), folder)

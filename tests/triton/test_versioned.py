"""What the models declare for each TensorRT-LLM version: the facts that differ, and every config by the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.triton.modelfolder import small_plan
from trtspec.triton import pbtxt, pipeline, versioned
from trtspec.triton.lint import lint
from trtspec.triton.pbtxt import Model
from trtspec.triton.repository import write_repository
from trtspec.triton.wiring import wiring_problems
from trtspec.versions import NAMES, version

# Golden: number of inputs and outputs of an LLM model, and the names it has for what was renamed.
OLD, MIDDLE, NEW = ("0.17.0", "0.18.2"), ("0.19.0",), ("0.20.0", "0.21.0", "1.0.0", "1.1.0")
NEWEST = ("1.2.0", "1.2.1")
_OLD_NAMES = frozenset({"min_length", "random_seed", "return_kv_cache_reuse_stats"})
_MIDDLE_NAMES = frozenset({"min_length", "random_seed", "return_perf_metrics"})
_NEW_NAMES = frozenset({"min_tokens", "seed", "return_perf_metrics"})
NAMED = {
    **dict.fromkeys(OLD, _OLD_NAMES),
    **dict.fromkeys(MIDDLE, _MIDDLE_NAMES),
    **dict.fromkeys((*NEW, *NEWEST), _NEW_NAMES),
}
EVERY_NAME = {"min_length", "random_seed", "return_kv_cache_reuse_stats", "min_tokens", "seed", "return_perf_metrics"}
METRICS = {
    *("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns"),
    *("acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens"),
}
SIZES = {**dict.fromkeys(OLD, (53, 12)), **dict.fromkeys(MIDDLE, (60, 19)), **dict.fromkeys(NEW, (60, 19)),
         **dict.fromkeys(NEWEST, (62, 21))}  # fmt: skip


def written(folder: Path, name: str) -> dict[str, Model]:
    """The six models of a version, by name."""
    return {model.name: model for model in pipeline.models(small_plan(folder, backend="tensorrt", version=name))}


def names(tensors: object) -> set[str]:
    return {tensor.name for tensor in tensors}  # type: ignore[attr-defined]


def test_the_table_names_every_version() -> None:
    assert set(NAMED) == {"0.18.2" if name in ("0.18.0", "0.18.1") else name for name in NAMES}


@pytest.mark.parametrize("name", NAMED)
def test_language_models_have_their_versions_tensors(name: str, tmp_path: Path) -> None:
    models = written(tmp_path, name)
    for role in (pipeline.TARGET, pipeline.DRAFT):
        model = models[role]
        assert names(model.inputs) & EVERY_NAME == NAMED[name]
        assert (len(model.inputs), len(model.outputs)) == SIZES[name]
        assert model.outputs[0].name == "output_ids"
        assert names(model.outputs) & METRICS == (set() if name in OLD else METRICS)
        assert ("guided_decoding_guide" in names(model.inputs)) == (name not in OLD)
        assert ("num_input_tokens" in names(model.outputs)) == (name in NEWEST)
        assert {"draft_input_ids", "draft_logits", "kv_cache_reused_blocks"} <= names((*model.inputs, *model.outputs))


@pytest.mark.parametrize("name", NAMED)
def test_clients_see_one_face(name: str, tmp_path: Path) -> None:
    newest, models = written(tmp_path / "new", "1.2.1"), written(tmp_path / "old", name)
    bls, ensemble = models[pipeline.BLS], models[pipeline.ENSEMBLE]
    guided = set(versioned.GUIDED) if name in OLD else set()
    counts = set() if name in NEWEST else {"return_num_input_tokens", "return_num_output_tokens"}
    assert names(newest[pipeline.BLS].inputs) - names(bls.inputs) == guided
    assert newest[pipeline.BLS].outputs == bls.outputs
    assert names(newest[pipeline.ENSEMBLE].inputs) - names(ensemble.inputs) == guided | counts
    gone = (METRICS if name in OLD else set()) | (set() if name in NEWEST else {"num_input_tokens"})
    assert names(newest[pipeline.ENSEMBLE].outputs) - names(ensemble.outputs) == gone
    assert {"seed", "min_tokens", "return_perf_metrics"} <= names(bls.inputs) & names(ensemble.inputs)


@pytest.mark.parametrize("name", NAMED)
def test_every_config_passes_the_schema_and_fits_together(name: str, tmp_path: Path) -> None:
    plan = small_plan(tmp_path, backend="tensorrt", version=name)
    plan.final_dir.mkdir()
    write_repository(plan.final_dir, plan)
    configs = {path.parent.name: pbtxt.read(path) for path in plan.final_dir.glob("*/config.pbtxt")}
    assert len(configs) == 6
    assert list(wiring_problems(configs["ensemble"], configs)) == []
    assert "${" not in "".join(path.read_text() for path in plan.final_dir.glob("*/config.pbtxt"))
    if name == "1.2.1":  # the made engines say that it built them
        assert lint(plan.final_dir) == ()


@pytest.mark.parametrize("name", NAMED)
def test_the_bls_is_told_what_differs(name: str, tmp_path: Path) -> None:
    given = written(tmp_path, name)[pipeline.BLS].parameters
    renamed = dict(pair.split(":") for pair in given.get("llm_tensor_names", "").split(",") if pair)
    assert {renamed.get(n, n) for n in ("min_tokens", "seed", "return_perf_metrics")} == NAMED[name]
    lacks = set(filter(None, given.get("llm_lacks_outputs", "").split(",")))
    newest, model = versioned.llm_outputs(None, "FP32"), versioned.llm_outputs(version(name), "FP32")
    assert lacks == names(newest) - names(model)
    assert ("llm_lacks_outputs" in given) == (name not in NEWEST)


def test_the_reference_engine_has_the_newest_names() -> None:
    assert versioned.llm_inputs(None, "FP16") == versioned.llm_inputs(version("1.2.1"), "FP16")
    assert versioned.llm_outputs(None, "FP16") == versioned.llm_outputs(version("1.2.1"), "FP16")
    assert versioned.renamed(None) == {}

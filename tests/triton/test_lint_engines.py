"""Two engines against each other: a sound pair has no problems, and each fault has its code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT
from tests.triton.modelfolder import made_engine
from trtspec.config import Role
from trtspec.errors import ModelFileError
from trtspec.store import MANIFEST
from trtspec.triton.lint import RULES, Problem, lint_engines, lint_page, read_engine
from trtspec.triton.lint.engine import Engine


def engine(folder: Path, role: Role, **changes: Any) -> Engine:
    folder.mkdir(exist_ok=True)
    return read_engine(made_engine(folder / role, role, **changes))


def codes(target: Engine, draft: Engine, acceptance: Any = "tokens") -> dict[str, str]:
    """Code → severity."""
    return {problem.code: problem.severity for problem in lint_engines(target, draft, acceptance)}


@pytest.mark.parametrize("acceptance", ["tokens", "logits"])
def test_a_sound_pair(tmp_path: Path, acceptance: str) -> None:
    assert codes(engine(tmp_path, "target"), engine(tmp_path, "draft"), acceptance) == {}
    reference = [engine(tmp_path / "r", role, reference=True) for role in ("target", "draft")]  # type: ignore[arg-type]
    assert codes(reference[0], reference[1], acceptance) == {}


FAULTS: list[tuple[Role, dict[str, Any], str, str]] = [
    ("target", {"speculative_decoding_mode": 1, "max_draft_len": 0, "max_seq_len": 128}, "engine.mode", "error"),
    ("target", {"max_draft_len": 0, "max_seq_len": 128}, "engine.draft-len", "error"),
    ("target", {"plugin.use_paged_context_fmha": False}, "engine.paged-context", "error"),
    ("draft", {"plugin.use_paged_context_fmha": False}, "engine.paged-context", "warning"),
    ("target", {"gather_context_logits": True}, "engine.context-logits", "error"),
    ("draft", {"speculative_decoding_mode": 4}, "engine.draft-mode", "error"),
    ("target", {"model.mapping": {"tp_size": 2, "pp_size": 1}}, "", ""),
    ("target", {"max_beam_width": 2}, "engine.beams", "warning"),
    ("draft", {"kv_cache_type": "CONTINUOUS"}, "engine.kv-cache", "error"),
    ("target", {"max_input_len": 64}, "engine.input", "warning"),
    ("draft", {"max_seq_len": 127, "max_input_len": 127}, "engine.length", "error"),
    ("draft", {"max_batch_size": 4}, "engine.batch", "warning"),
    ("draft", {"model.logits_dtype": "float16"}, "engine.logits-type", "warning"),
    ("draft", {"model.vocab_size": 264}, "engine.vocabulary", "warning"),
    ("draft", {"model.vocab_size": 256}, "", ""),
]


@pytest.mark.parametrize(("role", "changes", "code", "severity"), FAULTS)
def test_each_fault_has_its_code(tmp_path: Path, role: Role, changes: dict[str, Any], code: str, severity: str) -> None:
    """Public reports behind them: RULES. Lengths are compared without the room that the builder adds for drafts."""
    pair = {each: engine(tmp_path, each, **(changes if each == role else {})) for each in ("target", "draft")}  # type: ignore[arg-type]
    assert codes(pair["target"], pair["draft"]) == ({code: severity} if code else {})  # type: ignore[index]


LOGITS: list[tuple[dict[str, Any], str]] = [
    ({"model.vocab_size": 256}, "engine.logits-width"),  # Qwen2.5: 151936 and 152064 rows
    ({"model.logits_dtype": "float16"}, "engine.logits-type"),
    ({"gather_generation_logits": False}, "engine.gather-logits"),
]


@pytest.mark.parametrize(("changes", "code"), LOGITS)
def test_logits_acceptance_needs_more(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    found = codes(engine(tmp_path, "target"), engine(tmp_path, "draft", **changes), "logits")
    assert found == {code: "error"}


def test_padding_by_tensor_parallelism_counts(tmp_path: Path) -> None:
    """257 rows are 257 on one GPU and 260 on four."""
    target = engine(tmp_path, "target", **{"model.vocab_size": 257, "model.mapping": {"tp_size": 4}})
    draft = engine(tmp_path, "draft", **{"model.vocab_size": 257})
    assert (target.vocabulary, draft.vocabulary) == (260, 257)
    assert codes(target, draft, "logits") == {"engine.logits-width": "error"}
    assert codes(target, draft) == {}


def test_ranks_are_counted(tmp_path: Path) -> None:
    target = engine(tmp_path, "target", **{"model.mapping": {"tp_size": 2, "pp_size": 2}})
    assert (target.ranks, target.tensor, target.missing_ranks) == (4, 2, ())
    (target.folder / "rank3.engine").unlink()
    (target.folder / "rank1.engine").write_bytes(b"")
    (problem,) = lint_engines(read_engine(target.folder), engine(tmp_path, "draft"))
    assert problem.code == "engine.ranks"
    assert "rank1.engine, rank3.engine" in problem.message


def test_engines_of_different_builds(tmp_path: Path) -> None:
    target, draft = engine(tmp_path, "target"), engine(tmp_path, "draft")
    document = json.loads((draft.folder / "config.json").read_text())
    (draft.folder / "config.json").write_text(json.dumps(document | {"version": "1.1.0"}))
    for folder, sm, tensorrt in ((target.folder, 90, "10.14.1"), (draft.folder, 89, "10.13.3")):
        machine = {"tensorrt_llm": "1.2.1", "tensorrt": tensorrt, "sm": sm}
        manifest = {"files": {}, "inputs": {"engine settings": {"machine": machine}}}
        (folder / MANIFEST).write_text(json.dumps(manifest))
    found = lint_engines(read_engine(target.folder), read_engine(draft.folder))
    assert [problem.code for problem in found] == ["engine.version", "engine.machine", "engine.machine"]
    assert [problem.severity for problem in found] == ["error", "warning", "error"]
    reference = engine(tmp_path / "r", "draft", reference=True)
    assert "engine.version" in codes(target, reference)


def test_kv_bytes_of_one_rank(tmp_path: Path) -> None:
    """2 · layers of a stage · kv heads of a rank · head size · bytes."""
    model = {"model.num_hidden_layers": 4, "model.num_key_value_heads": 8, "model.head_size": 64,
             "model.mapping": {"tp_size": 2, "pp_size": 2}}  # fmt: skip
    assert engine(tmp_path, "target", **model).kv_bytes == 2 * 2 * 4 * 64 * 2
    fp8 = {**model, "model.quantization": {"kv_cache_quant_algo": "FP8"}}
    assert engine(tmp_path, "target", **fp8).kv_bytes == 2 * 2 * 4 * 64
    assert engine(tmp_path, "target", **{"model.num_hidden_layers": None}).kv_bytes == 0


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"build_config": 3}'])
def test_a_folder_without_a_record_is_no_engine(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFileError, match="no readable engine"):
        read_engine(tmp_path)


def test_an_undocumented_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"engine\.modes"):
        Problem("target", "x", "engine.modes")


def test_every_code_is_used_documented_and_tested() -> None:
    package = PROJECT / "trtspec"
    files = [p for p in (package / "triton/lint").glob("*.py") if p.name != "codes.py"]
    source = "".join(p.read_text() for p in (*files, package / "workflows/lint.py"))
    used = set(
        re.findall(r'"((?:engine|repository|placement|memory|windows|defaults|config|llmapi)\.[a-z-]+)"', source)
    )
    assert used - {"config.json"} == set(RULES)
    assert all(f"`{code}`" in lint_page() for code in RULES)
    tests = "".join(p.read_text() for p in (PROJECT / "tests").rglob("test_lint*.py"))
    assert {code for code in RULES if f'"{code}"' not in tests} == set()

"""The whole check: a sound pair passes, missing files are not measured, broken files are findings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoint.models import CONFIG, random_tensors, save
from tests.conftest import PROJECT
from tests.pairing.pairs import check, codes, only, run_config, tokenizer, write_pair
from trtspec.config import load_config
from trtspec.pairing.check import check_pair

GOOD = {
    *("vocab.equal", "segmentation.equal", "widths.equal", "size.ratio", "lengths.fit", "lineage.alike"),
    *("lineage.unnamed", "preflight.builds", "memory.fits", "economics.expected", "stops.set", "template.none"),
}
"""Codes of a sound pair with all its files, by every check."""
UNREAD = {
    *(
        "config.not-measured",
        "weights.not-measured",
        "widths.not-measured",
        "size.not-measured",
        "lengths.not-measured",
    ),
    *("lineage.not-measured", "preflight.not-measured", "memory.not-measured", "economics.not-measured"),
}
"""What cannot be measured of folders that hold a tokenizer only."""


def test_a_sound_pair_passes_with_every_check_done(tmp_path: Path) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path)
    assert (verdict.verdict, verdict.not_measured) == ("pass", 0)
    assert codes(verdict).keys() >= GOOD
    assert set(codes(verdict).values()) == {"info"}
    facts = verdict.facts["target"]
    assert (facts["tokens"], facts["last_id"], facts["vocab_size"]) == (50, 49, 50)
    assert json.loads(json.dumps(verdict.as_dict()))["verdict"] == "pass"


def test_folders_with_only_a_tokenizer(tmp_path: Path) -> None:
    for role in ("target", "draft"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "tokenizer.json").write_text(tokenizer())
    verdict = check(tmp_path)
    assert verdict.verdict == "pass"
    found = codes(verdict)
    assert found["vocab.equal"] == "info"
    assert {code for code in found if code.endswith(".not-measured")} >= UNREAD
    assert set(found.values()) == {"info"}


def test_without_weights_sizes_come_from_the_config(tmp_path: Path) -> None:
    write_pair(tmp_path)
    with_weights = only(check(tmp_path), "size.ratio").data
    for role in ("target", "draft"):
        (tmp_path / role / "model.safetensors").unlink()
    verdict = check(tmp_path)
    assert codes(verdict).keys() >= GOOD | {"weights.not-measured"}
    assert set(codes(verdict).values()) == {"info"}
    assert only(verdict, "size.ratio").data == with_weights


def test_hub_models_that_are_not_here_cannot_pass(tmp_path: Path) -> None:
    own = run_config(tmp_path, pair={"target": {"hub": "a/b"}, "draft": {"hub": "a/c"}})
    verdict = check_pair(tmp_path / "nowhere", tmp_path / "nowhere else", own)
    found = codes(verdict)
    assert found.pop("tokenizer.missing") == "error"
    assert {code for code in found if code.endswith(".not-measured")} >= UNREAD | {"vocab.not-measured"}
    assert set(found.values()) == {"info"}
    assert verdict.verdict == "fail"


def test_local_folders_that_are_not_here_are_errors(tmp_path: Path) -> None:
    verdict = check(tmp_path)
    assert verdict.verdict == "fail"
    assert codes(verdict)["tokenizer.missing"] == codes(verdict)["config.broken"] == "error"


def truncate(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 1)


def set_key(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def make_folder(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").mkdir()


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def one_gigabyte_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 30).to_bytes(8, "little") + b"{}")


def drop_tensor(folder: Path) -> None:
    tensors = random_tensors(CONFIG | {"num_hidden_layers": 1})
    save(folder / "model.safetensors", {n: t for n, t in tensors.items() if "q_proj" not in n})


BROKEN: dict[str, tuple[Any, str]] = {
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.missing"),
    "tokenizer is a folder": (make_folder, "tokenizer.broken"),
    "tokenizer cut": (lambda f: os.truncate(f / "tokenizer.json", 100), "tokenizer.broken"),
    "config not json": (lambda f: (f / "config.json").write_text("{"), "config.broken"),
    "config value": (lambda f: set_key(f, vocab_size="50"), "config.broken"),
    "architecture": (lambda f: set_key(f, architectures=["GPT2LMHeadModel"]), "config.unsupported"),
    "truncated": (truncate, "weights.broken"),
    "pickle": (pickle_only, "weights.broken"),
    "one gigabyte": (one_gigabyte_header, "weights.broken"),
    "missing tensor": (drop_tensor, "weights.broken"),
    "other rows": (lambda f: set_key(f, vocab_size=64), "widths.rows-disagree"),
    "fewer rows": (lambda f: set_key(f, vocab_size=40), "widths.last-id"),
    "other size": (lambda f: set_key(f, num_hidden_layers=2), "size.config-disagrees"),
}  # fmt: skip


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(("break_it", "code"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_error_findings(tmp_path: Path, role: str, break_it: Any, code: str) -> None:
    write_pair(tmp_path)
    break_it(tmp_path / role)
    verdict = check(tmp_path)
    assert verdict.verdict == "fail"
    finding = only(verdict, code)
    assert (finding.severity, finding.subject) == ("error", role)
    assert finding.fix is None or finding.fix not in finding.message


def test_a_folder_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    write_pair(tmp_path)
    monkeypatch.setattr(Path, "is_dir", refuse)
    verdict = check(tmp_path)
    assert verdict.verdict == "fail"
    assert "Permission denied" in next(f for f in verdict.findings if f.code == "config.broken").message


def test_unknown_architecture_is_no_fault_where_nothing_is_converted(tmp_path: Path) -> None:
    write_pair(tmp_path)
    for role in ("target", "draft"):
        (tmp_path / role / "config.json").write_text('{"architectures": ["MambaForCausalLM"], "d_model": 4}')
    verdict = check(tmp_path, engine={"backend": "pytorch"})
    assert verdict.verdict != "fail"
    assert codes(verdict)["config.not-measured"] == "info"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_never_give_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    write_pair(tmp_path)
    path = tmp_path / "draft" / data.draw(st.sampled_from(["tokenizer.json", "config.json", "model.safetensors"]))
    content = bytearray(path.read_bytes())
    limit = min(len(content), 2000)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, limit - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    assert check(tmp_path).verdict in ("pass", "warn", "fail")


@pytest.mark.parametrize(
    ("name", "verdict", "warnings"),
    [
        ("tiny", "pass", set()),
        # Their files are not here: the published token ids are equal, and equal is not compared. Prompts to calibrate
        # FP8 with are the user's own.
        ("llama70b", "warn", {"vocab.published", "preflight.calibration"}),
        ("qwen2.5", "warn", {"vocab.published", "preflight.calibration"}),
    ],
)
def test_shipped_configurations_keep_their_verdict(name: str, verdict: str, warnings: set[str]) -> None:
    config = load_config(PROJECT / "configs" / f"{name}.yaml", environ={})
    folders = [config.pair[role].path or Path("hub") / str(config.pair[role].hub) for role in ("target", "draft")]
    found = check_pair(folders[0], folders[1], config)
    assert (found.verdict, {f.code for f in found.findings if f.severity == "warning"}) == (verdict, warnings)
    assert found.not_measured == 0 or name != "tiny"


def test_every_shipped_configuration_is_pinned_above() -> None:
    shipped = {path.stem for path in (PROJECT / "configs").glob("*.yaml")}
    assert shipped == {"tiny", "llama70b", "qwen2.5"}


def test_small_tokenizers_take_no_time_and_no_torch(tiny_config: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trtspec.config import load_config;"
        "from trtspec.pairing.check import check_pair; c = load_config(Path(sys.argv[1]));"
        "check_pair(c.pair.target.path, c.pair.draft.path, c);"
        "print(sorted({'torch', 'transformers', 'tritonclient'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tiny_config)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
    config = load_config(tiny_config, environ={})
    assert config.pair.target.path
    assert config.pair.draft.path
    start = time.process_time()
    check_pair(config.pair.target.path, config.pair.draft.path, config)
    assert time.process_time() - start < 1

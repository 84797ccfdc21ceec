"""select: which profile belongs to which candidate, what is given, and what is measured now."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.measurement.profiles import SAMPLED, toy_profile
from tests.pairing.pairs import run_config, write_pair
from tests.workflows.pair import own_pair
from trtspec.cli._main import run
from trtspec.config import ModelSource, RunConfig
from trtspec.errors import ConfigError
from trtspec.hashing import HashMemo
from trtspec.measurement.profile_result import profile_path, write_profile
from trtspec.pairing.measured import file_hashes
from trtspec.pairing.selection import Judged, Selection
from trtspec.workflows.select import Options, select

HUB = ["--target", "meta-llama/Llama-3.3-70B-Instruct", "--candidates", "meta-llama/Llama-3.2-1B-Instruct"]


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A made-up pair, and a second draft: a copy with other weights and the same config.json."""
    write_pair(tmp_path)
    write_pair(tmp_path / "more", draft={"num_hidden_layers": 2})
    return run_config(tmp_path, output={"reports": tmp_path / "reports"})


def hashes(folder: Path) -> dict[str, str]:
    return file_hashes(folder, HashMemo())


def store(config: RunConfig, draft: Path, name: str = "", **changes: object) -> None:
    """A profile of the target with `draft`."""
    assert config.pair.target.path is not None
    document = toy_profile(files=(hashes(config.pair.target.path), hashes(draft)), **changes)  # type: ignore[arg-type]
    write_profile(config.report_dir / "profiles" / f"{name}.json" if name else profile_path(config), document)


def named(found: Selection, name: str) -> Judged:
    return next(c for c in found.candidates if c.name == name)


def more(config: RunConfig) -> ModelSource:
    assert config.pair.target.path is not None
    return ModelSource(path=config.pair.target.path.parent / "more" / "draft")


def test_a_profile_is_found_by_what_was_measured(config: RunConfig) -> None:
    other = more(config)
    assert other.path is not None
    store(config, other.path, "other")
    found = select(config, [other])
    own, second = (next(c for c in found.candidates if c.folder == p) for p in (config.pair.draft.path, other.path))
    assert own.status == "unmeasured"
    assert second.status == "ranked"
    assert "measured on 12 prompts, greedy" in second.basis.source
    assert second.interval is not None
    assert len(second.basis.rows[0].per_position) == 4
    assert found.candidates[0] is second


def test_a_profile_of_other_weights_is_not_taken(config: RunConfig, tmp_path: Path) -> None:
    """Even where config.json is the same: a draft trained further is another draft."""
    assert config.pair.draft.path is not None
    twin = tmp_path / "twin"
    shutil.copytree(config.pair.draft.path, twin)
    weights = twin / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    store(config, config.pair.draft.path)
    found = select(config, [ModelSource(path=twin)])
    assert named(found, "draft").status == "ranked"
    assert named(found, "twin").status == "unmeasured"


def test_a_profile_under_other_sampling_says_so(config: RunConfig) -> None:
    assert config.pair.draft.path is not None
    store(config, config.pair.draft.path, sampling=SAMPLED)
    found = select(config, [])
    assert named(found, "draft").status == "unmeasured"
    assert found.notes == ("draft: measured for other sampling: temperature 0.9, top-p 0.95, K up to 4, seed 0",)
    warm = config.model_copy(
        update={"validation": config.validation.model_copy(update={"temperature": 0.9, "top_p": 0.95})}
    )
    assert named(select(warm, []), "draft").status == "ranked"


def test_the_newest_of_two_profiles_counts(config: RunConfig) -> None:
    assert config.pair.draft.path is not None
    for name, likeness, created in (("a", 0.4, "2026-01-02"), ("b", 0.95, "2026-01-01")):
        document = toy_profile(
            likeness=likeness,
            files=(hashes(config.pair.target.path), hashes(config.pair.draft.path)),  # type: ignore[arg-type]
        )
        path = config.report_dir / "profiles" / f"{name}.json"
        write_profile(path, document.model_copy(update={"created": created}))
        alpha = document.alpha(4)
        if name == "a":
            wanted = alpha
    found = named(select(config, []), "draft")
    assert wanted is not None
    assert found.basis.rows[0].alpha == wanted.point


def test_given_acceptance_belongs_to_its_candidate_alone(config: RunConfig) -> None:
    other = more(config)
    checked = config.model_copy(update={"checks": config.checks.model_copy(update={"acceptance": 0.7})})
    found = select(checked, [other])
    assert [c.basis.known for c in found.candidates] == [True, False]
    assert found.candidates[0].basis.source == "given as checks.acceptance"
    both = select(checked, [other], Options({str(other.path): 0.9}))
    assert both.candidates[0].folder == other.path
    with pytest.raises(ConfigError, match="'nobody', which is no candidate"):
        select(config, [], Options({"nobody": 0.5}))


def test_candidates_have_names_that_tell_them_apart(config: RunConfig) -> None:
    found = select(config, [more(config)])
    assert sorted(c.name for c in found.candidates) == sorted([str(config.pair.draft.path), str(more(config).path)])
    with pytest.raises(ConfigError, match="named twice"):
        select(config, [config.pair.draft])


@pytest.mark.torch
def test_measuring_now_fills_the_matrix(tmp_path: Path) -> None:
    from trtspec.workflows.profile import ProfileOptions

    config = own_pair(tmp_path)
    options = Options({}, measure=ProfileOptions(limit=2, max_tokens=16))
    found = select(config, [ModelSource(path=tmp_path / "tiny" / "target")], options)
    assert [c.status for c in found.candidates] == ["ranked", "ranked"]
    assert found.best is not None
    assert found.best.name == "draft"
    assert named(found, "target").basis.rows[0].alpha == 1.0
    assert named(found, "target").speedup == 1.0  # a draft as slow as its target gains nothing, however right it is
    again = select(config, [ModelSource(path=tmp_path / "tiny" / "target")])
    assert [c.status for c in again.candidates] == ["ranked", "ranked"]


def test_the_command_line_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [*HUB, "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", "--gpu", "h100-80gb"]
    assert run(["select", *line, "--count", "8", "--concurrency", "16", "--alpha", "Llama-3.2-1B-Instruct=0.7",
                "--json"]) == 0  # fmt: skip
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert [c["name"] for c in document["candidates"]] == [
        "Llama-3.2-1B-Instruct", "Llama-3.1-8B-Instruct", "Qwen2.5-0.5B-Instruct",
    ]  # fmt: skip
    assert [c["status"] for c in document["candidates"]] == ["ranked", "unmeasured", "rejected"]
    assert document["best"] == "Llama-3.2-1B-Instruct"
    assert document["baseline"]["requests"] == 16
    assert document["load"]["max_batch_size"] == 16
    assert any("cut over 2 GPUs" in note for note in document["notes"])
    assert "Best: Llama-3.2-1B-Instruct" in said.err


def test_a_layout_that_is_given_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--gpu", "h100-80gb", "--count", "8", "--set", "pair.target.parallelism.tensor=8", "--json"]
    assert run(["select", *HUB, *given]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not any("cut over" in note for note in document["notes"])


def test_no_candidate_that_works_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", *HUB[:3], "Qwen/Qwen2.5-0.5B-Instruct", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["best"] is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "nothing to choose from"),
        (["--target", "meta-llama/Llama-3.3-70B-Instruct"], "nothing to choose from"),
        ([*HUB, "--alpha", "x=2"], "an acceptance is NAME=VALUE"),
        ([*HUB, "--alpha", "x"], "an acceptance is NAME=VALUE"),
        ([*HUB, "no/such/folder"], "no such folder for a candidate"),
        ([*HUB, "--plot", "m.txt"], "no such kind of picture"),
        (["absent.yaml"], "no such configuration file"),
        (["a.yaml", "b.yaml"], "more than one configuration file"),
        (["a.yaml", "b"], "what is b?"),
    ],
)
def test_bad_usage_is_one_line(line: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", *line]) == 2
    assert message in capsys.readouterr().err


def test_it_imports_nothing_heavy(config: RunConfig, tmp_path: Path) -> None:
    code = (
        "import sys; from trtspec.cli._main import run; run(sys.argv[1:]);"
        "heavy = {'torch', 'transformers', 'tritonclient', 'modelopt', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, "select", *HUB], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

"""Every fault of a configuration file is one line that names file, line and key."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtspec.config import RunConfig, load_config
from trtspec.errors import ConfigError

GOOD = """\
name: pair
pair:
  target: {path: big}
  draft: {path: small}
speculation:
  max_draft_len: 8
validation:
  datasets:
    - {path: a.jsonl, domain: a}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(text)
    return path


def test_good_file_resolves_paths_against_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = load_config(write(tmp_path, GOOD), environ={})
    assert config.pair.target.path == tmp_path / "big"
    assert config.validation.datasets[0].path == tmp_path / "a.jsonl"
    assert config.engine_dir("draft") == elsewhere / "engines/pair/draft/engine"
    assert config.speculation.k == 4


@pytest.mark.parametrize("backend", ["tensorrt", "pytorch"])
def test_only_reference_engines_can_be_fused(tmp_path: Path, backend: str) -> None:
    text = GOOD + f"serving: {{pipeline: fused}}\nengine: {{backend: {backend}}}\n"
    with pytest.raises(ConfigError, match=f"fused needs engine.backend reference, not {backend}") as caught:
        load_config(write(tmp_path, text), environ={})
    assert "\n" not in caught.value.what
    assert load_config(write(tmp_path, GOOD + "serving: {pipeline: fused}\n"), environ={}).serving.pipeline == "fused"


def test_given_output_is_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD + "output: {engines: out}\n"), environ={})
    assert config.output.engines == tmp_path / "out"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("specualtion: {}", r"c\.yaml:10: unknown key specualtion; did you mean 'speculation'\?"),
        ("engine: {max_bach_size: 4}", r"c\.yaml:10: unknown key engine\.max_bach_size; did you mean 'max_batch_size'"),
        ("engine: {max_batch_size: eight}", r"c\.yaml:10: engine\.max_batch_size: .*valid integer.*found 'eight'"),
        ("engine: {max_batch_size: '8'}", r"engine\.max_batch_size: .*integer"),
        ("engine: {max_batch_size: true}", r"engine\.max_batch_size: .*integer"),
        ("engine: {max_input_len: 100, max_seq_len: 100}", r"c\.yaml:10: engine: max_seq_len 100 leaves no room"),
        ("name: again", r"c\.yaml:10: name is given twice \(found first at line 1\)"),
        ("gates: {release_alpha: 1.5}", r"gates\.release_alpha: .*less than or equal to 1"),
        ("serving: {http_port: 70000}", r"serving\.http_port"),
        ("serving: {http_port: '8000'}", r"serving\.http_port"),
        ("serving: {http_port: true}", r"serving\.http_port"),
        ("serving: {start_timeout: .inf}", r"serving\.start_timeout"),
        ("gates: {release_alpha: '0.5'}", r"gates\.release_alpha"),
        ("gates: {release_alpha: true}", r"gates\.release_alpha"),
        ("gates: {near_tie: .nan}", r"gates\.near_tie"),
        ("engine: 3", r"engine: must be a block of keys"),
        ("engine: {tensorrt_llm_version: 1.2}", r"tensorrt_llm_version: must be text; in quotes .*found 1\.2"),
        ("output: {engines: same, model_repo: same}", r"output\.engines lies in output\.model_repo"),
        ("output: {engines: same/inner, model_repo: same}", r"output\.engines lies in output\.model_repo"),
        ('output: {engines: "a\\0b"}', r"NUL"),
        ("checks: {min_size_ratio: 64, max_size_ratio: 8}", r"checks: min_size_ratio 64\.0 is not below"),
        ("output: [", r"c\.yaml:1\d: not valid YAML"),
        ("engine: {backend: onnx}", r"engine\.backend: Input should be 'reference', 'tensorrt' or 'pytorch'"),
    ],
)
def test_fault_names_line_and_key(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        load_config(write(tmp_path, GOOD + line + "\n"), environ={})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("max_draft_len: 8", "max_draft_len: 0", r"c\.yaml:6: speculation\.max_draft_len: .*greater than or equal"),
        ("max_draft_len: 8", "draft_len: 9", r"c\.yaml:5: speculation: draft_len 9 is larger than max_draft_len 8"),
        ("name: pair", "name: ../evil", r"c\.yaml:1: name: .*pattern"),
        ("{path: big}", "{path: big, hub: a/b}", r"c\.yaml:3: pair\.target: name the model by exactly one"),
        ("{path: big}", "{}", r"c\.yaml:3: pair\.target: name the model by exactly one"),
        ("{path: big}", "{hub: a/b, revision: main}", r"c\.yaml:3: pair\.target\.revision"),
        ("  draft: {path: small}\n", "", r"c\.yaml:2: pair\.draft is missing"),
        ("domain: a}", "domain: a}\n    - {path: b, domain: a}", r"validation: two datasets share the domain 'a'"),
    ],
)
def test_fault_in_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_config(write(tmp_path, GOOD.replace(old, new)), environ={})


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "3\n", "\x00", "a: &a [*a]\n", "[" * 3000])
def test_not_a_configuration(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_config(write(tmp_path, text), environ={})


def test_missing_and_binary_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_config(tmp_path / "absent.yaml", environ={})
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "b.yaml", environ={})


def test_precedence_flag_environment_file_default(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    environ = {"TRTSPEC_SET_speculation__max_draft_len": "6"}
    assert load_config(path, environ={}).speculation.max_draft_len == 8
    assert load_config(path, environ=environ).speculation.max_draft_len == 6
    assert load_config(path, ["speculation.max_draft_len=5"], environ).speculation.max_draft_len == 5
    assert load_config(path, environ={}).engine.max_batch_size == 8


@pytest.mark.parametrize("override", ["nonsense", "=3", "name.x=3", "speculation.max_draft_len=[", "a.b.c=1"])
def test_bad_override_names_itself(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=r"--set"):
        load_config(write(tmp_path, GOOD), [override], environ={})


def test_fault_of_a_block_names_the_override_that_made_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set engine\.max_input_len=2000: engine: max_seq_len 1024 leaves no room"):
        load_config(write(tmp_path, GOOD + "engine: {max_seq_len: 1024}\n"), ["engine.max_input_len=2000"], environ={})


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="not a file"):
        load_config(tmp_path / "pipe.yaml", environ={})


def test_bad_environment_names_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment TRTSPEC_SET_engine__max_batch_size"):
        load_config(write(tmp_path, GOOD), environ={"TRTSPEC_SET_engine__max_batch_size": "x"})


def test_config_is_frozen(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD), environ={})
    with pytest.raises(ValueError):
        config.name = "other"  # type: ignore[misc]


yaml_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(sorted(RunConfig.model_fields)), value=yaml_values)
def test_any_value_anywhere_is_accepted_or_explained(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    import yaml

    data = yaml.safe_load(GOOD) | {key: value}
    path = write(tmp_path_factory.mktemp("fuzz"), yaml.safe_dump(data, allow_unicode=True))
    # A fault is explained; anything but a ConfigError would escape and fail the test.
    with contextlib.suppress(ConfigError):
        load_config(path, environ={})

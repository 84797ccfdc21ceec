"""The record ties the verdict to the files, from source weights to what is deployed; verify notices any other byte."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeRunner
from tests.release.made import result
from trtspec.cli._main import run
from trtspec.config.schema import RunConfig
from trtspec.errors import ConfigError, EvidenceError, MissingError, ServingError
from trtspec.hashing import HashMemo, sha256_of
from trtspec.release import signing
from trtspec.release.gates import judge
from trtspec.release.provenance import provenance, write_record
from trtspec.release.record import ReleaseRecord, load_record, record_of
from trtspec.release.report import FILES, write_report
from trtspec.release.signing import SIGNATURES, Signer, Trust
from trtspec.release.verify import against_manifest
from trtspec.store import MANIFEST, Stage, publish
from trtspec.triton.repository import POLICY_FILE
from trtspec.workflows.verify import verify


def put(folder: Path, title: str, inputs: dict[str, object], files: dict[str, str], mutable: str = "") -> Stage:
    stage = Stage(title, folder, inputs, frozenset({mutable} if mutable else ()))

    def fill(out: Path) -> None:
        for name, text in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text)

    publish(stage, fill, HashMemo(folder.parent / "memo.json"))
    return stage


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """A configuration whose every stage was published by the real store."""
    made = RunConfig.model_validate(
        {
            "name": "toy",
            "pair": {"target": {"hub": "org/target", "revision": "a" * 40}, "draft": {"path": tmp_path / "draft"}},
            "speculation": {"draft_len": 4},
            "output": {name: tmp_path / name for name in ("engines", "model_repo", "reports")},
        }
    )
    sources = {role: {"config.json": role[0] * 64, "tokenizer.json": "f" * 64} for role in ("target", "draft")}
    put(tmp_path / "engines/toy/check", "check", {"stage": "check", "files": sources}, {"verdict.json": "{}"})
    engines = {}
    for role in ("draft", "target"):
        weights = {"config.json": role[0] * 64, "model.safetensors": f"{role[1] * 64}"}
        inputs: dict[str, object] = {"stage": "checkpoint", "files": weights}
        files = {"rank0.safetensors": f"weights of the {role}"}
        checkpoint = put(made.checkpoint_dir(role), f"checkpoint of the {role}", inputs, files)
        inputs = {"stage": "engine", "checkpoint": checkpoint.key}
        engine = put(made.engine_dir(role), f"engine of the {role}", inputs, {"rank0.engine": f"engine of the {role}"})
        engines[role] = engine.key
    inputs = {"stage": "repository", "engines": engines}
    files = {POLICY_FILE: "{}", "ensemble/config.pbtxt": "name: 'ensemble'", "tensorrt_llm_bls/1/model.py": "x = 1"}
    put(made.repository_dir, "model repository", inputs, files, POLICY_FILE)
    return made


@pytest.fixture
def record(config: RunConfig) -> ReleaseRecord:
    """As `validate` leaves it, written beside the reports."""
    measured = result({"code": 0.75})
    judgement = judge(measured, config.gates)
    write_report(config.report_dir, measured, judgement, config.gates)
    made = record_of(config, measured, judgement, policy_written=True)
    write_record(config.report_dir, made)
    return made


def test_it_reaches_from_the_weights_to_what_is_deployed(config: RunConfig, record: ReleaseRecord) -> None:
    assert record == load_record(config.report_dir / "record.json")
    assert record.gaps == ()
    assert (record.verdict, record.alpha, record.pair) == (
        "pass",
        judge(result({"code": 0.75}), config.gates).alpha,
        "toy",
    )
    sources = {s.role: s for s in record.sources}
    assert (sources["target"].name, sources["target"].revision) == ("org/target", "a" * 40)
    assert {f.name for f in sources["draft"].files} == {"config.json", "model.safetensors", "tokenizer.json"}
    assert [s.stage for s in record.stages][-1] == "model repository"
    assert {s.stage: s.follows for s in record.stages if s.follows is not None} == {
        "engine of the draft": True,
        "engine of the target": True,
        "model repository": True,
    }
    assert record.repository is not None
    assert (config.report_dir / record.repository.folder).resolve() == config.repository_dir.resolve()
    assert record.policy is not None
    assert record.policy.file.sha256 == sha256_of(config.repository_dir / POLICY_FILE)
    assert tuple(f.name for f in record.reports) == FILES
    for stage in record.stages:
        folder = config.report_dir / stage.folder
        assert {f.name: f.sha256 for f in stage.files} == {f.name: sha256_of(folder / f.name) for f in stage.files}


def test_a_broken_chain_is_a_gap(config: RunConfig, tmp_path: Path) -> None:
    put(
        config.checkpoint_dir("draft"), "checkpoint of the draft", {"files": {}, "other": 1}, {"rank0.safetensors": "n"}
    )
    (config.engine_dir("target") / MANIFEST).unlink()
    measured = result({"code": 0.5})
    made = record_of(config, measured, judge(measured, config.gates), policy_written=False)
    assert made.verdict == "fail"
    assert "engine of the draft: was made from another checkpoint of the draft than is there now" in made.gaps
    assert "engine of the target: not on this machine, or without a readable manifest" in made.gaps
    assert next(s for s in made.stages if s.stage == "model repository").follows is None


def test_provenance_is_a_statement_of_the_published_shape(record: ReleaseRecord) -> None:
    """in-toto Statement v1 and SLSA provenance v1: required fields, their types, and digests as hexadecimal."""
    statement: dict[str, Any] = json.loads(json.dumps(provenance(record)))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert set(definition) == {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert set(details) == {"builder", "metadata", "byproducts"}
    assert details["builder"]["id"].startswith("https://")
    for each in (*statement["subject"], *definition["resolvedDependencies"], *details["byproducts"]):
        assert len(each["digest"]["sha256"]) == 64
        assert each["name"]
    names = [each["name"] for each in statement["subject"]]
    assert len(set(names)) == len(names)
    assert {f"repository/{POLICY_FILE}", "engine/target/rank0.engine", f"repository/{MANIFEST}"} <= set(names)
    uris = {each.get("uri") for each in definition["resolvedDependencies"]}
    assert uris == {f"pkg:huggingface/org/target@{'a' * 40}", None}
    started, finished = (datetime.fromisoformat(details["metadata"][n]) for n in ("startedOn", "finishedOn"))
    assert started <= finished
    assert started.tzinfo is not None


def test_untouched_everything_holds(config: RunConfig, record: ReleaseRecord) -> None:
    for folder in (config.repository_dir, config.engine_dir("draft"), config.checkpoint_dir("target")):
        assert verify(folder).exit_code == 0
    whole = verify(config.report_dir)
    assert (whole.faults, whole.notes, len(whole.folders)) == ((), (), 4)
    given = verify(config.repository_dir, config.report_dir / "record.json")
    assert (given.faults, given.notes) == ((), ())


def touched(folder: Path, name: str) -> None:
    """Another content of the same size and time, which no cache would notice."""
    path = folder / name
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(
    ("where", "name", "kind"),
    [
        ("repository", "ensemble/config.pbtxt", "differs"),
        ("repository", POLICY_FILE, "differs"),
        ("engine", "rank0.engine", "differs"),
        ("report", "report.html", "differs"),
        ("report", "result.json", "differs"),
    ],
)
def test_one_other_bit_is_found(config: RunConfig, record: ReleaseRecord, where: str, name: str, kind: str) -> None:
    places = {"repository": config.repository_dir, "engine": config.engine_dir("target"), "report": config.report_dir}
    touched(places[where], name)
    found = verify(config.report_dir)
    assert [(f.file, f.kind) for f in found.faults] == [(name, kind)]
    assert found.exit_code == 1


def test_missing_and_extra_files_are_found(config: RunConfig, record: ReleaseRecord) -> None:
    (config.repository_dir / "ensemble/config.pbtxt").unlink()
    (config.repository_dir / "tensorrt_llm_bls/1/extra.py").write_text("import os")
    (config.repository_dir / "link").symlink_to("/etc")
    found = {(f.file, f.kind) for f in verify(config.repository_dir).faults}
    assert found == {("ensemble/config.pbtxt", "missing"), ("tensorrt_llm_bls/1/extra.py", "extra"), ("link", "extra")}


def test_the_policy_is_outside_the_content_but_inside_the_release(config: RunConfig, record: ReleaseRecord) -> None:
    (config.repository_dir / POLICY_FILE).write_text('{"version": 1}')
    alone = verify(config.repository_dir)
    assert alone.exit_code == 0
    assert "give --record" in alone.notes[0]
    assert verify(config.repository_dir, config.report_dir / "record.json").exit_code == 1
    (config.repository_dir / POLICY_FILE).unlink()
    assert [(f.file, f.kind) for f in verify(config.repository_dir).faults] == [(POLICY_FILE, "missing")]


def test_a_manifest_that_was_edited_with_its_file_is_found(config: RunConfig, record: ReleaseRecord) -> None:
    folder = config.repository_dir
    (folder / "ensemble/config.pbtxt").write_text("name: 'evil'")
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    facts = manifest["files"]["ensemble/config.pbtxt"]
    facts |= {"sha256": sha256_of(folder / "ensemble/config.pbtxt"), "size": 12}
    path.write_text(json.dumps(manifest))
    assert against_manifest(folder) == []  # a manifest alone cannot tell
    files = {f.file for f in verify(config.report_dir).faults}
    assert files == {MANIFEST, "ensemble/config.pbtxt"}
    manifest["inputs"]["engines"]["draft"] = "0" * 64
    path.write_text(json.dumps(manifest))
    assert "its key is not that of its inputs" in against_manifest(folder)[0].detail


def test_a_name_that_leads_out_of_the_folder_is_a_fault(config: RunConfig) -> None:
    path = config.repository_dir / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["files"]["../../../etc/hostname"] = {"sha256": "0" * 64, "size": 1, "mtime_ns": 0}
    path.write_text(json.dumps(manifest))
    assert [f.kind for f in against_manifest(config.repository_dir)] == ["unreadable"]


def test_compiled_files_are_no_fault_and_are_told(config: RunConfig, record: ReleaseRecord) -> None:
    cache = config.repository_dir / "tensorrt_llm_bls/1/__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_bytes(b"x")
    found = verify(config.repository_dir, config.report_dir / "record.json")
    assert found.exit_code == 0
    assert "1 files that Python compiled" in found.notes[0]


def test_what_is_not_here_is_not_called_good(
    config: RunConfig, record: ReleaseRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    config.engine_dir("target").rename(config.engine_dir("target").with_name("gone"))
    found = verify(config.report_dir)
    assert (found.exit_code, found.absent) == (0, 1)
    assert "engine of the target: not checked" in found.notes[0]
    assert run(["verify", str(config.report_dir)]) == 0
    assert "What is here is as published; 1 of the deployed folders are not here" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, '{"files": {"x": 1}}', '{"files": {}, "mutable": 3}', '{"files": {}, "inputs": []}']
)
def test_a_manifest_that_is_none_is_a_fault(config: RunConfig, record: ReleaseRecord, text: str) -> None:
    (config.repository_dir / "trtspec-manifest.json").write_text(text)
    found = verify(config.repository_dir)
    assert [(f.file, f.kind) for f in found.faults] == [("trtspec-manifest.json", "unreadable")]


def test_nothing_to_verify_and_a_broken_record_are_told(
    config: RunConfig, record: ReleaseRecord, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="nothing to verify"):
        verify(tmp_path)
    put(tmp_path / "other", "another stage", {}, {"a": "b"})
    with pytest.raises(ConfigError, match="does not know this folder"):
        verify(tmp_path / "other", config.report_dir / "record.json")
    (config.report_dir / "record.json").write_text("{}")
    with pytest.raises(EvidenceError, match="not a release record"):
        verify(config.report_dir)


def test_the_command_tells_files_and_exit_codes(
    config: RunConfig, record: ReleaseRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", str(config.report_dir)]) == 0
    assert "Everything is as published (4 folders read)" in capsys.readouterr().out
    (config.repository_dir / "extra").write_text("")
    assert run(["verify", str(config.report_dir), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    assert [(f["file"], f["kind"]) for f in document["faults"]] == [("extra", "extra")]
    assert run(["verify", str(config.report_dir), "--identity", "me@example.org"]) == 2


STAND_IN = """#!/bin/sh
# Signs by copying the words it was called with; verifies that the file is there and the key is the one it likes.
echo "$0 $@" >> "{log}"
case "$1" in
  sign-blob|sign) while [ $# -gt 0 ]; do case "$1" in --bundle|--signature) echo signed > "$2";; esac; shift; done;;
  *) case "$*" in *good.pub*) exit 0;; *) echo "no matching signatures" >&2; exit 1;; esac;;
esac
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins of cosign and model_signing on PATH; returns the file that holds their calls."""
    log = tmp_path / "calls.log"
    for name in signing.TOOLS:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(STAND_IN.format(log=log))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in ("good.pub", "bad.pub", "key.pem"):
        (tmp_path / name).write_text("")
    return log


@pytest.mark.parametrize("name", signing.TOOLS)
def test_an_installed_tool_signs_and_checks(
    config: RunConfig, record: ReleaseRecord, tool: Path, name: signing.Tool
) -> None:
    home = config.report_dir
    written = Signer(name, tool.parent / "key.pem").sign(home, config.repository_dir)
    assert written == home / SIGNATURES[name]
    assert verify(home, trust=Trust(key=tool.parent / "good.pub")).signed == (name,)
    (fault,) = verify(home, trust=Trust(key=tool.parent / "bad.pub")).faults
    assert fault.file == SIGNATURES[name]
    assert "no matching signatures" in fault.detail
    calls = [line.split(" ", 1)[1] for line in tool.read_text().splitlines()]
    signed = {
        "cosign": f"sign-blob --yes --bundle {written} --key {tool.parent}/key.pem {home}/provenance.json",
        "model_signing": f"sign key --private_key {tool.parent}/key.pem --signature {written} {config.repository_dir}",
    }
    assert calls[0] == signed[name]
    signing.remove(home)
    assert signing.signatures(home) == []
    with pytest.raises(ConfigError, match="no signature"):
        verify(home, trust=Trust(key=tool.parent / "good.pub"))


def test_without_a_key_the_identity_is_asked_for(config: RunConfig, record: ReleaseRecord, tool: Path) -> None:
    home = config.report_dir
    for name in signing.TOOLS:
        Signer(name).sign(home, config.repository_dir)
    found = verify(home, trust=Trust(identity="me@example.org", issuer="https://issuer.example"))
    assert {fault.file for fault in found.faults} == set(SIGNATURES.values())
    calls = tool.read_text()
    assert "sign sigstore --signature" in calls
    assert "--certificate-identity me@example.org --certificate-oidc-issuer https://issuer.example" in calls
    with pytest.raises(ConfigError, match="--issuer"):
        Trust(identity="me@example.org")


def test_a_missing_tool_and_a_tool_that_lies_are_told(config: RunConfig, record: ReleaseRecord, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no cosign on PATH"):
        signing.require("cosign", lambda _: None)
    with pytest.raises(ServingError, match="wrote no signature"):
        Signer("cosign", None, FakeRunner()).sign(config.report_dir, config.repository_dir)

"""The builder: what it demands of a machine, its key, a build from command to read-back, and each way it can fail."""

from __future__ import annotations

import dataclasses
import json
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.tensorrt.pairs import Notes, Tool, checkpoint, environment, formats, pair, parsed
from tests.fakes import FakeProcess
from trtspec.backends.tensorrt import TensorRTBuilder
from trtspec.backends.tensorrt import machine as machines
from trtspec.backends.tensorrt.gpus import VISIBLE, share, side_by_side, visible
from trtspec.config import Role, RunConfig
from trtspec.environment import Environment
from trtspec.errors import BuildError, ConfigError, MissingError, TrtspecError
from trtspec.store import MANIFEST

TP2 = {"parallelism": {"tensor": 2}}


@pytest.fixture(autouse=True)
def no_given_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)


def builder(tool: Tool | None = None, here: Environment | None = None, notes: Notes | None = None) -> TensorRTBuilder:
    return TensorRTBuilder(notes or Notes(), tool or Tool(), here or environment())


def run(config: RunConfig, role: Role, made: TensorRTBuilder) -> Path:
    out = config.engine_dir(role).with_name(".engine.partial-1")
    source = checkpoint(config, role)
    out.mkdir(parents=True)
    made.build(config, role, source, out)
    return out


def test_a_build_from_command_to_record(tmp_path: Path) -> None:
    config, tool, notes = pair(tmp_path, target=TP2), Tool(outcomes=[(0, "[TRT-LLM] [I] Engine serialized")]), Notes()
    out = run(config, "target", builder(tool, notes=notes))
    assert {path.name for path in out.iterdir()} == {"config.json", "rank0.engine", "rank1.engine"}
    (started,) = tool.started
    assert started.log == config.engine_dir("target").with_name("engine.log")
    assert started.command[0] == "trtllm-build"
    assert f"$ {' '.join(started.command)}" in started.log.read_text()
    assert started.environment is not None
    assert started.environment[VISIBLE] == "0,1"
    cache = tmp_path / "engines/.timing-cache/sm90-tensorrt10.14.1.48.cache"
    assert cache.read_bytes() == b"times", "kept for the next build"
    assert started.command[started.command.index("--input_timing_cache") + 1] == str(cache)
    assert any("max_seq_len 1024 becomes 1029" in note for note in notes.notes)
    assert notes.percents[-1] == 100


@pytest.mark.parametrize(
    ("here", "engine", "message", "way_out"),
    [
        (
            environment(llm=None, gpus=0),
            {},
            "no tensorrt_llm package, no trtllm-build on PATH, no NVIDIA GPU",
            "doctor",
        ),
        (environment(gpus=0), {}, "no NVIDIA GPU", "tritonserver"),
        (environment(trt="10.9.0.34"), {}, "TensorRT 10.9.0.34 does not belong to TensorRT-LLM 1.2.1", "doctor"),
        (environment(llm="1.1.0"), {"tensorrt_llm_version": "1.2.1"}, "is not the configured one", "1.1.0"),
        (environment(llm="1.3.0rc21"), {}, "no trtllm-build, no converters", "backend to pytorch"),
        (environment(llm="1.4.0rc4"), {}, "does not fit engine.backend tensorrt", "tritonserver:26.04"),
    ],
)
def test_machines_that_cannot_build(here: Environment, engine: dict[str, Any], message: str, way_out: str) -> None:
    with pytest.raises(MissingError) as caught:
        builder(here=here).require(pair(engine=engine))
    assert message in str(caught.value)
    assert way_out in str(caught.value.fix)
    assert caught.value.exit_code == 3


def test_configured_versions_without_engines() -> None:
    with pytest.raises(ConfigError, match=r"engines are not built with TensorRT-LLM 1\.3\.0rc22") as caught:
        builder(here=environment(llm=None)).require(pair(engine={"tensorrt_llm_version": "1.3.0rc22"}))
    assert "pytorch" in str(caught.value.fix)


def test_gpus_of_different_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = environment(gpus=2)
    gpus = (mixed.gpus[0], dataclasses.replace(mixed.gpus[1], sm=80))
    mixed = dataclasses.replace(mixed, gpus=gpus)
    with pytest.raises(MissingError, match="different kinds"):
        builder(here=mixed).require(pair())
    monkeypatch.setenv(VISIBLE, "1")
    builder(here=mixed).require(pair())
    assert facts(mixed)["machine"]["sm"] == 80
    monkeypatch.setenv(VISIBLE, "")
    with pytest.raises(MissingError, match="no GPU left by CUDA_VISIBLE_DEVICES"):
        builder(here=mixed).require(pair())


def test_an_engine_of_another_machine_is_named(tmp_path: Path) -> None:
    config, notes = pair(tmp_path), Notes()
    old = config.engine_dir("draft")
    old.mkdir(parents=True)
    inputs = {"engine settings": {"machine": {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48", "sm": 80}}}
    (old / MANIFEST).write_text(json.dumps({"files": {}, "inputs": inputs}))
    run(config, "draft", builder(notes=notes))
    assert any("built for another machine (sm 80 → 90)" in note for note in notes.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": formats("int4_awq", "int8")}, "INT8 KV cache has no paged-context attention"),
        ({"target": formats("none", "fp8")}, "FP8 KV cache without FP8"),
        ({"engine": {"tensorrt": {"flags": {"kv_cache_type": "continuous"}}}}, "cannot be set by hand"),
        ({"engine": {"tensorrt": {"flags": {"enable_xqa": "enable"}}}}, "is no flag"),
        ({"target": {"dtype": "float32"}}, "float32 models"),
    ],
)
def test_what_would_break_speculation_is_refused_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    tool = Tool()
    with pytest.raises(ConfigError, match=message):
        builder(tool).require(pair(**changes))
    assert not tool.started


def test_a_gpu_that_is_other_than_planned_is_judged_again() -> None:
    config = pair(target=formats("fp8_pc_pt"))
    builder().require(config)
    with pytest.raises(ConfigError, match="does not run on this GPU generation"):
        builder(here=environment(sm=80)).require(config)


def test_a_draft_may_lose_its_reuse(tmp_path: Path) -> None:
    config, notes = pair(tmp_path, draft=formats("none", "fp8")), Notes()
    builder().require(config)
    out = run(config, "draft", builder(notes=notes))
    recorded = json.loads((out / "config.json").read_text())["build_config"]["plugin_config"]
    assert recorded["use_paged_context_fmha"] is False
    said = next(note for note in notes.notes if "use_paged_context_fmha enable becomes disable" in note)
    assert "anew in each round" in said
    assert "target" not in said


def spoilt(change: Callable[[Path, dict[str, Any]], None]) -> Tool:
    return Tool(spoil=change)


def no_files(out: Path, document: dict[str, Any]) -> None:
    for path in out.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("tool", "message", "fix"),
    [
        (Tool(outcomes=[(1, "x\nCUDA error: out of memory")]), "the GPU ran out of memory", "max_num_tokens"),
        (Tool(outcomes=[(-9, "half way")]), "was ended by SIGKILL: a process was killed", "memory"),
        (Tool(outcomes=[(1, "something new")]), "ended with exit code 1", "read the log"),
        (Tool(outcomes=[(2, "trtllm-build: error: unrecognized arguments: --foo")]), "(--foo)", "doctor"),
        (Tool(outcomes=[(0, "Traceback (most recent call last):\n  File x\nError: 3")]), "exit code 0", "log"),
        (spoilt(no_files), "engine is not whole", "log"),
        (spoilt(lambda out, made: made["build_config"].update(max_seq_len=9)), "max_seq_len is 9", "log"),
        (Tool(llm="1.1.0"), "version is 1.1.0, asked for 1.2.1", "log"),
    ],
)  # fmt: skip
def test_failures_are_one_error_with_cause_log_and_fix(tmp_path: Path, tool: Tool, message: str, fix: str) -> None:
    config, notes = pair(tmp_path), Notes()
    with pytest.raises(BuildError) as caught:
        run(config, "target", builder(tool, notes=notes))
    assert message in str(caught.value)
    assert fix in str(caught.value.fix)
    assert caught.value.exit_code == 4
    log = Path(caught.value.context["log"])
    assert log.read_text().startswith("$ trtllm-build"), "the log stays"
    assert len(tool.started) == 1, "never tried again blindly"


def test_of_a_traceback_the_error_is_told_not_its_frames(tmp_path: Path) -> None:
    log = "Traceback (most recent call last):\n  File x, line 3\nOSError: [Errno 28] No space left on device"
    with pytest.raises(BuildError) as caught:
        run(pair(tmp_path), "target", builder(Tool(outcomes=[(1, log)])))
    assert caught.value.found == "OSError: [Errno 28] No space left on device"


def test_the_record_of_a_refused_engine_is_kept(tmp_path: Path) -> None:
    config = pair(tmp_path)
    with pytest.raises(BuildError) as caught:
        run(config, "draft", builder(spoilt(lambda out, made: made["build_config"].update(max_beam_width=2))))
    kept = Path(str(caught.value.where))
    assert kept == config.engine_dir("draft").with_name("engine.rejected.json")
    assert json.loads(kept.read_text())["build_config"]["max_beam_width"] == 2
    run(pair(tmp_path / "again"), "draft", builder())


def test_the_tail_is_shown_and_earlier_runs_do_not_count(tmp_path: Path) -> None:
    config, notes = pair(tmp_path), Notes()
    log = config.engine_dir("target").with_name("engine.log")
    log.parent.mkdir(parents=True)
    log.write_text("CUDA out of memory\n")
    with pytest.raises(BuildError) as caught:
        run(config, "target", builder(Tool(outcomes=[(1, "\n".join(f"line {i}" for i in range(40)))]), notes=notes))
    assert "out of memory" not in str(caught.value)
    assert [note for note in notes.notes if note.startswith("  | ")] == [f"  | line {i}" for i in range(28, 40)]


def test_a_build_that_hangs_is_ended(tmp_path: Path) -> None:
    config, tool = pair(tmp_path, engine={"timeout": 0.05}), Tool(outcomes=[(None, "")])
    with pytest.raises(BuildError, match=r"did not end within 0\.05 s") as caught:
        run(config, "draft", builder(tool))
    assert caught.value.fix == "raise engine.timeout"
    assert tool.processes[0].stops == 1


def test_an_interrupted_build_ends_at_once(tmp_path: Path) -> None:
    config, tool, notes = pair(tmp_path), Tool(outcomes=[(None, "")]), Notes()
    threading.Timer(0.1, lambda: setattr(notes, "stop", True)).start()
    with pytest.raises(BuildError, match="not wanted any more"):
        run(config, "draft", builder(tool, notes=notes))
    assert tool.processes[0].stops == 1
    with pytest.raises(BuildError, match="not begun"):
        run(pair(tmp_path / "2"), "draft", builder(tool, notes=notes))
    assert len(tool.started) == 1


def facts(here: Environment | None = None, role: Role = "target", **changes: Any) -> Any:
    return builder(here=here).key_facts(pair(**changes), role)


def test_the_key_holds_flags_versions_and_gpu() -> None:
    assert facts() == facts()
    assert facts()["machine"] == {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48", "sm": 90}
    others = [
        facts(environment(sm=80)),
        facts(environment(trt="10.13.3.9")),
        facts(environment(llm="1.2.0")),
        facts(role="draft"),
        facts(speculation={"max_draft_len": 6}),
        facts(engine={"tensorrt": {"flags": {"reduce_fusion": "enable"}}}),
    ]
    assert all(other != facts() for other in others)
    # What does not change the engine does not rebuild it.
    assert facts(engine={"timeout": 5.0, "tensorrt": {"flags": {"log_level": "verbose"}}}) == facts()
    assert facts(environment(gpus=3)) == facts()


def test_without_an_installation_the_planned_machine_stands_in() -> None:
    bare = environment(llm=None, gpus=0)
    assert facts(bare) == facts(), "the same as on the machine that it is planned for"
    old = facts(bare, engine={"tensorrt_llm_version": "0.19.0"}, hardware={"gpu": "a100-80gb"})["machine"]
    assert old == {"tensorrt_llm": "0.19.0", "tensorrt": "10.9.0.34", "sm": 80}


def test_a_clash_is_told_by_the_key_too() -> None:
    with pytest.raises(TrtspecError, match="not the configured one"):
        facts(environment(llm="1.1.0"), engine={"tensorrt_llm_version": "1.2.1"})


def test_another_installation_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin/trtllm-build"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho '[TensorRT-LLM] TensorRT-LLM version: 0.20.0'\n")
    tool.chmod(0o755)
    machines._detected.cache_clear()
    found = machines.machine_for(pair(engine={"tools": {"trtllm_build": str(tool)}}))
    assert (str(found.version), found.seen) == ("0.20.0", True)


@pytest.mark.parametrize(
    ("tensor", "gpus", "target", "draft"),
    [
        (2, 4, "0,1", "2"),
        (2, 3, "0,1", "2"),
        (2, 2, "0,1", "0"),
        (8, 8, "0,1,2,3,4,5,6,7", "0"),
        (8, 4, "0,1,2,3", "0"),
    ],
)
def test_gpus_are_shared_out(tensor: int, gpus: int, target: str, draft: str) -> None:
    config = pair(target={"parallelism": {"tensor": tensor}})
    ids = visible(gpus, {})
    assert (",".join(share(config, "target", ids)), ",".join(share(config, "draft", ids))) == (target, draft)
    assert side_by_side(config, gpus) == (tensor < gpus)


def test_given_gpus_are_kept_to() -> None:
    assert visible(8, {VISIBLE: "6, 7,GPU-1"}) == ("6", "7", "GPU-1")
    assert visible(2, {VISIBLE: ""}) == ()


@pytest.mark.parametrize(("gpus", "most"), [(2, 1), (3, 2)])
def test_builds_take_turns_only_where_gpus_are_short(tmp_path: Path, gpus: int, most: int) -> None:
    running, seen, both = 0, [0], threading.Barrier(2)
    lock = threading.Lock()

    def spoil(out: Path, document: dict[str, Any]) -> None:
        nonlocal running
        with lock:
            running += 1
            seen.append(running)
        if most == 2:
            both.wait(5)
        with lock:
            running -= 1

    config = pair(tmp_path, target=TP2)
    made = builder(Tool(spoil=spoil), environment(gpus=gpus))
    threads = [threading.Thread(target=run, args=(config, role, made)) for role in ("target", "draft")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert max(seen) == most


class Cluster(Tool):
    """An imitated sbatch: does what the script's last line says, unless the probe fails."""

    probe_fails = False

    def start(self, command: Any, **options: Any) -> FakeProcess:
        words = [str(word) for word in command]
        self.outcomes = [(0, str(40 + len(self.started)))]
        script = Path(words[-1])
        if words[0] == "sbatch" and "build" in script.name:
            if self.probe_fails:
                script.with_name("engine.log").write_text("trtspec-probe: this node's GPUs are SM 80, not SM 90\n")
                self.outcomes = [(1, "42")]
            else:
                job = shlex.split(script.read_text().splitlines()[-1])
                self._fill(parsed(job))
        return super().start(words, **options)


SLURM = {"launcher": "slurm", "slurm": {"partition": "gpu", "container": "registry/image"}}


def test_a_build_on_slurm_is_probed_run_and_read_back_here(tmp_path: Path) -> None:
    config, tool = pair(tmp_path, engine=SLURM, target=TP2), Cluster()
    out = run(config, "target", builder(tool, environment(llm=None, gpus=0)))
    assert (out / "rank1.engine").exists()
    probe, build = (Path(started.command[-1]).read_text() for started in tool.started)
    assert f"python3 {config.engine_dir('target').with_name('engine.probe.py')} --tensorrt-llm 1.2.1" in probe
    assert "--sm 90" in probe
    assert "#SBATCH --gpus-per-node=1" in probe
    assert "#SBATCH --gpus-per-node=2" in build
    assert "#SBATCH --time=240" in build
    assert VISIBLE not in build, "Slurm gives the GPUs"
    assert config.engine_dir("target").with_name("engine.probe.py").exists()


def test_a_node_that_is_other_than_planned(tmp_path: Path) -> None:
    tool = Cluster()
    tool.probe_fails = True
    with pytest.raises(BuildError, match="this node's GPUs are SM 80"):
        run(pair(tmp_path, engine=SLURM), "target", builder(tool))


@pytest.mark.parametrize(("launcher", "tool"), [("slurm", "sbatch"), ("kubernetes", "kubectl")])
def test_a_cluster_needs_its_tool(launcher: str, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingError, match=f"needs {tool}"):
        builder().require(pair(engine={"launcher": launcher}))


def test_pods_must_see_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    volumes = [{"mount": str(tmp_path), "claim": "engines"}]
    builder().require(pair(tmp_path, engine={"launcher": "kubernetes", "kubernetes": {"volumes": volumes}}))
    with pytest.raises(ConfigError, match="none of the pod's volumes"):
        builder().require(pair(tmp_path, engine={"launcher": "kubernetes"}))


def test_on_a_cluster_only_the_plan_counts(tmp_path: Path) -> None:
    """What happens to be installed on the login node says nothing of the compute node."""
    config = pair(tmp_path, engine=SLURM)
    for here in (environment(llm=None, gpus=0), environment(llm="1.1.0", sm=80, trt="10.13.3.9")):
        assert builder(here=here).key_facts(config, "target") == facts()

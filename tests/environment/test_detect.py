"""Detection on made machines: what is found, what a failing probe leaves, and that nothing heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import machines
from tests.environment.machines import Answers, machine, make_program, smi
from trtspec.environment import Environment, Host, detect
from trtspec.environment.gpus import FIELDS, KINDS, OLD_FIELDS
from trtspec.errors import MissingError
from trtspec.hardware import GPUS


def runner_of(host: Host) -> Answers:
    assert isinstance(host.runner, Answers)
    return host.runner


def test_a_bare_machine_has_nothing_and_asks_nobody(tmp_path: Path) -> None:
    found = detect(host=machines.bare(tmp_path))
    assert (found.tensorrt_llm, found.driver, found.gpus, found.image, found.server) == (None, None, (), None, None)
    assert found.probes == ()
    assert found.packages["numpy"] == "1.26.4"
    assert found.disk_free == 500 * 10**9


def test_an_image_with_gpus(tmp_path: Path) -> None:
    found = detect(host=machines.ngc_26_05(tmp_path))
    assert found.tensorrt_llm is not None
    assert found.tensorrt_llm.version == "1.2.1"
    assert (found.tensorrt, found.modelopt, found.sm, len(found.gpus)) == ("10.14.1.48", "0.37.0", 90, 8)
    assert found.driver == "590.44.01"
    gpu = found.gpus[3]
    assert (gpu.index, gpu.kind, gpu.memory_bytes, gpu.mig) == (3, "h100-80gb", 81559 << 20, False)
    assert found.image is not None
    assert (found.image.kind, found.image.tag, found.image.tensorrt_llm) == ("triton", "26.05", "1.2.1")
    assert found.server is not None
    assert (found.server.kind, found.server.tensorrtllm_backend) == ("installed", True)
    assert found.examples == tmp_path / "app" / "examples"
    assert found.tools["trtllm-build"] == tmp_path / "bin" / "trtllm-build"
    assert found.tool_flags is None  # not asked: its metadata says the version


def test_every_probe_is_an_argument_list_with_a_time_limit(tmp_path: Path) -> None:
    host = machines.ngc_26_05(tmp_path)
    detect(host=host, deep=True)
    runner = runner_of(host)
    assert [Path(command[0]).name for command in runner.asked] == ["trtllm-build", "nvidia-smi"]
    assert all(timeout is not None and 0 < timeout <= 180 for timeout in runner.timeouts)
    assert runner.asked[1][1:] == [f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]


def test_an_older_driver_is_asked_again_without_the_younger_fields(tmp_path: Path) -> None:
    host = machine(tmp_path, programs=["nvidia-smi"])
    asked: list[str] = []

    class OldDriver(Answers):
        def run(self, command, **rest):  # type: ignore[no-untyped-def]
            asked.append(command[1])
            old = len(asked) > 1
            answer = smi("Tesla V100-SXM2-16GB, 16160, 450.80.02") if old else (
                2, 'Field "compute_cap" is not a valid field to query.')  # fmt: skip
            self.answers = {"nvidia-smi": answer}
            return super().run(command, **rest)

    host.runner = OldDriver()
    (gpu,) = detect(host=host).gpus
    assert asked == [f"--query-gpu={','.join(fields)}" for fields in (FIELDS, OLD_FIELDS)]
    assert (gpu.sm, gpu.memory_bytes, gpu.kind, gpu.mig) == (None, 16160 << 20, None, False)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((6, "No devices were found"), "ended with exit code 6: No devices were found"),
        (MissingError("nvidia-smi did not end within 30 s"), "did not end within 30 s"),
        (OSError("no space left"), "no space left"),
        ((0, "Unable to determine the device handle"), ""),
        ((0, "0, a, b"), ""),
    ],
)
def test_what_a_probe_fails_with_is_recorded_not_raised(
    tmp_path: Path, answer: tuple[int, str] | Exception, said: str
) -> None:
    found = detect(host=machine(tmp_path, programs=["nvidia-smi"], answers={"nvidia-smi": answer}))
    assert found.gpus == ()
    (probe,) = found.probes
    assert said in probe.problem
    assert probe.answered == (not said)


def test_a_driver_without_a_gpu_is_still_a_driver(tmp_path: Path) -> None:
    found = detect(host=machines.no_gpu(tmp_path))
    assert (found.driver, found.gpus) == ("590.44.01", ())


def test_nvml_is_asked_in_a_process_of_its_own_where_nvidia_smi_is_missing(tmp_path: Path) -> None:
    host = machine(
        tmp_path, {"nvidia-ml-py": "13.0"}, answers={"python": smi("NVIDIA L40S, 46068, 590.44.01, 8.9, Enabled")}
    )
    (gpu,) = detect(host=host).gpus
    assert (gpu.kind, gpu.sm, gpu.mig) == ("l40s", 89, True)
    (command,) = runner_of(host).asked
    compile(command[2], "<nvml>", "exec")


def test_another_interpreter_s_tensorrt_llm_is_found_beside_its_tool(tmp_path: Path) -> None:
    theirs = make_program(tmp_path / "venv" / "bin" / "python3.12")
    make_program(tmp_path / "bin" / "trtllm-build", f"#!{theirs}")
    answer = (0, 'warning: noise\n{"tensorrt-llm": "1.1.0", "tensorrt-cu13": "10.13.3.9"}')
    found = detect(host=machine(tmp_path, answers={"python3.12": answer}))
    assert found.tensorrt_llm is not None
    assert found.tensorrt_llm.version == "1.1.0"
    assert str(tmp_path / "bin" / "trtllm-build") in found.tensorrt_llm.source
    assert found.tensorrt == "10.13.3.9"
    assert len(found.probes) == 1


def test_a_tool_that_is_no_script_is_asked_for_its_help(tmp_path: Path) -> None:
    make_program(tmp_path / "bin" / "trtllm-build", "\x7fELF")
    said = "[TensorRT-LLM] TensorRT-LLM version: 1.2.0\nusage: trtllm-build [-h] [--workers WORKERS] [--dry_run]"
    found = detect(host=machine(tmp_path, answers={"trtllm-build": (0, said)}))
    assert found.tensorrt_llm is not None
    assert (found.tensorrt_llm.version, found.tool_flags) == ("1.2.0", ("dry_run", "workers"))


def test_tensorrt_llm_s_own_image(tmp_path: Path) -> None:
    (tmp_path / "app" / "tensorrt_llm" / "examples").mkdir(parents=True)
    found = detect(host=machine(tmp_path, environ={"TRT_LLM_VERSION": "1.2.1"}))
    assert found.image is not None
    assert (found.image.kind, found.image.tensorrt_llm) == ("tensorrt-llm", "1.2.1")
    assert found.examples == tmp_path / "app" / "tensorrt_llm" / "examples"


def test_a_triton_image_without_the_backend_holds_no_tensorrt_llm(tmp_path: Path) -> None:
    found = detect(host=machine(tmp_path, environ={"NVIDIA_TRITON_SERVER_VERSION": "26.05"}))
    assert found.image is not None
    assert (found.image.tag, found.image.tensorrt_llm) == ("26.05", None)


def test_gpu_names_lead_to_the_planner_s_kinds() -> None:
    assert set(KINDS.values()) == set(GPUS)


def test_the_document_is_json_and_complete(tmp_path: Path) -> None:
    document = json.loads(json.dumps(detect(host=machines.ngc_26_05(tmp_path)).as_dict()))
    assert set(document) == {*Environment.__dataclass_fields__, "tensorrt", "sm"}
    assert document["server"]["path"].endswith("tritonserver")


def test_this_machine_can_be_asked_without_heavy_imports() -> None:
    code = (
        "import sys; from trtspec.environment import detect; found = detect(); "
        "print(found.python, *[m for m in ('torch', 'tensorrt_llm', 'transformers', 'pynvml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.split()) == 1


def test_a_hanging_driver_does_not_hang_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real processes: the program is ended, and what it would have said is not waited for."""
    monkeypatch.setattr("trtspec.environment.gpus.TIMEOUT", 0.3)
    make_program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\nexec sleep 60")
    host = Host(environ={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}, root=tmp_path, package={}.get)
    (probe,) = detect(host=host, folder=tmp_path).probes
    assert "did not end within 0.3 s" in probe.problem
    assert probe.seconds < 20


def test_a_real_program_s_answer_is_read_without_the_runner_s_line(tmp_path: Path) -> None:
    answer = "0, NVIDIA H200, 143771, 590.44.01, 9.0, Disabled"
    make_program(tmp_path / "bin" / "nvidia-smi", f"#!/bin/sh\necho '{answer}'")
    host = Host(environ={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}, root=tmp_path, package={}.get)
    found = detect(host=host, folder=tmp_path / "not" / "there")
    assert [(gpu.kind, gpu.sm) for gpu in found.gpus] == [("h200", 90)]
    assert found.disk_free is not None

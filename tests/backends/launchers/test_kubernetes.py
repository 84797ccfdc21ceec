"""Kubernetes: Jobs that the published schemas accept, pods watched to their end, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.backends.launchers.steps import Seen, step
from tests.fakes import FakeProcess, FakeRunner
from trtspec.backends.launchers.base import Cancelled, StepFailed
from trtspec.backends.launchers.kubernetes import KubernetesLauncher, Pod, pod_of
from trtspec.backends.launchers.manifest import job, job_name, text
from trtspec.config.building import Kubernetes, Volume
from trtspec.errors import BuildError, ConfigError

IMAGE = "nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3"


def kubernetes(folder: Path, **changes: Any) -> Kubernetes:
    return Kubernetes(volumes=(Volume(mount=folder, claim="engines"),), **changes)


def full(folder: Path) -> Kubernetes:
    return kubernetes(
        folder, namespace="ml", context="prod", pull_secret="ngc", service_account="builder", memory="512Gi", user=1000,
        node_selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, tolerate=("nvidia.com/gpu", "team"),
    )  # fmt: skip


@pytest.mark.parametrize("release", ["1.29", "1.31", "1.33"])
@pytest.mark.parametrize("which", ["plain", "full"])
def test_jobs_fit_the_published_schema(tmp_path: Path, release: str, which: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    settings = full(tmp_path) if which == "full" else kubernetes(tmp_path)
    document = yaml.safe_load(text(job(step(tmp_path), settings, IMAGE, "trtspec-x-1")))
    validator.validate(document, release, strict=True)
    document["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(validator.ValidationError):
        validator.validate(document, release, strict=True)


@given(st.text(min_size=1, max_size=100), st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_any_name_and_any_word_is_safe(slug: str, words: list[str]) -> None:
    name = job_name(slug, "0a1b2c3d")
    assert len(name) <= 63
    assert name.strip("-abcdefghijklmnopqrstuvwxyz0123456789") == ""
    assert name[0] != "-" != name[-1]
    settings = kubernetes(Path("/srv"))
    made = step(Path("/srv/x"), command=tuple(words), folders=())
    back = yaml.safe_load(text(job(made, settings, IMAGE, name)))
    assert back["spec"]["template"]["spec"]["containers"][0]["command"] == words


def test_a_job_is_tried_once_and_has_a_time_limit(tmp_path: Path) -> None:
    spec = job(step(tmp_path), full(tmp_path), IMAGE, "n")["spec"]
    pod = spec["template"]["spec"]
    assert spec["backoffLimit"] == 0
    assert pod["activeDeadlineSeconds"] == 3600
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8", "memory": "512Gi"}
    assert pod["securityContext"] == {"runAsUser": 1000}
    assert {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]} == {str(tmp_path), "/dev/shm"}


def test_folders_must_lie_on_a_volume(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none of the pod's volumes"):
        job(step(tmp_path, folders=(tmp_path, Path("/elsewhere"))), kubernetes(tmp_path), IMAGE, "n")


@pytest.mark.parametrize(
    "wrong",
    [{"namespace": "Big"}, {"image": "a b"}, {"node_selector": {"a": "b c"}}, {"volumes": [{"mount": "/x"}]},
     {"volumes": [{"mount": "x", "claim": "c"}]}, {"volumes": [{"mount": "/", "claim": "c"}]}],
)  # fmt: skip
def test_settings_that_kubernetes_would_refuse(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Kubernetes.model_validate(wrong)


def pods(phase: str, state: Mapping[str, Any] | None = None, **status: Any) -> str:
    statuses = [] if state is None else [{"name": "step", "state": state}]
    item = {"metadata": {"creationTimestamp": "2026-01-01"}, "status": {"phase": phase, "containerStatuses": statuses}}
    item["status"] |= status
    return json.dumps({"items": [item]}, indent=1)


NONE = json.dumps({"items": []})
WAITING = pods("Pending", conditions=[{"reason": "Unschedulable", "message": "0/3 nodes: Insufficient nvidia.com/gpu"}])
RUNNING = pods("Running", {"running": {}})
GOOD = pods("Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}})


class Cluster(FakeRunner):
    """kubectl whose pods go through the given states; `logs` writes one line."""

    def __init__(self, *states: str) -> None:
        super().__init__()
        self.states = list(states)

    def start(self, command: Sequence[str | Path], *, log: Path, **options: Any) -> FakeProcess:
        words = [str(word) for word in command]
        said = ""
        if "get" in words:
            said = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        elif "logs" in words:
            said = "Engine serialized"
        self.outcomes = [(0, said)]
        return super().start(command, log=log, **options)

    @property
    def verbs(self) -> list[str]:
        return [next(w for w in s.command if w in ("apply", "get", "logs", "delete")) for s in self.started]


def launcher(cluster: Cluster, folder: Path, **changes: Any) -> KubernetesLauncher:
    return KubernetesLauncher(
        cluster, kubernetes(folder, **changes), IMAGE, unique=lambda: "0a1b2c3d", sleep=lambda _: None
    )  # fmt: skip


def test_a_job_from_apply_to_its_end(tmp_path: Path) -> None:
    cluster, seen = Cluster(NONE, WAITING, WAITING, RUNNING, GOOD), Seen()
    launcher(cluster, tmp_path, namespace="ml", context="prod").run([step(tmp_path)], seen)
    assert cluster.verbs == ["apply", "get", "get", "get", "get", "logs", "get"]
    assert all(s.command[:3] == ["kubectl", "--context=prod", "--namespace=ml"] for s in cluster.started)
    assert "Engine serialized" in seen.lines
    assert sum("Insufficient nvidia.com/gpu" in note for note in seen.notes) == 1
    assert yaml.safe_load((tmp_path / "engine.pair-target-build.job.yaml").read_text())["kind"] == "Job"
    assert "job/trtspec-pair-target-build-0a1b2c3d" in seen.notes[0]


@pytest.mark.parametrize(
    ("state", "message", "code"),
    [
        (pods("Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "exit code 137, OOMKilled", 137),
        (pods("Failed", {"terminated": {"exitCode": 1, "reason": "Error"}}), "exit code 1, Error", 1),
        (pods("Failed", reason="DeadlineExceeded", message="too long"), "no exit code, DeadlineExceeded", None),
        (pods("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}), "ImagePullBackOff", None),
        (NONE, "has no pod", None),
    ],
)
def test_pods_that_do_not_end_well(tmp_path: Path, state: str, message: str, code: int | None) -> None:
    cluster = Cluster(state)
    with pytest.raises(StepFailed, match=message) as caught:
        launcher(cluster, tmp_path).run([step(tmp_path), step(tmp_path, "never")], Seen())
    assert caught.value.return_code == code
    assert cluster.verbs.count("apply") == 1
    if "Failed" not in state:
        assert cluster.verbs[-1] == "delete"


def test_a_job_nobody_wants_is_deleted(tmp_path: Path) -> None:
    cluster = Cluster(RUNNING)
    with pytest.raises(Cancelled):
        launcher(cluster, tmp_path).run([step(tmp_path)], Seen(stop=True))
    assert cluster.started[-1].command[-4:] == [
        "job", "trtspec-pair-target-build-0a1b2c3d", "--wait=false", "--ignore-not-found",
    ]  # fmt: skip


@pytest.mark.parametrize("said", ["", "error: You must be logged in", "[]", "{}"])
def test_kubectl_that_prints_no_pods(said: str) -> None:
    with pytest.raises(BuildError, match="did not print pods"):
        pod_of(said)


def test_the_newest_pod_counts() -> None:
    items = [{"metadata": {"creationTimestamp": f"2026-01-0{day}"}, "status": {"phase": phase}}
             for day, phase in ((1, "Failed"), (2, "Running"))]  # fmt: skip
    assert pod_of(json.dumps({"items": items})) == Pod(phase="Running")

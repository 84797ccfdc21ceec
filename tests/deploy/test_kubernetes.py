"""Kubernetes examples: what must be true of them, and what the API's schemas say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import PROJECT
from tests.deploy.validators import accepts, run
from trtspec.cli._verbs import VERBS

FOLDER = PROJECT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
LWS = "leaderworkerset.x-k8s.io/v1"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pod template of a document."""
    if document["apiVersion"] == LWS:
        block = document["spec"]["leaderWorkerTemplate"]
        return [block["leaderTemplate"], block["workerTemplate"]]
    template = document["spec"].get("template") if "spec" in document else None
    return [] if template is None else [template]


EVERY_POD = [(path.name, pod) for path in FILES for document in documents(path) for pod in pods(document)]


@pytest.mark.parametrize(("name", "pod"), EVERY_POD, ids=[name for name, _ in EVERY_POD])
def test_pods_are_unprivileged_and_say_what_they_need(name: str, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == 8
        assert ":" in container["image"]
        assert not container["image"].endswith(":latest")
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        if "args" in container:
            assert container["args"][0] in VERBS


def test_services_find_their_pods() -> None:
    for path in FILES:
        found = documents(path)
        labels = [pod["metadata"]["labels"] for document in found for pod in pods(document)]
        for service in (document for document in found if document["kind"] == "Service"):
            wanted = service["spec"]["selector"].items()
            assert [one for one in labels if wanted <= one.items()], path.name


def test_build_and_serve_use_the_same_folders() -> None:
    def outputs(name: str) -> set[str]:
        [container] = pods(documents(FOLDER / name)[0])[0]["spec"]["containers"]
        return {word for word in container["args"] if word.startswith("output.")}

    assert outputs("build-job.yaml") == outputs("serve.yaml")
    assert len(outputs("serve.yaml")) == 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_kubernetes_schemas(path: Path, tmp_path: Path) -> None:
    """Strictly; pods of a LeaderWorkerSet, whose own schema no validator carries, as plain pods."""
    for index, document in enumerate(documents(path)):
        plain = [document]
        if document["apiVersion"] == LWS:
            pod = {"apiVersion": "v1", "kind": "Pod"}
            plain = [pod | {"metadata": {"name": f"x{i}"} | p["metadata"], "spec": p["spec"]}
                     for i, p in enumerate(pods(document))]  # fmt: skip
        for number, one in enumerate(plain):
            file = tmp_path / f"{index}-{number}.yaml"
            file.write_text(yaml.safe_dump(one))
            accepts("kubernetes-validate", "--strict", file)


def test_the_validator_would_say_no(tmp_path: Path) -> None:
    document = documents(FOLDER / "serve.yaml")[0]
    document["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(document))
    assert run("kubernetes-validate", "--strict", file).returncode != 0


@pytest.mark.parametrize("name", ["sshd.sh", "lead.sh"])
def test_scripts_of_the_multinode_example(name: str, tmp_path: Path) -> None:
    [scripts] = [d for d in documents(FOLDER / "multinode-lws.yaml") if d["kind"] == "ConfigMap"]
    file = tmp_path / name
    file.write_text(scripts["data"][name])
    accepts("shellcheck", "--shell=sh", file)

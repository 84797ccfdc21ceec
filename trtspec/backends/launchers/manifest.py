"""A Kubernetes Job for one step, as a document: no templates, so that nothing can be quoted wrongly."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from trtspec.backends.launchers.base import Step
from trtspec.config.building import Kubernetes, Volume
from trtspec.errors import ConfigError

KEEP = 86_400
"""Seconds that a finished Job stays for people to look at."""
SHARED_MEMORY = "16Gi"
NAME = 63


def job(step: Step, settings: Kubernetes, image: str, name: str) -> dict[str, Any]:
    """The Job. ConfigError where a folder of the step lies on none of the volumes."""
    _check_folders(step, settings)
    labels = {"app.kubernetes.io/name": "trtspec", "app.kubernetes.io/component": "engine-build"}
    template = {"metadata": {"labels": labels}, "spec": _pod(step, settings, image)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels},
        # A build that failed is looked at, never repeated blindly.
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": KEEP, "template": template},
    }


def text(document: dict[str, Any]) -> str:
    """As YAML."""
    return "# Written by trtspec: one step of an engine build.\n" + yaml.safe_dump(document, sort_keys=False)


def job_name(slug: str, unique: str) -> str:
    """A DNS label: lower case, digits and dashes, at most 63 characters."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"trtspec-{slug}".lower()).strip("-")
    return f"{plain[: NAME - len(unique) - 1].rstrip('-')}-{unique}"


def _pod(step: Step, settings: Kubernetes, image: str) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        # Of the pod, not of the Job: the Job's clock also runs while the pod waits for GPUs.
        "activeDeadlineSeconds": int(step.timeout),
        "securityContext": {"runAsUser": os.getuid() if settings.user is None else settings.user},
        "containers": [_container(step, settings, image)],
        "volumes": [_volume(i, volume) for i, volume in enumerate(settings.volumes)] + [_shared_memory()],
    }
    if settings.pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": settings.pull_secret}]
    if settings.service_account is not None:
        pod["serviceAccountName"] = settings.service_account
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerate:
        pod["tolerations"] = [{"key": key, "operator": "Exists"} for key in settings.tolerate]
    return pod


def _container(step: Step, settings: Kubernetes, image: str) -> dict[str, Any]:
    limits = {settings.gpu_resource: str(step.gpus)} if step.gpus else {}
    requests = {"cpu": str(settings.cpus)}
    if settings.memory is not None:
        limits["memory"] = requests["memory"] = settings.memory
    variables = {"HOME": "/tmp", **step.variables}  # noqa: S108 - our user has no home in the image
    return {
        "name": "step",
        "image": image,
        "command": list(step.command),
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {"limits": limits, "requests": requests},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [
            *({"name": f"volume-{i}", "mountPath": str(v.mount)} for i, v in enumerate(settings.volumes)),
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def _volume(number: int, volume: Volume) -> dict[str, Any]:
    if volume.claim is not None:
        return {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.claim}}
    return {"name": f"volume-{number}", "hostPath": {"path": str(volume.host_path), "type": "Directory"}}


def _shared_memory() -> dict[str, Any]:
    return {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}


def _check_folders(step: Step, settings: Kubernetes) -> None:
    for folder in step.folders:
        if not any(Path(folder).is_relative_to(volume.mount) for volume in settings.volumes):
            raise ConfigError(
                "a folder of the build lies on none of the pod's volumes",
                where="engine.kubernetes.volumes",
                found=folder,
                expected="a volume mounted at it or above it, under the same path as here",
            )

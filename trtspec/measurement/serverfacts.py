"""What a running server is: its version, the configuration of its models, the machine. What answers is measured."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from trtspec.errors import ServingError
from trtspec.store import read_manifest

TIMEOUT = 10.0


def over_grpc(url: str, models: Iterable[str]) -> dict[str, str]:
    """Version, and a hash of each model's configuration; ServingError where it cannot be asked."""
    from tritonclient.grpc import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    try:
        with InferenceServerClient(url) as client:
            server = client.get_server_metadata(as_json=True, client_timeout=TIMEOUT)
            configs = {m: client.get_model_config(m, as_json=True, client_timeout=TIMEOUT) for m in models}
    except InferenceServerException as error:
        raise ServingError(f"the server does not say what it is: {error.message()}", where=url) from None
    return _facts(server, {model: found["config"] for model, found in configs.items()})


def over_http(url: str, models: Iterable[str]) -> dict[str, str]:
    """The same over HTTP."""
    from tritonclient.http import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    try:
        with InferenceServerClient(url, network_timeout=TIMEOUT, connection_timeout=TIMEOUT) as client:
            return _facts(client.get_server_metadata(), {m: client.get_model_config(m) for m in models})
    except (InferenceServerException, OSError, ValueError, HTTPException) as error:
        # What listens there may be anything: a gRPC port, or a page that is no JSON.
        raise ServingError(f"the server does not say what it is: {error}", where=url) from None


def _facts(server: Mapping[str, Any], configs: Mapping[str, Any]) -> dict[str, str]:
    found = {"triton": str(server.get("version", "unknown"))}
    for model, config in configs.items():
        found[f"model config {model}"] = _digest(json.dumps(config, sort_keys=True).encode())
    return found


def of_repository(repository: Path, engines: Mapping[str, Path], tokenizer: Path) -> dict[str, str]:
    """Keys of what was built, and a hash of the tokenizer, where they are on this machine."""
    found = {}
    for name, folder in {"repository": repository, **{f"{r} engine": f for r, f in engines.items()}}.items():
        manifest = read_manifest(folder)
        if manifest is not None and "key" in manifest:
            found[f"{name} key"] = str(manifest["key"])
    if tokenizer.is_file():
        found["tokenizer"] = _digest(tokenizer.read_bytes())
    return found


def of_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The CPU that asked, by name."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {"cpu": named or platform.processor() or platform.machine()}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

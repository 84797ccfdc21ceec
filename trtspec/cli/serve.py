"""trtspec serve: the built repository behind a real Triton server, in the foreground."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import config_argument, json_option, load

if TYPE_CHECKING:
    from trtspec.config import RunConfig


@click.command()
@config_argument
@json_option
def serve(config_path: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Serve the built repository until Ctrl-C or SIGTERM.

    The ports are those of the configuration; `--set serving.http_port=0` takes a free one.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.workflows.serve import serving

    config = load(config_path, overrides)
    out = console(as_json)
    with serving(config, note=lambda text: out.print(text, markup=False)) as server:
        if as_json:
            print_json({"http": server.http_url, "grpc": server.grpc_url, "metrics": server.metrics_url})
        out.print(f"Ready. HTTP http://{server.http_url}, gRPC {server.grpc_url}, metrics {server.metrics_url}")
        out.print("Ask it:", markup=False)
        for line in ways_to_ask(config, config_path, server.http_url, server.grpc_url):
            out.print(f"  {line}", markup=False, soft_wrap=True)
        out.print("Stop with Ctrl-C.")
        server.wait(note=lambda text: out.print(text, markup=False))


def ways_to_ask(config: RunConfig, config_path: Path, http_url: str, grpc_url: str) -> list[str]:
    """Command lines that work against this server, from another terminal."""
    llm_api = config.engine.backend == "pytorch"
    model, most, stream = (
        ("tensorrt_llm", "sampling_param_max_tokens", "streaming")
        if llm_api
        else ("tensorrt_llm_bls", "max_tokens", "stream")
    )
    body = {"text_input": "def add(a, b):", most: 32}
    url = f"http://{http_url}/v2/models/{model}"
    found = [shlex.join(["curl", "-s", f"{url}/generate", "-d", json.dumps(body)])]
    if llm_api or config.serving.decoupled:
        found += [shlex.join(["curl", "-sN", f"{url}/generate_stream", "-d", json.dumps(body | {stream: True})])]
    ask = ["trtspec", "generate", str(config_path), "--url", grpc_url, "--prompt", "def add(a, b):"]
    return [*found, shlex.join(ask)]

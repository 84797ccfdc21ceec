"""trtspec serve: the built repository behind a real Triton server, in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import config_argument, json_option, load


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
        model = "tensorrt_llm" if config.engine.backend == "pytorch" else "tensorrt_llm_bls"
        out.print(f"Speculative pipeline: http://{server.http_url}/v2/models/{model}/generate")
        out.print("Stop with Ctrl-C.")
        server.wait()

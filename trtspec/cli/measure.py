"""trtspec measure: acceptance, speed and exactness of a served pair, without a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from trtspec.cli._options import config_argument, json_option, load
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import RunConfig

INTERRUPTED = 130
_LIMITS = {"ttft": "first_token", "tpot": "per_token", "latency": "latency"}


@click.command()
@config_argument
@click.option("--url", metavar="HOST:PORT", help="A server that runs already (its gRPC port). Default: one is started.")
@click.option("--http", is_flag=True, help="HTTP instead of gRPC; --url is that port then.")
@click.option(
    "--target-only-url", metavar="HOST:PORT", help="LLM API: a second server, without drafts, to compare with."
)
@click.option("--metrics-url", metavar="HOST:PORT", help="The metrics port of --url. Default: port 8002 of its host.")
@click.option("--out", type=click.Path(path_type=Path), help="The document. Default: <reports>/<name>/measured.json.")
@click.option("--concurrency", metavar="N[,N…]", help="Requests in flight. Several: a window for each, beside the "
              "declared one.")  # fmt: skip
@click.option("--rate", metavar="R[,R…]", help="Requests a second that arrive as they come (Poisson); a window each.")
@click.option("--window", type=float, help="Seconds of a window. Default: 10.")
@click.option("--slo", metavar="NAME=S[,…]", help="Limits of a good answer in seconds: ttft, tpot, latency.")
@click.option("--k", metavar="K[,K…]", help="Measure each of these draft lengths: a document for each in the folder "
              "--out (<reports>/<name>/sweep), for `trtspec policy`.")  # fmt: skip
@click.option("--max-prompts", type=int, help="Most prompts asked of each domain.")
@json_option
def measure(config_path: Path, overrides: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Measure a served pair on its prompts: both modes in turns, streaming, at the declared concurrency.

    Acceptance with intervals, throughput, latency by tokens, greedy equality, and the server's counters against its
    answers. Nothing is judged: `trtspec gate` does that to the document, `trtspec validate` does both.

    With --k, one document for each K and index.json, all on one server: `trtspec policy` chooses from them.

    Exit 0 measured; 6 the measurement contradicts itself; 130 interrupted (the document holds what there is).
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.cli._files import require_writable, write_out
    from trtspec.cli._measured import show
    from trtspec.workflows.measure import Running, measured

    config = load(config_path, (*overrides, *_overrides(given)))
    running = _running(config, given, Running)
    out = console(as_json)
    if given["k"] is not None:
        return _sweep(config, given, running, out, as_json)
    path = given["out"] or config.report_dir / "measured.json"
    require_writable(path)
    with ConsoleReporter(out) as reporter:
        result = measured(config, reporter, running, http=given["http"])
    write_out(path, result.model_dump_json(indent=1) + "\n")
    show(out, result)
    out.print(f"Document: {path}", markup=False, soft_wrap=True)
    if as_json:
        print_json(result.model_dump(mode="json"))
    if result.interrupted:
        return INTERRUPTED
    return 6 if any(p.severity == "invalid" for p in result.problems) else 0


def _sweep(config: RunConfig, given: dict[str, Any], running: Any, out: Any, as_json: bool) -> int:
    """Several K: each shown as it would be alone."""
    from trtspec.cli._console import ConsoleReporter, print_json
    from trtspec.cli._files import require_writable_folder
    from trtspec.cli._measured import show
    from trtspec.workflows.sweep import sweep

    ks = _listed("--k", given["k"], int)
    folder = given["out"] or config.report_dir / "sweep"
    require_writable_folder(folder)
    with ConsoleReporter(out) as reporter:
        found = sweep(config, ks, folder, reporter, running, http=given["http"])
    for result in found.results:
        show(out, result)
    out.print(f"Documents: {found.folder}; next: trtspec policy {found.folder}", markup=False, soft_wrap=True)
    if as_json:
        print_json(found.as_dict())
    if found.interrupted:
        return INTERRUPTED
    return 6 if any(p.severity == "invalid" for r in found.results for p in r.problems) else 0


def _running(config: RunConfig, given: dict[str, Any], make: Any) -> Any:
    if given["url"] is None:
        alone = [f"--{name.replace('_', '-')}" for name in ("target_only_url", "metrics_url") if given[name]]
        if alone:
            raise ConfigError(f"{alone[0]} belongs to --url")
        return None
    if given["target_only_url"] and config.engine.backend != "pytorch":
        raise ConfigError("--target-only-url belongs to the LLM API", found=f"engine.backend: {config.engine.backend}")
    for name in ("url", "target_only_url"):
        _require_address(f"--{name.replace('_', '-')}", given[name])
    return make(given["url"], given["http"], given["target_only_url"], given["metrics_url"])


def _require_address(option: str, text: str | None) -> None:
    """A port that there is not would be asked on some other port, or only after a long wait."""
    try:
        parts = urlsplit(f"//{text}")
        good = text is None or bool(parts.hostname and parts.port and not parts.path)
    except ValueError:
        good = False
    if not good:
        raise ConfigError("not an address", where=option, found=text, expected="HOST:PORT")


def _overrides(given: dict[str, Any]) -> list[str]:
    """Options as the keys of the configuration that they are, so that they are checked like those."""
    found = []
    if given["concurrency"]:
        numbers = _listed("--concurrency", given["concurrency"], int)
        key = f"concurrency={numbers[0]}" if len(numbers) == 1 else f"sweep={numbers}"
        found.append(f"validation.{key}")
    if given["rate"]:
        found.append(f"validation.arrival_rates={_listed('--rate', given['rate'], float)}")
    for name in ("window", "max_prompts"):
        if given[name] is not None:
            found.append(f"validation.{name}={given[name]}")
    for limit in given["slo"].split(",") if given["slo"] else ():
        name, _, value = limit.partition("=")
        if name not in _LIMITS:
            raise ConfigError("not a limit", where="--slo", found=limit, expected="ttft=S, tpot=S or latency=S")
        found.append(f"validation.slo.{_LIMITS[name]}={_listed('--slo', value, float)[0]}")
    return found


def _listed(option: str, text: str, kind: type[Any]) -> list[Any]:
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError("not numbers", where=option, found=text, expected="such as 1,4,8") from None

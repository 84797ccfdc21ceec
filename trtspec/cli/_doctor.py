"""A diagnosis for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.environment import Environment
from trtspec.environment.paths import Way
from trtspec.workflows.doctor import Diagnosis

STATES = {"open": ("open", "green"), "build-only": ("builds, cannot serve", "yellow"), "closed": ("closed", "red")}
LEVELS = {"error": "red", "warning": "yellow", "info": "dim"}
NONE = "-"


def render(found: Diagnosis) -> RenderableType:
    """Machine, ways, remarks, and what it comes to."""
    parts: list[RenderableType] = [Text("This machine", style="bold"), _table(_machine(found.environment))]
    unanswered = [probe for probe in found.environment.probes if not probe.answered]
    parts += [Text(f"  not answered: {probe.name}: {probe.problem}", style="dim") for probe in unanswered]
    parts += [Text("\nWays to run a pair", style="bold"), _ways(found.ways)]
    if found.remarks:
        parts += [Text("\nRemarks", style="bold"), *_remarks(found)]
    return Group(*parts, Text(f"\n{_verdict(found)}", style="bold red" if found.exit_code else "bold green"))


def _table(rows: Iterator[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _machine(found: Environment) -> Iterator[tuple[str, str]]:
    yield "system", f"{found.system}, Python {found.python}, {found.cpus} CPUs"
    yield "GPUs", _gpus(found)
    yield "NVIDIA driver", found.driver or NONE
    llm = found.tensorrt_llm
    yield "TensorRT-LLM", f"{llm.version} ({llm.source})" if llm else NONE
    yield "TensorRT", found.tensorrt or NONE
    yield "packages", ", ".join(f"{name} {version or NONE}" for name, version in found.packages.items())
    yield "programs", ", ".join(f"{name} {path}" for name, path in found.tools.items() if path) or NONE
    yield "image", _image(found)
    server = found.server
    yield "Triton", NONE if server is None else "nvidia-pytriton's" if server.kind == "wheel" else str(server.path)
    yield "examples", str(found.examples or NONE)
    yield "free disk", NONE if found.disk_free is None else f"{found.disk_free / 1e9:.0f} GB"


def _gpus(found: Environment) -> str:
    kinds: dict[tuple[str, int | None, int | None, bool], int] = {}
    for gpu in found.gpus:
        key = (gpu.name, gpu.sm, gpu.memory_bytes, gpu.mig)
        kinds[key] = kinds.get(key, 0) + 1
    return "; ".join(_gpu(count, *key) for key, count in kinds.items()) or NONE


def _gpu(count: int, name: str, sm: int | None, memory: int | None, mig: bool) -> str:
    said = [f"{count} × {name}"]
    said += [f"compute capability {sm / 10:.1f}"] if sm else []
    said += [f"{memory / 2**30:.1f} GiB"] if memory else []
    return ", ".join(said + (["MIG"] if mig else []))


def _image(found: Environment) -> str:
    image = found.image
    if image is None:
        return NONE
    holds = [f"TensorRT-LLM {image.tensorrt_llm}"] if image.tensorrt_llm else []
    holds += [f"TensorRT {image.tensorrt}"] if image.tensorrt else []
    return " ".join(filter(None, (image.kind, image.tag))) + (f": {', '.join(holds)}" if holds else "")


def _ways(ways: tuple[Way, ...]) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for way in ways:
        word, style = STATES[way.state]
        version = f" with TensorRT-LLM {way.version}" if way.version and way.state != "closed" else ""
        table.add_row(way.backend, Text(word, style=style).append(version, style=""))
        for (stage, how), whats in _grouped(way).items():
            table.add_row("", Text(f"to {stage}: {', '.join(whats)}").append(f"; {how}", style="dim"))
    return table


def _grouped(way: Way) -> dict[tuple[str, str], list[str]]:
    """What is missing by stage and remedy: one remedy is told once."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for item in way.missing:
        grouped.setdefault((item.stage, item.how), []).append(item.what)
    return grouped


def _remarks(found: Diagnosis) -> Iterator[Text]:
    for remark in found.remarks:
        text = Text(f"  {remark.level}: ", style=LEVELS[remark.level]).append(f"{remark.subject}: {remark.message}")
        yield text.append(f"; {remark.fix}" if remark.fix else "")


def _verdict(found: Diagnosis) -> str:
    if found.config is not None:
        return f"{found.config} ({found.backend}) {'cannot' if found.exit_code else 'can'} be built on this machine"
    written = [way for way in found.ways if way.backend == "pytorch" and way.state == "build-only"]
    usable = [way.backend for way in found.ways if way.state != "closed" and way not in written]
    if usable == ["reference"]:
        return "nothing with TensorRT-LLM runs here, only the reference engine (configs/tiny.yaml); for more, see above"
    if usable:
        return f"usable here: {', '.join(usable)}"
    return "no backend is open: `check`, `plan` and `select` work here all the same; for more, see above"

"""A plan for people: stages with bytes, memory of each GPU, speed-up over draft lengths and load."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.pairing.figures import figures
from trtspec.pairing.memory import gib

COLUMNS = 76
ACTIONS = {"build": "green", "up to date": "dim", "rebuild": "yellow", "unknown": "yellow"}
LOAD = (
    "load: requests in flight; ms and tok/s of the target alone, then the best K and its speed-up. Estimated from "
    "bandwidth and peak arithmetic, without scheduler and host: an upper bound. Measure with `trtspec validate`."
)
WORDS = {"pass": ("pass", "green"), "warn": ("pass with warnings", "yellow"), "fail": ("fail", "red")}


def print_plan(console: Console, document: Mapping[str, Any]) -> None:
    """Write the plan to `console`; `document` is what `--json` prints."""
    console.print(render(document))


def render(document: Mapping[str, Any]) -> RenderableType:
    """All parts that there is something to say about."""
    parts: list[RenderableType] = [_stages(document), *_commands(document)]
    memory, economics = document["memory"], document["economics"]
    if memory is not None:
        parts += _memory(memory, document)
    if economics is not None:
        parts += figures({"economics": economics})
        parts += _load(economics)
    return Group(*parts, _check(document))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table() -> Table:
    return Table(box=None, padding=(0, 1), header_style="dim")


def _stages(document: Mapping[str, Any]) -> Group:
    table = _table()
    longest = max(len(_near(stage["folder"])) for stage in document["stages"])
    table.add_column("folder", overflow="fold", no_wrap=longest <= 40)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("what build does", overflow="fold")
    for stage in document["stages"]:
        word = stage["action"].split(":")[0]
        does = Text(stage["action"], style=ACTIONS.get(word, ""))
        does = does.append(f" ({stage['note']})", style="dim") if stage["note"] else does
        table.add_row(_near(stage["folder"]), _bytes(stage), does)
    return Group(Text(f"Plan of {document['name']}, {document['backend']} backend", style="bold"), table)


def _commands(document: Mapping[str, Any]) -> list[RenderableType]:
    """What is run outside this program, ready to be pasted."""
    stages = [stage for stage in document["stages"] if stage["commands"]]
    parts: list[RenderableType] = [_title("Commands")] if stages else []
    for stage in stages:
        runs = f", {stage['runs']}" if stage["runs"] else ""
        parts.append(Text(f" {stage['title']}{runs}", style="dim"))
        parts += [Text(_pasteable(words), overflow="fold") for words in stage["commands"]]
    return parts


def _pasteable(words: Sequence[str]) -> str:
    """Quoted for a shell, a flag and its values never apart, lines of at most 78 columns where a flag allows it."""
    flags: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            flags.append([])
        flags[-1].append(word)
    lines = [""]
    for flag in map(shlex.join, flags):
        if len(lines[-1]) + len(flag) > COLUMNS:
            lines.append("  ")
        lines[-1] += f"{flag} "
    return "\\\n".join(lines).rstrip()


def _bytes(stage: Mapping[str, Any]) -> str:
    """`8 × 8.46 GiB`, one size, or nothing; `?` where it is not known."""
    files, total = stage["files"], stage["bytes"]
    if not files:
        return ""
    if total is None:
        return "?"
    sizes = {file["nbytes"] for file in files}
    return f"{len(files)} × {gib(sizes.pop())}" if len(sizes) == 1 and len(files) > 1 else gib(total)


def _near(folder: Path | str) -> str:
    """Relative to the current folder where it lies below that."""
    path = Path(folder)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _memory(memory: Mapping[str, Any], document: Mapping[str, Any]) -> list[RenderableType]:
    if "gpus" not in memory:
        weights, caches = sum(memory["weights"].values()), sum(memory["caches"].values())
        return [_title("Memory"), Text(f" weights {gib(weights)}, key-value caches up to {gib(caches)} (CPU)")]
    table = _table()
    for name in ("GPU", "model", "weights", "buffers*", "KV / token", "KV cache", "free"):
        table.add_column(name, justify="left" if name in ("GPU", "model") else "right", no_wrap=True)
    for name, gpu in _alike(memory["gpus"]):
        for i, role in enumerate([r for r in ("target", "draft") if r in gpu]):
            use = gpu[role]
            buffers = use["activations"] + use["logits"] + use["context"]
            cells = [gib(use["weights"]), gib(buffers), f"{use['kv_bytes_per_token'] / 1024:g} KiB"]
            free = "" if i else gib(max(0, gpu["free"]))
            table.add_row("" if i else name, role, *cells, gib(use["kv_cache"]), free)
    hardware = document["hardware"]
    title = f"Memory of {hardware['title']}" if "title" in hardware else f"Memory of one {hardware['gpu']}"
    return [_title(f"{title}, {gib(memory['gpu_memory'])}, {memory['placement']}"), table, _caches(memory)]


def _caches(memory: Mapping[str, Any]) -> Text:
    write = memory["kv_cache"]
    if not memory["cache_tokens"]:
        return Text(
            "No room for any cache: see the check below.\n* estimated: activations, logits, CUDA context.", "dim"
        )
    fractions = ", ".join(f"{r} {write[r]['kv_cache_free_gpu_mem_fraction']:g}" for r in ("target", "draft"))
    bound = " Windowed layers need less: upper bound." if memory["upper_bound"] else ""
    lines = [
        f"{memory['largest_batch']:,} sequences of full length fit at once, or max_batch_size of them with "
        f"{memory['largest_seq_len']:,} tokens each.{bound}",
        f"`build` writes kv_cache_free_gpu_mem_fraction {fractions}; max_tokens_in_paged_kv_cache "
        f"{memory['cache_tokens']} for both (independent of load order).",
        "* estimated: activations, logits, CUDA context.",
    ]
    return Text("\n".join(lines), style="dim")


def _alike(gpus: list[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """GPUs with equal content together: `1-7`."""
    groups: list[tuple[list[int], Mapping[str, Any]]] = []
    for gpu in gpus:
        content = {name: value for name, value in gpu.items() if name != "index"}
        if groups and {n: v for n, v in groups[-1][1].items() if n != "index"} == content:
            groups[-1][0].append(gpu["index"])
        else:
            groups.append(([gpu["index"]], gpu))
    return [(str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}", gpu) for ids, gpu in groups]


def _load(economics: Mapping[str, Any]) -> list[RenderableType]:
    """Speed-up at the best K for each number of requests in flight, and the price where one is given."""
    rows = economics["concurrency"]
    if not rows:
        return []
    shown = _few(list(range(len(economics["alphas"]))))
    table = _table()
    for name in ("load", "ms", "tok/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for i in shown:
        table.add_column(f"α {economics['alphas'][i]:.3g}", justify="right", no_wrap=True)
    priced = economics["price_per_hour"] is not None
    if priced:
        table.add_column("1M alone", justify="right", no_wrap=True)
        table.add_column("1M with", justify="right", no_wrap=True)
    for row in rows:
        cells: list[str | Text] = [f"{row['requests']:,}", f"{row['target_step_ms']:.3g}"]
        cells.append(f"{row['tokens_per_second']['without']:,.0f}")
        cells += [_gain(row["best"][i]) for i in shown]
        table.add_row(*cells, *(_price(row["cost_per_million"], shown) if priced else ()))
    caption = LOAD + (" 1M: price of a million tokens." if priced else "")
    return [_title("Under load"), table, Text(caption, style="dim")]


def _few(items: list[int]) -> list[int]:
    """First, middle and last of many."""
    return items if len(items) <= 3 else [items[0], items[len(items) // 2], items[-1]]


def _gain(best: Mapping[str, Any]) -> Text:
    if not best["k"]:
        return Text("none", style="red")
    return Text(f"K={best['k']} {best['speedup']:.2f}×")


def _price(cost: Mapping[str, Any], shown: list[int]) -> tuple[str, str]:
    low, high = cost["with"][shown[-1]], cost["with"][shown[0]]
    return f"{cost['without']:.3g}", f"{low:.3g}" if low == high else f"{low:.3g}-{high:.3g}"


def _check(document: Mapping[str, Any]) -> Text:
    word, colour = WORDS[document["check"]["verdict"]]
    line = Text("\nCheck: ").append(word, style=f"bold {colour}")
    for finding in document["check"]["findings"]:
        mark, style = ("✗", "red") if finding["severity"] == "error" else ("!", "yellow")
        whose = "" if finding["subject"] == "pair" else f"{finding['subject']}: "
        line.append(f"\n {mark} ", style=style).append(f"{finding['code']}: {whose}{finding['message']}")
    return line.append("\nNothing was written. `trtspec check` explains the findings.", style="dim")

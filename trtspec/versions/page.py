"""docs/versions.md from the tables, so that the page cannot differ from what the program does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trtspec.versions.architectures import ARCHITECTURES, REPORTS
from trtspec.versions.flags import BUILD_FLAGS, NEVER_THERE, Flag
from trtspec.versions.llmapi import SPELLINGS, Spelling
from trtspec.versions.releases import CANDIDATES, CONTAINERS, EVENTS, RELEASES, Release
from trtspec.versions.row import Row
from trtspec.versions.scripts import EXAMPLES, SCRIPTS
from trtspec.versions.table import CONTAINER, DEFAULT, ENGINES, PINNED
from trtspec.versions.tensors import ADDED, RENAMED

MARK = " †"
INTRO = f"""# TensorRT-LLM versions

What differs between the versions that trtspec works with, as the program knows it (`trtspec/versions/`).
`engine.backend: tensorrt` takes {ENGINES}; `pytorch` takes 1.0.0 and newer, and is the only way from 1.3.0rc21 on,
which has no engines. Pinned by default: **{DEFAULT}**, in the Triton containers {PINNED[0].tag} - {PINNED[-1].tag}
(`{CONTAINER}`).

Nothing here was tried on a GPU: it was read. A dagger ({MARK.strip()}) marks what no document of that very version
says: equal in the two source trees that enclose the range (0.17.0.dev2024121700 and 1.3.0rc3), or a conclusion of ours.
`trtspec doctor --deep` compares the flags with those of an installed `trtllm-build`.
"""


def versions_page() -> str:
    """The whole page."""
    return INTRO + "".join(f"\n## {title}\n\n{text}{_table(head, rows)}" for title, text, head, rows in _parts())


Part = tuple[str, str, tuple[str, ...], Iterator[tuple[str, ...]]]


def _parts() -> Iterator[Part]:
    yield from (_releases(), _containers(), _scripts(), _tensors(), _added(), _spellings())
    yield from (_architectures(), _events(), _flags(), _never())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _code(text: object) -> str:
    return f"`{text}`" if text not in (None, "") else ""


def _span(row: Row) -> str:
    return f"{row.span}{MARK if row.inferred else ''}"


def _releases() -> Part:
    head = ("TensorRT-LLM", "engines", "LLM API", "TensorRT", "modelopt", "declared", "what changed for us", "source")
    return "Releases", "", head, map(_release, (*RELEASES, *CANDIDATES))


def _release(row: Release) -> tuple[str, ...]:
    shown = ((name, wanted) for name, wanted in row.requires.items() if name not in ("numpy", "nvidia-modelopt"))
    needs = ", ".join(_code(f"{name} {wanted}") for name, wanted in shown)
    name = f"**{row.name}**" if row.name == DEFAULT else row.name
    said = "; ".join(filter(None, (*row.features, row.note)))
    return (
        f"{name}{MARK if row.inferred else ''}", _yes(row.engines), _yes(row.llm_api), row.tensorrt or "-",
        row.modelopt or "-", needs or "not stated", said, row.source,
    )  # fmt: skip


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _containers() -> Part:
    text = "`nvcr.io/nvidia/tritonserver:<tag>-trtllm-python-py3`; Python 3.12 in all. Driver: that of the release.\n\n"
    head = ("tag", "TensorRT-LLM", "TensorRT", "torch", "CUDA", "driver", "note")
    rows = ((c.tag, c.tensorrt_llm, c.tensorrt, c.torch, c.cuda, c.driver, c.note) for c in CONTAINERS)
    return "Containers", f"{text}Source: {CONTAINERS[0].source}.\n\n", head, rows


def _scripts() -> Part:
    places = ", ".join(f"`{path}`" for path in EXAMPLES)
    text = f"Below the folder of the examples, which the wheel does not hold; looked for in {places}.\n\n"
    head = ("script", "versions", "path", "note", "source")
    return "Scripts", text, head, ((row.name, _span(row), _code(row.path), row.note, row.source) for row in SCRIPTS)


def _tensors() -> Part:
    head = ("meaning", "versions", "name", "note", "source")
    rows = ((row.meaning, _span(row), _code(row.name), row.note, row.source) for row in RENAMED)
    return "Renamed request tensors", "", head, rows


def _added() -> Part:
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in ADDED:
        key = (row.place, ", ".join(map(_code, row.models)), _span(row), row.note, row.source)
        alike.setdefault(key, []).append(_code(row.name))
    rows = ((", ".join(names), *key) for key, names in alike.items())
    text = "Tensors and parameters of Triton's models that not every version has.\n\n"
    return "Tensors and parameters by version", text, ("names", "place", "models", "versions", "note", "source"), rows


def _spellings() -> Part:
    head = ("versions", "`decoding_type`", "draft model", "schedule", "window", "threshold", "note", "source")
    return "LLM API: the `speculative_config` block", "", head, map(_spelling, SPELLINGS)


def _spelling(row: Spelling) -> tuple[str, ...]:
    draft = " or ".join(filter(None, (_code(row.draft_model), _code(row.draft_model_alias))))
    kind = " or ".join(filter(None, (_code(row.decoding_type), _code(row.decoding_type_alias))))
    threshold = f"{_code(row.threshold)} {row.threshold_unit}".strip()
    note = "; ".join(filter(None, (row.schedule_form, row.note)))
    return _span(row), kind, draft, _code(row.schedule), _code(row.window), threshold, note, row.source


def _architectures() -> Part:
    first = (
        (_code(row.name) + (" with partial rotary" if row.partial_rotary else ""), _span(row), row.note, row.source)
        for row in ARCHITECTURES
    )
    reported = ((_code(row.name), "any", row.note, row.source) for row in REPORTS)
    head = ("architecture", "engines with", "note", "source")
    return "Architectures that not every version builds", "", head, (row for rows in (first, reported) for row in rows)


def _events() -> Part:
    return "Deprecated and removed", "", ("since", "what", "source"), iter(EVENTS)


def _flags() -> Part:
    def line(flag: Flag) -> tuple[str, ...]:
        values = ", ".join(flag.choices) or flag.kind
        default = "must be given" if flag.must_pass else "off" if flag.kind == "switch" else _code(flag.default)
        names = ", ".join(map(_code, (flag.option, *(f"--{alias}" for alias in flag.aliases))))
        return names, _span(flag), values, default, flag.note, flag.source

    head = ("flag", "versions", "values", "default", "note", "source")
    rows = (line(flag) for flag in sorted(BUILD_FLAGS, key=lambda flag: flag.name))
    text = (
        "Sources: *older tree* is TensorRT-LLM 0.17.0.dev2024121700, *newer tree* 1.3.0rc3; build.py is "
        "`tensorrt_llm/commands/build.py`, plugin.py `tensorrt_llm/plugin/plugin.py`.\n\n"
        "A flag that a version does not have is refused before anything is started. The defaults of the flags that "
        "must be given changed at a release that is not known, so trtspec always passes them.\n\n"
    )
    return "`trtllm-build` flags", text, head, rows


def _never() -> Part:
    rows = ((_code(f"--{name}"), why) for name, why in NEVER_THERE.items())
    return "Flags that there are none of", "", ("flag", "why"), rows

"""Compare the stand-ins' table of `trtllm-build` with a real installation: run this where TensorRT-LLM is installed.

    python tests/contract/compare_real.py [--program PATH] [--version 1.2.1] [--json]

It starts `trtllm-build --help` (no GPU work), reads arguments, choices and defaults from its text and prints what
differs. Exit code 0: nothing; 1: something, please send it with the version. Never run here: this project's machines
have no TensorRT-LLM.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the project need not be installed there

from tests.contract.standins.rows import ONOFF, Row, rows_of
from tests.contract.standins.table_build import BUILD
from tests.contract.standins.versions import VERSIONS, generations, known

_OPTION = re.compile(r"^  (-\S.*)$")
_DEFAULT = re.compile(r"\(default: (.*?)\)\s*$")


@dataclass(frozen=True)
class Option:
    """One argument as a help text shows it."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    default: str | None


def read_help(text: str) -> dict[str, Option]:
    """Every argument of an argparse help text, by its first long name."""
    found: dict[str, Option] = {}
    blocks: list[str] = []
    for line in text.splitlines():
        if _OPTION.match(line):
            blocks.append(line.strip())
        elif blocks and line.startswith("   "):
            blocks[-1] += "  " + line.strip()
        elif line and not line.startswith(" "):
            blocks.append("")  # a heading ends the block before it
    for block in filter(None, blocks):
        head = block.partition("  ")[0]
        names = tuple(re.findall(r"(?<![\w-])--?[\w-]+", head))
        braces = re.search(r"\{(.*?)\}", head)
        default = _DEFAULT.search(block)
        option = Option(names, tuple(braces[1].split(",")) if braces else (), default[1] if default else None)
        found[next((n for n in names if n.startswith("--")), names[0])] = option
    return found


def differences(real: Mapping[str, Option], rows: tuple[Row, ...], version: str) -> Iterator[str]:
    """What a release's table and a help text say differently."""
    table = {row.spellings[0]: row for row in rows}
    for name in sorted(set(real) - set(table) - {"--help"}):
        yield f"{name}: in the program, not in the table ({real[name].names})"
    for name in sorted(set(table) - set(real)):
        yield f"{name}: in the table, not in the program"
    for name in sorted(set(table) & set(real)):
        yield from _one(name, real[name], table[name], version)


def _one(name: str, real: Option, row: Row, version: str) -> Iterator[str]:
    if set(real.names) != set(row.spellings):
        yield f"{name}: spelled {real.names}, in the table {row.spellings}"
    choices = ONOFF if row.kind == "onoff" else tuple(map(str, row.choices))
    # The kinds of KV cache are words for a function there, which a help text does not list.
    if name != "--kv_cache_type" and set(real.choices) != set(choices):
        yield f"{name}: choices {real.choices}, in the table {choices}"
    wanted = {str(row.value(generation)) for generation in generations(version)}
    if not row.unset and real.default is not None and real.default not in wanted:
        yield f"{name}: default {real.default}, in the table {' or '.join(sorted(wanted))}"


def compare(program: str, version: str) -> list[str]:
    """Start the program for its help and compare."""
    # A wide page: argparse breaks lines where the terminal ends.
    environment = {**os.environ, "COLUMNS": "10000"}
    done = subprocess.run([program, "--help"], env=environment, capture_output=True, text=True, check=True, timeout=300)
    return list(differences(read_help(done.stdout), rows_of(BUILD, version), version))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="trtllm-build")
    parser.add_argument("--version", help=f"one of {', '.join(VERSIONS)}; the installed package's by default")
    parser.add_argument("--json", action="store_true", help="also the whole table, as JSON")
    args = parser.parse_args()
    try:
        version = known(args.version or installed("tensorrt_llm"))
    except (PackageNotFoundError, ValueError) as error:
        parser.error(str(error) or "TensorRT-LLM is not installed; give --program and --version")
    found = compare(args.program, version)
    if args.json:
        table = [asdict(row) | {"late_default": repr(row.late_default)} for row in rows_of(BUILD, version)]
        print(json.dumps({"version": version, "differences": found, "table": table}, default=str, indent=1))
    else:
        print("\n".join([f"trtllm-build {version}: {len(found)} differences", *found]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

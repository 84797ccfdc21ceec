"""trtspec gate: judge a result that was measured before."""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import json_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("result", type=FILE)
@click.option(
    "--gates", "gates_path", type=FILE, help="YAML with the rules: a `gates` block, or its keys. Default: ours."
)
@click.option("--baseline", type=FILE, help="A result that this one must not fall behind.")
@click.option("--twin", type=FILE, help="A result of the same pair whose draft is not quantized.")
@click.option(
    "--allow-different",
    multiple=True,
    metavar="KEY",
    help="Compare although this condition differs, such as gpu, datasets or versions. Repeatable.",
)
@json_option
def gate(
    result: Path,
    gates_path: Path | None,
    baseline: Path | None,
    twin: Path | None,
    allow_different: tuple[str, ...],
    as_json: bool,
) -> int:
    """Judge RESULT, a result.json, a report.json or a folder with one, by rules on its numbers.

    Nothing is measured and nothing is drawn at random: the same files give the same verdict. docs/gates.md says what
    each rule reads, why it is there, and what to do when it fails.

    Exit 0 pass, 1 a rule says no, 6 the evidence is invalid, not comparable, or cannot decide.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.config import load_gates
    from trtspec.config.gates import Gates
    from trtspec.errors import ConfigError
    from trtspec.release.gates import judge
    from trtspec.release.report import result_at
    from trtspec.release.terminal import gate_table

    if allow_different and baseline is None and twin is None:
        raise ConfigError("--allow-different is about a --baseline or a --twin", fix="name one, or leave it out")
    gates = Gates() if gates_path is None else load_gates(gates_path)
    before, other = (None if path is None else result_at(path) for path in (baseline, twin))
    judged = result_at(result)
    judgement = judge(judged, gates, before, twin=other, allow_different=allow_different)
    out = console(as_json)
    out.print(f"{judged.pair}: {judged.conditions.summary()}", markup=False, soft_wrap=True)
    out.print(gate_table(judgement))
    out.print(judgement.headline(), markup=False, soft_wrap=True)
    if as_json:
        document = {"result": result, "baseline": baseline, "twin": twin, "gates": gates.model_dump(mode="json")}
        print_json({"verdict": judgement.verdict, **document, "judgement": judgement.model_dump(mode="json")})
    return judgement.exit_code

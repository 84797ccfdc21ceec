"""trtspec policy: from results, the K for each domain and load, and the files that tell a server so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtspec.cli._options import json_option

if TYPE_CHECKING:
    from trtspec.measurement.result import ResultDocument
    from trtspec.release.policies.study import Study

FORMATS = ("serving", "llmapi", "vllm", "table")
FILES = {"serving": "policy.json", "llmapi": "llmapi.yaml", "vllm": "vllm.json", "table": "policy.csv"}


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="RESULT…", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the files into this folder.")
@click.option(
    "--format",
    "formats",
    type=click.Choice(FORMATS),
    multiple=True,
    help="serving: the pipeline's policy.json. llmapi: draft_len_schedule. vllm: keys of --speculative-config. table: "
    "every K as CSV. Repeatable; default: all that can be written.",
)
@click.option("--predicted", is_flag=True, help="Take predictions where they promise more than what was measured.")
@json_option
def policy(
    results: tuple[Path, ...], out: Path | None, formats: tuple[str, ...], predicted: bool, as_json: bool
) -> int:
    """Which K for which domain at which load: from a result, several, or the folder of `measure --k`.

    What was measured decides. From acceptance by position and step times the speed-up of other K is predicted, with
    its interval, and proposed. docs/choosing-k.md says how, and how well.

    Exit 0 written; 6 the results contradict themselves or cannot be compared.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.cli._files import require_writable_folder, write_out
    from trtspec.release.policies.emit import notes
    from trtspec.release.policies.study import study
    from trtspec.release.policies.table import choices_table, options_table, sentences

    if out is not None:
        require_writable_folder(out)
    found = study(_read(results))
    texts, problems = _texts(found, formats or FORMATS, strict=bool(formats), predicted=predicted)
    alone = out is None and bool(formats)  # the text of the formats alone on stdout, to be piped
    show = console(as_json or alone)
    show.print(choices_table(found))
    show.print(options_table(found))
    written = {}
    for name, text in texts.items() if out is not None else ():
        assert out is not None
        written[name] = out / FILES[name]
        write_out(written[name], text)
    for line in (*sentences(found), *notes(found, tuple(texts)), *problems):
        show.print(line, markup=False, highlight=False, soft_wrap=True)
    for name, path in written.items():
        show.print(f"Written: {path} ({name})", markup=False, soft_wrap=True)
    if alone and not as_json:
        click.echo("".join(texts.values()), nl=False)
    if as_json:
        print_json({"study": found.model_dump(mode="json"), "files": texts, "written": written, "left_out": problems})
    return 0


def _read(paths: Sequence[Path]) -> list[ResultDocument]:
    from trtspec.release.report import result_at
    from trtspec.workflows.sweep import INDEX, read

    found: list[ResultDocument] = []
    for path in paths:
        found += read(path) if (path / INDEX).is_file() else [result_at(path)]
    return found


def _texts(study: Study, formats: Sequence[str], *, strict: bool, predicted: bool) -> tuple[dict[str, str], list[str]]:
    """By format; what cannot be written is an error where it was asked for by name, else a line."""
    from trtspec.errors import EvidenceError

    texts: dict[str, str] = {}
    problems: list[str] = []
    for name in formats:
        try:
            texts[name] = _text(study, name, predicted)
        except EvidenceError as error:
            if strict:
                raise
            problems.append(f"{name}: {error}")
    return texts, problems


def _text(study: Study, name: str, predicted: bool) -> str:
    import json

    import yaml

    from trtspec.release.policies import emit

    if name == "table":
        return _csv(study)
    made: dict[str, Any] = getattr(emit, name)(study, predicted=predicted)
    if name == "llmapi":
        return str(yaml.safe_dump(made, sort_keys=False))
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _csv(study: Study) -> str:
    """Every domain, load and K; empty cells were not measured."""
    import csv
    import io

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    ends = ("", "_low", "_high")
    rows.writerow(["domain", "in_flight", "k", *(f"{n}{e}" for n in ("measured", "predicted") for e in ends), "chosen"])
    for choice in study.choices:
        for option in choice.options:
            gains = (option.measured, option.predicted.speedup if option.predicted else None)
            cells = [
                "" if value is None else f"{value:.4f}"
                for g in gains
                for value in ((None, None, None) if g is None else (g.point, g.low, g.high))
            ]
            rows.writerow([choice.domain, choice.concurrency, option.k, *cells, int(option.k == choice.k)])
    return text.getvalue()

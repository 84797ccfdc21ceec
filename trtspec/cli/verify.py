"""trtspec verify: is what is deployed what was published and validated?"""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import json_option


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--record", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A release's record.json.")
@click.option("--key", type=click.Path(path_type=Path, exists=True), help="Check signatures by this public key.")
@click.option("--identity", help="Check signatures by the signer's identity (Sigstore); needs --issuer.")
@click.option("--issuer", help="Who vouches for the identity, an address.")
@json_option
def verify(
    folder: Path, record: Path | None, key: Path | None, identity: str | None, issuer: str | None, as_json: bool
) -> int:
    """Read every file of DIR again and say which differ, are missing, or were never published.

    DIR is a Triton repository, an engine or a checkpoint that `build` wrote, or a report folder of `validate`: then its
    reports, the repository, the serving policy and the engines are read against the release record.

    Exit 0 all is as it was published, 1 something differs or a signature does not hold.
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.release.signing import Trust
    from trtspec.workflows.verify import verify as run

    trust = Trust(key, identity, issuer) if key or identity or issuer else None
    out = console(as_json)
    with ConsoleReporter(out) as reporter:
        found = run(folder, record, trust, reporter)
    for fault in found.faults:
        out.print(f"{fault.folder}: {fault}", markup=False, soft_wrap=True)
    for note in found.notes:
        out.print(f"note: {note}", markup=False, soft_wrap=True)
    for tool in found.signed:
        out.print(f"signature by {tool}: holds", markup=False)
    count, read = len(found.faults), len(found.folders)
    said = f"{count} file{'s are' if count != 1 else ' is'} not as published" if count else "Everything is as published"
    if found.absent and not count:
        said = f"What is here is as published; {found.absent} of the deployed folders are not here"
    out.print(f"{said} ({read} folder{'s' if read != 1 else ''} read)")
    if as_json:
        print_json(found.as_dict())
    return found.exit_code

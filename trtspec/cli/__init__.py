"""The command line: one file per verb; each parses, calls one workflow and prints. Errors become exit codes here."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Entry point. Ctrl-C while Python is still importing ends as quietly as it does later."""
    try:
        from trtspec.cli._main import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()

"""The command line: one file per verb; each parses, calls one workflow and prints. Errors become exit codes here."""

from trtspec.cli._main import cli, main

__all__ = ["cli", "main"]

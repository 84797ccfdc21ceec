"""The `trtspec` group, and the one place that turns errors into exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click

from trtspec import __version__
from trtspec.cli.build import build, convert, engine, repo
from trtspec.cli.check import check
from trtspec.cli.configuration import config, schema
from trtspec.cli.serve import serve
from trtspec.cli.validate import validate
from trtspec.errors import TrtspecError

INTERRUPTED = 130
INTERNAL = 70  # EX_SOFTWARE: a fault of trtspec itself

HELP = """Build, serve and validate a draft/target pair for speculative decoding.

One YAML file names the pair. The first minute, on any machine:

\b
  trtspec check configs/tiny.yaml      will this pair work, and will it pay?
  trtspec build configs/tiny.yaml      check → convert → engines → Triton repository
  trtspec validate configs/tiny.yaml   serve it, measure it, pass or block the release

\b
Exit codes: 0 good; 1 a check or gate says no; 2 bad usage or config; 3 the machine lacks something;
4 a build failed; 5 serving failed; 6 the evidence is invalid or undecided; 130 interrupted.
"""


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="trtspec")
def cli() -> None:
    """The group; its help text is HELP."""


for command in (check, build, validate, serve, convert, engine, repo, config, schema):
    cli.add_command(command)


def main() -> NoReturn:
    """Entry point: run the command line and exit with the documented code."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; prints one line for an error, never a traceback."""
    try:
        result = cli.main(arguments, prog_name="trtspec", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.exceptions.Abort):
        print("trtspec: interrupted", file=sys.stderr)
        return INTERRUPTED
    except TrtspecError as error:
        _report(error, as_json="--json" in arguments)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _internal(error)


def _report(error: TrtspecError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(error.as_dict()))
    print(f"trtspec: {error}", file=sys.stderr)
    if "TRTSPEC_DEBUG" in os.environ:
        traceback.print_exc()


def _internal(error: Exception) -> int:
    print(f"trtspec: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    if "TRTSPEC_DEBUG" in os.environ:
        traceback.print_exc()
    else:
        print("This is a fault of trtspec. TRTSPEC_DEBUG=1 shows where; please report it.", file=sys.stderr)
    return INTERNAL


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that every `finally` on the way out stops its server and removes its partial folder.
    del frame
    raise SystemExit(128 + signum)

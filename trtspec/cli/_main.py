"""The `trtspec` group, and the one place that turns errors into exit codes."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from trtspec import __version__
from trtspec.cli._verbs import Verbs
from trtspec.errors import ConfigError, MissingError, TrtspecError

INTERRUPTED = 130
TERMINATED = 143
INTERNAL = 70  # EX_SOFTWARE: a fault of trtspec itself


class Terminated(BaseException):
    """SIGTERM as an exception, so that every `finally` on the way out stops its server and removes its partials."""


HELP = """Build, serve and validate a draft/target pair for speculative decoding.

One YAML file names the pair. The first minute, on any machine:

\b
  trtspec check configs/tiny.yaml      will this pair work, and will it pay?
  trtspec build configs/tiny.yaml      check → convert → engines → Triton repository
  trtspec validate configs/tiny.yaml   serve it, measure it, pass or block the release

\b
Exit codes: 0 good; 1 a check or gate says no; 2 bad usage or config; 3 the machine lacks something;
4 a build failed; 5 serving failed; 6 the evidence is invalid or undecided; 130 interrupted;
143 terminated; 70 a fault of trtspec itself.
"""


@click.group(cls=Verbs, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="trtspec")
def cli() -> None:
    """The group; its help text is HELP."""


def main() -> NoReturn:
    """Entry point: run the command line and exit with the documented code."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # α and × on a terminal that has only ASCII
    code = run(sys.argv[1:])
    # Python's last look for garbage is most of the way out; on a busy machine that is seconds behind the last server.
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; prints one line for an error, never a traceback."""
    as_json = "--json" in arguments
    try:
        result = cli.main(arguments, prog_name="trtspec", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return _document(as_json, ConfigError(error.format_message()), 2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        print("trtspec: interrupted", file=sys.stderr)
        return _document(as_json, TrtspecError("interrupted"), INTERRUPTED)
    except Terminated:
        print("trtspec: terminated", file=sys.stderr)
        return _document(as_json, TrtspecError("terminated"), TERMINATED)
    except TrtspecError as error:
        return _report(error, as_json)
    except BrokenPipeError:
        # The reader of our output went away (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A full disk, a folder that may not be written: no fault of ours, wherever it is noticed.
        if error.strerror and not isinstance(error, ConnectionError | TimeoutError):
            return _report(_of_the_machine(error), as_json)
        return _internal(error, as_json)
    except Exception as error:
        return _internal(error, as_json)


def _of_the_machine(error: OSError) -> MissingError:
    return MissingError(f"a file cannot be used: {error.strerror}", where=error.filename)


def _report(error: TrtspecError, as_json: bool) -> int:
    print(f"trtspec: {error}", file=sys.stderr)
    if "TRTSPEC_DEBUG" in os.environ:
        _print_traceback()
    return _document(as_json, error, error.exit_code)


def _document(as_json: bool, error: TrtspecError, code: int) -> int:
    if as_json:
        import json

        print(json.dumps(error.as_dict() | {"exit_code": code}))
    return code


def _internal(error: Exception, as_json: bool) -> int:
    print(f"trtspec: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    if "TRTSPEC_DEBUG" in os.environ:
        _print_traceback()
    else:
        print("This is a fault of trtspec. TRTSPEC_DEBUG=1 shows where; please report it.", file=sys.stderr)
    return _document(as_json, TrtspecError(f"internal error: {type(error).__name__}: {error}"), INTERNAL)


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    del signum, frame
    raise Terminated

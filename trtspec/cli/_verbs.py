"""The verbs, loaded when they are called: `trtspec --help` is as quick as a program that has none."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import NamedTuple

import click


class Verb(NamedTuple):
    """Where a verb is, and what it does in a line of `--help`."""

    module: str
    help: str


VERBS: dict[str, Verb] = {
    "check": Verb("check", "Will this pair work, and will it pay? From files alone."),
    "select": Verb("select", "Which draft for this target? The decision matrix."),
    "plan": Verb("plan", "What `build` would do: bytes, memory, speed-up, cost."),
    "profile": Verb("profile", "Measure acceptance before anything is built."),
    "build": Verb("build", "Check, convert, build engines, write the repository."),
    "measure": Verb("measure", "Measure what is served: acceptance, speed, exactness."),
    "validate": Verb("validate", "Serve it, measure it, pass or block the release."),
    "gate": Verb("gate", "Judge a result: pass, fail, or not decided."),
    "policy": Verb("policy", "Which K for which domain and load, as a server's policy."),
    "report": Verb("report", "Write the reports of a result again."),
    "compare": Verb("compare", "Two results side by side."),
    "verify": Verb("verify", "Is what is deployed what was published and validated?"),
    "serve": Verb("serve", "Serve the built repository until Ctrl-C."),
    "generate": Verb("generate", "Ask the served pair: text, acceptance, speed."),
    "convert": Verb("convert", "Only convert weights to TensorRT-LLM checkpoints."),
    "quantize": Verb("quantize", "Only quantize, calibrating where a format needs it."),
    "engine": Verb("build", "Only build engines from the checkpoints."),
    "repo": Verb("build", "Only write the Triton repository."),
    "lint": Verb("lint", "Engines and repository against each other, from files."),
    "doctor": Verb("doctor", "What this machine can do, and what it lacks."),
    "migrate": Verb("migrate", "A tensorrt configuration as one for the LLM API."),
    "export": Verb("export", "The pair in the words of another server: vLLM."),
    "config": Verb("configuration", "Print the resolved configuration."),
    "schema": Verb("configuration", "Print the JSON Schema of a configuration or result."),
    "draft": Verb("draft", "Make a draft of a target: early exit or distillation."),
    "verify-checkpoint": Verb("verify_checkpoint", "Compare a checkpoint with the model it was made from."),
}
"""Name → where and what, in the order of `--help`: one line adds a verb."""


def verb(name: str) -> click.Command:
    """The command of this name; its module is imported now."""
    module = import_module(f"trtspec.cli.{VERBS[name].module}")
    command: click.Command = getattr(module, name.replace("-", "_"))
    return command


class Verbs(click.Group):
    """A group that knows its verbs by name only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the road, not of the alphabet."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the verb; None for a name that is none."""
        del ctx
        return verb(cmd_name) if cmd_name in VERBS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual; an unknown name brings the nearest known one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(VERBS)}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of `--help`, without importing a verb."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in VERBS.items()])

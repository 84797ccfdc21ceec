"""The CI files that docs/ci.md offers: valid by the public schemas, and every command in them is one of ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.conftest import PROJECT
from tests.deploy.validators import accepts, run
from trtspec.cli._verbs import VERBS, verb

GITHUB = PROJECT / "docs" / "ci" / "github-actions.yml"
GITLAB = PROJECT / "docs" / "ci" / "gitlab-ci.yml"
PAGES = ("ci.md", "reports.md", "record.md")


def github() -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    loaded: dict[Any, Any] = yaml.safe_load(GITHUB.read_text())
    return {("on" if key is True else str(key)): value for key, value in loaded.items()}


def gitlab() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(GITLAB.read_text())
    return loaded


def jobs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (job for job in document.values() if isinstance(job, dict) and "script" in job)


def github_lines() -> Iterator[str]:
    for job in github()["jobs"].values():
        for step in job["steps"]:
            yield from str(step.get("run", "")).splitlines()


def gitlab_lines() -> Iterator[str]:
    for job in jobs(gitlab()):
        yield from job["script"]


def page_lines() -> Iterator[str]:
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", (PROJECT / "docs" / page).read_text(), re.DOTALL):
            yield from block.splitlines()


LINES = sorted({line.strip() for line in (*github_lines(), *gitlab_lines(), *page_lines()) if "trtspec " in line})


def parsed(line: str) -> None:
    """By the command itself, without looking whether the files are there."""
    program, name, *words = shlex.split(line)
    assert program == "trtspec"
    command = verb(name)
    context = click.Context(command, info_name=name)
    values, left, _ = command.make_parser(context).parse_args(words)
    assert left == []
    for parameter in command.params:
        given = values.get(parameter.name or "")
        given = given if isinstance(given, str | list | tuple | bool) else None  # click has its own word for "unset"
        assert given is not None or not parameter.required, f"{line}: {parameter.name} is missing"
        choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else None
        assert given is None or choices is None or given in choices


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("trtspec ")])
def test_every_command_is_understood(line: str) -> None:
    assert line.split()[1] in VERBS
    parsed(line)


def test_there_are_commands_to_look_at() -> None:
    for lines in (github_lines(), gitlab_lines()):
        verbs = {line.split()[1] for line in lines if line.startswith("trtspec ")}
        assert {"build", "validate", "verify", "doctor"} <= verbs


@pytest.mark.parametrize("line", ["trtspec validate", "trtspec verify a b", "trtspec compare a b --out c"])
def test_a_wrong_command_is_noticed(line: str) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        parsed(line)


def test_public_schemas_accept_them() -> None:
    accepts("check-jsonschema", "--builtin-schema", "vendor.github-workflows", GITHUB)
    accepts("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", GITLAB)


def test_their_scripts_are_clean_shell(tmp_path: Path) -> None:
    run("shellcheck", "--version")
    for number, step in enumerate(s for job in github()["jobs"].values() for s in job["steps"] if "run" in s):
        script = tmp_path / f"{number}.sh"
        script.write_text("#!/bin/bash\n" + step["run"])
        accepts("shellcheck", script)


def test_strangers_code_never_reaches_the_gpu_runner_nor_a_writing_token() -> None:
    document = github()
    assert document["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in document["on"]
    gpu, comment = document["jobs"]["gpu"], document["jobs"]["comment"]
    assert gpu["if"] == "github.event_name == 'workflow_dispatch'"
    assert "self-hosted" in gpu["runs-on"]
    assert "head.repo.full_name == github.repository" in comment["if"]
    # What a pull request can name is given as a variable, never pasted into a script.
    assert not [line for line in github_lines() if "${{" in line]
    assert all(rule.get("when") == "manual" for rule in gitlab()["gpu"]["rules"])


def test_reports_are_kept_when_the_verdict_is_bad() -> None:
    uploads = [
        step
        for job in github()["jobs"].values()
        for step in job["steps"]
        if str(step.get("uses", "")).startswith("actions/upload-artifact@")
    ]
    assert len(uploads) == 2
    assert all(step["if"] == "always()" for step in uploads)
    for name in ("smoke", "gpu"):
        kept = gitlab()[name]["artifacts"]
        assert kept["when"] == "always"
        assert kept["reports"]["junit"].endswith("junit.xml")


def test_what_is_cached_is_what_build_writes() -> None:
    (cache,) = [s for s in github()["jobs"]["smoke"]["steps"] if str(s.get("uses", "")).startswith("actions/cache@")]
    for paths in (cache["with"]["path"].split(), gitlab()["smoke"]["cache"][1]["paths"]):
        assert {"engines/tiny", "model_repo/tiny", ".cache/trtspec"} == set(paths)


def test_every_exit_code_of_the_error_tree_is_in_the_page() -> None:
    from trtspec import errors

    codes = {c.exit_code for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TrtspecError)}
    page = (PROJECT / "docs" / "ci.md").read_text()
    for code in codes | {0}:
        assert re.search(rf"^\| {code} \|", page, re.MULTILINE), code

"""Two tables of one tool, written separately: trtspec's and the stand-ins'. Where they differ, one is wrong.

What trtspec says a release accepts must be accepted by the stand-in, with the same values. The stand-in may know
more (arguments that trtspec has no use for).
"""

from __future__ import annotations

from itertools import product

import pytest

from tests.contract.standins import table_scripts, versions
from tests.contract.standins.rows import ONOFF, Row, rows_of
from tests.contract.standins.table_build import BUILD
from tests.contract.standins.versions import ALSO, VERSIONS
from trtspec.versions import NAMES, Flag, version

RELEASES = (*VERSIONS, *ALSO)


def rows(release: str) -> dict[str, Row]:
    """Every spelling of every argument."""
    return {name.lstrip("-"): row for row in rows_of(BUILD, release) for name in row.spellings}


def flags(release: str) -> dict[str, Flag]:
    return dict(version(release).flags)


UNSURE = {"dora_plugin", "pp_reduce_scatter", "visualize_network"}
"""Whose first release nobody found: a tree from between 0.17 and 1.2 has them. trtspec lets a user pass them from the
release it takes that tree for, the stand-in only where a release is documented; trtspec itself passes none of them."""


@pytest.mark.parametrize("release", RELEASES)
def test_no_flag_of_trtspec_is_refused_by_the_stand_in(release: str) -> None:
    assert sorted(set(flags(release)) - set(rows(release)) - UNSURE) == []


@pytest.mark.parametrize("release", RELEASES)
def test_values_agree(release: str) -> None:
    table, wrong = rows(release), []
    for name, flag in flags(release).items():
        row = table.get(name)
        if row is None:
            continue
        mine = ONOFF if row.kind == "onoff" else tuple(map(str, row.choices))
        theirs = tuple(map(str, flag.choices or ()))
        if not set(theirs) <= set(mine) if mine else bool(theirs):
            wrong.append(f"{name}: {theirs} against {mine}")
        if (flag.kind == "switch") != (row.kind == "flag"):
            wrong.append(f"{name}: {flag.kind} against {row.kind}")
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_stand_in_has_of_the_fact_sheet_trtspec_has_too(release: str) -> None:
    listed = {row.spellings[0].lstrip("-") for row in rows_of(BUILD, release) if not row.source}
    assert sorted(listed - set(flags(release))) == []


@pytest.mark.parametrize("release", RELEASES)
def test_tensorrt_agrees(release: str) -> None:
    here, there = versions.tensorrt(release).split("."), (version(release).tensorrt or "").split(".")
    assert all(one == other for one, other in zip(here, there, strict=False))


@pytest.mark.parametrize(("release", "family"), list(product(RELEASES, table_scripts.CONVERTERS)))
def test_places_of_scripts_agree(release: str, family: str) -> None:
    said = {script.path.format(model=family) for script in version(release).scripts if script.name == "convert"}
    assert {f"examples/{path}" for path in said} == {
        f"{folder}/convert_checkpoint.py" for folder in table_scripts.folders(release, family)
    }


def test_every_release_with_engines_has_a_stand_in() -> None:
    assert set(NAMES) <= set(RELEASES)

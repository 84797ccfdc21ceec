"""One line, with everything the reader needs."""

from __future__ import annotations

import pytest

from trtspec import errors
from trtspec.errors import BuildError, MissingError, TrtspecError, context


def test_line_has_where_found_expected_and_fix() -> None:
    error = MissingError("port is taken", where="serving.http_port", found=8000, expected="a free port", fix="use 0")
    assert str(error) == "serving.http_port: port is taken (found 8000, expected a free port); use 0"


def test_context_is_attached_on_the_way_out_and_inner_facts_win() -> None:
    with pytest.raises(BuildError) as caught, context(stage="build", role="target"), context(role="draft", log="a.log"):
        raise BuildError("it broke")
    assert caught.value.context == {"stage": "build", "role": "draft", "log": "a.log"}
    assert str(caught.value) == "[build draft] it broke [log: a.log]"


def test_context_leaves_other_errors_alone() -> None:
    with pytest.raises(ValueError, match=r"^x$"), context(stage="s"):
        raise ValueError("x")


def test_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    """Name and exit code of each branch, as the module's docstring draws them."""
    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        words = line.replace("│", "").replace("├──", "").replace("└──", "").split()
        if len(words) > 2 and words[1] == "exit":
            drawn[words[0]] = int(words[2])
    # A room may refine a branch for itself; what a user meets is the branch.
    classes = {c.__name__: c.exit_code for c in _descendants(TrtspecError) if c.__module__ == errors.__name__}
    assert drawn == classes


def _descendants(cls: type[TrtspecError]) -> set[type[TrtspecError]]:
    found = set(cls.__subclasses__())
    return found.union(*(_descendants(c) for c in found)) if found else found

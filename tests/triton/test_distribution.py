"""What a served pair draws at temperature 1, by distribution. The long form is `python -m benchmarks.distribution`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.distribution import CASES, Case, draw, exact, letter_server
from benchmarks.letterpair import END, LETTERS, ids_of
from trtspec.measurement.distribution import chi_square
from trtspec.triton.client import TritonClient

pytestmark = [pytest.mark.torch, pytest.mark.triton]
SAMPLES = 600


@pytest.fixture(scope="module")
def client() -> Iterator[TritonClient]:
    """The letter pair, served."""
    with letter_server() as found:
        yield found


def test_exact_distribution_is_one_of_all_paths(client: TritonClient) -> None:
    truth = exact(client)
    assert sum(truth.values()) == pytest.approx(1.0)
    # Three tokens, or fewer that end with the end token.
    letters = len(LETTERS)
    assert len(truth) == letters**2 * (letters + 1) + letters + 1
    assert all(len(path) == 3 or path[-1] == END for path in truth)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_first_three_tokens_are_drawn_from_the_target(client: TritonClient, case: Case) -> None:
    drawn = draw(client, case, range(SAMPLES), concurrency=8)
    assert chi_square(drawn.counts, exact(client), SAMPLES).p >= 0.001
    assert chi_square(drawn.counts, exact(client, 2.0), SAMPLES).p < 0.001, "the test could not fail"
    assert (drawn.tested > drawn.accepted > 0) == (case.k > 0)


def test_letters_are_tokens() -> None:
    assert ids_of("ab", ended=False) == (1, 2)
    assert ids_of("g", ended=True) == (7, END)

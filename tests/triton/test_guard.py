"""The guard: it acts on whole windows of live acceptance, and never within its band."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from trtspec.triton.models.tensorrt_llm_bls.guard import Band, Guard

BAND = Band(floor=0.5, recover=0.6, window=100, probe_every=4)
Changes = list[tuple[str, bool, float]]


def _guard(band: Band | None = BAND) -> tuple[Guard, Changes]:
    changes: Changes = []
    return Guard(band, lambda *what: changes.append(what)), changes


def test_low_acceptance_stops_drafts_only_after_a_whole_window() -> None:
    guard, changes = _guard()
    for _ in range(24):
        guard.saw("code", 4, 1)
    assert not guard.stops("code")
    guard.saw("code", 4, 1)
    assert guard.stops("code")
    assert changes == [("code", True, 0.25)]
    assert not guard.stops("prose")


def test_every_fourth_request_probes_and_a_window_of_good_probes_recovers() -> None:
    guard, changes = _guard()
    assert not guard.begins("t")
    guard.saw("t", 100, 10)
    assert [guard.begins("t") for _ in range(8)] == [False, False, False, True] * 2
    for _ in range(2):
        guard.saw("t", 40, 40, probe=True)
    assert guard.stops("t")
    guard.saw("t", 20, 20, probe=True)
    assert not guard.stops("t")
    assert not guard.begins("t")
    assert [change[1] for change in changes] == [True, False]


def test_rounds_of_requests_that_began_before_are_no_probes() -> None:
    guard, _ = _guard()
    guard.saw("t", 100, 10)
    for _ in range(10):
        guard.saw("t", 100, 100)
    assert guard.stops("t")


def test_a_probe_that_is_neither_good_nor_bad_leaves_them_stopped() -> None:
    guard, changes = _guard()
    guard.saw("t", 100, 0)
    for _ in range(10):
        guard.saw("t", 100, 59, probe=True)
    assert guard.stops("t")
    assert len(changes) == 1


def test_old_rounds_leave_the_window() -> None:
    guard, changes = _guard()
    guard.saw("t", 100, 100)
    for _ in range(9):
        guard.saw("t", 10, 0)
    assert changes == []  # what is old still weighs until a whole window is newer
    guard.saw("t", 10, 0)
    assert guard.stops("t")


def test_without_a_band_nothing_is_kept_and_nothing_happens() -> None:
    guard, changes = _guard(None)
    guard.saw("t", 1000, 0)
    assert not guard.stops("t")
    assert not guard.begins("t")
    assert changes == []


ROUNDS = st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1)), max_size=200)


@given(ROUNDS, st.booleans())
def test_within_the_band_nothing_ever_changes(rounds: list[tuple[int, float]], stopped: bool) -> None:
    """Each window's α lies in [floor, recover): neither of the two states is left."""
    guard, changes = _guard(Band(0.5, 1.0, 20, 2))
    if stopped:
        guard.saw("t", 20, 0)
    before = len(changes)
    for tested, share in rounds:
        accepted = min(tested - 1, -(-tested // 2) + int(share * tested / 2)) if tested > 1 else tested
        if tested > 1:
            guard.saw("t", tested, accepted, probe=True)
    assert len(changes) == before


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), max_size=300))
def test_a_change_needs_a_whole_window_and_its_rate_crosses_its_own_line(rounds: list[tuple[int, int, bool]]) -> None:
    guard, changes = _guard(Band(0.5, 0.7, 30, 3))
    since = 0
    for tested, accepted, probe in rounds:
        known = len(changes)
        since += tested
        guard.saw("t", tested, min(tested, accepted), probe)
        if len(changes) > known:
            _, stopped, rate = changes[-1]
            assert since >= 30
            assert stopped is guard.stops("t") is (known % 2 == 0)
            assert rate < 0.5 if stopped else rate >= 0.7
            since = 0


def test_threads_agree_on_one_state() -> None:
    guard, changes = _guard(Band(0.5, 0.6, 10, 1))

    def run(tested: int, accepted: int) -> None:
        for _ in range(500):
            guard.begins("t")
            guard.saw("t", tested, accepted, probe=True)

    threads = [threading.Thread(target=run, args=(4, accepted)) for accepted in (0, 4, 0, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Told outside the lock, so possibly out of order: but as many stops as starts, or one more.
    stops = sum(stopped for _, stopped, _ in changes)
    assert 0 <= 2 * stops - len(changes) <= 1
    assert guard.stops("t") is bool(2 * stops - len(changes))

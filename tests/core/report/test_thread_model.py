"""Predictions of what more threads gain."""

from __future__ import annotations

import pytest

from weft.report.profile import Profile, ProfileRow, Rates
from weft.report.thread_model import BARRIER, THREADS, predictions

COPIES = ((1 << 27, 1e10), (1 << 24, 4e10))
"""Copies of 128 MB at 10 GB/s, and of 16 MB, which a cache holds, at 40."""


def profile_of(*rows: ProfileRow, threads: int | None = 2, host: float = 0.0):
    wall = sum(row.seconds for row in rows) + host
    rates = Rates(COPIES, 1e11)
    return Profile("step", "native", "", 1, wall, wall, wall, rows, rates, threads, ())


def row(one_thread: float | None, items: int | None = None, nbytes: int = 0, calls: float = 1):
    """Return a row that takes 6 ms on two threads."""
    return ProfileRow("add", "kernel", (), (), (), calls, 6e-3, nbytes, 0, one_thread, items)


@pytest.mark.parametrize(
    ("each", "threads", "path"),
    [
        (row(8e-3), 1, 8e-3), (row(8e-3), 2, 4e-3), (row(8e-3), 64, 8e-3 / 64),
        (row(8e-3, items=1), 64, 8e-3), (row(8e-3, items=4), 16, 2e-3),
        (row(8e-3, items=10), 4, 2.4e-3), (row(8e-3, items=3), 2, 8e-3 * 2 / 3),
    ],
)  # fmt: skip
def test_the_critical_path_is_the_longest_share(each: ProfileRow, threads: int, path: float):
    found = {each.threads: each for each in predictions(profile_of(each))}
    assert found[threads].path == pytest.approx(path)
    assert found[threads].memory == 0


def test_barriers_grow_with_threads_and_launches():
    rows = row(8e-3, calls=10), row(8e-3, items=1), row(8e-3)
    for each in predictions(profile_of(*rows)):
        assert each.barriers == pytest.approx(11 * BARRIER * (each.threads - 1))


def test_what_no_cache_holds_moves_like_a_copy():
    large, cached = row(8e-3, nbytes=20_000_000), row(8e-3, nbytes=1_000_000)
    for one, other in zip(
        predictions(profile_of(large)), predictions(profile_of(cached)), strict=True
    ):
        assert one.path + one.memory == pytest.approx(max(2e-3, other.path))
        assert other.memory == 0


def test_the_host_and_what_was_measured():
    found = predictions(profile_of(row(8e-3), row(None), host=1e-3))
    assert [each.threads for each in found] == [1, 2, *THREADS]
    assert all(each.host == pytest.approx(7e-3) for each in found)
    assert found[0].measured == pytest.approx(found[0].call) == pytest.approx(15e-3)
    assert found[1].measured == pytest.approx(13e-3)
    assert all(each.measured is None for each in found[2:])


@pytest.mark.parametrize(("one_thread", "threads"), [(None, 2), (8e-3, None)])
def test_nothing_is_predicted_without_times_on_one_thread(one_thread: float | None, threads: int):
    assert predictions(profile_of(row(one_thread), threads=threads)) == []

"""Recorders: marks become intervals, and what does not fit is still counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.report import recorder as module
from weft.report.recorder import HOST, KERNEL, RESUMED, Event, Recorder

X = weft.placeholder((2,))
OPS = [X + n for n in range(4)]

marks = st.lists(st.tuples(st.integers(RESUMED, 3), st.integers(1, 10**9)), max_size=40)


def filled() -> Recorder:
    recorder = Recorder()
    assert [recorder.row([op]) for op in OPS] == [0, 1, 2, 3]
    return recorder


def test_a_row_is_declared_once_by_its_ops() -> None:
    recorder = Recorder()
    assert recorder.row([OPS[0]], HOST) == 0
    assert recorder.row([OPS[0], OPS[1]], launches=2) == 1
    assert recorder.row([OPS[0]]) == 0
    assert [(row.kind, row.launches) for row in recorder.rows] == [(HOST, 1), (KERNEL, 2)]


@given(steps=marks)
def test_each_mark_ends_an_interval_that_began_at_the_mark_before(
    steps: list[tuple[int, int]],
) -> None:
    recorder, now, expected = filled(), 0, [0.0] * 4
    made = []
    for row, gap in steps:
        now += gap
        made.append((row, now))
        if row != RESUMED and len(made) > 1:
            expected[row] += gap / 1e9
    # In any order, and in parts: they are sorted by their times.
    recorder.add_marks(made[::-1])
    found = recorder.take()
    assert found.seconds == pytest.approx(expected)
    ends = [(row, now / 1e9) for row, now in made[1:] if row != RESUMED]
    assert [(event.row, event.end) for event in found.events] == ends
    assert recorder.take() == module.Recording([], [0.0] * 4, [0] * 4)


@given(steps=marks, capacity=st.integers(1, 10))
def test_what_does_not_fit_counts_in_the_totals(
    steps: list[tuple[int, int]], capacity: int
) -> None:
    recorder, whole = filled(), filled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CAPACITY", capacity)
        for row, time in steps:
            recorder.add(max(row, 0), time / 1e9, 2 * time / 1e9)
        found = recorder.take()
    for row, time in steps:
        whole.add(max(row, 0), time / 1e9, 2 * time / 1e9)
    expected = whole.take()
    assert len(found.events) == min(len(steps), capacity)
    assert found.seconds == pytest.approx(expected.seconds)
    assert found.counts == expected.counts


def test_marks_that_do_not_fit_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPACITY", 8)
    recorder = filled()
    recorder.mark(RESUMED)
    for _ in range(100):
        recorder.mark(0)
    found = recorder.take()
    assert found.counts == [100, 0, 0, 0]
    assert len(found.events) == 8


def test_a_program_that_records_nothing_is_one_row() -> None:
    recorder = Recorder()
    calls: list[object] = []
    run = recorder.around(calls.append, OPS)
    run(1)
    found = recorder.take()
    assert calls == [1]
    assert [row.ops for row in recorder.rows] == [tuple(OPS)]
    assert found.counts == [1]


def test_a_program_that_records_has_the_rows_that_it_declares() -> None:
    recorder = filled()
    recorder.around(lambda: recorder.mark(2), OPS)()
    found = recorder.take()
    assert len(recorder.rows) == 4
    assert found.counts == [0, 0, 1, 0]
    recorder.around(lambda: recorder.add(1, 5.0, 6.0), OPS)()
    assert recorder.take().events == [Event(1, 5.0, 6.0)]


def test_what_is_deferred_is_added_when_it_is_asked_for() -> None:
    recorder = Recorder()
    row = recorder.row([OPS[0]])
    asked = []

    def deliver() -> None:
        asked.append(row)
        recorder.add(row, 1.0, 1.5)

    recorder.defer(deliver)
    assert asked == []
    assert recorder.take().seconds == [0.5]
    assert recorder.take().seconds == [0.0]
    assert asked == [row]

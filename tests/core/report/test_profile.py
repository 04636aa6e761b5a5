"""Profiles: each step has a row, times add up, and nothing is left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, IndexOutOfRange, StateError
from weft.report.profile import Profile, Rates
from weft.report.recorder import HOST
from weft.runtime import profiling
from weft_array_api import ArrayTransformer
from weft_native import executor as native_executor

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)


def training_step() -> tuple[Any, Any, Any]:
    """Return results, the input and a variable of a step that a program of some steps runs."""
    x = weft.placeholder((6, 8), name="x")
    w = weft.variable((8, 8), initial_value=np.eye(8), name="w")
    count = weft.variable((), initial_value=0, name="count")
    loss = weft.mean(weft.softmax(weft.tanh(x @ w)) ** 2)
    factor = weft.cholesky(weft.constant(np.eye(4, dtype="f4")) + 0 * loss)
    updates = [weft.assign(w, w - 0.1 * weft.deriv(loss, w)), weft.assign(count, count + 1)]
    return [loss, factor, weft.doall(updates)], x, (w, count)


def loop_of(times: int) -> tuple[Any, Any]:
    """Return the result of a loop that is not unrolled, and its input."""
    x = weft.placeholder((6, 8), name="x")
    inner = weft.placeholder((6, 8), name="inner")
    graph = weft.capture([weft.cumsum(weft.tanh(inner), inner.axes[0])], [inner], "body")
    return weft.loop(graph, times, x), x


def test_each_step_has_a_row_and_the_times_add_up(transformer: weft.Transformer) -> None:
    results, x, _ = training_step()
    step = transformer.computation(results, x)
    found = step.profile(X, repeat=5)
    assert found.repeat == 5
    assert (found.backend, found.computation) == (transformer.transformer_name, step.name)
    places = {place for row in found.rows for place in row.steps}
    if not isinstance(transformer, ArrayTransformer):  # it computes the graph, not the plan
        assert places == {(0, number) for number in range(len(step.plan.steps))}
        assert sum(row.bytes for row in found.rows) == step.fusion_statistics.bytes_moved
    assert sum(row.flops for row in found.rows) > 2 * 6 * 8 * 8
    assert all(row.calls >= 1 for row in found.rows)
    assert found.device_time + found.host == pytest.approx(found.wall)
    # Kernels take no longer than the call, and what runs at one time does not overlap.
    assert -0.05 * found.wall <= found.overhead < found.wall
    assert found.ordinary > 0
    events = sorted(found.events, key=lambda event: event.start)
    assert len(events) == sum(row.calls for row in found.rows)
    assert all(event.start <= event.end for event in events)
    assert all(one.end <= other.start + 1e-7 for one, other in pairwise(events))
    # All are of the one call whose length is told.
    assert events[0].start >= 0
    assert events[-1].end <= found.call
    assert all(line[0] == __file__ for row in found.rows for line in row.lines)


def test_states_have_the_values_from_before(transformer: weft.Transformer) -> None:
    results, x, states = training_step()
    step = transformer.computation(results, x)
    step(X)
    before = [transformer.get_value(state) for state in states]
    plain = step.source
    step.profile(X, repeat=3)
    for state, value in zip(states, before, strict=True):
        np.testing.assert_array_equal(transformer.get_value(state), value)
    assert step.source == plain
    assert step in transformer.computations
    assert len([made for made in transformer.computations if "inspection" in made.name]) == 0
    step(X)
    assert transformer.get_value(states[1]) == 2


def test_the_body_of_a_loop_counts_each_iteration(transformer: weft.Transformer) -> None:
    result, x = loop_of(7)
    computation = transformer.computation(result, x)
    found = computation.profile(X, repeat=3)
    assert max(row.calls for row in found.rows) >= 7
    bodies = [row for row in found.rows if any(graph for graph, _ in row.steps)]
    if not isinstance(transformer, ArrayTransformer):
        assert bodies
        assert all(row.calls % 7 == 0 for row in bodies)
    # The additions of the cumulative sum, and as many functions.
    assert sum(row.flops for row in found.rows) == 7 * 2 * 48


def test_an_error_in_a_call_leaves_everything_as_it_was(transformer: weft.Transformer) -> None:
    x, at = weft.placeholder((6,), name="x"), weft.placeholder((2,), "int32", name="at")
    calls = weft.variable((), initial_value=0, name="calls")
    weft.assign(calls, calls + 1)
    computation = transformer.computation([weft.take(x, at) * 2, calls], x, at)
    with pytest.raises(IndexOutOfRange):
        computation.profile(X[0, :6], np.array([1, 9], "i4"))
    assert transformer.get_value(calls) == 0
    taken, count = computation(X[0, :6], np.array([1, 2], "i4"))
    np.testing.assert_array_equal(taken, 2 * X[0, 1:3])
    assert count == 1
    assert computation.profile(X[0, :6], np.array([1, 2], "i4"), repeat=2).rows


def test_any_lengths_are_profiled(transformer: weft.Transformer) -> None:
    x = weft.placeholder((weft.symbol("n"), 8), name="x")
    computation = transformer.computation(weft.exp(x) + 1, x)
    found = {n: computation.profile(X[:n], repeat=2) for n in (2, 4)}
    assert [sum(row.flops for row in found[n].rows) for n in (2, 4)] == [32, 64]


@pytest.mark.needs("compiler")
def test_host_work_has_rows_of_its_own() -> None:
    x = weft.placeholder((40, 40), name="x")
    with weft.make_transformer("native") as transformer:
        result = weft.cholesky(x @ weft.swapaxes(x, 0, 1) + 1)
        found = transformer.computation(result, x).profile(np.eye(40), repeat=2)
    kinds = {row.name: row.kind for row in found.rows}
    assert kinds["cholesky"] == HOST
    assert set(kinds.values()) == {HOST, "kernel"}
    host = sum(row.seconds for row in found.rows if row.kind == HOST)
    assert found.host == pytest.approx(found.overhead + host)


@pytest.mark.parametrize("backend", ["native"], indirect=True)
def test_more_launches_than_there_is_room_for_are_counted(
    transformer: weft.Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_executor, "CAPACITY", 10)
    result, x = loop_of(50)
    found = transformer.computation(result, x).profile(X, repeat=2)
    assert len(found.events) < 10
    assert max(row.calls for row in found.rows) >= 50
    assert found.overhead < 0.9 * found.wall


def test_a_backend_without_time_stamps_has_one_row() -> None:
    class Silent(ArrayTransformer):
        transformer_name = "silent"

        @classmethod
        def namespace(cls) -> Any:
            return np

        def transform_ordered_ops(self, program: Any, steps: Any, name: str) -> Any:
            kept, program.recorder = program.recorder, None
            try:
                return super().transform_ordered_ops(program, steps, name)
            finally:
                program.recorder = kept

    results, x, _ = training_step()
    with Silent() as transformer:
        found = transformer.computation(results, x).profile(X, repeat=2)
    (row,) = found.rows
    assert len(row.steps) > 3
    assert row.calls == 1
    assert row.seconds <= found.wall


# Rates of the machine


def test_rates_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(profiling, "_known", {})
    with weft.make_transformer("numpy") as transformer:
        first = profiling.machine_rates(transformer)
        assert first.copy is not None
        assert first.matmul is not None
        assert min(first.copy, first.matmul) > 0
        monkeypatch.setattr(profiling, "_known", {})
        monkeypatch.setattr(profiling, "_rate", lambda *_: pytest.fail("it is measured again"))
        assert profiling.machine_rates(transformer) == first
    with (
        weft.make_transformer("numpy", threads=1) as other,
        pytest.raises(pytest.fail.Exception, match="measured again"),
    ):
        profiling.machine_rates(other)


def test_what_cannot_be_measured_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_known", {})
    monkeypatch.setattr(profiling, "COPY_SIZE", 1 << 13)  # another key in the cache
    x = weft.placeholder((4,), name="x")
    with weft.make_transformer("numpy", memory_limit=1 << 10) as transformer:
        monkeypatch.setattr(transformer, "inspection", _failing(transformer.inspection))
        found = transformer.computation(weft.exp(x), x).profile(np.ones(4), repeat=1)
    assert found.rates == Rates()
    assert "matrix product" not in found.table()


def _failing(inspection: Any) -> Any:
    def inspect(graph: Any, *rest: Any) -> Any:
        if graph.name == "machine_rate":
            raise weft.errors.BackendError("no room")
        return inspection(graph, *rest)

    return inspect


def test_a_copy_of_few_bytes_may_be_faster() -> None:
    rates = Rates(((1000, 10.0), (100, 30.0), (10, 20.0)), 5.0)
    assert rates.copy == 10.0
    found = [rates.copy_of(nbytes) for nbytes in (0, 10, 11, 100, 101, 1000, 9999)]
    assert found == [30.0, 30.0, 30.0, 30.0, 10.0, 10.0, 10.0]
    assert Rates().copy_of(10) is None


def test_the_best_of_several_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([8.0, 4.0, 2.0, 1.99, 1.0])
    monkeypatch.setattr(profiling, "_least_time", lambda *_: next(times))
    with weft.make_transformer("numpy") as transformer:
        x = weft.placeholder((4,), name="x")
        assert profiling._rate(transformer, weft.exp(x), [x], 199) == pytest.approx(100)
    assert next(times) == 1.0


ROWS, WIDTH = 50_000, 16
TABLE, FEW = ROWS * WIDTH * 4, 4 * WIDTH * 4
AT = np.array([0, 1, 2, 4], "int32")
ACCESSES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "take": (lambda table, x: weft.take(table, AT, axis=0), AT.nbytes + 2 * FEW),
    "take along": (
        lambda table, x: weft.take_along_axis(
            table, AT.reshape(4, 1) + 0 * weft.cast(x, "int32"), 0
        ),
        3 * FEW,
    ),
    "update": (lambda table, x: table.at[2:6].set(x), 3 * FEW),
    "scatter": (
        lambda table, x: weft.scatter(table, AT, x, axis=0, reduction="add"),
        AT.nbytes + 3 * FEW,
    ),
}
"""What accesses a few rows of a table, and the bytes of it."""


@pytest.mark.parametrize("backend", ["numpy", "native"], indirect=True)
@pytest.mark.parametrize("what", ACCESSES)
def test_what_is_not_accessed_is_not_counted(transformer: weft.Transformer, what: str) -> None:
    build, nbytes = ACCESSES[what]
    table = weft.placeholder((ROWS, WIDTH), name="table")
    x = weft.placeholder((4, WIDTH), name="x")
    # A value of its own, which is updated in place.
    computation = transformer.computation(build(weft.cumsum(table, 0), x), table, x)
    found = computation.profile(np.ones((ROWS, WIDTH), "f4"), np.ones((4, WIDTH), "f4"), repeat=1)
    words = ("Take", "Scatter", "UpdateSlice")
    touched = [row for row in found.rows if any(name.startswith(words) for name in row.ops)]
    assert [row.bytes for row in touched] == [nbytes]


# What a profile says


@pytest.fixture(scope="module")
def profile(weft_cache_folder: str) -> Profile:
    results, x, _ = training_step()
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(results, x, name='step "<b>"')
        return computation.profile(X, repeat=3)


def test_the_table_has_the_rows_by_time_and_their_sum(profile: Profile) -> None:
    lines = profile.table().splitlines()
    assert 'step "<b>" on numpy' in lines[0]
    times = sorted((row.seconds, row.name) for row in profile.rows)
    places = [next(n for n, line in enumerate(lines) if name in line) for _, name in times[-2:]]
    assert places == sorted(places, reverse=True)
    assert "whole call" in profile.table()
    assert str(profile) == profile.table()
    short = profile.table(1)
    assert f"{len(profile.rows) - 1} more" in short
    assert len(short.splitlines()) < len(lines)
    assert repr(profile).startswith('<Profile of step "<b>" on numpy: ')


def test_the_data_is_json_with_sums_that_agree(profile: Profile) -> None:
    data = json.loads(json.dumps(profile.to_dict()))
    assert data["version"] == 1
    rows = sum(row["seconds"] for row in data["rows"] if row["kind"] != HOST)
    assert rows == pytest.approx(data["device_time"])
    assert data["host"] + data["device_time"] == pytest.approx(data["wall"])
    assert {event[0] for event in data["events"]} == set(range(len(data["rows"])))


REQUIRED = {"name": str, "ph": str, "pid": int, "tid": int}


def test_the_trace_has_the_fields_of_the_format(profile: Profile, tmp_path: Path) -> None:
    profile.to_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert os.listdir(tmp_path) == ["trace.json"]
    events = trace["traceEvents"]
    for event in events:
        assert {name: type(event[name]) for name in REQUIRED} == REQUIRED
        assert event["ph"] in "XM"
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= 0
            assert isinstance(event["cat"], str)
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(profile.events) + 1
    whole = complete[0]
    assert whole["dur"] == profile.call * 1e6
    assert all(each["ts"] + each["dur"] <= whole["dur"] + 1e-3 for each in complete)
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert 'weft: step "<b>" on numpy' in named


def test_no_share_of_the_machine_is_above_all_of_it(profile: Profile) -> None:
    slow = replace(profile, rates=Rates(((1 << 40, 1.0),), 1.0))
    for row in slow.rows:
        figures = slow._figures(row)
        assert "> 100%" in figures
        assert not any(each.endswith("%") and len(each) > 6 for each in figures)


# Bad input


def test_a_trace_that_cannot_be_written_leaves_the_old_one(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(ArgumentError, match="is a folder: name a file in it"):
        profile.to_chrome_trace(tmp_path)
    with pytest.raises(ArgumentError, match="cannot be written: No such file"):
        profile.to_chrome_trace(tmp_path / "missing" / "trace.json")
    monkeypatch.setattr(json, "dumps", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        profile.to_chrome_trace(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["trace.json"]


def test_wrong_uses_are_refused(weft_cache_folder: str) -> None:
    x = weft.placeholder((4,), name="x")
    transformer = weft.make_transformer("numpy")
    computation = transformer.computation(x + 1, x)
    for repeat in (0, -1, 2.5, True):
        with pytest.raises(ArgumentError, match="repeat must be a whole number, at least 1"):
            computation.profile(np.ones(4), repeat=repeat)
    with pytest.raises(ArgumentError, match="was expecting 1 arguments"):
        computation.profile()
    with pytest.raises(weft.errors.AxesError):
        computation.profile(np.ones(5))
    transformer.close()
    with pytest.raises(StateError, match="has been closed: make another one"):
        computation.profile(np.ones(4))


def test_a_graph_without_ops_has_a_profile(transformer: weft.Transformer) -> None:
    x = weft.placeholder((4,), name="x")
    for result in (x, weft.constant(np.ones(3, "f4"))):
        found = transformer.computation([result], x).profile(np.ones(4), repeat=2)
        assert found.wall > 0
        assert found.table()


@pytest.mark.needs("compiler")
def test_native_profiles_have_the_time_on_one_thread() -> None:
    results, x, _ = training_step()
    with weft.make_transformer("native", threads=2) as transformer:
        found = transformer.computation(results, x).profile(X, repeat=2)
    assert found.threads == 2
    assert all(row.one_thread is not None for row in found.rows)
    assert "one thread" in found.table()
    assert all(0 <= (found.waiting(row) or 0) < 1 for row in found.rows)


@pytest.mark.needs("compiler")
def test_one_thread_has_no_other_to_wait_for() -> None:
    results, x, _ = training_step()
    with weft.make_transformer("native", threads=1) as transformer:
        found = transformer.computation(results, x).profile(X, repeat=2)
    assert all(row.one_thread is None for row in found.rows)
    assert "waiting" not in found.table()


WAITING = [(4.0, 1.0, 4, 0.0), (2.0, 1.0, 4, 0.5), (1.0, 1.0, 2, 0.5), (3.0, 1.0, 2, 0.0)]


@pytest.mark.parametrize(("one", "several", "threads", "share"), WAITING)
def test_waiting_is_the_time_that_threads_did_not_save(
    profile: Profile, one: float, several: float, threads: int, share: float
) -> None:
    row = replace(profile.rows[0], seconds=several, one_thread=one)
    assert replace(profile, threads=threads).waiting(row) == share
    assert replace(profile, threads=None).waiting(row) is None

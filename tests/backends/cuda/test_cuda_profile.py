"""Profiles on a GPU that is made up: launches run one by one between two events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import weft
from weft.runtime import profiling

if TYPE_CHECKING:
    from conftest import Maker
    from pretended import Machine

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)


def test_each_launch_is_timed_by_events_and_never_captured(
    make: Maker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "COPY_SIZE", 1 << 10)
    monkeypatch.setattr(profiling, "PRODUCT_SIZE", 32)
    x, y = weft.placeholder((6, 8)), weft.placeholder((8, 8))
    total = weft.variable((), initial_value=0.0)
    result = weft.cumsum(weft.tanh(x) @ y, -1)
    weft.assign(total, total + weft.sum(result))
    transformer = make()
    computation = transformer.computation([result, total], x, y)
    computation(X, np.eye(8, dtype="f4"))
    before = transformer.get_value(total)
    machine.log.clear()
    found = computation.profile(X, np.eye(8), repeat=3)
    assert len(found.events) == sum(row.calls for row in found.rows)
    assert {place for row in found.rows for place in row.steps} == {
        (0, number) for number in range(len(computation.plan.steps))
    }
    # An event before each launch and one after it: one tick of the clock each. Times are floats
    # since the machine was started, so differences are rounded.
    assert [event.end - event.start for event in found.events] == pytest.approx(
        [1e-6] * len(found.events), abs=1e-8
    )
    starts = [event.start - found.events[0].start for event in found.events]
    assert starts == pytest.approx([2e-6 * n for n in range(len(found.events))], abs=1e-8)
    assert transformer.get_value(total) == before
    assert found.rates.copy
    assert found.rates.matmul
    recorded = [entry for entry in machine.log if "capture" in entry]
    ordinary = 1  # the second call of the ordinary program captures its launches
    assert len(recorded) == ordinary

"""Arrays of CuPy as arguments and results, on a GPU that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError

if TYPE_CHECKING:
    from conftest import Maker
    from pretended import Machine

pytestmark = pytest.mark.slow

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def moved(machine: Machine) -> set[str]:
    """How arrays were moved since the last time."""
    found = {each.split()[0] for each in machine.log}
    machine.log.clear()
    return found & {"upload", "download", "copy", "asarray", "asnumpy"}


@pytest.mark.parametrize("donated", [(), (0,)])
def test_results_are_arguments_as_they_are(make: Maker, machine: Machine, donated: Any) -> None:
    step = weft.jit(
        lambda w, x: (w * 2 + x, weft.sum(w)), backend=make(), device=True, donate_argnums=donated
    )
    w, x, wanted = machine.asarray(X), machine.asarray(X + 1), X
    step.lower(w, x).transformer.initialize()
    moved(machine)
    for _ in range(4):
        given, (w, total) = w, step(w, x)
        assert type(w) is type(total) is machine.ndarray
        assert moved(machine) == {"copy"}
        assert machine.asnumpy(total) == wanted.sum()
        wanted = wanted * 2 + X + 1
        np.testing.assert_array_equal(machine.asnumpy(w), wanted)
        assert (given is w) is bool(donated)
        moved(machine)


def test_arrays_of_the_host_are_copied_once(make: Maker, machine: Machine) -> None:
    double = weft.jit(lambda x, y: (x * y, x[:0]), backend=make(), device=True)
    for _ in range(3):
        found, empty = double(X, 2.0)
        np.testing.assert_array_equal(machine.asnumpy(found), X * 2)
        assert empty.shape == (0, 4)


def test_donated_arrays_of_the_host_hold_results(make: Maker) -> None:
    add = weft.jit(lambda a, b: (a + b, weft.cumsum(b, 0)), backend=make(), donate_argnums=(0, 1))
    for _ in range(3):
        a, b = X.copy(), X + 1
        found = add(a, b)
        assert found[0] is a
        assert found[1] is b
        np.testing.assert_array_equal(a, X + X + 1)
        np.testing.assert_array_equal(b, np.cumsum(X + 1, 0))


def test_arrays_by_dlpack_share_their_memory(make: Maker, machine: Machine) -> None:
    double = weft.jit(lambda x: x * 2, backend=make(), device=True)
    mine = machine.asarray(X)
    double(X)
    for kind in (2, 13):
        there = SimpleNamespace(
            array=mine, __dlpack__=lambda: None, __dlpack_device__=lambda kind=kind: (kind, 0)
        )
        moved(machine)
        found = double(there)
        assert moved(machine) == {"copy"}
        np.testing.assert_array_equal(machine.asnumpy(found), X * 2)


def test_arrays_on_another_gpu_are_refused(make: Maker, machine: Machine) -> None:
    double = weft.jit(lambda x: x * 2, backend=make(), device=True)
    mine = machine.asarray(X)
    double(mine)
    mine.device.id = 1
    with pytest.raises(ArgumentError, match="on GPU 1, not on GPU 0"):
        double(mine)
    with pytest.raises(ArgumentError, match=r"is an array on the device.*device=True"):
        weft.jit(lambda x: x * 2, backend=make())(mine)

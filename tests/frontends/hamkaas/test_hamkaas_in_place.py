"""Buffers are written where they lie, whatever else reads them, and hold what they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hamkaas_models import floats, index

from weft.plan.plan import RESULT
from weft_hamkaas import BufferTensor, HamKaasPlugin, InputTensor

ROWS, COLUMNS = 512, 32
BYTES = ROWS * COLUMNS * 4


def parts():
    """Return a buffer, what is new in it, and where that goes."""
    new = InputTensor("new", "float32", [1, COLUMNS])
    ends = InputTensor("begin", "int64", [1]), InputTensor("end", "int64", [1])
    return BufferTensor("float32", [ROWS, COLUMNS]), new, ends


def relu(x: np.ndarray):
    return np.maximum(x, 0)


def beside(buffer: BufferTensor, new: InputTensor, ends: tuple[Any, ...]):
    return buffer[0:1].relu() + buffer.replace(new, *ends)[0:1]


def beside_in_numpy(buffer: np.ndarray, new: np.ndarray, at: int):
    old = relu(buffer[0:1])
    buffer[at] = new
    return old + buffer[0:1]


def of_itself(buffer: BufferTensor, new: InputTensor, ends: tuple[Any, ...]):
    return buffer.replace(buffer[5:6], *ends)[5:6].relu() + new


def of_itself_in_numpy(buffer: np.ndarray, new: np.ndarray, at: int):
    buffer[at] = buffer[5].copy()
    return relu(buffer[5:6]) + new


def twice(buffer: BufferTensor, new: InputTensor, ends: tuple[Any, ...]):
    first = buffer.replace(new, *ends)[0:1].relu()
    return first + buffer.replace(buffer[0:1] + new, 3, 4)[3:4]


def twice_in_numpy(buffer: np.ndarray, new: np.ndarray, at: int):
    buffer[at] = new
    first = relu(buffer[0:1])
    buffer[3] = buffer[0] + new
    return first + buffer[3:4]


def the_buffer(buffer: BufferTensor, new: InputTensor, ends: tuple[Any, ...]):
    return buffer.replace(new, *ends)


def the_buffer_in_numpy(buffer: np.ndarray, new: np.ndarray, at: int):
    buffer[at] = new
    return buffer


CASES = {
    "old beside new": (beside, beside_in_numpy, []),
    "a row of itself": (of_itself, of_itself_in_numpy, []),
    "two writes": (twice, twice_in_numpy, []),
    "the buffer itself": (the_buffer, the_buffer_in_numpy, [RESULT]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_buffer_is_written_where_it_lies(backend: str, case: str):
    build, computed, kinds = CASES[case]
    model = HamKaasPlugin(backend).compile_model(build(*parts()))
    plan = model.computation.plan
    assert plan.arena_size < BYTES / 4
    wholes = [
        step.out.base.kind
        for step in plan.steps
        if step.out.nbytes == BYTES and step.args[0].base is not step.out.base
    ]
    assert wholes == kinds
    expected = np.zeros((ROWS, COLUMNS), np.float32)
    for number, at in enumerate((0, 5, 0, 7)):
        given = {"new": floats(1, COLUMNS, seed=number), "begin": index(at), "end": index(at + 1)}
        found = model.evaluate(given)
        np.testing.assert_allclose(found, computed(expected, given["new"], at), rtol=1e-6)

"""A call allocates nothing but the arrays that the caller gets."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import weft

PYTHON_OBJECTS = 8192
"""Bytes: views of arguments, tuples of arguments, frames and iterators of NumPy 2.2, whatever the
size of the tensors."""


CONVERSION_BUFFER = 8192 * 4
"""NumPy converts between dtypes in pieces of 8192 elements, through a buffer of its own."""


def transient_bytes(computation: weft.Computation, *arguments: Any) -> int:
    """Return what a call allocates beyond its results, in the best of a few calls.

    Other threads of the test run may allocate at the same time, never less than nothing.
    """
    computation(*arguments)
    gc.collect()
    found = []
    tracemalloc.start()
    try:
        for _ in range(5):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            kept = computation(*arguments)
            _, peak = tracemalloc.get_traced_memory()
            found.append(peak - before - sum(np.asarray(value).nbytes for value in kept))
            del kept
    finally:
        tracemalloc.stop()
    return min(found)


def test_a_training_step_allocates_its_results_only():
    x, target = weft.placeholder((64, 100)), weft.placeholder((64, 10))
    w1 = weft.variable((100, 200), initial_value=0.01)
    w2 = weft.variable((200, 10), initial_value=0.01)
    hidden = weft.relu(x @ w1)
    loss = weft.mean(weft.cross_entropy_multi(weft.softmax(hidden @ w2), target))
    with weft.saved_user_deps():
        updates = weft.doall([weft.assign(w, w - 0.1 * weft.deriv(loss, w)) for w in (w1, w2)])
    step = weft.make_transformer("numpy").computation([loss, hidden, updates], x, target)
    images = np.ones((64, 100), np.float32)
    classes = np.ones((64, 10), np.float32)
    limit = PYTHON_OBJECTS + CONVERSION_BUFFER
    assert limit < 64 * 200 * 4, "the smallest temporary of the hidden layer would go unnoticed"
    assert transient_bytes(weft_values(step), images, classes) < limit


def weft_values(computation: Any):
    """Leave out the None of ops without a value."""
    return lambda *arguments: [v for v in computation(*arguments) if v is not None]


def test_a_chain_of_large_elementwise_ops_needs_no_temporaries():
    x = weft.placeholder((100_000,))
    y = x
    for _ in range(10):
        y = weft.tanh(y) * 2 + x
    chain = weft.make_transformer("numpy").computation([y], x)
    assert transient_bytes(chain, np.ones(100_000, np.float32)) < PYTHON_OBJECTS
    assert chain.plan.arena_size == 0


def test_the_measure_notices_an_allocation():
    def wasteful(x: Any):
        return [(x * 2 + x) * 3]

    assert transient_bytes(wasteful, np.ones(100_000, np.float32)) > 100_000


LARGE = {
    "chain": (lambda x: weft.tanh(x * 2 + 1) * x, (1_000_000,)),
    "choice": (lambda x: weft.where(x > 0, x, weft.exp(x)) ** 3, (1_000_000,)),
    "softmax": (lambda x: weft.softmax(x), (1000, 1000)),
    "variance": (lambda x: weft.variance(x), (1_000_000,)),
    "column sums": (lambda x: weft.sum(x * x, axis=0), (4000, 300)),
    "product": (lambda x: weft.relu(x @ x + 1), (700, 700)),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_call_on_large_arrays_allocates_its_result_only(name: str, threads: int):
    build, shape = LARGE[name]
    x = weft.placeholder(shape)
    transformer = weft.make_transformer("numpy", threads=threads)
    call = transformer.computation([build(x)], x)
    limit = PYTHON_OBJECTS + CONVERSION_BUFFER
    assert transient_bytes(call, np.ones(shape, np.float32)) < limit

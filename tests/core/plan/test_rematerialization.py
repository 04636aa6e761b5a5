"""Memory limits: what is computed again, that values stay equal, and what cannot be met."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planned import (
    UNFUSED,
    N,
    computation,
    deep,
    graph_of,
    plan_of,
    run,
    target,
    training_steps,
    with_kernels,
)  # fmt: skip

import weft
import weft_array_api
from weft.errors import ArgumentError, MemoryLimitError
from weft.kernels import FusedOp
from weft.plan.plan import make_plan
from weft.testing.reference import evaluate

pytestmark = pytest.mark.slow

ACTIVATION = 32 * 16 * 4
"""Bytes, of the layers of `deep`."""


def smallest(graph: weft.Graph, to: Any = None):
    """Return the plan with the smallest arena that there is."""
    to = to or target()
    with pytest.raises(MemoryLimitError) as caught:
        make_plan(graph, to, 0)
    return make_plan(graph, to, caught.value.smallest)


def limited(graph: Any, to: Any, limit: Any):
    """Return a plan, or the error that there is none."""
    try:
        return make_plan(graph, to, limit)
    except MemoryLimitError as error:
        return error


def bits(values: tuple[Any, ...]):
    return [np.asarray(value).tobytes() for value in values]


@pytest.mark.parametrize("layers", [16, 64, 256])
def test_the_memory_of_a_deep_gradient_falls_to_its_square_root(layers: int):
    graph = graph_of(*deep(layers))
    free = make_plan(graph, target())
    assert free.peak_live >= layers * ACTIVATION
    least = smallest(graph)
    least.verify()
    assert least.arena_size <= (2 * math.sqrt(layers) + 2) * ACTIVATION
    assert len(least.steps) < len(free.steps) + 3 * 2 * layers, "three more forward computations"


@pytest.mark.parametrize("share", [0.95, 0.75, 0.5, 0.25])
def test_a_limit_is_met_with_the_same_bits_and_no_more_work_than_one_forward(share: float):
    layers = 64
    results, x = deep(layers)
    array = np.linspace(-1, 1, 32 * 16, dtype="f4").reshape(32, 16)
    free = computation(results, x)
    limit = int(free.plan.arena_size * share)
    kept = computation(results, x, memory_limit=limit)
    kept.plan.verify()
    assert kept.plan.arena_size <= limit == kept.plan.memory_limit
    again = len(kept.plan.steps) - len(free.plan.steps)
    assert 0 < again <= 2 * layers
    assert again <= 4 * layers * (1 - share) + 4, "no more than the limit asks for"
    assert bits(kept(array)) == bits(free(array))


def test_a_plan_that_fits_stays_as_it_is():
    graph = graph_of(*deep(8))
    free = make_plan(graph, target())
    for limit in (free.arena_size, 10 * free.arena_size):
        limited = make_plan(graph, target(), limit)
        assert [step.op for step in limited.steps] == [step.op for step in free.steps]


def transformer(layers: Any):
    """Return the loss and gradients of blocks of attention and a network, and their input."""
    x = h = weft.placeholder((2, 16, 32))
    weights = []

    def dense(h: Any, units: Any):
        weights.append(weft.variable((h.shape[-1], units), initial_value=0.05))
        return weft.matmul(h, weights[-1])

    def heads(h: Any):
        return weft.transpose(weft.reshape(dense(h, 32), (2, 16, 4, 8)), (0, 2, 1, 3))

    for _ in range(layers):
        mixed = weft.transpose(weft.attention(heads(h), heads(h), heads(h)), (0, 2, 1, 3))
        h = h + dense(weft.reshape(mixed, (2, 16, 32)), 32)
        h = h + dense(weft.gelu(dense(h, 128)), 32)
    loss = weft.sum(weft.square(h), reduction_axes=range(3))
    return [loss, *(weft.deriv(loss, weight) for weight in weights)], x


@pytest.mark.parametrize(("passes", "share"), [(UNFUSED, 0.33), (None, 0.5)], ids=["ops", "fused"])
def test_the_gradient_of_a_transformer_fits_into_less(passes: Any, share: Any):
    results, x = transformer(6)
    array = np.random.default_rng(0).normal(size=(2, 16, 32)).astype("f4")
    free = weft.make_transformer("numpy", passes=passes).computation(results, x)
    limit = int(free.plan.arena_size * share)
    kept = weft.make_transformer("numpy", passes=passes, memory_limit=limit)
    kept = kept.computation(results, x)
    kept.plan.verify()
    assert kept.plan.arena_size <= limit
    assert bits(kept(array)) == bits(free(array))


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    program=training_steps(),
    share=st.sampled_from([0.9, 0.7, 0.5, 0.3, 0]),
    scratch=st.sampled_from([0, 40, 3000]),
    fuses=st.booleans(),
)
def test_random_programs_keep_their_bits_and_their_limit(
    program: Any, share: Any, scratch: Any, fuses: Any
):
    results, x = program
    plain = graph_of(results, x)
    graph = with_kernels(plain) if fuses else plain
    to = target(alignment=16, workspace=lambda op: scratch)
    free = make_plan(graph, to)
    limit = int(free.arena_size * share)
    plan = limited(graph, to, limit)
    if isinstance(plan, MemoryLimitError):
        assert limit < plan.smallest <= free.arena_size
        assert plan.least <= plan.smallest
        limit = plan.smallest
        plan = make_plan(graph, to, limit)
    assert plan.arena_size <= limit
    plan.verify()
    array = np.random.default_rng(0).normal(size=(N, N)).astype("f4")
    wanted, states = evaluate(plain, [array])
    found, after = run(plan, [array])
    assert bits(found) == bits(wanted)
    assert bits(after[state] for state in states) == bits(states.values())


def test_a_kernel_is_run_again_as_a_whole():
    x = h = weft.placeholder((64, 64))
    for _ in range(8):
        h = weft.sin(h) * 2
        h = h @ h
    loss = weft.sum(weft.square(h), (0, 1))
    graph = with_kernels(graph_of([loss, weft.deriv(loss, x)], x))
    free, least = make_plan(graph, target()), smallest(graph)
    least.verify()
    kernels = [[s.op.kernel for s in p.steps if isinstance(s.op, FusedOp)] for p in (free, least)]
    assert least.arena_size < free.arena_size
    assert len(kernels[1]) > len(kernels[0])
    assert set(kernels[1]) == set(kernels[0])


def test_effects_happen_once_and_what_may_raise_is_not_tried_twice(
    capsys: pytest.CaptureFixture[str],
):
    x = h = weft.placeholder((16, 16))
    for number in range(8):
        h = weft.tanh(h)
        turned = weft.take(h, [15 - place for place in range(16)], 0)
        h = weft.print_op(weft.sin(h), f"layer {number}") @ turned
    loss = weft.sum(weft.square(h), (0, 1))
    results = [loss, weft.deriv(loss, x)]
    graph = graph_of(results, x)
    free, least = make_plan(graph, target()), smallest(graph)
    least.verify()
    assert least.arena_size < free.arena_size
    array = np.eye(16, dtype="f4")
    run(least, [array])
    assert re.findall(r"layer (\d)", capsys.readouterr().out) == list("01234567")
    takes = [[type(s.op).__name__ for s in p.steps].count("TakeOp") for p in (free, least)]
    assert takes[0] == takes[1]


def test_random_numbers_are_the_same_again():
    x = h = weft.placeholder((32, 32))
    for _ in range(6):
        h = weft.dropout(weft.tanh(h @ h), 0.5)
    loss = weft.sum(weft.square(h), (0, 1))
    results = [loss, weft.deriv(loss, x)]
    free = computation(results, x)
    limit = free.plan.arena_size * 2 // 3
    kept = computation(results, x, memory_limit=limit)
    assert len(kept.plan.steps) > len(free.plan.steps)
    array = np.random.default_rng(0).normal(size=(32, 32)).astype("f4")
    for _ in range(2):
        assert bits(kept(array)) == bits(free(array))


def test_a_limit_that_cannot_be_met_says_what_can_and_where():
    results, x = deep(16)
    call = computation(results, x, memory_limit=100)
    with pytest.raises(MemoryLimitError) as caught:
        call(np.ones((32, 16)))
    error = caught.value
    assert isinstance(error, MemoryError)
    message = str(error)
    found = f"memory_limit=100 cannot be met: the smallest arena found has {error.smallest} bytes"
    assert found in message
    assert f"a single op needs {error.least}" in message
    assert re.match(r"\w+Op: ", message)
    assert 'planned.py", line' in message
    assert 100 < error.least < error.smallest
    with pytest.raises(MemoryLimitError):
        plan_of(results, x, limit=error.smallest - 1, alignment=64)
    assert plan_of(results, x, limit=error.smallest, alignment=64).arena_size == error.smallest


def test_another_computation_of_the_same_transformer_is_not_harmed():
    transformer = weft.make_transformer("numpy", memory_limit=1000)
    x = weft.placeholder((8,))
    small = transformer.computation(weft.exp(weft.sum(weft.tanh(x)) + x), x)
    results, y = deep(4)
    large = transformer.computation(results, y)
    with pytest.raises(MemoryLimitError):
        large(np.ones((32, 16)))
    assert small(np.zeros(8)).tolist() == [1] * 8


def test_what_was_compiled_with_another_limit_is_not_found(tmp_path: Path):
    results, x = deep(16)
    array = np.ones((32, 16), "f4")
    free = computation(results, x, cache=tmp_path)
    free(array)
    limit = free.program.arena_size // 2
    for _ in range(2):
        kept = computation(results, x, cache=tmp_path, memory_limit=limit)
        assert bits(kept(array)) == bits(free(array))
        assert kept.program.arena_size <= limit


@pytest.mark.parametrize("limit", [-1, 1.5, "64MB", True, [1]])
def test_a_limit_that_is_no_number_of_bytes_is_refused(limit: Any):
    with pytest.raises(ArgumentError, match="memory_limit is a number of bytes"):
        weft.make_transformer("numpy", memory_limit=limit)


def test_a_limit_may_be_a_whole_number_of_any_kind():
    assert weft.make_transformer("numpy", memory_limit=np.int64(2**20)).memory_limit == 2**20


def test_a_backend_whose_memory_is_not_planned_refuses_a_limit():
    with pytest.raises(ArgumentError, match="memory_limit"):
        weft_array_api.ArrayTransformer(np, memory_limit=2**20)

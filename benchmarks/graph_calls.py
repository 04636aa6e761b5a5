"""Layers as calls of one graph: what a call costs while it runs, and what many cost to compile.

The limits: a call runs the steps that the ops themselves would, and a graph is compiled once, so
that a further call costs the binding of its memory. Each layer has weights of its own, 12 of them.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
from measure import Row, busy, interleaved, main
from models import block, encoder
from models.program import Program

import weft

LAYERS, MANY = 6, 48


def layers(count: int, called: bool = True) -> Program:
    """Return some layers of the encoder, as calls of one graph or as their ops."""
    shape = (encoder.BATCH, encoder.SEQUENCE, block.FEATURES)
    variables: list[Any] = []
    x = y = weft.placeholder(shape)
    inputs = [weft.placeholder(value.shape) for value in block.parameters()]
    inner = weft.placeholder(shape)
    graph = weft.capture([block.block(inner, inputs)], [inner, *inputs], "layer")
    for layer in range(count):
        own = [weft.variable(v.shape, initial_value=v) for v in block.parameters(layer)]
        y = weft.call(graph, y, *own)[0] if called else block.block(y, own)
        variables += own
    return Program(y, (x,), variables)


def compiled_in(make: Callable[[], Program], rounds: int) -> list[float]:
    """Return the seconds that compiling a program takes, some times."""
    taken = []
    for _ in range(rounds):
        gc.collect()
        program = make()
        start = perf_counter()
        program.compiled()[0].initialize()
        taken.append(perf_counter() - start)
    return taken


def with_gradients(count: int) -> Program:
    """Return the gradients of the sum of what some layers yield by all weights."""
    program = layers(count)
    loss = weft.sum(program.results)
    gradients = [weft.deriv(loss, variable) for variable in program.variables]
    return Program([loss, *gradients], program.placeholders, program.variables)


def differentiated_in(count: int, rounds: int) -> list[float]:
    """Return the seconds that deriving the gradients of some layers takes, some times."""
    taken = []
    for _ in range(rounds):
        program = layers(count)
        loss = weft.sum(program.results)
        gc.collect()
        start = perf_counter()
        for variable in program.variables:
            weft.deriv(loss, variable)
        taken.append(perf_counter() - start)
    return taken


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare calls with the ops themselves, and many layers with one."""
    data = encoder.data()
    calls, ops = (layers(LAYERS, called).compiled()[1] for called in (True, False))
    np.testing.assert_allclose(calls(*data), ops(*data), rtol=1e-4, atol=1e-4)
    samples = interleaved({"calls": lambda: calls(*data), "ops": lambda: ops(*data)}, rounds)
    ratio = samples.ratio("calls", "ops")
    yield Row(f"calls over ops, {LAYERS} layers", ratio, "x", 1.02, samples.noise())
    times = max(rounds // 3, 3)
    for what, measured in (
        ("compile", lambda n: compiled_in(lambda: layers(n), times)),
        ("compile with gradients", lambda n: compiled_in(lambda: with_gradients(n), times)),
        ("derive the gradients", lambda n: differentiated_in(n, times)),
    ):
        measured(1)
        one, many = measured(1), measured(MANY)
        ratio = statistics.median(many) / statistics.median(one)
        yield Row(f"{what}, {MANY} layers over one", ratio, "x", 1.5, busy(one))
        yield Row(f"{what}, one layer", statistics.median(one) * 1e3, "ms")


if __name__ == "__main__":
    main(benchmark, rounds=11)

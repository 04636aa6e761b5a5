"""Which loops become kernels that repeat their body, and that these compute the same."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fusing import target
from needs import skip_without_backend

import weft
from weft.kernels import FusedOp
from weft.kernels.verifier import problem
from weft.ops.control.graph_ops import LoopOp
from weft.passes.pipeline import Pipeline
from weft.runtime.compiler import Compiler
from weft.testing.reference import evaluate

A, B = weft.placeholder((8, 40)), weft.placeholder((8, 40))
ROW, COUNTS = weft.placeholder((40,)), weft.placeholder((8, 40), "int32")


def loop(results: Any, *args: Any, count: int = 30) -> list[Any]:
    inputs = [weft.placeholder(x.axes, dtype=x.dtype) for x in args]
    found = weft.loop(weft.capture(list(results(*inputs)), inputs), count, *args)
    return list(found) if isinstance(found, tuple | list) else [found]


REPEATED = {
    "one carried value": loop(lambda a: [weft.tanh(a) * 0.5 + 1], A),
    "two that depend on each other": loop(lambda a, b: [a + b * 0.1, b - a * 0.1], A, B),
    "an operand that stays": loop(lambda a, b: [a * 0.5 + b, b], A, B),
    "results in another order": loop(lambda a, b: [a * b + 1, a - b], B, A),
    "one value for two operands": loop(
        lambda a, b: [a * 0.5 + b * 0.25 + 1, a * 0.5 + b * 0.25 + 1], A, B),
    "one that no iteration reads": loop(lambda a, b: [a * 0.5 + 1, a * 2], A, B),
    "a row for all": loop(lambda a, r: [a * r + 0.1, r], A, ROW),
    "a constant for all": loop(lambda a: [a * np.ones((8, 1), "f4") + 0.1], A),
    "two dtypes": loop(
        lambda a, n: [weft.where(a < 2, a * 1.1 + 0.01, a), n + weft.cast(a < 2, "int32")],
        A, COUNTS),
    "what comes before and after": [
        weft.sum(each, axis=1) for each in loop(lambda a: [a * 0.5 + 1], weft.exp(A))],
}  # fmt: skip

IN_MEMORY = {
    "a stencil": loop(lambda a: [weft.pad(a, ((1, 0), (0, 0)))[:-1] * 0.5 + a], A),
    "a reduction": loop(lambda a: [a / (1 + weft.sum(a * a, axis=1, keepdims=True))], A),
    "a delay": loop(lambda a, b: [b, a * 0.5 + b], A, B),
    "work that would hold an interrupt up": loop(lambda a: [a * 0.5 + 1], A, count=10_000_000),
}


def require(backend: str) -> str:
    """Return a backend; skips the test where it does not work."""
    skip_without_backend(backend)
    return backend


def compiled(results: list[Any], **options: Any) -> Any:
    """Return a graph before and after the passes of a target that repeats kernels."""
    graph = weft.capture(results)
    on = target(**{"repeats_kernels": True, **options})
    return graph, Compiler(Pipeline(None), None).run_passes(graph, on, "a test")


def arrays(graph: Any) -> list[Any]:
    random = np.random.default_rng(0)
    return [
        np.asarray(random.standard_normal(op.axes.shape)).astype(op.dtype) for op in graph.inputs
    ]


@pytest.mark.parametrize("name", REPEATED)
def test_one_kernel_runs_all_iterations(name: str):
    graph, found = compiled(REPEATED[name])
    assert not any(isinstance(op, LoopOp) for op in found.ops)
    assert [op.kernel.count for op in found.ops if isinstance(op, FusedOp)].count(30) == 1
    values = arrays(found)
    for mine, wanted in zip(evaluate(found, values)[0], evaluate(graph, values)[0], strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_these_loops_stay(name: str):
    _, found = compiled(IN_MEMORY[name])
    assert any(isinstance(op, LoopOp) for op in found.ops)


def test_a_target_that_does_not_repeat_kernels_runs_the_loop():
    _, found = compiled(REPEATED["one carried value"], repeats_kernels=False)
    assert any(isinstance(op, LoopOp) for op in found.ops)


@pytest.mark.parametrize("backend", ["native", "opencl", "webgpu", "cupy"])
def test_backends_compute_the_same(backend: str):
    results = [each for found in REPEATED.values() for each in found]
    inputs = (A, B, ROW, COUNTS)
    values = arrays(weft.capture(results, inputs))
    found, wanted = (
        weft.make_transformer(name).computation(results, *inputs)(*values)
        for name in (require(backend), "numpy")
    )
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize("length", [1, 9, 16, 63, 64, 100, 1000])
def test_any_number_of_vectors(length: int):
    x = weft.placeholder((length,))
    (result,) = loop(lambda a: [weft.tanh(a * 1.5) + 0.25], x, count=20)
    values = np.linspace(-1, 1, length, dtype=np.float32)
    found, wanted = (
        weft.make_transformer(name).computation(result, x)(values)
        for name in (require("native"), "numpy")
    )
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_flops_count_every_iteration():
    _, found = compiled(REPEATED["one carried value"])
    (op,) = (op for op in found.ops if isinstance(op, FusedOp))
    assert op.flops == 30 * sum(each.op.flops for each in op.kernel.body)


def test_the_verifier_knows_what_can_be_repeated():
    _, found = compiled(REPEATED["one carried value"])
    (op,) = (op for op in found.ops if isinstance(op, FusedOp))
    wrong = replace(op.kernel, carried=((1, len(op.kernel.values) - 1),))
    assert "cannot be carried" in (problem(wrong) or "")
    _, summed = compiled([weft.sum(weft.exp(A), axis=1)])
    (op,) = (op for op in summed.ops if isinstance(op, FusedOp))
    assert "SumOp, is repeated" in (problem(replace(op.kernel, count=2)) or "")

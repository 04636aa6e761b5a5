"""Simplified and folded arithmetic has the very bits of what the user wrote.

Every rule is tried on every float16 and every 8-bit integer, and on special values of wider dtypes:
signed zeros, infinities, NaN, subnormal numbers, the extremes of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_expression import expression_of

import weft
from weft import plugins
from weft.ir import dtypes
from weft.passes.interface import run_passes
from weft.testing.reference import evaluate

PASSES = ("simple-prune", "constant-folding", "merge-equal")
REAL = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint64")
DTYPES = (*REAL, "complex64")

ARITHMETIC = (weft.add, weft.subtract, weft.multiply, weft.divide, weft.power)
REAL_ARITHMETIC = (weft.mod, weft.floordivide, weft.maximum, weft.minimum, weft.equal, weft.less)


def numbers(dtype: str):
    """Return the numbers at which simplifications go wrong."""
    dtype = dtypes.as_dtype(dtype)
    if dtypes.is_integer(dtype):
        limits = np.iinfo(dtype)
        low, high = limits.min, limits.max
        return [x for x in (0, 1, 2, 3, 10, -1, -2, low, low + 1, high - 1, high) if x >= low]
    if dtype.kind == "c":
        parts = (0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan)
        return [complex(a, b) for a in parts for b in parts]
    limits = dtypes.accumulator_dtype(dtype) if dtype.kind == "V" else dtype
    least, most = (float(getattr(np.finfo(limits), name)) for name in ("tiny", "max"))
    signed = (0.0, 0.5, 1.0, 1 / 3, 2.0, 3.0, least, least / 4, most, np.inf)
    return [sign * x for x in signed for sign in (1, -1)] + [np.nan]


def operands(dtype: str):
    """Return all numbers of a short dtype, the special ones of others."""
    if dtype == "float16":
        return np.arange(2**16, dtype=np.uint16).view(dtype)
    if dtype in ("int8", "uint8"):
        return np.arange(256, dtype=np.uint8).view(dtype)
    return np.array(numbers(dtype), dtypes.as_dtype(dtype))


def arithmetic(dtype: str, x: weft.TensorOp):
    """Return arithmetic with the constants that rules look for."""
    for number in (0, 1, 2) if dtypes.as_dtype(dtype).kind == "u" else (0.0, -0.0, 1, -1, 2):
        c = weft.constant(number, dtype=dtype)
        yield from (x + c, c + x, x - c, x * c, c * x, x / c, x**c, weft.negative(-x), -c)


def expressions(dtype: str, x: weft.TensorOp):
    """Return each function of x and a number, in both orders, and what else is simplified."""
    functions = ARITHMETIC if dtype.startswith("complex") else ARITHMETIC + REAL_ARITHMETIC
    with np.errstate(over="ignore"):
        scalars = [weft.constant(number, dtype=dtype) for number in numbers(dtype)]
    for function in functions:
        for c in scalars:
            yield function(x, c)
            yield function(c, x)
    yield from (-x, weft.negative(-x), weft.square(x), (x - 0) * 1 - 0)
    yield from (-c for c in scalars)


def bits(array: np.ndarray):
    """Return an array's bits, with one pattern for NaN."""
    if array.dtype.kind == "c":
        return bits(np.stack([array.real, array.imag], -1))
    if not dtypes.is_float(array.dtype):
        return array
    array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.view(f"u{array.dtype.itemsize}")


def differences(results: Sequence[Any], before: Sequence[Any], after: Sequence[Any]):
    """Return a line for each result whose bits differ."""
    return [
        f"{op.explain('')}: {a} became {b}"
        for op, a, b in zip(results, before, after, strict=True)
        if not np.array_equal(bits(np.asarray(a)), bits(np.asarray(b)))
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_passes_change_no_bit_of_arithmetic_with_constants(dtype: str):
    values = operands(dtype)
    x = weft.placeholder(values.shape, dtype)
    graph = weft.capture(list(expressions(dtype, x)), [x])
    target = weft.Target("all", supports=lambda op: True)
    after = graph
    for name in PASSES:
        after = plugins.load(plugins.PASSES, name)().do_pass(after, target)
    assert len(after.ops) < len(graph.ops)
    with np.errstate(all="ignore"):
        pairs = [evaluate(each, [values])[0] for each in (graph, after)]
    assert not differences(graph.outputs, *pairs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_backend_gives_the_same_bits_without_passes(backend: str, dtype: str):
    values = operands(dtype)[::257] if dtype == "float16" else operands(dtype)
    x = weft.placeholder(values.shape, dtype)
    with (
        weft.make_transformer(backend) as all_passes,
        weft.make_transformer(backend, passes=["decompose"]) as fewest,
    ):
        if dtype not in all_passes.target.dtypes:
            pytest.skip(f"the backend has no {dtype}")
        results = list(arithmetic(dtype, x))
        pairs = [each.computation(results, x)(values) for each in (all_passes, fewest)]
    assert not differences(results, *pairs)


@pytest.mark.parametrize("count", [0, 1, 3, 300, 2049, 70_000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_of_a_constant_is_that_of_its_elements(dtype: str, count: int):
    with np.errstate(all="ignore"):
        scalars = [weft.constant(number, dtype=dtype) for number in (0, 1, -0.0, 3)]
    sums = [weft.sum(weft.broadcast(c, (2, count)), 1) for c in scalars]
    graph = weft.capture(sums)
    target = weft.Target("all", supports=lambda op: True)
    pruned = plugins.load(plugins.PASSES, "simple-prune")().do_pass(graph, target)
    assert not differences(sums, evaluate(graph)[0], evaluate(pruned)[0])


def test_the_reciprocal_of_a_negative_zero_plus_zero_is_infinity(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    results = [1 / (x + 0.0), 1 / (x - 0.0), 1 / (x + -0.0)]
    found = transformer.computation(results, x)([-0.0, 0.0])
    assert np.array(found).tolist() == [[np.inf] * 2, [-np.inf, np.inf], [-np.inf, np.inf]]


TARGET = weft.make_transformer("numpy").target


def pruned(result: weft.TensorOp, *parameters: Any, fast_math: bool = False):
    """Return the graph that SimplePrune makes of an op."""
    graph = weft.capture([result], parameters)
    passes = [plugins.load(plugins.PASSES, "simple-prune")()]
    return run_passes(graph, passes, replace(TARGET, fast_math=fast_math))


def prune_cases():
    x = weft.placeholder((2, 3), name="x")
    d = weft.placeholder((2, 3), name="d")
    i = weft.placeholder((2, 3), "int32", name="i")
    c = weft.constant
    repeated = weft.broadcast(c(2), (4,))
    return {
        "x+0": (x + 0, "AddOp(x, 0)", "x"),
        "0+x": (0 + x, "AddOp(0, x)", "x"),
        "x+-0": (x + -0.0, "x", "x"),
        "x-0": (x - 0, "x", "x"),
        "x--0": (x - -0.0, "SubtractOp(x, -0)", "x"),
        "i+0": (i + 0, "i", "i"),
        "0-i": (0 - i, "NegativeOp(i)", "NegativeOp(i)"),
        "0-x": (0 - x, "SubtractOp(0, x)", "SubtractOp(0, x)"),
        "x*1": (x * 1, "x", "x"),
        "1*x": (1 * x, "x", "x"),
        "x*-1": (x * -1, "NegativeOp(x)", "NegativeOp(x)"),
        "-1*x": (-1 * x, "NegativeOp(x)", "NegativeOp(x)"),
        "x/1": (x / 1, "x", "x"),
        "-(const)": (-c(2), "-2", "-2"),
        "-(-x)": (-weft.negative(x), "x", "x"),
        "sum(const)": (weft.sum(repeated), "8", "8"),
        "0*x": (0 * x, "MultiplyOp(0, x)", "BroadcastOp(0)"),
        "x*0": (x * 0, "MultiplyOp(x, 0)", "BroadcastOp(0)"),
        "log(exp x)": (weft.log(weft.exp(x)), "LogOp(ExpOp(x))", "x"),
        "log(exp x / d)": (
            weft.log(weft.exp(x) / d),
            "LogOp(DivideOp(ExpOp(x), d))",
            "SubtractOp(x, LogOp(d))",
        ),
        "nested": (((x - 0) * 1 + -0.0) * -1 * -1, "x", "x"),
        "nested, scalars": (weft.sum(weft.broadcast(-weft.negative(c(3)), (2,))) * 1, "6", "6"),
        "unrelated": (x + d, "AddOp(x, d)", "AddOp(x, d)"),
    }, (x, d, i)


@pytest.mark.parametrize("fast_math", [False, True], ids=["exact", "fast_math"])
@pytest.mark.parametrize("case", prune_cases()[0])
def test_what_is_simplified_is_an_operand_or_a_constant(case: str, fast_math: bool):
    cases, parameters = prune_cases()
    result, exact, fast = cases[case]
    graph = pruned(result, *parameters, fast_math=fast_math)
    assert expression_of(graph) == (fast if fast_math else exact)
    (output,) = graph.outputs
    assert (output.axes, output.dtype) == (result.axes, result.dtype)


def test_zero_times_infinity_is_not_pruned_to_zero(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    assert np.isnan(transformer.computation(0 * x, x)([np.inf, np.nan])).all()


def test_a_sum_that_overflows_stays():
    huge = weft.broadcast(weft.constant(3e38), (4,))
    assert expression_of(pruned(weft.sum(huge))) == "SumOp(BroadcastOp(3e+38))"


def test_pruning_keeps_axes_and_dtype_that_adding_changes():
    height, width = weft.make_axis(2, "H"), weft.make_axis(3, "W")
    x = weft.placeholder((height,), name="x")
    zeros = weft.broadcast(weft.constant(0), (height, width))
    y = x + zeros
    (output,) = pruned(y, x).outputs
    assert output.axes == y.axes


@pytest.mark.parametrize(
    ("indices", "is_slice"),
    [
        ([1, 3, 5], True), ([4, 2, 0], True), ([-1, -2, -3], True), ([-2, -1], True), ([5], True),
        (3, True), (-1, True), ([0, 5], True), ([-1, 0], True),
        ([2, 2], False), ([0, 1, 3], False), ([], False), ([[0, 1], [2, 3]], False),
    ],
)  # fmt: skip
def test_a_gather_with_one_step_is_a_slice(indices: Any, is_slice: bool):
    x = weft.placeholder((4, 6), name="x")
    taken = weft.take(x, weft.constant(np.array(indices, "int32")), axis=1)
    graph = pruned(taken, x)
    assert ("TakeOp" not in expression_of(graph)) == is_slice
    (output,) = graph.outputs
    assert output.axes == taken.axes
    value = np.arange(24, dtype="f4").reshape(4, 6)
    (found,), _ = evaluate(graph, [value])
    np.testing.assert_array_equal(found, np.take(value, np.array(indices, "int32"), axis=1))

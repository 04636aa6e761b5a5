"""Simplified and folded arithmetic has the very bits of what the user wrote.

Every rule is tried on every float16 and every 8-bit integer, and on special values of wider dtypes:
signed zeros, infinities, NaN, subnormal numbers, the extremes of integers.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import plugins
from weft.ir import dtypes
from weft.testing.reference import evaluate

PASSES = ("simple-prune", "constant-folding", "merge-equal")
REAL = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint64")
DTYPES = (*REAL, "complex64")

ARITHMETIC = (weft.add, weft.subtract, weft.multiply, weft.divide, weft.power)
REAL_ARITHMETIC = (weft.mod, weft.floordivide, weft.maximum, weft.minimum, weft.equal, weft.less)


def numbers(dtype):
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


def operands(dtype):
    """Return all numbers of a short dtype, the special ones of others."""
    if dtype == "float16":
        return np.arange(2**16, dtype=np.uint16).view(dtype)
    if dtype in ("int8", "uint8"):
        return np.arange(256, dtype=np.uint8).view(dtype)
    return np.array(numbers(dtype), dtypes.as_dtype(dtype))


def arithmetic(dtype, x):
    """Return arithmetic with the constants that rules look for."""
    for number in (0, 1, 2) if dtypes.as_dtype(dtype).kind == "u" else (0.0, -0.0, 1, -1, 2):
        c = weft.constant(number, dtype=dtype)
        yield from (x + c, c + x, x - c, x * c, c * x, x / c, x**c, weft.negative(-x), -c)


def expressions(dtype, x):
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


def bits(array):
    """Return an array's bits, with one pattern for NaN."""
    if array.dtype.kind == "c":
        return bits(np.stack([array.real, array.imag], -1))
    if not dtypes.is_float(array.dtype):
        return array
    array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.view(f"u{array.dtype.itemsize}")


def differences(results, before, after):
    """Return a line for each result whose bits differ."""
    return [
        f"{op.explain('')}: {a} became {b}"
        for op, a, b in zip(results, before, after, strict=True)
        if not np.array_equal(bits(np.asarray(a)), bits(np.asarray(b)))
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_passes_change_no_bit_of_arithmetic_with_constants(dtype):
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
def test_a_backend_gives_the_same_bits_without_passes(backend, dtype):
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
def test_the_sum_of_a_constant_is_that_of_its_elements(dtype, count):
    with np.errstate(all="ignore"):
        scalars = [weft.constant(number, dtype=dtype) for number in (0, 1, -0.0, 3)]
    sums = [weft.sum(weft.broadcast(c, (2, count)), 1) for c in scalars]
    graph = weft.capture(sums)
    target = weft.Target("all", supports=lambda op: True)
    pruned = plugins.load(plugins.PASSES, "simple-prune")().do_pass(graph, target)
    assert not differences(sums, evaluate(graph)[0], evaluate(pruned)[0])


def test_the_reciprocal_of_a_negative_zero_plus_zero_is_infinity(transformer):
    x = weft.placeholder((2,))
    results = [1 / (x + 0.0), 1 / (x - 0.0), 1 / (x + -0.0)]
    found = transformer.computation(results, x)([-0.0, 0.0])
    assert np.array(found).tolist() == [[np.inf] * 2, [-np.inf, np.inf], [-np.inf, np.inf]]

"""Counters, positions and indices of 64 bits, for tensors with too many elements for 32."""

from __future__ import annotations

import re
from itertools import product
from math import prod

import numpy as np
import pytest

import weft
from weft.nn.spatial import windows
from weft.nn.spatial.convolutions import ConvolutionFilterOp, ConvolutionInputOp
from weft.nn.spatial.pooling import MaxPoolInputOp
from weft.ops.indexing import dynamic_slices, gathering
from weft.ops.products.linalg import MatmulOp
from weft.ops.random import philox
from weft.ops.reductions import reduction, sorting
from weft.ops.shape.movement import IotaOp
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
from checking import check, numbers, with_vectors
from running import CUDA_PARALLEL, FUSING, PARALLEL, PROCESSORS, SERIAL, plan_of, run, work_of

from weft.ir.description import TensorDescription, contiguous
from weft_c.lowering import Array
from weft_c.source import index_types
from weft_c.source.code import Code
from weft_tiling import counters

MANY = 2**31 + 5008
"""A count whose indices have more than 31 bits."""

NEARLY = 2**31 - 16
"""A count that a counter of 32 bits holds, but not a step beyond the last element."""

HALF = 2**30
"""A count whose sorting network counts up to twice as many slots."""

FEW = 200
"""A number of elements that tests have memory for."""


def extrema(x: weft.TensorOp):
    return [kind(x, positions=(place,)) for place in range(x.rank)
            for kind in (reduction.ArgmaxOp, reduction.ArgminOp)]  # fmt: skip


def sorts(x: weft.TensorOp):
    kinds = {"position": x.rank - 1, "descending": True}
    few = [sorting.TopKIndicesOp(x, **kinds, k=k) for k in (3, 40, 70)]
    return [*few, sorting.ArgsortOp(x, **kinds), sorting.SortOp(x, **kinds)]


def scans(x: weft.TensorOp):
    axis = x.rank - 1
    return [
        weft.cumsum(x, axis),
        weft.cumsum(x, 0, True, True),
        weft.cummax(x, axis),
        weft.logcumsumexp(x, axis),
    ]


def taken(x: weft.TensorOp, i: weft.TensorOp):
    along = weft.broadcast(i[:1], (*x.axes.shape[:-1], 1))
    return [
        weft.take(x, i, x.rank - 1),
        weft.take(x, i, 0),
        gathering.TakeAlongAxisOp(x, along, position=x.rank - 1),
    ]


def put(x: weft.TensorOp, i: weft.TensorOp):
    return [
        weft.scatter(x, i, 1.0, 0, "add"),
        weft.scatter(x, i[:1], 1.0, x.rank - 1),
        weft.update_slice(x, [slice(1, 3)] * x.rank, 1),
        weft.update_slice(x, [slice(1, None, 2)] * x.rank, 1),
        dynamic_slices.dynamic_update_slice(x, x[:2], [i[0]] * x.rank),
        dynamic_slices.dynamic_slice(x, [i[0]] * x.rank, (2,) * x.rank),
    ]


def moved(x: weft.TensorOp):
    joined = [weft.concat([x, x[:2]], 0), weft.pad(x, [(2, 1)] * x.rank, 5)]
    return [weft.contiguous(x.T), weft.contiguous(x[::-1]), weft.reshape(x.T, (-1,)), *joined]


def made(x: weft.TensorOp):
    keys = weft.constant(np.array([1, 2], np.uint32))
    calls = weft.cast(weft.reshape(x, (-1,))[0] * 0, "uint32")
    target = weft.dtypes.as_dtype("float32")
    return [
        IotaOp(target_axes=x.axes, target_dtype=target, position=x.rank - 1),
        philox.RandomBitsOp(keys, calls, target_axes=x.axes, domain=philox.CALLS),
    ]


def reduced(x: weft.TensorOp):
    return [
        weft.sum(x),
        weft.max(x, x.rank - 1),
        weft.min(x, 0),
        weft.variance(x, x.rank - 1),
        x * 2 + 1,
        x - weft.mean(x, 0, keepdims=True),
    ]


def repeated(x: weft.TensorOp):
    """Sum far more points than there are elements."""
    rows = weft.reshape(x, (-1, 1))
    return [weft.sum(rows * weft.transpose(rows, (1, 0)), 1), weft.sum(rows > rows.T)]


def products(x: weft.TensorOp, y: weft.TensorOp):
    turned = weft.transpose(y, (1, 0))
    return [MatmulOp(x, y), MatmulOp(turned, x.T), MatmulOp(x[:1], y), MatmulOp(x, y[:, :1])]


def product_and_more(x: weft.TensorOp, y: weft.TensorOp):
    return weft.maximum(weft.matmul(x, y), 0) * 2


def slid(x: weft.TensorOp, w: weft.TensorOp, delta: weft.TensorOp):
    y = weft.conv(x, w, padding=1)
    geometry = y.geometry()
    lengths, kernel = x.axes.lengths[2:], w.axes.lengths[2:]
    return [
        y,
        ConvolutionInputOp(delta, w, lengths=lengths, **geometry),
        ConvolutionFilterOp(x, delta, kernel=kernel, **geometry),
    ]


def pooled(x: weft.TensorOp):
    overlap = {"kernel": 3, "stride": 2, "padding": 1}
    maxima = weft.max_pool(x, 2), weft.max_pool(x, **overlap)
    return [
        *maxima,
        weft.avg_pool(x, **overlap),
        weft.avg_pool(x, x.axes.shape[-1]),
        *(MaxPoolInputOp(y, x, y, **y.sliding._asdict()) for y in maxima),
    ]


def with_folded_batch(x: weft.TensorOp):
    count = x.axes.shape[0]
    span = (count, 1, 3, 1)
    return windows.FoldOp(x, spans=(span,), target_axes=weft.make_axes((count + 2,)))


def searched(x: weft.TensorOp, y: weft.TensorOp):
    return sorting.SearchSortedOp(x, y, side="left")


def line(n: int):
    return [("uint8", n)]


def rows(n: int):
    return [("float32", 5, n)]


def columns(n: int):
    return [("float32", n, 5)]


GRAPHS = {
    "extrema of a line": (extrema, line),
    "extrema of rows and columns": (extrema, columns),
    "sorts of a line": (sorts, line),
    "sorts of rows": (sorts, rows),
    "scans of a line": (scans, lambda n: [("float32", n)]),
    "scans of columns": (scans, columns),
    "elements taken": (taken, lambda n: [("float32", n), ("int64", 3)]),
    "rows taken": (taken, lambda n: [("float32", n, 7), ("int32", 3)]),
    "elements put": (put, lambda n: [("float32", n), ("int64", 3)]),
    "rows put": (put, lambda n: [("float32", n, 7), ("int32", 3)]),
    "a line moved": (moved, line),
    "rows moved": (moved, lambda n: [("float32", 40, n)]),
    "made": (made, lambda n: [("float32", 3, n)]),
    "a line reduced": (reduced, lambda n: [("float32", n)]),
    "rows reduced": (reduced, rows),
    "columns reduced": (reduced, lambda n: [("float32", n, 64)]),
    "points": (repeated, lambda n: [("float32", min(n, 2**17))]),
    "many rows multiplied": (products, lambda n: [("float32", n, 6), ("float32", 6, 5)]),
    "long rows multiplied": (products, lambda n: [("float32", 3, n), ("float32", n, 5)]),
    "long rows of halves": (products, lambda n: [("float16", 3, n), ("float16", n, 5)]),
    "long lines multiplied": (products, lambda n: [("uint8", 1, n), ("uint8", n, 1)]),
    "wide rows multiplied": (products, lambda n: [("float32", 3, 40), ("float32", 40, n)]),
    "product and more": (product_and_more, lambda n: [("float32", n, 40), ("float32", 40, 50)]),
    "long images": (slid, lambda n: [("float32", 1, 2, n), ("float32", 3, 2, 3),
                                     ("float32", 1, 3, n)]),
    "many images": (slid, lambda n: [("float32", n, 2, 6), ("float32", 3, 2, 3),
                                     ("float32", n, 3, 6)]),
    "long windows": (pooled, lambda n: [("float32", 2, 1, n // 16 * 16)]),
    "fold": (with_folded_batch, lambda n: [("float32", n, 3)]),
    "search": (searched, lambda n: [("uint8", n), ("uint8", 30)]),
}  # fmt: skip
"""By name: a function that builds results, and the dtypes and shapes for a number of elements."""

FUSED = ("a line reduced", "rows reduced", "columns reduced", "points", "product and more")


def passes_of(name: str):
    return FUSING if name in FUSED else ()


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch):
    """Limit counters of 32 bits to small counts."""
    monkeypatch.setattr(counters, "MAX_NARROW", 100)


@pytest.mark.share(24)
@with_vectors
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.usefixtures("few_are_many")
def test_results_are_the_same_with_counters_of_64_bits(name: str, processor: str):
    build, given = GRAPHS[name]
    arrays = [abs(numbers(dtype, *shape)) for dtype, *shape in given(FEW)]
    if name == "search":
        arrays[0] = np.sort(arrays[0])
    check(build, *arrays, processor=processor, exact=False, passes=passes_of(name))


def source_of(name: str, n: int, processor: Processor):
    build, given = GRAPHS[name]
    parameters = [weft.placeholder(shape, dtype=dtype) for dtype, *shape in given(n)]
    results = build(*parameters)
    results = results if isinstance(results, list) else [results]
    plan = plan_of(results, *parameters, processor=processor, passes=passes_of(name))
    return work_of(plan, processor)[1]


@pytest.mark.parametrize("name", GRAPHS)
def test_no_counter_of_32_bits_is_compared_with_what_it_cannot_hold(name: str):
    for processor, n in product((SERIAL, PARALLEL, CUDA_PARALLEL), (MANY, NEARLY, HALF)):
        assert list(too_narrow(source_of(name, n, processor))) == [], (processor, n)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", GRAPHS)
def test_few_elements_are_counted_with_32_bits(name: str, processor: str):
    """Work-group loops count their iterations in 64 bits."""
    source = source_of(name, FEW, PROCESSORS[processor])
    loops = [each for each in LOOP.findall(source) if each[0] == "i64"]
    assert all("GROUP_ID" in first or "begin" in name for _, name, first, _, _ in loops)


LOOP = re.compile(r"for \((i32|i64) (\w+) = ([^;]*); \2 <=? (\w+)[^;]*; ([^{]*)\)")
STEP = re.compile(r"\w+ (\+=|\*=) (\(i32\))?(\d+|GLOBAL_SIZE)$")
DEFINITION = re.compile(r"^\s*(?:const )?(i32|i64) (\w+) = ", re.MULTILINE)
FUNCTIONS = re.compile(r"^(?=FUNCTION|__kernel|extern)", re.MULTILINE)


def too_narrow(source: str):
    """Yield the loops of a source whose counters of 32 bits are too narrow."""
    for function in FUNCTIONS.split(source):
        kinds = {name: kind for kind, name in DEFINITION.findall(function)}
        for kind, name, first, bound, change in LOOP.findall(function):
            kinds[name] = kind
            step = STEP.match(change)
            if kind == "i32" and bound.isdigit():
                text = step[3] if step else "1"
                far = 2**20 if text == "GLOBAL_SIZE" else int(text)
                end = int(bound) * far if step and step[1] == "*=" else int(bound) + far
                if end >= 2**31:
                    yield f"{kind} {name} = {first}; {bound}; {change}"
            elif kind == "i32" and kinds.get(bound) == "i64":
                yield f"{kind} {name} = {first}; {bound}; {change}"


def test_narrow_counters_are_found():
    source = """
FUNCTION void f(GLOBAL u8 *x) {
    const i64 n = 5;
    for (i32 i = 0; i < 2147483643; i += 128) {
    }
    for (i64 j = 0; j < 2147483643; j += 128) {
    }
    for (i32 k = 0; k < n; k++) {
    }
    for (i32 size = 2; size <= 1073741824; size *= 2) {
    }
    for (i32 m = (i32)GLOBAL_ID; m < 100; m += (i32)GLOBAL_SIZE) {
    }
}
"""
    found = [each.split(" = ")[0] for each in too_narrow(source)]
    assert found == ["i32 i", "i32 k", "i32 size"]


def test_indices_are_multiplied_in_64_bits_where_the_product_may_be_large():
    for shape, text in (((3, 5), "x + i * 5 + j"), ((2**17, 2**15), "x + (i64)i * 32768 + j")):
        layout = contiguous(shape, weft.dtypes.float32)
        assert str(Array(Code(), "x", layout, 0).at("i", "j")) == text


@pytest.mark.parametrize("count", [2**31 - 2**24, 2**31 - 2**24 + 1])
def test_counters_end_a_step_beyond_the_last_thing(count: int):
    is_wide = count > 2**31 - 2**24
    assert counters.needs_wide_counter(count) is is_wide
    for shape in ((count,), (1, count)):
        layout = contiguous(shape, weft.dtypes.uint8)
        assert index_types.is_wide(layout) is is_wide
        repeated = TensorDescription(shape, layout.dtype, (0,) * len(shape))
        assert index_types.is_wide(repeated) is is_wide
    assert prod(shape) == count


@pytest.mark.long
def test_the_largest_of_nearly_as_many_as_31_bits_count_is_found():
    x = weft.placeholder((2**31 - 5,), dtype="uint8")
    values = np.zeros(x.axes.shape, np.uint8)
    values[[5, -3]] = 3, 7
    (found,), _ = run([weft.argmax(x, 0)], x, arrays=[values])
    assert found == 2**31 - 8

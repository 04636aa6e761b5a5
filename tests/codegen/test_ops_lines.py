"""Scans, searches and sorting in C against the ops' references: serial, parallel, as CUDA C."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir import dtypes
from weft.nn.spatial import windows
from weft.ops.reductions import cumulative, reduction, sorting

pytest.importorskip("pyopencl")
from checking import EVERY, awkward, both, check, everywhere, numbers
from running import PROCESSORS, plan_of, work_of

pytestmark = [pytest.mark.slow, pytest.mark.share(12)]

LINES = {
    "one": ((300,), 0),
    "of one": ((5, 1), 1),
    "last": ((7, 300), 1),
    "first": ((70, 90), 0),
    "in the middle": ((3, 80, 70), 1),
    "few beside each other": ((90, 3), 0),
    "short": ((300, 5), 1),
    "long": ((5000,), 0),
    "two long": ((2, 3001), 1),
}
SCANS = [cumulative.cumsum, cumulative.cumprod, cumulative.cummax, cumulative.cummin]


@everywhere
@pytest.mark.parametrize("name", LINES)
def test_scans(name: str, processor: str):
    shape, axis = LINES[name]
    ways = itertools.product(SCANS, (False, True), (False, True))

    def build(x: weft.TensorOp):
        return [scan(x, axis, exclusive, reverse) for scan, exclusive, reverse in ways]

    check(build, numbers("int32", *shape), processor=processor)


def test_only_long_lines_are_split():
    for shape, launches in (((5000,), 2), ((300,), 1), ((70, 5000), 1)):
        x = weft.placeholder(shape)
        plan = plan_of([cumulative.cumsum(x, 0)], x, processor=PROCESSORS["parallel"])
        work, _ = work_of(plan, PROCESSORS["parallel"])
        assert len(work) == launches


@everywhere
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float64", "bool"])
def test_scans_of_dtypes(dtype: str, processor: str):
    def build(x: weft.TensorOp):
        chosen = SCANS[2:] if dtype == "bool" else [cumulative.cumsum, *SCANS[2:]]
        return [scan(x, 1) for scan in chosen]

    check(build, numbers(dtype, 5, 80), processor=processor, exact=dtype[0] != "f")


@everywhere
@pytest.mark.parametrize("name", LINES)
def test_scans_of_floats(name: str, processor: str):
    shape, axis = LINES[name]
    values = np.random.default_rng(7).normal(size=shape).astype(np.float32)

    def build(x: weft.TensorOp):
        return [
            cumulative.logcumsumexp(x, axis),
            cumulative.logcumsumexp(x, axis, True, True),
            cumulative.LinearRecurrenceOp(x, x, position=axis, reverse=False),
            cumulative.LinearRecurrenceOp(x[::-1], x, position=axis, reverse=True),
        ]

    check(build, values / 3, processor=processor, exact=False)


@everywhere
def test_scans_at_the_edges(processor: str):
    x = np.array([[-np.inf, -np.inf, 0, 1], [np.inf, 0, 1, -np.inf], [1, np.nan, 3, 2]], np.float32)

    def build(x: weft.TensorOp):
        return [scan(x, 1) for scan in (*SCANS[2:], cumulative.logcumsumexp)]

    check(build, x, processor=processor, exact=False)


@everywhere
@pytest.mark.parametrize("name", LINES)
def test_extrema(name: str, processor: str):
    shape, axis = LINES[name]

    def build(x: weft.TensorOp):
        return [
            kind(each, positions=(axis,))
            for kind in (reduction.ArgmaxOp, reduction.ArgminOp)
            for each in (x, x[::-1])
        ]

    for values in (numbers("float32", *shape), awkward("float32", *shape)):
        check(build, values, processor=processor)


@everywhere
def test_lines_of_nothing(processor: str):
    def build(x: weft.TensorOp):
        return [
            weft.argmax(x, 1),
            weft.argsort(x, 1),
            weft.topk(x, 2, 1).indices,
            weft.topk(weft.contiguous(x[:1]), 0, 1).indices,
            weft.cumsum(x, 0),
            weft.cumsum(x, 1),
        ]

    check(build, numbers("float32", 0, 80), processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", EVERY)
def test_extrema_of_dtypes(dtype: str, processor: str):
    def build(x: weft.TensorOp):
        return [weft.argmax(x, 0), weft.argmin(x, 1)]

    values = awkward(dtype, 70, 90)
    if dtype == "bfloat16":
        values = numbers(dtype, 70, 90)  # NumPy finds no NaN there
    check(build, values, processor=processor)


@everywhere
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("descending", [False, True])
def test_sorts(name: Any, descending: Any, processor: str):
    shape, axis = LINES[name]

    def build(x: weft.TensorOp):
        kinds = {"position": axis, "descending": descending}
        return [
            sorting.ArgsortOp(x, **kinds),
            sorting.SortOp(x, **kinds),
            sorting.TopKIndicesOp(x, **kinds, k=min(3, shape[axis])),
        ]

    check(build, awkward("float32", *shape), processor=processor)


@everywhere
@pytest.mark.parametrize("length", [1, 2, 8, 9, 63, 1000, 3000])
def test_sorts_of_lengths(length: int, processor: str):
    """The longest line does not fit into local memory."""
    values = np.random.default_rng(7).normal(size=(3, length)).astype(np.float32)
    check(lambda x: [weft.argsort(x), weft.sort(x)], values, processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", EVERY)
def test_sorts_of_dtypes(dtype: str, processor: str):
    def build(x: weft.TensorOp):
        return weft.argsort(x), weft.sort(x, descending=True)

    check(build, awkward(dtype, 3, 90), processor=processor)


@everywhere
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", EVERY)
def test_positions_in_a_sorted_vector(dtype: str, side: str, processor: str):
    ordered = np.sort(awkward(dtype, 50).astype(np.float64)).astype(dtypes.as_dtype(dtype))
    check(
        lambda v, x: sorting.SearchSortedOp(v, x, side=side),
        ordered,
        awkward(dtype, 6, 9),
        processor=processor,
    )


@everywhere
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(
    ("spans", "shape"),
    [
        (((4, 1, 3, 1),), (6,)),
        (((4, 2, 3, 1), (3, 1, 2, 3)), (11, 6)),
        (((2, 1, 1, 1), (3, 3, 3, 1), (1, 1, 6, 1)), (2, 9, 6)),
        (((0, 1, 3, 1),), (6,)),
    ],
)
def test_folds(spans: tuple[Any, ...], shape: tuple[int, ...], dtype: str, processor: str):
    lengths = [n for count, _, length, _ in spans for n in (count, length)]

    def build(x: weft.TensorOp):
        return windows.FoldOp(x, spans=spans, target_axes=weft.make_axes(shape))

    check(build, numbers(dtype, *lengths), processor=processor)


@both
def test_decompositions_and_effects_on_the_host(processor: str, capsys: pytest.CaptureFixture[str]):
    a = np.random.default_rng(7).normal(size=(2, 3, 3)).astype(np.float32)
    b = np.random.default_rng(7).normal(size=(2, 3, 1)).astype(np.float32)
    a[1] = 0

    def build(a: weft.TensorOp, b: weft.TensorOp):
        return weft.solve(a, b), weft.contiguous(weft.print_op(b, "b is"))

    check(build, a, b, processor=processor, exact=False)
    assert capsys.readouterr().out.count("b is") == 2

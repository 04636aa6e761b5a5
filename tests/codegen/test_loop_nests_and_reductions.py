"""Kernels in C: pointwise kernels, and reductions of rows and columns, by groups and in splits.

Results are compared with the ops' references, for serial and parallel processors and as CUDA C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

pytest.importorskip("pyopencl")
from checking import EVERY, both, check, numbers, with_vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from running import CUDA_PARALLEL, FUSING, PARALLEL, SERIAL, plan_of, work_of

from weft_c.fused import single_op_kernel
from weft_c.loops.loop_nest import make_loop_nest, split_reduced_loop
from weft_c.reductions.columns import ColumnReductionLoops
from weft_c.reductions.loops import ReductionLoops
from weft_c.reductions.split import choose_reduction_loops, split_count
from weft_c.reductions.work_group import WorkGroupReductionLoops
from weft_c.reductions.work_group_columns import WorkGroupColumnReductionLoops
from weft_tiling.sharing import count_splits

pytestmark = [pytest.mark.slow, pytest.mark.share(8)]


def chain(x: weft.TensorOp):
    return weft.maximum(weft.where(x > 0, weft.exp(weft.tanh(x) * 0.5), x) * 1.1 + 0.2, -0.5)


def normalized(x: weft.TensorOp, axis: int):
    centered = x - weft.mean(x, axis=axis, keepdims=True)
    return centered / weft.sqrt(weft.mean(weft.square(centered), axis=axis, keepdims=True) + 1e-3)


MAPS = {
    "one point": ((), chain),
    "one": ((1,), chain),
    "less than a vector": ((15,), chain),
    "vectors and a rest": ((100,), chain),
    "more than one share": ((40_000,), chain),
    "transposed": ((33, 50), lambda x: chain(x.T)),
    "transposed, and not": ((40, 40), lambda x: x.T * 2 + x),
    "backwards": ((70,), lambda x: chain(x[::-1])),
    "every other": ((7, 90), lambda x: chain(x[:, ::2])),
    "a row for all": ((20, 33), lambda x: chain(x) + x[0]),
    "a column for all": ((20, 33), lambda x: chain(x) * weft.exp(x[:, :1])),
    "several results": ((50,), lambda x: (weft.exp(x), weft.exp(x) + 1, x > 0)),
}

REDUCTIONS = {
    "softmax of rows": ((9, 70), weft.softmax),
    "softmax of short rows": ((300, 5), weft.softmax),
    "softmax of columns": ((70, 64), lambda x: weft.softmax(x, 0)),
    "softmax of few columns": ((70, 9), lambda x: weft.softmax(x, 0)),
    "softmax of a long row": ((9001,), weft.softmax),
    "normalized rows": ((9, 2000), lambda x: normalized(x, -1)),
    "normalized columns": ((33, 48), lambda x: normalized(x, 0)),
    "normalized, of a transposed": ((40, 60), lambda x: normalized(x.T, -1)),
    "all": ((40, 33), lambda x: normalized(x, (0, 1))),
    "the middle": ((5, 40, 33), lambda x: normalized(x, 1)),
    "the outer two": ((6, 7, 48), lambda x: weft.max(x * 2, axis=(0, 1))),
    "first and last": ((6, 7, 48), lambda x: weft.sum(chain(x), axis=(0, 2))),
    "in parts": ((20_011,), lambda x: weft.variance(x)),
    "in parts, backwards": ((20_011,), lambda x: weft.sum(x[::-1])),
    "in parts, every third": ((60_011,), lambda x: weft.sum(x[::3])),
    "rows in parts": ((2, 10_007), lambda x: normalized(x, -1)),
    "columns in parts": ((9001, 20), lambda x: weft.sum(x, axis=0)),
    "wide columns": ((40, 3000), lambda x: weft.sum(x, axis=0)),
    "a number for each column": ((40, 48), lambda x: weft.sum(x * x[0] + x[1], axis=0)),
    "normalized columns in parts": ((9001, 48), lambda x: normalized(x + x[1], 0)),
    "wide columns in parts": ((2100, 2500), lambda x: weft.sum(weft.square(x), axis=0)),
    "no elements": ((0, 5), lambda x: (weft.sum(x, axis=0), weft.prod(x, axis=0))),
    "no rows": ((0, 5), lambda x: weft.sum(x, axis=1)),
    "over a single one": ((1, 40), lambda x: weft.sum(x, axis=0) + 1),
    "over nothing": ((40,), lambda x: weft.sum(x, axis=())),
    "least and most": ((9, 100), lambda x: (weft.min(x, axis=1), weft.max(x, axis=1))),
    "a result that varies": ((9, 100), lambda x: (weft.sum(x * 2, axis=1), x * 2)),
}


@with_vectors
@pytest.mark.parametrize("name", MAPS)
def test_maps(name: str, processor: str):
    shape, build = MAPS[name]
    values = numbers("float32", *shape) / 3
    check(build, values, processor=processor, exact=False, passes=FUSING)


@with_vectors
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, processor: str):
    shape, build = REDUCTIONS[name]
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32) / 2
    check(build, values, processor=processor, exact=False, passes=FUSING)


@both
@pytest.mark.parametrize("dtype", EVERY)
def test_dtypes(dtype: str, processor: str):
    values = numbers(dtype, 5, 40)

    def build(x: weft.TensorOp):
        picked = weft.where(weft.less(x, x[:1]), x, x[:1])
        return [picked, weft.max(x, axis=1), weft.max(x, axis=0), weft.equal(x, picked)]

    check(build, values, processor=processor, passes=FUSING)


@both
@pytest.mark.parametrize("dtype", ["float64", "int64", "float16", "uint8"])
def test_a_repeated_number_of_a_dtype_without_vectors(dtype: str, processor: str):
    values = numbers(dtype, 1)
    check(
        lambda x: weft.sum(weft.broadcast(x, (5000,)) + x[0]),
        values, processor=processor, exact=False, passes=FUSING,
    )  # fmt: skip


@both
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float16", "bfloat16"])
def test_arithmetic_wraps_or_rounds(dtype: str, processor: str):
    values = numbers(dtype, 4, 33) + np.asarray(100).astype(numbers(dtype, 1).dtype)
    check(lambda x: [x * x + x, weft.sum(x, axis=1)], values, processor=processor, exact=False)


@both
def test_nan_comes_through(processor: str):
    values = np.zeros((3, 50), np.float32)
    values[1, 20], values[2, 49] = np.nan, -np.inf
    check(
        lambda x: (weft.max(x, axis=1), weft.max(x, axis=0), weft.maximum(x, 1), weft.relu(x)),
        values, processor=processor, passes=FUSING,
    )  # fmt: skip


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_reduction_in_any_layout(data: Any):
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=rank, max_size=rank)))
    axes = data.draw(st.sets(st.integers(0, rank - 1), max_size=rank))
    order = data.draw(st.permutations(range(rank)))
    values = numbers("int32", *shape)
    for processor in ("serial", "parallel", "vectors"):
        check(
            lambda x: weft.sum(weft.transpose(x, tuple(order)) * 2 + 1, axis=tuple(axes)),
            values, processor=processor, passes=FUSING,
        )  # fmt: skip


def nest_of(shape: tuple[int, ...], axis: int | tuple[int, ...], order: Any = None):
    x = weft.placeholder(shape)
    x = x if order is None else weft.transpose(x, order)
    total = weft.sum(x, axis=axis)
    plan = plan_of([total], *weft.Op.ordered_ops([total])[:1], processor=SERIAL)
    (step,) = plan.steps
    return make_loop_nest(single_op_kernel(step.op)[0], step.args, step.outs)


SWEPT = [
    ((64, 64), 1, None, ReductionLoops, WorkGroupReductionLoops),
    ((64, 64), 0, None, ColumnReductionLoops, WorkGroupColumnReductionLoops),
    ((64, 64), 1, (1, 0), ColumnReductionLoops, WorkGroupColumnReductionLoops),
    ((64, 4), 1, None, ReductionLoops, ReductionLoops),
    ((64, 4), 0, None, ReductionLoops, WorkGroupColumnReductionLoops),
    ((63, 64), 0, None, ColumnReductionLoops, WorkGroupColumnReductionLoops),
    ((63, 60), 0, None, ColumnReductionLoops, ReductionLoops),
    ((900, 64, 20), 1, None, ColumnReductionLoops, ReductionLoops),
    ((9, 64, 20), 1, None, ColumnReductionLoops, WorkGroupColumnReductionLoops),
    ((900, 64, 40), 1, None, ColumnReductionLoops, WorkGroupColumnReductionLoops),
    ((900, 2, 40), 1, None, ColumnReductionLoops, ReductionLoops),
    ((900, 2, 300), 1, None, ColumnReductionLoops, WorkGroupColumnReductionLoops),
    ((64, 3, 64), (0, 2), None, ReductionLoops, WorkGroupReductionLoops),
    ((64, 3, 64), (0, 1), None, ColumnReductionLoops, WorkGroupColumnReductionLoops),
]


@pytest.mark.parametrize(("shape", "axis", "order", "serial", "parallel"), SWEPT)
def test_the_layout_decides_on_the_kind_of_reduction_loops(
    shape: tuple[int, ...], axis: int, order: Any, serial: type[Any], parallel: type[Any]
):
    found = nest_of(shape, axis, order)
    assert choose_reduction_loops(found, SERIAL) is serial
    assert choose_reduction_loops(found, PARALLEL) is parallel


def test_neighboring_dimensions_are_one_loop():
    found = nest_of((3, 4, 5, 6), (2, 3))
    assert (found.kept, found.reduced) == ((12,), (30,))


@pytest.mark.parametrize(
    ("rows", "reduced", "parts"), [(1, 10**6, 24), (100, 10**6, 1), (1, 99, 1)]
)
def test_few_rows_are_split(rows: int, reduced: int, parts: int):
    assert count_splits(rows, reduced, SERIAL) == parts


def test_single_pass_column_reductions_are_split_rather_than_narrow():
    assert split_count(nest_of((4096, 4096), 0), SERIAL) == 4
    assert split_count(nest_of((4096, 40_000), 0), SERIAL) == 1
    assert split_count(nest_of((1000, 4096), 0), SERIAL) == 1


def test_the_last_split_may_be_shorter():
    found = nest_of((10_007,), 0)
    cut = split_reduced_loop(found, 4, {1: found.results[0]})
    assert (cut.kept, cut.reduced, cut.ragged) == ((4,), (2502,), 10_007)
    assert cut.covered == found.operands


def test_a_user_s_names_and_lines_cannot_leave_a_comment():
    namespace = {"weft": weft}
    code = compile("y = weft.exp(x) + 1", "evil\n*/ #define f32\\", "exec")
    namespace["x"] = x = weft.placeholder((5,), name="a; b */")
    exec(code, namespace)
    plan = plan_of([namespace["y"]], x, processor=SERIAL, passes=FUSING)
    _, source = work_of(plan, SERIAL)
    assert "evil" in source
    assert "*/" not in source
    assert "a; b" not in source


@pytest.mark.needs("nvrtc")
def test_source_for_cuda_has_no_word_of_opencl():
    x = weft.placeholder((100, 100))
    plan = plan_of([weft.softmax(x)], x, processor=CUDA_PARALLEL, passes=FUSING)
    _, source = work_of(plan, CUDA_PARALLEL)
    assert not any(word in source for word in ("__kernel", "get_global_id", "f32x16"))
    assert source.count("SHUFFLE_XOR(total") == 2 * 5  # the maximum's and the sum's

"""Vectorized accesses: neighboring elements are loaded and stored at once if aligned."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
import nvrtc
from checking import EVERY, awkward, check, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from running import CUDA_PARALLEL, FUSING, PARALLEL, SERIAL, VECTORIZED, plan_of, work_of

from weft_c import ElementWiseKernel, Lowering
from weft_c.fused import single_op_kernel
from weft_c.loops.loop_nest import make_loop_nest, split_reduced_loop
from weft_c.loops.vectorized_access import find_vector_access

pytestmark = [pytest.mark.slow, pytest.mark.share(6)]

LENGTHS = (0, 1, 3, 4, 5, 1023, 1024, 4097)


def source_of(
    build: Callable[..., Any],
    *shapes: Any,
    dtype: str = "float32",
    processor: Processor = VECTORIZED,
    passes: tuple[str, ...] = FUSING,
):
    parameters = [weft.placeholder(shape, dtype=dtype) for shape in shapes]
    results = build(*parameters)
    results = list(results) if isinstance(results, tuple | list) else [results]
    plan = plan_of(results, *parameters, processor=processor, passes=passes)
    return work_of(plan, processor)[1]


def vector_types_in(source: str):
    """Return the vector types that a source declares, such as ``f32_by_4``."""
    return set(re.findall(r"} (\w+_by_\d+);", source))


def exponentials(count: int):
    """Return a function that applies `count` exponentials to each element."""

    def build(x: weft.TensorOp):
        for _ in range(count):
            x = weft.exp(x)
        return x

    return build


def columns_and_rows(x: Any):
    """Return results that vary along columns, and some that do not."""
    centered = x * 2 - weft.mean(x, axis=0)
    return weft.sum(weft.exp(centered) + x[0], axis=0) * x[1], centered * x[0]


def at(places: Any):
    """Return constant indices."""
    return weft.constant(np.array(places, np.int32))


def block_of(x: weft.TensorOp, shape: tuple[int, ...]):
    """Return a block with a dynamic start."""
    starts = [weft.cast(weft.sum(weft.zeros((2,))), "int32") for _ in shape]
    return weft.dynamic_slice(x, starts, shape)


MAPS = {
    "float32": ("float32", [(64,)], lambda x: x + 1, {"f32_by_4"}),
    "float64": ("float64", [(64,)], lambda x: x + 1, {"f64_by_2"}),
    "float16": ("float16", [(64,)], lambda x: x + 1, {"u16_by_8"}),
    "bfloat16": ("bfloat16", [(64,)], lambda x: x + 1, {"u16_by_8"}),
    "int8": ("int8", [(64,)], lambda x: x + 1, {"i8_by_16"}),
    "int64": ("int64", [(64,)], lambda x: x + 1, {"i64_by_2"}),
    "to bool": ("float32", [(64,)], lambda x: x > 0, {"f32_by_4", "u8_by_4"}),
    "widened": ("float16", [(64,)], lambda x: weft.cast(x, "float32"), {"u16_by_4", "f32_by_4"}),
    "with a rest": ("float32", [(67,)], lambda x: x + 1, {"f32_by_4"}),
    "too short": ("float32", [(3,)], lambda x: x + 1, set()),
    "a matrix, of any rows": ("float32", [(7, 5)], lambda x: x + 1, {"f32_by_4"}),
    "aligned part": ("float32", [(64,)], lambda x: x[4:] + 1, {"f32_by_4"}),
    "odd part": ("float32", [(64,)], lambda x: x[1:] + 1, set()),
    "half a vector on": ("float32", [(64,)], lambda x: x[2:] + 1, set()),
    "odd part, and not": ("float32", [(64,)], lambda x: x[1:] + x[:-1], set()),
    "aligned columns": ("float32", [(8, 64)], lambda x: x[:, 4:12] + 1, {"f32_by_4"}),
    "odd columns": ("float32", [(8, 64)], lambda x: x[:, 1:9] + 1, set()),
    "columns of odd rows": ("float32", [(8, 63)], lambda x: x[:, 4:12] + 1, set()),
    "columns and a rest": ("float32", [(8, 64)], lambda x: x[:, :6] + 1, set()),
    "backwards": ("float32", [(64,)], lambda x: x[::-1] + 1, set()),
    "rows backwards": ("float32", [(8, 64)], lambda x: x[::-1] + 1, {"f32_by_4"}),
    "every other": ("float32", [(64,)], lambda x: x[::2] + 1, set()),
    "transposed, and not": ("float32", [(64, 64)], lambda x: x.T + x, set()),
    "a row for all": ("float32", [(8, 64), (64,)], lambda x, y: x + y, {"f32_by_4"}),
    "an odd row for all": ("float32", [(8, 63), (63,)], lambda x, y: x + y, set()),
    "a column for all": ("float32", [(8, 64), (8, 1)], lambda x, y: x + y, {"f32_by_4"}),
    "one for all": ("float32", [(67,), (1,)], lambda x, y: x + y, {"f32_by_4"}),
    "some costly ops": ("float32", [(64,)], exponentials(16), {"f32_by_4"}),
    "many costly ops": ("float32", [(64,)], exponentials(17), set()),
    "an odd one for all": ("float32", [(67,), (9,)], lambda x, y: x + y[3:4], {"f32_by_4"}),
}  # fmt: skip

NARROW = {"f32_by_4", "u16_by_4"}
REDUCTIONS = {
    "long rows": ((9, 1024), weft.softmax, {"f32_by_4"}),
    "odd rows": ((9, 1023), weft.softmax, set()),
    "short rows": ((300, 12), weft.softmax, {"f32_by_4"}),
    "short odd rows": ((300, 13), weft.softmax, set()),
    "one odd row": ((1027,), weft.softmax, {"f32_by_4"}),
    "padded rows": ((9, 1024), lambda x: weft.sum(x[:, :1021], axis=1), {"f32_by_4"}),
    "shifted rows": ((9, 1024), lambda x: weft.sum(x[:, 1:], axis=1), set()),
    "all": ((70, 100), weft.sum, {"f32_by_4"}),
    "all, in parts": ((60_011,), weft.variance, {"f32_by_4"}),
    "all, in parts, shifted": ((60_011,), lambda x: weft.sum(x[1:]), set()),
    "rows in parts": ((2, 10_008), weft.softmax, {"f32_by_4"}),
    "odd rows in parts": ((2, 10_007), weft.softmax, set()),
    "first and last": ((6, 7, 64), lambda x: weft.sum(x * 2, axis=(0, 2)), {"f32_by_4"}),
    "a column along rows": ((9, 256), lambda x: weft.sum(x * x[:, :1], axis=1), {"f32_by_4"}),
    "columns": ((64, 64), lambda x: weft.sum(x, axis=0), {"f32_by_4"}),
    "few columns": ((64, 8), lambda x: weft.sum(x, axis=0), {"f32_by_4"}),
    "odd columns": ((64, 63), lambda x: weft.sum(x, axis=0), set()),
    "columns with a rest": ((64, 62), lambda x: weft.sum(x, axis=0), set()),
    "shifted columns": ((64, 64), lambda x: weft.sum(x[:, 1:61], axis=0), set()),
    "softmax of columns": ((100, 64), lambda x: weft.softmax(x, 0), {"f32_by_4"}),
    "columns, and a row for all": ((99, 68), columns_and_rows, {"f32_by_4"}),
    "columns in parts": ((5003, 36), lambda x: weft.variance(x, axis=0), {"f32_by_4"}),
    "narrow columns": ((99, 68), lambda x: weft.sum(weft.cast(x, "float16"), axis=0), NARROW),
    "short columns": ((5, 700), lambda x: weft.softmax(x, 0), {"f32_by_4"}),
    "short odd columns": ((5, 701), lambda x: weft.softmax(x, 0), set()),
    "not so short columns": ((40, 700), lambda x: weft.softmax(x, 0), {"f32_by_4"}),
    "columns of planes": ((3, 70, 40), lambda x: weft.mean(x, axis=1), {"f32_by_4"}),
    "columns over two": ((40, 30, 2, 20), lambda x: weft.max(x, axis=(0, 2)), {"f32_by_4"}),
}

MOVES = {
    "every other row": ([(9, 64)], lambda x: weft.contiguous(x[::2]), {"u32_by_4"}),
    "rows backwards": ([(9, 64)], lambda x: weft.contiguous(x[::-1]), {"u32_by_4"}),
    "odd rows": ([(9, 63)], lambda x: weft.contiguous(x[::2]), set()),
    "shifted rows": ([(9, 64)], lambda x: weft.contiguous(x[::2, 1:61]), set()),
    "every other column": ([(9, 64)], lambda x: weft.contiguous(x[:, ::2]), set()),
    "planes turned": (
        [(5, 6, 64)], lambda x: weft.contiguous(weft.transpose(x, (1, 0, 2))), {"u32_by_4"}
    ),
    "turned": ([(64, 64)], lambda x: weft.contiguous(x.T), set()),
    "one after the other": ([(9, 64), (3, 64)], lambda *x: weft.concat(x, 0), {"u32_by_4"}),
    "beside each other": ([(9, 64), (9, 4)], lambda *x: weft.concat(x, 1), {"u32_by_4"}),
    "oddly beside each other": ([(9, 63), (9, 4)], lambda *x: weft.concat(x, 1), set()),
    "one of them": ([(9, 64), (9, 5), (9, 3)], lambda *x: weft.concat(x, 1), {"u32_by_4"}),
    "rows taken": ([(9, 64)], lambda x: weft.take(x, at([3, 0, -1]), 0), {"u32_by_4"}),
    "odd rows taken": ([(9, 63)], lambda x: weft.take(x, at([3, 0]), 0), set()),
    "elements taken": ([(9, 64)], lambda x: weft.take(x, at([3] * 8), 1), set()),
    "planes taken": (
        [(5, 9, 64)], lambda x: weft.take(x, at([[3], [1]]), 1), {"u32_by_4"}
    ),
    "a block of rows": ([(9, 64)], lambda x: block_of(x, (4, 64)), {"u32_by_4"}),
    "a block of columns": ([(9, 64)], lambda x: block_of(x, (9, 8)), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_maps_use_vector_accesses_where_all_is_aligned(name: str):
    dtype, shapes, build, expected = MAPS[name]
    assert vector_types_in(source_of(build, *shapes, dtype=dtype)) == expected
    values = [awkward(dtype, *shape) for shape in shapes]
    check(build, *values, processor="vectors", exact=False, passes=FUSING)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_use_vector_accesses_where_rows_are_aligned(name: str):
    shape, build, expected = REDUCTIONS[name]
    assert vector_types_in(source_of(build, shape)) == expected
    values = np.random.default_rng(2).standard_normal(shape).astype(np.float32) / 2
    check(build, values, processor="vectors", exact=False, passes=FUSING)


@pytest.mark.parametrize("name", MOVES)
def test_moves_use_vector_accesses_where_all_is_aligned(name: str):
    shapes, build, expected = MOVES[name]
    source = source_of(build, *shapes, passes=())
    assert {each for each in vector_types_in(source) if each.startswith("u")} == expected
    check(build, *[numbers("float32", *shape) for shape in shapes], processor="vectors")


@pytest.mark.parametrize("dtype", EVERY)
def test_every_dtype_moves_and_adds_up_in_columns(dtype: str):
    check(
        lambda x: [weft.contiguous(x[::2]), weft.concat([x, x], 0), weft.max(x, axis=0)],
        numbers(dtype, 70, 48), processor="vectors",
    )  # fmt: skip


@pytest.mark.parametrize("dtype", EVERY)
def test_every_dtype_at_every_length(dtype: str):
    def build(*given: Any):
        *rows, one = given
        for part in [*rows, rows[-1][1:]]:
            yield weft.where(part > one[0], part, one[0])
            if part.axes.size > 1000:
                yield weft.max(part)

    values = [numbers(dtype, length) for length in LENGTHS]
    check(
        lambda *given: list(build(*given)), *values, numbers(dtype, 1),
        processor="vectors", passes=FUSING,
    )  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(length: int):
    values = numbers("int32", length)
    check(
        lambda x: [x * 2 + 1, x > 1, weft.sum(x), weft.sum(x * x)],
        values, processor="vectors", passes=FUSING,
    )  # fmt: skip


OTHERS = {
    "a processor": SERIAL,
    "a device that wants elements": PARALLEL,
    "a device in the host's memory": replace(VECTORIZED, shares_host=True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_vector_accesses_on(name: str):
    source = source_of(lambda x: (x + 1, weft.sum(x)), (64,), processor=OTHERS[name])
    assert "_by_" not in source


def test_vectors_are_no_wider_than_the_alignment_of_addresses():
    processor = replace(VECTORIZED, alignment=8)
    assert vector_types_in(source_of(lambda x: x + 1, (64,), processor=processor)) == {"f32_by_2"}


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_every_vector_access_is_aligned(data: Any):
    shape = data.draw(st.lists(st.sampled_from([24, 6, 7, 1]), min_size=1, max_size=3))
    x = weft.placeholder(shape, dtype=data.draw(st.sampled_from(["float32", "float64", "int8"])))
    start, step = st.sampled_from([0, 0, 1, 4]), st.sampled_from([1, 1, 1, 2, -1])
    view = x[tuple(slice(data.draw(start), None, data.draw(step)) for _ in shape)]
    view = weft.transpose(view, tuple(data.draw(st.permutations(range(len(shape))))))
    if not view.axes.size:
        return
    result = data.draw(st.sampled_from([view + 1, view > 0, weft.sum(view, axis=-1)]))
    *_, step = plan_of([result], x, processor=VECTORIZED).steps
    found = make_loop_nest(single_op_kernel(step.op)[0], step.args, step.outs)
    if found.reduced and data.draw(st.booleans()):
        found = split_reduced_loop(found, 2, {1: found.results[0]}, 16)
    builder = ElementWiseKernel(Lowering(step, VECTORIZED), found)
    results = [] if found.kernel.reduced else [0]
    access = (
        find_vector_access(builder, range(len(found.operands)), results) if found.shape else None
    )
    if access is None:
        return
    *outer, last = found.shape
    firsts = [*itertools.product(*map(range, outer), range(0, last, access.count))]
    for layout in [builder.loads[n] for n in access.reads] + [found.results[n] for n in results]:
        nbytes = layout.dtype.itemsize * access.count
        assert layout.strides[-1] == layout.dtype.itemsize
        assert 16 % nbytes == 0
        assert not np.any((layout.offset + np.array(firsts) @ layout.strides) % nbytes)


WHOLE_VECTORS = {
    "map": ((1100, 4096), lambda x: x + 1),
    "rows": ((1100, 4096), lambda x: x - weft.max(x, axis=1, keepdims=True)),
    "columns": ((100, 4096), lambda x: x - weft.max(x, axis=0)),
    "copy": ((100, 4096), lambda x: weft.contiguous(x[::2])),
    "concat": ((100, 4096), lambda x: weft.concat([x, x], 1)),
}


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "int32", "float32", "float64"])
@pytest.mark.parametrize("name", WHOLE_VECTORS)
def test_cuda_moves_sixteen_bytes_at_once(name: str, dtype: str):
    shape, build = WHOLE_VECTORS[name]
    ptx = nvrtc.ptx_of(source_of(build, shape, dtype=dtype, processor=CUDA_PARALLEL))
    for access in ("ld", "st"):
        found = set(re.findall(rf"\b{access}\.global\.\w+\.?\w*", ptx))
        kinds = (
            {"v2.f64", "v2.u64", "v2.b64"} if dtype == "float64" else {"v4.u32", "v4.b32", "v4.f32"}
        )
        assert found
        assert found <= {f"{access}.global.{kind}" for kind in kinds}


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("negated", [lambda x: -x, lambda x: 0 - x], ids=["-x", "0-x"])
def test_cuda_keeps_negations_of_integers_from_its_assembler(
    dtype: str, negated: Callable[..., Any]
):
    def build(x: weft.TensorOp):
        return weft.min(negated(x), axis=1), negated(x)

    ptx = nvrtc.ptx_of(source_of(build, (3, 4), dtype=dtype, processor=CUDA_PARALLEL))
    assert "min." in ptx
    assert "not.b32" in ptx
    assert "neg.s32" not in ptx

"""Copies, gathers and scatters in C against the ops' references: serial, parallel, as CUDA C."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir import dtypes
from weft.nn.spatial import windows
from weft.ops.indexing import dynamic_slices, gathering
from weft.ops.indexing.slicing import UpdateSliceOp
from weft.ops.random import philox
from weft.ops.shape.movement import IotaOp

pytest.importorskip("pyopencl")
from checking import EVERY, both, check, everywhere, numbers
from running import PROCESSORS, plan_of, run, work_of

pytestmark = [pytest.mark.slow, pytest.mark.share(6)]

COPIES = {
    "flat": ((1000,), lambda x: weft.contiguous(x)),
    "scalar": ((), lambda x: weft.contiguous(x)),
    "nothing": ((0, 3), lambda x: weft.contiguous(x)),
    "transposed": ((45, 70), lambda x: weft.contiguous(x.T)),
    "transposed in a batch": ((3, 33, 20), lambda x: weft.contiguous(weft.transpose(x, (0, 2, 1)))),
    "first axis last": ((40, 3, 33), lambda x: weft.contiguous(weft.transpose(x, (1, 2, 0)))),
    "narrow": ((100, 3), lambda x: weft.contiguous(x.T)),
    "backwards": ((7, 90), lambda x: weft.contiguous(x[::-1, ::-1])),
    "every third": ((7, 90), lambda x: weft.contiguous(x[1:6, 2::3])),
    "repeated": ((1, 40), lambda x: weft.contiguous(weft.broadcast(x, (33, 40)))),
    "repeated along": ((40, 1), lambda x: weft.contiguous(weft.broadcast(x, (40, 33)))),
    "reshaped": ((20, 30), lambda x: weft.reshape(x.T, (6, 100))),
    "windows": ((5, 9), lambda x: weft.contiguous(
        windows.WindowsOp(x, spans=((3, 1, 3, 1), (2, 3, 3, 2))))),
    "bits": ((5, 9), lambda x: weft.contiguous(weft.bitcast(x, "int32"))),
}  # fmt: skip


@everywhere
@pytest.mark.parametrize("name", COPIES)
def test_copies(name: str, processor: str):
    shape, build = COPIES[name]
    check(build, numbers("float32", *shape), processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", EVERY)
def test_copies_of_every_dtype(dtype: str, processor: str):
    check(lambda x: weft.contiguous(x.T), numbers(dtype, 40, 35), processor=processor)


@both
def test_a_copy_keeps_every_bit_of_a_nan(processor: str):
    bits = np.array([0x7FC12345, 0xFFABCDEF, 0x7F800001], np.uint32)
    x = weft.placeholder((3,))
    (found,), _ = run(
        [weft.contiguous(x)], x, arrays=[bits.view(np.float32)], processor=PROCESSORS[processor]
    )
    np.testing.assert_array_equal(found.view(np.uint32), bits)


JOINS = {
    "concat": (lambda x: weft.concat([x, x[:2], x[::-1]], 0)),
    "concat along the last axis": (lambda x: weft.concat([x, x[:, :0], x[:, 1:4]], 1)),
    "concat of many": (lambda x: weft.concat([x[i : i + 1] for i in range(6)] * 4, 0)),
    "pad": (lambda x: weft.pad(x, [(2, 1), (0, 3)], 5)),
    "pad of nothing": (lambda x: weft.pad(x[:0], [(2, 1), (0, 3)], 5)),
    "update slice": (lambda x: weft.update_slice(x, [slice(1, 4), slice(2, 9)], 1)),
    "update every third": (
        lambda x: weft.update_slice(x, [slice(None), slice(1, None, 3)], x[:, 3:14])
    ),
    "update backwards": (
        lambda x: UpdateSliceOp(x, x[:2, :5] * 1, bounds=((4, 2, -2), (30, 5, -3)))
    ),
    "update one element": (lambda x: weft.update_slice(x, [2, 3], 1)),
    "update nothing": (lambda x: weft.update_slice(x, [slice(3, 3), slice(None)], 1)),
    "update all": (lambda x: weft.update_slice(x, [slice(None), slice(None)], x[::-1])),
}


@everywhere
@pytest.mark.parametrize("name", JOINS)
def test_joins(name: str, processor: str):
    check(JOINS[name], numbers("float32", 6, 33), processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "int8", "float64"])
def test_joins_of_other_dtypes(dtype: str, processor: str):
    def build(x: weft.TensorOp):
        put = weft.update_slice(x, [1, slice(2)], 1)
        return weft.concat([x, x], 1), weft.pad(x, [1, 1], 1), put

    check(build, numbers(dtype, 5, 7), processor=processor)


@everywhere
@pytest.mark.parametrize(
    ("start", "dtype"),
    [((1, 2), "int8"), ((-3, 100), "int64"), ((0, 200), "uint8"), ((2**64 - 1, 1), "uint64")],
)
def test_blocks_that_begin_where_a_call_says(start: tuple[int, ...], dtype: str, processor: str):
    def build(x: weft.TensorOp, i: weft.TensorOp, j: weft.TensorOp):
        block = dynamic_slices.dynamic_slice(x, [i, j], (3, 7))
        return block, dynamic_slices.dynamic_update_slice(x, block, [j, i])

    starts = [np.array(each, dtype) for each in start]
    check(build, numbers("float32", 5, 20), *starts, processor=processor)


@everywhere
def test_blocks_as_long_as_an_axis(processor: str):
    def build(x: weft.TensorOp, i: weft.TensorOp):
        block = dynamic_slices.dynamic_slice(x, [i, i], (1, 2))
        whole = dynamic_slices.dynamic_update_slice(x, x * 2, [i, i])
        put = dynamic_slices.dynamic_update_slice(x, block, [i, i])
        one = dynamic_slices.dynamic_update_slice(x[:, 0], x[:, 1], [i])
        third = UpdateSliceOp(x, x[:, :2] * 1, bounds=((0, 1, 2), (1, 2, 3)))
        return block, whole, put, one, third

    check(build, numbers("float32", 1, 6), np.array(3, np.int32), processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", [each for each in EVERY if each != "bool"])
def test_indices_along_each_axis(dtype: str, processor: str):
    target = dtypes.as_dtype(dtype)

    def build(x: weft.TensorOp):
        return [
            IotaOp(target_axes=x.axes, target_dtype=target, position=place) for place in range(3)
        ]

    check(build, numbers("int8", 2, 7, 9), processor=processor)


@everywhere
@pytest.mark.parametrize("batch", [(), (1,), (3, 2), (0,)])
@pytest.mark.parametrize("shape", [(), (1,), (4, 5), (1003,), (30, 70), (0,)])
def test_random_bits_are_equal_to_the_bit(
    shape: tuple[int, ...], batch: tuple[int, ...], processor: str
):
    def build(keys: weft.TensorOp, counter: weft.TensorOp, counters: weft.TensorOp):
        axes = weft.make_axes(shape)
        draws = {"target_axes": axes, "domain": 2**32 - 1}
        strided = weft.transpose(weft.contiguous(weft.transpose(keys)))
        return [
            philox.RandomBitsOp(keys, counter, **draws),
            philox.RandomBitsOp(keys, counters, **draws),
            philox.RandomBitsOp(strided, counter, **draws),
        ]

    rng = np.random.default_rng(0)
    keys = rng.integers(2**32, size=(*batch, 2), dtype=np.uint32)
    counters = rng.integers(2**32, size=batch, dtype=np.uint32)
    check(build, keys, np.array(2**32 - 1, np.uint32), counters, processor=processor)


TAKES = {
    "rows": ((50, 9), (4, 3), 0),
    "rows of one": ((50, 1), (7,), 0),
    "columns": ((5, 40), (30,), 1),
    "in the middle": ((3, 6, 7, 2), (2, 4), 1),
    "one": ((5, 4), (), 0),
    "of a vector": ((40,), (1000,), 0),
    "nothing": ((5, 4), (0,), 1),
}


@everywhere
@pytest.mark.parametrize("name", TAKES)
def test_takes(name: str, processor: str):
    shape, at, position = TAKES[name]
    n = shape[position]
    indices = np.random.default_rng(7).integers(-n, n, at).astype(np.int32)
    check(
        lambda x, i: [weft.take(x, i, position), weft.take(x[::-1], i, position)],
        numbers("float32", *shape),
        indices,
        processor=processor,
    )


@everywhere
@pytest.mark.parametrize(
    ("dtype", "index"),
    [("bool", "int8"), ("float16", "uint8"), ("float64", "int64"), ("int32", "uint64")],
)
def test_takes_of_dtypes(dtype: str, index: str, processor: str):
    low = 0 if index[0] == "u" else -6
    indices = np.random.default_rng(7).integers(low, 6, (6, 8)).astype(index)

    def build(x: weft.TensorOp, i: weft.TensorOp):
        along = gathering.TakeAlongAxisOp(x, i, position=0)
        return weft.take(x, i, 0), along, weft.take(x, i.T, 1)

    check(build, numbers(dtype, 6, 8), indices, processor=processor)


@both
@pytest.mark.parametrize(
    ("wrong", "dtype"), [(6, "int32"), (-7, "int64"), (2**64 - 1, "uint64"), (100, "uint8")]
)
def test_an_index_out_of_range_is_reported(wrong: Any, dtype: Any, processor: str):
    values, indices = numbers("float32", 6, 4), np.array([1, wrong, 2], dtype)
    x, i = weft.placeholder((6, 4)), weft.placeholder((3,), dtype=dtype)
    updates = weft.placeholder((3, 4))
    for result in (weft.take(x, i, 0), weft.scatter(x, i, updates, 0, "add")):
        arrays = [values, indices, np.ones((3, 4), np.float32)]
        (found,), error = run(
            [result], x, i, updates, arrays=arrays, processor=PROCESSORS[processor]
        )
        assert error
        assert np.isfinite(found).all()


@both
def test_every_index_into_nothing_is_reported(processor: str):
    x, i = weft.placeholder((0, 4)), weft.placeholder((3,), dtype="int32")
    for result in (weft.take(x, i, 0), weft.scatter(x, i, 1.0, 0, "add")):
        arrays = [np.zeros((0, 4), np.float32), np.zeros(3, np.int32)]
        _, error = run([result], x, i, arrays=arrays, processor=PROCESSORS[processor])
        assert error


SCATTERS = {
    "rows": ((50, 9), (40,), 0),
    "columns": ((5, 40), (300,), 1),
    "in the middle": ((3, 6, 7, 2), (2, 4), 1),
    "one": ((5, 4), (), 0),
    "a vector": ((40,), (5000,), 0),
    "long rows": ((30, 500), (100,), 0),
    "many rows": ((100, 5, 40), (8,), 1),
}


@everywhere
@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(name: str, processor: str):
    shape, at, position = SCATTERS[name]
    n = shape[position]
    indices = np.random.default_rng(7).integers(-n, n, at).astype(np.int32)
    updates = numbers("float32", *shape[:position], *at, *shape[position + 1 :])
    signs = np.sign(updates) + 2 * (updates == 0)

    def build(x: weft.TensorOp, i: weft.TensorOp, u: weft.TensorOp, s: weft.TensorOp):
        return [
            weft.scatter(x, i, s if how == "mul" else u, position, how)
            for how in ("add", "mul", "max", "min")
        ]

    check(build, numbers("float32", *shape), indices, updates, signs, processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", EVERY)
def test_scatters_of_dtypes(dtype: str, processor: str):
    several, each = np.array([3, -1, 3, 0, 4, 4]), np.array([3, -1, 0])
    ways = ("max", "min") if dtype == "bool" else ("add", "mul", "max", "min")

    def build(x: weft.TensorOp, u: weft.TensorOp):
        combined = [weft.scatter(x, several, u, 0, how) for how in ways]
        return [weft.scatter(x, each, u[:3], 0), *combined]

    check(build, numbers(dtype, 6, 20), numbers(dtype, 6, 20), processor=processor)


REPEATED = {
    "first": ((5, 4), (30,), 0),
    "in the middle": ((3, 5, 2), (4, 6), 1),
    "a vector": ((7,), (3000,), 0),
    "long rows": ((3, 500), (20,), 0),
    "one place": ((1,), (90,), 0),
}


@everywhere
@pytest.mark.parametrize("name", REPEATED)
def test_the_last_of_updates_for_one_place_is_set(name: str, processor: str):
    shape, at, position = REPEATED[name]
    n = shape[position]
    indices = np.random.default_rng(7).integers(-n, n, at).astype(np.int32)
    updates = np.arange(np.prod((*shape[:position], *at, *shape[position + 1 :])), dtype="f4")
    updates = updates.reshape(*shape[:position], *at, *shape[position + 1 :])

    def build(x: weft.TensorOp, i: weft.TensorOp, u: weft.TensorOp):
        turned = weft.transpose(weft.contiguous(weft.transpose(i)))
        return [weft.scatter(x, each, u, position) for each in (i, turned)]

    x = np.full(shape, -1, np.float32)
    check(build, x, indices, updates, processor=processor)


def test_more_updates_than_32_bits_count_are_numbered_with_64():
    def launched(count: int, **facts: Any):
        processor = replace(PROCESSORS["parallel"], **facts)
        x, i = weft.placeholder((5,)), weft.placeholder((1,), "int32")
        many = weft.broadcast(i, (count,))
        plan = plan_of([weft.scatter(x, many, 1.0)], x, i, processor=processor)
        return {each.function.title: each.function.body for each in work_of(plan, processor)[0]}

    assert "weft_atomic_max_i64" in launched(2**31)["last updates"]
    assert "weft_atomic_max_i32" in launched(2**30)["last updates"]
    for text in (launched(1), launched(2**31, has_int64_atomics=False)):
        assert "scatter set" in text
        assert "last updates" not in text


@everywhere
def test_scatters_keep_nan(processor: str):
    x = np.array([np.nan, 1, 2, 3], np.float32)
    updates = np.array([1, np.nan, 5], np.float32)

    def build(x: weft.TensorOp, u: weft.TensorOp):
        return [weft.scatter(x, [0, 1, 2], u, 0, how) for how in ("max", "min")]

    check(build, x, updates, processor=processor)


IN_PLACE = {
    "scatter": lambda y, i: weft.scatter(y, i, 1.0, 0, "add"),
    "set": lambda y, i: weft.scatter(y, i[:1], 7.0, 0),
    "update slice": lambda y, i: weft.update_slice(y, [slice(1, 9, 3), slice(2, 4)], 7),
    "block": lambda y, i: dynamic_slices.dynamic_update_slice(y, [[7.0, 8.0]], [i[0], i[1]]),
}


@everywhere
@pytest.mark.parametrize("name", IN_PLACE)
def test_updates_in_place(name: str, processor: str):
    """The result reuses the memory of the operand, which has no other reader."""

    def build(x: weft.TensorOp, i: weft.TensorOp):
        return weft.contiguous(IN_PLACE[name](weft.contiguous(x), i))

    x, i = weft.placeholder((9, 5)), weft.placeholder((3,), dtype="int64")
    plan = plan_of([build(x, i)], x, i, processor=PROCESSORS["serial"])
    first, *_, update, _ = plan.steps
    assert update.out == first.out
    check(build, numbers("float32", 9, 5), np.array([2, 2, 8]), processor=processor)

"""Work-group kernels: long reductions, searches and sorts by the work items of a group."""

from __future__ import annotations

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
from running import (
    CUDA_PARALLEL,
    FUSING,
    PARALLEL,
    SHUFFLING,
    VECTORIZED,
    plan_of,
    run,
    work_of,
)

from weft.ops.reductions.sorting import TopKIndicesOp
from weft_c import OPENCL
from weft_c.ops.sorting import MAX_SELECTED
from weft_c.reductions.split import MIN_WORK_GROUP_ROW
from weft_c.reductions.work_group import MIN_COALESCED

pytestmark = [pytest.mark.slow, pytest.mark.share(16)]

MANY = replace(VECTORIZED, units=16)
"""A device with so many units that a work group combines the splits of a single row."""

MANY_SHUFFLING = replace(SHUFFLING, units=16)
"""Such a device with warp shuffles."""

LONGEST = 131_101


def work(
    build: Callable[..., Any], *shapes: Any, processor: Processor = MANY, dtype: str = "float32"
):
    """Return launches by title, each with its groups, and the source."""
    parameters = [weft.placeholder(shape, dtype=dtype) for shape in shapes]
    plan = plan_of([build(*parameters)], *parameters, processor=processor, passes=FUSING)
    launches, source = work_of(plan, processor)
    return [(each.function.title, each.items // each.function.group) for each in launches], source


WHOLE = {
    "sum": weft.sum,
    "max": weft.max,
    "mean": weft.mean,
    "variance": weft.variance,
    "softmax": weft.softmax,
    "least and most": lambda x: (weft.min(x), weft.max(x)),
    "of exponentials": lambda x: weft.log(weft.sum(weft.exp(x - weft.max(x)))),
    "backwards": lambda x: weft.sum(x[::-1]),
    "every other": lambda x: weft.sum(x[::2]),
}


@pytest.mark.parametrize("processor", [MANY, MANY_SHUFFLING])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_reductions_in_many_splits(name: Any, processor: str):
    values = np.random.default_rng(3).standard_normal(LONGEST).astype(np.float32)
    check(WHOLE[name], values, processor=processor, exact=False, passes=FUSING)


@pytest.mark.parametrize("processor", [MANY, MANY_SHUFFLING])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float64", "bool"])
def test_whole_reductions_of_a_dtype(dtype: Any, processor: str):
    values = numbers(dtype, LONGEST)

    def build(x: Any):
        return [weft.max(x), weft.min(x)] if dtype == "bool" else [weft.sum(x), weft.max(x)]

    check(build, values, processor=processor, exact=dtype != "float64", passes=FUSING)


@pytest.mark.parametrize(("processor", "is_group"), [(MANY, True), (PARALLEL, False)])
def test_a_group_combines_many_splits(processor: Processor, is_group: bool):
    launches, source = work(weft.sum, (LONGEST,), processor=processor)
    (_, parts), (title, groups) = launches
    assert (title, groups) == ("sum_of_all", 1)
    assert (parts >= MIN_WORK_GROUP_ROW) is is_group
    combining = source[source.index("void sum_of_all") :]
    assert ("BARRIER()" in combining) is is_group


@pytest.mark.parametrize("warp", [8, 16, 32, 64])
@pytest.mark.parametrize("group", [8, 64, 256])
@pytest.mark.parametrize("length", [64, 1000])
def test_work_items_pass_each_other_values_where_they_fill_a_group(
    warp: Any, group: Any, length: Any
):
    processor = replace(VECTORIZED, group=group, dialect=replace(OPENCL, warp=warp))
    _, source = work(weft.softmax, (40, length), processor=processor)
    width = min(group, MIN_COALESCED if length == 64 else group)
    shuffles = re.findall(r"SHUFFLE_XOR\(\w+, (\d+)\)", source)
    expected = [str(warp >> each) for each in range(1, warp.bit_length())] * 2
    assert shuffles == (expected if width % warp == 0 else [])
    demanded = f"__attribute__((intel_reqd_sub_group_size({warp})))\n__kernel"
    assert (demanded in source) is bool(shuffles)
    values = np.random.default_rng(2).standard_normal((40, length)).astype(np.float32)
    check(weft.softmax, values, processor=processor, exact=False, passes=FUSING)


def test_the_same_sum_every_time():
    x = weft.placeholder((LONGEST,))
    values = np.random.default_rng(5).standard_normal(LONGEST).astype(np.float32)
    found = {
        run([weft.sum(x)], x, arrays=[values], processor=MANY, passes=FUSING)[0][0].item()
        for _ in range(5)
    }
    assert len(found) == 1


COLUMNS = {
    "one part": ((100, 64), [("sum", 1)]),
    "parts, combined by work items": ((2000, 64), [("sum_of_parts", 15), ("sum_of_all", 1)]),
    "parts, combined by groups": ((20_000, 4), [("sum_of_parts", 128), ("sum_of_all", 4)]),
    "wide": ((100, 4096), [("sum", 32)]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_split_for_all_units(name: Any):
    shape, expected = COLUMNS[name]
    launches, _ = work(lambda x: weft.sum(x, axis=0), shape)
    assert launches == expected
    values = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    check(lambda x: weft.sum(x, axis=0), values, processor=MANY, exact=False, passes=FUSING)


ROWS = [(1, 64), (7, 64), (8, 64), (1001, 64), (9, 70), (5, 128), (6, 200), (3, 256), (3, 1000)]
"""Rows of which a work group reduces several together, with and without a remainder."""


@pytest.mark.parametrize(
    "processor",
    [PARALLEL, MANY, replace(MANY, group=128), SHUFFLING, replace(MANY_SHUFFLING, group=256)],
)
@pytest.mark.parametrize("shape", ROWS)
def test_a_group_takes_several_short_rows(shape: Any, processor: str):
    values = np.random.default_rng(6).standard_normal(shape).astype(np.float32)

    def build(x: Any):
        steady = weft.sum(x, axis=1) + x[:, 1]
        return [weft.softmax(x), steady, x * weft.max(x, axis=1)[:, None], weft.min(x, axis=1)]

    check(build, values, processor=processor, exact=False, passes=FUSING)


SHARED = [
    ("float32", 64, 2), ("float32", 127, 2), ("float32", 128, 2), ("float32", 129, 2),
    ("float32", 256, 3), ("float32", 512, 5), ("float32", 1024, 10), ("float16", 1024, 5),
    ("float64", 1024, 10), ("int8", 1024, 3),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "length", "groups"), SHARED)
def test_short_rows_share_groups(dtype: str, length: int, groups: int):
    processor = replace(MANY, group=256)
    launches, _ = work(
        lambda x: x - weft.max(x, axis=1)[:, None], (10, length), processor=processor, dtype=dtype
    )
    assert [count for _, count in launches] == [groups]


EMPTY = [((0, 100), 0), ((0, 100), 1), ((100, 0), 0), ((100, 0), 1)]


@pytest.mark.parametrize(("shape", "axis"), EMPTY)
def test_nothing_is_added_up(shape: tuple[int, ...], axis: int):
    check(lambda x: weft.sum(x, axis=axis), np.zeros(shape, np.float32), processor=MANY)


def test_an_invariant_result_waits_for_readers_of_the_memory_it_overwrites():
    x, y = weft.placeholder((9, 100)), weft.placeholder((9, 1))
    results = [x / weft.sum(x, axis=1, keepdims=True), weft.sum(x, axis=1, keepdims=True) + y]
    plan = plan_of(results, x, y, processor=PARALLEL, passes=FUSING)
    _, source = work_of(plan, PARALLEL)
    assert re.search(r"BARRIER\(\);\s+if \(LOCAL_ID", source)


@pytest.mark.parametrize("shape", [(9, 70), (70, 9), (300, 12), (20_011,)])
@pytest.mark.parametrize("build", [weft.softmax, lambda x: x * 2 - weft.max(x, axis=-1)[..., None]])
def test_no_block_is_empty(shape: tuple[int, ...], build: Callable[..., Any]):
    _, source = work(build, shape)
    assert not re.search(r"{\s*}", source)


PEAKS = [0, 1, 4095, 4096, 65_536, LONGEST - 1]


@pytest.mark.parametrize("dtype", EVERY)
def test_an_extremum_is_found_in_splits(dtype: Any):
    values = numbers(dtype, LONGEST)

    def build(x: Any):
        return [weft.argmax(x, axis=0), weft.argmin(x, axis=0)]

    check(build, values, processor=MANY)


@pytest.mark.parametrize("place", PEAKS)
@pytest.mark.parametrize("peak", [2.0, np.nan, np.inf])
def test_the_first_of_equal_peaks_is_found(place: int, peak: float):
    values = np.zeros((2, LONGEST), np.float32)
    values[:, place::5000] = peak
    values[1] = -values[1]
    check(
        lambda x: [weft.argmax(x, axis=1), weft.argmin(x, axis=1), weft.argmax(x[:, ::-1], axis=1)],
        values, processor=MANY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axis", "groups"),
    [((LONGEST,), 0, [32, 1]), ((5, 10_000), 1, [10, 5]), ((200, 10_000), 1, [128]),
     ((10_000, 5), 0, [10, 5])],
)  # fmt: skip
def test_long_lines_are_searched_in_splits(shape: tuple[int, ...], axis: int, groups: list[int]):
    launches, _ = work(lambda x: weft.argmax(x, axis=axis), shape)
    assert [count for _, count in launches] == groups
    check(lambda x: weft.argmax(x, axis=axis), numbers("float32", *shape), processor=MANY)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("descending", [True, False])
def test_few_of_a_long_line_are_looked_for(dtype: Any, descending: Any):
    def build(x: Any):
        return [
            TopKIndicesOp(each, position=position, descending=descending, k=k)
            for each, position, k in [(x, 1, 1), (x.T, 0, MAX_SELECTED), (x[:, ::-1], 1, 7)]
        ]

    check(build, awkward(dtype, 3, 1500), processor=PARALLEL)


@pytest.mark.parametrize(("k", "is_network"), [(MAX_SELECTED, False), (MAX_SELECTED + 1, True)])
def test_many_of_a_long_line_are_sorted(k: int, is_network: bool):
    values = np.random.default_rng(8).standard_normal((2, 1500)).astype(np.float32)
    assert ("GLOBAL u32 *ranks" in work(lambda x: top(x, k), (2, 1500))[1]) is is_network
    check(lambda x: top(x, k), values, processor=MANY)


def top(x: weft.TensorOp, k: int):
    return TopKIndicesOp(x, position=1, descending=True, k=k)


FOR_CUDA = {
    "all": ((1_000_000,), weft.variance),
    "columns": ((5000, 100), lambda x: weft.variance(x, axis=0)),
    "odd columns": ((5000, 99), lambda x: weft.softmax(x, 0)),
    "short columns": ((9, 5000), lambda x: weft.softmax(x, 0)),
    "short rows": ((1001, 64), weft.softmax),
    "rows of two warps": ((1001, 256), weft.softmax),
    "a place": ((100_000,), lambda x: weft.argmax(x, 0)),
    "few of many": ((2, 100_000), lambda x: top(x, 10)),
    "running": ((100_000,), lambda x: weft.cumsum(x, 0)),
}


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", FOR_CUDA)
def test_groups_compile_for_cuda(name: str):
    shape, build = FOR_CUDA[name]
    _, source = work(build, shape, processor=CUDA_PARALLEL)
    assert nvrtc.log_of(source, options=nvrtc.QUICKLY) == ""

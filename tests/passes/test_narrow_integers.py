"""Positions and counts on a made-up target without 64-bit integers, beside NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_table import FUNCTIONS

import weft
import weft_array_api
from weft import plugins
from weft.errors import IndexOutOfRange, UnsupportedOpError
from weft.ir import dtypes
from weft.ir.target import Target
from weft.ops.shape.movement import ContiguousOp
from weft.testing.cases import examine, make_case
from weft.testing.table import TABLE

LACKING = {"int64", "uint64", "float64", "complex64", "complex128"}


def without_64_bits(target: Target) -> Target:
    return dataclasses.replace(target, dtypes=target.dtypes - LACKING, index_dtype=dtypes.int32)


class Narrow(weft_array_api.ArrayTransformer):
    """NumPy op by op, which refuses to compute with 64 bits."""

    transformer_name = "narrow"

    @property
    def target(self) -> Target:
        return without_64_bits(super().target)


def ran(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Return the results for arrays, after a look at the dtypes of all that was computed."""
    placeholders = [weft.placeholder(array.shape, array.dtype) for array in arrays]
    with Narrow(np) as transformer:
        found = function(*placeholders)
        results = list(found) if isinstance(found, list | tuple) else [found]
        computation = transformer.computation(results, *placeholders)
        values = computation(*arrays)
        for step in computation.plan.steps:
            if isinstance(step.op, ContiguousOp):
                continue  # what is only copied keeps its words
            assert step.op.dtype.name not in LACKING, step.op
            assert all(arg.dtype.name not in LACKING for arg in step.op.args), step.op
    return list(values)


X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
LABELS = np.array([1, 3, 0])
ROWS = np.array([2, -1, 0])
LARGE = np.array([2**32 - 1, 1, -1, 2**40, -(2**50), 2**31, 0, 2**62])

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "argmax": (lambda x: weft.argmax(x, 1), lambda x: np.argmax(x, 1), (X,)),
    "argmin of all": (lambda x: weft.argmin(x), lambda x: np.argmin(x), (X,)),
    "argsort": (lambda x: weft.argsort(x, 1), lambda x: np.argsort(x, 1, kind="stable"), (X,)),
    "sort": (lambda x: weft.sort(x, 0), lambda x: np.sort(x, 0), (X,)),
    "topk": (
        lambda x: weft.topk(x, 2).indices,
        lambda x: np.argsort(-x, 1, kind="stable")[:, :2],
        (X,),
    ),
    "searchsorted": (
        lambda x: weft.searchsorted(weft.sort(x[0]), x[1]),
        lambda x: np.searchsorted(np.sort(x[0]), x[1]),
        (X,),
    ),
    "nonzero": (
        lambda x: weft.nonzero(x > 0, size=12).indices[:, :3],
        lambda x: np.stack(np.nonzero(x > 0))[:, :3],
        (X,),
    ),
    "a list of indices": (lambda x: x[[0, 2]], lambda x: x[[0, 2]], (X,)),
    "indices of the user": (lambda x, i: weft.take(x, i, 0), lambda x, i: x[i], (X, ROWS)),
    "indices of both axes": (lambda x, i, j: x[i, j], lambda x, i, j: x[i, j], (X, ROWS, LABELS)),
    "indices as uint32": (
        lambda x, i: weft.take(x, weft.cast(i, "int64") + 1, 0),
        lambda x, i: x[i.astype(int) + 1],
        (X, np.array([0, 1], "uint32")),
    ),
    "indices of floats": (
        lambda x, at: weft.take(x, weft.cast(weft.clip(at, 0, 2), "int64"), 0),
        lambda x, at: x[np.clip(at, 0, 2).astype(int)],
        (X, np.array([0.5, 7, -3, 1.9], "float32")),
    ),
    "labels": (
        lambda x, labels: weft.nn.cross_entropy(x, labels),
        lambda x, labels: np.mean(np.log(np.exp(x).sum(1)) - x[[0, 1, 2], labels]),
        (X, LABELS),
    ),
    "sum of 64 bits": (lambda i, j: i + j, np.add, (LARGE, LARGE[::-1])),
    "difference of 64 bits": (lambda i, j: i - j, np.subtract, (LARGE, LARGE[::-1])),
    "sum of narrow and wide": (lambda i: i[0] + 5 - i, lambda i: i[0] + 5 - i, (LARGE,)),
    "order of 64 bits": (lambda i, j: i < j, np.less, (LARGE, LARGE[::-1])),
    "equality of 64 bits": (
        lambda i, j: i == j,
        np.equal,
        (LARGE, np.where(LARGE < 9, LARGE, 7)),
    ),
    "order of unsigned words": (
        lambda i, j: i >= j,
        np.greater_equal,
        (LARGE.view("uint64"), LARGE[::-1].view("uint64")),
    ),
    "comparison": (lambda i: i < 2, lambda i: i < 2, (np.array([1, 2**40, -(2**40), 2]),)),
    "what is only moved": (
        lambda i: weft.transpose(i),
        np.transpose,
        (np.array([[1, 2**40], [-(2**50), 2]]),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_positions_are_those_of_numpy(name: str) -> None:
    function, expected, arrays = CASES[name]
    (found,) = ran(function, *arrays)
    wanted = np.asarray(expected(*arrays))
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("native", marks=pytest.mark.needs("compiler"))]
)
def test_positions_are_narrow_in_kernels_of_a_backend(backend: str) -> None:
    base = plugins.load(plugins.BACKENDS, backend)

    class Backend(base):  # type: ignore[misc, valid-type]
        transformer_name = f"narrow-{backend}"

        @property
        def target(self) -> Target:
            return without_64_bits(super().target)

    results, placeholders, arrays = [], [], []
    for function, _, values in CASES.values():
        new = [weft.placeholder(array.shape, array.dtype) for array in values]
        results.append(function(*new))
        placeholders += new
        arrays += values
    with Backend() as transformer:
        computation = transformer.computation(results, *placeholders)
        found = computation(*arrays)
        computation.plan.verify()
    for name, value in zip(CASES, found, strict=True):
        _, expected, values = CASES[name]
        np.testing.assert_allclose(value, expected(*values), rtol=1e-5, err_msg=name)


def test_random_numbers_have_the_same_bits() -> None:
    def draw() -> list[weft.TensorOp]:
        options: Any = {"seed": 3, "stream": 5}
        bits = weft.random_bits((2, 5), **options)
        dice = [
            weft.randint((9,), -4, high, dtype=kind, **options)
            for high, kind in ((7, "int8"), (2**31, "int32"), (2**30, "int32"))
        ]
        chance = weft.constant(np.array([0, 0.3, 1], "float32"))
        return [bits, *dice, weft.normal((7,), **options), weft.bernoulli(chance, **options)]

    with weft.make_transformer("numpy") as transformer:
        wanted = transformer.computation(draw())()
    for found, value in zip(ran(draw), wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize("index", [3, -4, 2**31, 2**32 + 1, -(2**63), 2**63 - 1])
def test_an_index_out_of_range_stays_out_of_range(index: int) -> None:
    with pytest.raises(IndexOutOfRange, match=r"(?s)out of range.*test_narrow_integers\.py"):
        ran(lambda x, i: weft.take(x, i, 0), X, np.array([0, index]))


@pytest.mark.parametrize(
    "function",
    [lambda i: i * 3, lambda i: i % 5, lambda i: weft.cast(i, "float32"), lambda i: weft.sum(i)],
)
def test_arithmetic_that_may_exceed_32_bits_is_refused(function: Callable[..., Any]) -> None:
    message = r"\w+Op: it does not compute with int64, File .*test_narrow_integers\.py"
    with pytest.raises(UnsupportedOpError, match=message) as caught:
        ran(function, np.array([1, 2]))
    lines = [line for line in str(caught.value).split("\n") if "does not compute" in line]
    assert len(lines) == len(set(lines))


def test_states_of_64_bits_are_read_and_stored() -> None:
    best = weft.variable((3,), "int64", np.zeros(3, "int64"))
    x = weft.placeholder((3, 4))
    with Narrow(np) as transformer:
        store = transformer.computation([weft.assign(best, weft.argmax(x, 1))], x)
        read = transformer.computation([weft.take(x, best, 1), best], x)
        store(X)
        taken, values = read(X)
    np.testing.assert_array_equal(values, np.argmax(X, 1))
    np.testing.assert_array_equal(taken, X[:, np.argmax(X, 1)])


def test_a_counter_of_64_bits_counts() -> None:
    calls = weft.variable((), "int64", 2**32 - 2)
    with Narrow(np) as transformer:
        count = transformer.computation([weft.assign(calls, calls + 1), calls])
        assert [count()[1].item() for _ in range(3)] == [2**32 - 1, 2**32, 2**32 + 1]


def test_loops_count_in_64_bits() -> None:
    def function(x: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            return total + x[i] * weft.cast(i < 2, "float32")

        return weft.fori_loop(0, 3, body, x[0])

    (found,) = ran(function, X)
    np.testing.assert_allclose(found, 2 * X[0] + X[1], rtol=1e-6)


def test_other_targets_keep_their_graphs() -> None:
    graph = weft.capture([weft.argmax(weft.placeholder((3,)), 0)], [])
    one = plugins.load(plugins.PASSES, "narrow-integers")()
    assert one.do_pass(graph, weft.make_transformer("numpy").target) is graph


@pytest.mark.share(12)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_the_op_table_are_right_where_they_can_be_computed(function: str) -> None:
    cases = [
        make_case(row, row.shapes[0], dtype)
        for row in TABLE
        if row.function == function
        for dtype in row.dtypes[:1]
        if dtype not in LACKING
    ]
    with Narrow(np) as transformer:
        findings = examine(transformer, cases)
    assert [problem for each in findings for problem in each.problems] == []
    if not any(each.is_within for each in findings):
        pytest.skip("the made-up target lacks a dtype of each row")

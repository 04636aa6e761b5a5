"""Kernels give what the ops in them give, however they are cut into tiles."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from one_kernel import check, compiled, kinds_of, samples

import weft

pytestmark = pytest.mark.usefixtures("tiny")


def chain(x: Any) -> Any:
    return weft.where(x > 0.5, weft.exp(-x), weft.tanh(x * 2 + 1)) * x


def normalized(*axes: int) -> Any:
    def build(x: Any) -> Any:
        distance = x - weft.mean(x, axis=axes, keepdims=True)
        return distance / weft.sqrt(weft.mean(distance * distance, axis=axes, keepdims=True) + 1)

    return build


def softmax(*axes: int) -> Any:
    def build(x: Any) -> Any:
        powers = weft.exp(x - weft.max(x, axis=axes, keepdims=True))
        return powers / weft.sum(powers, axis=axes, keepdims=True)

    return build


def moments(*axes: int) -> Any:
    def build(x: Any) -> Any:
        total = weft.sum(x, axis=axes, keepdims=True)
        squares = weft.sum(weft.square(x - total), axis=axes)
        return [total, squares, weft.max(x * 2, axis=axes), x - total, weft.sqrt(squares)]

    return build


def between(x: Any) -> Any:
    mean = weft.sum(x, axis=0) * 0.01
    power = weft.exp(mean)
    total = weft.sum(weft.tanh(x - mean) * power, axis=0)
    return [(x - mean) * power + total, total * power]


def sums_of_sums(*axes: int) -> Any:
    def build(x: Any) -> Any:
        total = weft.sum(x * x, axis=axes, keepdims=True)
        root = weft.sqrt(total)
        again = [
            weft.sum(weft.broadcast(each, x.axes), axis=axes) for each in (total, root, root + x)
        ]
        return [total, *again, weft.max(weft.broadcast(total, x.axes), axis=axes)]

    return build


def all_reductions(x: Any) -> Any:
    kinds = (weft.sum, weft.prod, weft.max, weft.min)
    return [kind(x, axis=1) for kind in kinds]


ELEMENTWISE = {
    "chain": (chain, [(7, 11)]),
    "chain of a scalar": (chain, [()]),
    "chain of nothing": (chain, [(3, 0)]),
    "chain of one": (chain, [(1, 1)]),
    "three axes": (chain, [(2, 3, 17)]),
    "row": (lambda x, b: (x + b) * x, [(7, 11), (11,)]),
    "column": (lambda x, b: x * b + b, [(7, 11), (7, 1)]),
    "transposed": (lambda x, y: weft.exp(weft.transpose(x)) + y, [(11, 7), (7, 11)]),
    "three layouts": (
        lambda x, y, z: x * weft.transpose(y) + z,
        [(2, 3, 5), (5, 3, 2), (3, 1)],
    ),
    "several results": (lambda x: [x + 1, (x + 1) * x, x * x], [(9, 5)]),
    "a result of a result": (lambda x: [weft.exp(x), weft.tanh(weft.exp(x))], [(40,)]),
    "the same twice": (lambda x, y: [x + y, (x + y) * 2], [(40,), (40,)]),
    "relu": (lambda x: weft.relu(x) + weft.maximum(1.0, x), [(5, 9)]),
    "powers": (lambda x: x**3 + x**4 + x**2 + x**1.5, [(5, 9)]),
    "power in place": (lambda x: (x + 1) ** 3, [(5, 9)]),
    "reciprocal": (lambda x: weft.reciprocal(x * x + 1), [(5, 9)]),
    "a number as well": (lambda x, s: [x * (s * 2 + 1), s * 2 + 1], [(40,), ()]),
    "repeated": (lambda b, x: weft.exp(weft.broadcast(b, x.axes)) + x, [(1, 9), (5, 9)]),
}

REDUCTIONS = {
    "K R": (normalized(1), [(9, 10)], "loop"),
    "R K": (normalized(0), [(3, 40)], "loop"),
    "R K long": (normalized(0), [(40, 3)], "sweeps"),
    "K R K": (normalized(1), [(3, 4, 5)], "loop"),
    "R K R": (normalized(0, 2), [(2, 5, 3)], "loop"),
    "R K R long": (normalized(0, 2), [(8, 2, 9)], "sweeps"),
    "all": (normalized(0, 1), [(9, 10)], "sweeps"),
    "K R far too long": (normalized(1), [(2, 97)], "sweeps"),
    "K R far too long in rows": (normalized(1), [(2, 128)], "sweeps"),
    "R prime": (normalized(0), [(101,)], "sweeps"),
    "one row": (normalized(1), [(1, 30)], "sweeps"),
    "softmax K R": (softmax(1), [(9, 10)], "loop"),
    "softmax R K": (softmax(0), [(40, 6)], "sweeps"),
    "softmax all": (softmax(0, 1, 2), [(3, 5, 7)], "sweeps"),
    "moments K R": (moments(1), [(9, 10)], "loop"),
    "moments R K": (moments(0), [(40, 3)], "sweeps"),
    "moments R K R": (moments(0, 2), [(8, 2, 9)], "sweeps"),
    "moments all": (moments(0, 1), [(9, 10)], "sweeps"),
    "kinds K R": (all_reductions, [(20, 6)], "loop"),
    "kinds K R K": (all_reductions, [(3, 3, 4)], "loop"),
    "kinds long": (all_reductions, [(2, 60)], "sweeps"),
    "row sums": (lambda x: weft.sum(x, axis=1), [(31, 9)], "loop"),
    "column sums": (lambda x: weft.sum(x, axis=0), [(310, 5)], "sweeps"),
    "sums of products": (lambda x, y: weft.sum(x * y, axis=1), [(31, 9), (31, 9)], "loop"),
    "sums of products with a row": (
        lambda x, y: weft.sum(x * y, axis=1),
        [(31, 9), (9,)],
        "loop",
    ),
    "sums of products with a column": (
        lambda x, y: weft.sum(x * y, axis=1),
        [(31, 9), (31, 1)],
        "loop",
    ),
    "sum of a repeated row": (
        lambda x, y: [weft.sum(weft.broadcast(y, x.axes), axis=(0, 1)), weft.sum(x, axis=(0, 1))],
        [(12, 9), (9,)],
        "sweeps",
    ),
    "products that are needed themselves": (
        lambda x, y: x * y - weft.sum(x * y, axis=1, keepdims=True),
        [(31, 9), (31, 9)],
        "loop",
    ),
    "sums of a row for every row": (
        lambda x, y: [weft.sum(weft.broadcast(y, x.axes), axis=1), weft.sum(x, axis=1)],
        [(4, 60), (1, 60)],
        "sweeps",
    ),
    "sums of sums": (sums_of_sums(1), [(9, 10)], "loop"),
    "sums of sums, too long": (sums_of_sums(1), [(2, 97)], "sweeps"),
    "sums of sums of columns": (sums_of_sums(0), [(40, 3)], "sweeps"),
    "values between sweeps": (between, [(60, 3)], "sweeps"),
    "operand between sweeps": (
        lambda x, b: (x - weft.exp(weft.sum(x, axis=0) * b)) * b,
        [(50, 3), (3,)],
        "sweeps",
    ),
    "result as operand": (
        lambda x: [weft.exp(x), weft.exp(x) / weft.sum(weft.exp(x))],
        [(90,)],
        "sweeps",
    ),
}

PRODUCTS = {
    "product": (lambda x, y: x @ y, [(9, 5), (5, 7)], "loop"),
    "bias": (lambda x, y, b: weft.relu(x @ y + b), [(9, 5), (5, 7), (7,)], "loop"),
    "residual": (lambda x, y, z: x @ y * 0.5 + z, [(9, 5), (5, 7), (9, 7)], "loop"),
    "softmax": (lambda x, y: softmax(1)(x @ y), [(9, 5), (5, 7)], "loop"),
    "wide": (lambda x, y, b: weft.relu(x @ y + b), [(3, 5), (5, 40), (40,)], "loop"),
    "wide with sums": (lambda x, y: weft.sum(x @ y, axis=1), [(4, 5), (5, 40)], "loop"),
    "one row": (lambda x, y: x @ y * 2, [(1, 5), (5, 40)], "at once"),
    "batch": (lambda x, y: weft.exp(x @ y), [(3, 4, 5), (3, 5, 6)], "loop"),
    "small batch": (lambda x, y: x @ y + 1, [(9, 2, 3), (9, 3, 2)], "loop"),
    "one column": (lambda x, y: x @ y + 1, [(20, 5), (5, 1)], "loop"),
    "transposed": (
        lambda x, y: weft.transpose(x) @ weft.transpose(y) + 1,
        [(5, 9), (7, 5)],
        "loop",
    ),
    "squared": (lambda x: x @ x - x, [(8, 8)], "loop"),
    "nothing to add": (lambda x, y: x @ y + 1, [(4, 0), (0, 5)], "loop"),
    "prologue": (lambda x, y: weft.tanh(x) @ y, [(9, 5), (5, 7)], "loop"),
    "prologue of a row and a column": (
        lambda x, y, b, c: weft.relu(x * c + b) * x @ y,
        [(9, 5), (5, 7), (5,), (9, 1)],
        "loop",
    ),
    "prologue and epilogue": (
        lambda x, y, b, z: weft.tanh(weft.exp(x) - b) @ y * z + z,
        [(9, 5), (5, 7), (5,), (9, 7)],
        "loop",
    ),
    "prologue and softmax": (
        lambda x, y: softmax(1)(weft.tanh(x) @ y),
        [(9, 5), (5, 7)],
        "loop",
    ),
    "prologue and results of rows": (
        lambda x, y: [p := weft.tanh(x * 2) @ y, weft.sum(p, axis=1), weft.max(p * p, axis=1)],
        [(9, 5), (5, 7)],
        "loop",
    ),
    "prologue of a narrow product": (
        lambda x, y: weft.tanh(x * x) @ y + 1,
        [(6, 40), (40, 1)],
        "loop",
    ),
    "prologue of a wide product": (
        lambda x, y: weft.tanh(x * x) @ y + 1,
        [(3, 5), (5, 40)],
        "loop",
    ),
    "prologue of a batch": (
        lambda x, y: weft.tanh(x * x) @ y + 1,
        [(3, 4, 5), (3, 5, 6)],
        "loop",
    ),
    "prologue of a small batch": (
        lambda x, y, z: weft.tanh(x * z) @ y + 1,
        [(9, 2, 3), (9, 3, 2), (1, 2, 3)],
        "loop",
    ),
    "prologue of one term": (lambda x, y: weft.tanh(x) @ y, [(9, 1), (1, 7)], "loop"),
    "prologue of no terms": (lambda x, y: weft.tanh(x) @ y + 1, [(4, 0), (0, 5)], "loop"),
    "prologue of no columns": (lambda x, y: weft.tanh(x) @ y + 1, [(9, 5), (5, 0)], "at once"),
    "prologue of what is the second operand too": (
        lambda x: (x * 2 - 1) @ x + x,
        [(8, 8)],
        "loop",
    ),
    "transposed prologue": (
        lambda x, y: weft.tanh(weft.transpose(x) * 2) @ weft.transpose(y),
        [(5, 9), (7, 5)],
        "loop",
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("threads", [1, 3])
def test_elementwise_kernels(name: str, threads: int) -> None:
    build, shapes = ELEMENTWISE[name]
    check(compiled(build, shapes, "float32", threads=threads), samples(shapes, "float32"))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_kernels_with_reductions(name: str, threads: int) -> None:
    build, shapes, kind = REDUCTIONS[name]
    computation = compiled(build, shapes, "float32", threads=threads)
    check(computation, samples(shapes, "float32"))
    assert kinds_of(computation) == [kind]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_with_a_matrix_product(name: str, dtype: str) -> None:
    build, shapes, kind = PRODUCTS[name]
    computation = compiled(build, shapes, dtype, threads=2)
    check(computation, samples(shapes, dtype))
    assert kinds_of(computation) == [kind]


@pytest.mark.parametrize("terms", range(2, 30))
def test_a_number_before_a_wide_product(terms: int) -> None:
    """Rows of a number are as long as there are terms, and no part of the columns."""
    build, shapes = lambda x, y: weft.maximum(weft.tanh(x), 0.25) @ y + 1, [(3, terms), (terms, 40)]
    check(compiled(build, shapes, "float32", threads=2), samples(shapes, "float32"))


DTYPES = ["float64", "float16", "bfloat16", "int32", "int8", "uint16", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 5), (2, 60), (60, 2)])
def test_dtypes(dtype: str, shape: tuple[int, ...]) -> None:
    def build(x: Any) -> Any:
        total = weft.sum(x * x, axis=1, keepdims=True)
        return [x + total, weft.sum(x - total, axis=1), weft.prod(x, axis=1) * 0]

    check(
        compiled(build, [shape], dtype, threads=2),
        [a // 2 if dtype[0] in "iu" else a / 8 for a in samples([shape], dtype)],
    )


@pytest.mark.parametrize("shape", [(9, 5), (2, 60), (60, 2)])
def test_truth(shape: tuple[int, ...]) -> None:
    def build(x: Any) -> Any:
        some, every = (f(x, axis=0, keepdims=True) for f in (weft.any, weft.all))
        return [some, every, weft.logical_xor(x, some), weft.sum(x, axis=0)]

    check(compiled(build, [shape], "bool", threads=2), samples([shape], "bool"))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, (np.inf, -np.inf)])
@pytest.mark.parametrize("name", [name for name in REDUCTIONS if len(REDUCTIONS[name][1]) == 1])
def test_special_values_reach_the_result(name: str, special: Any) -> None:
    build, shapes, _ = REDUCTIONS[name]
    (array,) = samples(shapes, "float32")
    array.reshape(-1)[: np.size(special)] = special
    check(compiled(build, shapes, "float32", threads=2), [array])


IN_PLACE = {
    "elementwise": chain,
    "softmax K R": softmax(1),
    "softmax R K": softmax(0),
    "normalized": normalized(0, 1),
    "power": lambda x: x**3,
    "product with itself": lambda x: weft.exp(x) + x @ x,
    "prologue": lambda x: weft.exp(x * 0.5 - 1) @ weft.transpose(x) * 0.25,
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("shape", [(12, 12), (30, 30)])
def test_results_over_operands(name: str, shape: tuple[int, ...]) -> None:
    """A state is written where it is read, unless its old value is needed to the end."""
    (start,) = samples([shape], "float64")
    state = weft.variable(shape, dtype="float64", initial_value=start)
    with weft.saved_user_deps():
        update = weft.assign(state, IN_PLACE[name](state))
    transformer = weft.make_transformer("numpy", threads=2)
    step = transformer.computation([update])
    x = weft.placeholder(shape, dtype="float64")
    plain = weft.make_transformer("numpy", passes=["decompose"], threads=1)
    expected = plain.computation(IN_PLACE[name](x), x)(start)
    step()
    np.testing.assert_allclose(transformer.get_value(state), expected, rtol=1e-9, atol=1e-12)


@st.composite
def kernels(draw: Any) -> tuple[Any, list[tuple[int, ...]]]:
    """Return a random kernel as a function, and shapes for it."""
    domain = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    long = [axis for axis, length in enumerate(domain) if length > 1]
    axes = draw(st.sets(st.sampled_from(long))) if long else set()
    shapes = [domain] + [
        tuple(n if draw(st.booleans()) else 1 for n in domain)
        for _ in range(draw(st.integers(0, 2)))
    ]
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 9)),
            min_size=1,
            max_size=9,
        )
    )
    results = draw(st.sets(st.integers(0, 9), max_size=3))

    def build(*parameters: Any) -> Any:
        known = [parameters[0] * 1.5]
        known += [weft.broadcast(p, parameters[0].axes) + parameters[0] for p in parameters[1:]]
        for kind, one, other in steps:
            x, y = known[one % len(known)], known[other % len(known)]
            known.append(_step(kind, x, y, tuple(sorted(axes))))
        chosen = {len(known) - 1, *(number % len(known) for number in results)}
        return [known[number] for number in sorted(chosen)]

    return build, shapes


def _step(kind: int, x: Any, y: Any, axes: tuple[int, ...]) -> Any:
    if kind == 0 and axes:
        return x + weft.sum(y, axis=axes, keepdims=True)
    if kind == 1 and axes:
        return x * 0.5 - weft.max(y, axis=axes, keepdims=True)
    if kind == 2 and axes:
        return x - weft.sum(x * y, axis=axes, keepdims=True) * 0.125
    if kind == 3:
        return weft.where(x > y, y, x)
    if kind == 4:
        return weft.tanh(x)
    return weft.maximum(x, y) if kind == 5 else x - y * 0.5


@hypothesis.settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(kernels(), st.sampled_from([1, 2, 3]))
def test_random_kernels(kernel: tuple[Any, list[tuple[int, ...]]], threads: int) -> None:
    build, shapes = kernel
    computation = compiled(build, shapes, "float64", threads=threads)
    check(computation, [array / 4 for array in samples(shapes, "float64")])


Steps = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 9)), max_size=5)


def _taken(steps: Any, known: list[Any], axes: tuple[int, ...]) -> list[Any]:
    for kind, one, other in steps:
        x, y = known[one % len(known)], known[other % len(known)]
        known.append(_step(kind, x, y, axes))
    return known


@hypothesis.settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    st.lists(st.integers(1, 4), max_size=1),
    st.tuples(*[st.integers(1, 12)] * 3),
    Steps,
    Steps,
    st.sampled_from([1, 2, 3]),
)
def test_random_kernels_with_a_product(
    batch: list[int], lengths: tuple[int, int, int], before: Any, after: Any, threads: int
) -> None:
    """Elementwise ops before it, on operands that repeat along rows or columns, and any after."""
    m, k, n = lengths
    shapes = [(*batch, m, k), (*batch, k, n), (k,), (m, 1), (*batch, m, n)]

    def build(x: Any, y: Any, row: Any, column: Any, full: Any) -> Any:
        repeated = [weft.broadcast(each, x.axes) + x for each in (row, column)]
        made = _taken([(kind | 3, *rest) for kind, *rest in before], [x, *repeated], ())
        product = made[-1] @ y
        rows = (len(batch) + 1,) if n > 1 else ()
        found = _taken(after, [product * 2, full + product], rows)
        return [found[-1], weft.sum(found[-1], axis=-1), product]

    check(
        compiled(build, shapes, "float64", threads=threads),
        [array / 4 for array in samples(shapes, "float64")],
    )

"""Control flow with Python functions: against Python's own, gradients, memory and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.functional import trees
from weft.ops.control.graph_ops import LoopOp
from weft.plan.carried_memory import carried_in_place
from weft.plan.sub_plans import CopyPart, expand_step

RNG = np.random.default_rng(0)


def scan(function: Any, init: Any, xs: Any = None, length: Any = None, reverse: Any = False) -> Any:
    """Unroll a scan in ops, by its definition."""
    leaves, structure = trees.flatten(xs)
    count = length if length is not None else leaves[0].shape[0]
    carry, results = init, []
    for row in reversed(range(count)) if reverse else range(count):
        carry, y = function(carry, trees.unflatten(structure, [leaf[row] for leaf in leaves]))
        results.insert(0 if reverse else len(results), y)
    return carry, trees.map_leaves(lambda *rows: weft.stack(rows), *results)


def close(found: Any, wanted: Any, rtol: float = 1e-9) -> None:
    leaves, structure = trees.flatten(found)
    for one, two in zip(leaves, trees.leaves_like(structure, wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol)


def cell(params: Any) -> Callable[[Any, Any], Any]:
    """Return a step of a recurrent net, which takes parameters from around it."""

    def step(carry: Any, x: Any) -> Any:
        hidden, count = carry
        hidden = weft.tanh(x["x"] @ params["w"] + hidden @ params["u"] + x["y"])
        return (hidden, count + 1), {"norm": weft.sum(hidden * hidden), "both": (hidden, count)}

    return step


PARAMS = {"w": RNG.normal(size=(3, 4)), "u": RNG.normal(size=(4, 4)) / 2}
ROWS = {"x": RNG.normal(size=(6, 3)), "y": RNG.normal(size=6)}


def model(scan: Any, **options: Any) -> Callable[[Any, Any], Any]:
    def run(params: Any, rows: Any) -> Any:
        init = weft.zeros((4,), "float64"), weft.constant(0, dtype="int32")
        return scan(cell(params), init, rows, **options)

    return run


def loss(scan: Any, **options: Any) -> Callable[[Any, Any], Any]:
    def total(params: Any, rows: Any) -> Any:
        (hidden, _), ys = model(scan, **options)(params, rows)
        return weft.sum(ys["norm"] * rows["y"]) + weft.sum(hidden) + weft.sum(ys["both"][0] ** 3)

    return total


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_its_definition(reverse: bool, backend: str) -> None:
    run = [weft.jit(model(each, reverse=reverse), backend=backend) for each in (weft.scan, scan)]
    close(run[0](PARAMS, ROWS), run[1](PARAMS, ROWS))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_of_scans_to_second_order(reverse: bool, recompute: bool, backend: str) -> None:
    def curvature(function: Any) -> Any:
        def squares(params: Any, rows: Any) -> Any:
            found = weft.grad(function, (0, 1))(params, rows)
            return sum(weft.sum(weft.square(leaf)) for leaf in trees.flatten(found)[0])

        return weft.jit(weft.value_and_grad(squares, (0, 1)), backend=backend)

    one = curvature(loss(weft.scan, reverse=reverse, recompute=recompute))
    two = curvature(loss(scan, reverse=reverse))
    close(one(PARAMS, ROWS), two(PARAMS, ROWS), 1e-7)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_number_of_rows_may_be_unknown(recompute: bool, backend: str) -> None:
    options = {"reverse": True, "recompute": recompute}
    found = weft.value_and_grad(loss(weft.scan, **options), (0, 1))
    unknown = weft.jit(found, backend=backend, dynamic={"rows": "time"})
    known = weft.jit(found, backend="numpy")
    for count in (6, 1, 0, 4, 6):
        rows = {name: values[:count] for name, values in ROWS.items()}
        close(unknown(PARAMS, rows), known(PARAMS, rows), 1e-7)
    assert len(unknown._compiled) == 1


def test_an_unknown_length_is_a_number_of_iterations(backend: str) -> None:
    def powers(x: Any, factor: Any) -> Any:
        count = x.shape[0]
        _, stacked = weft.scan(lambda c, _: (c * factor, c), factor, length=count)
        step = lambda i, c: c * factor + weft.cast(i, "float64")  # noqa: E731
        return weft.sum(stacked * x) + weft.fori_loop(0, count, step, factor, recompute=True)

    gradient = weft.jit(weft.value_and_grad(powers, (0, 1)), backend=backend, dynamic={"x": "n"})
    known = weft.jit(weft.value_and_grad(powers, (0, 1)), backend="numpy")
    for count in (5, 1, 0, 3):
        args = np.arange(count, dtype=np.float64), np.float64(1.25)
        close(gradient(*args), known(*args), 1e-9)


def test_scans_inside_scans_and_gradients_inside_scans(backend: str) -> None:
    def outer(scan: Any, x: Any) -> Any:
        def inner(total: Any, y: Any) -> Any:
            total = weft.sin(total * y) + x[0]
            return total, total * y

        def step(carry: Any, row: Any) -> Any:
            last, ys = scan(inner, carry, row)
            slope = weft.grad(lambda c: scan(inner, c, row)[0])(carry)
            return last + slope, weft.sum(ys)

        last, ys = scan(step, 0.5 * x[0], weft.reshape(x, (2, 3)))
        return last * weft.sum(ys * ys)

    x = RNG.normal(size=6)
    found, wanted = (
        weft.jit(weft.value_and_grad(lambda x, each=each: outer(each, x)), backend=backend)(x)
        for each in (weft.scan, scan)
    )
    close(found, wanted, 1e-8)


def test_rows_with_names_are_stacked_along_the_axis_that_was_scanned() -> None:
    time, channel = weft.make_axis(5, "T"), weft.make_axis(3, "C")
    x = weft.placeholder((time, channel))
    last, ys = weft.scan(lambda c, row: (c + weft.sum(row), row * c), weft.constant(0.0), x)
    assert ys.axes == weft.make_axes((time, channel))
    gradient = weft.deriv(last + weft.sum(ys), x)
    assert gradient.axes == x.axes
    step = weft.make_transformer("numpy").computation([last, gradient], x)
    total, slope = step(np.ones((5, 3)))
    assert total.item() == 15
    assert slope[:, 0].tolist() == [1.0 + 3 * t + 3 * (4 - t) for t in range(5)]


def test_a_row_is_written_without_a_copy_of_the_others(backend: str) -> None:
    """The stack of results stays where it is: a loop writes a row of it in each iteration."""

    def wave(x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            before, now = state
            after = 2 * now - before + 0.1 * weft.roll(now, 1)
            return (now, after), after

        return weft.scan(step, (x, x), length=20)[1]

    x = RNG.normal(size=(8, 8)).astype(np.float32)
    function = weft.jit(wave, backend=backend)
    found = function(x)
    now, before = x, x
    for row in found:
        now, before = 2 * now - before + np.float32(0.1) * np.roll(now, 1), now
        np.testing.assert_allclose(row, now, rtol=1e-3, atol=1e-4)
    plan = function.lower(x).program_for(x).plan
    plan.verify()
    (loop,) = [step for step in plan.steps if isinstance(step.op, LoopOp)]
    assert len(carried_in_place(loop.op.graph)) == 1
    inside = [part for part in expand_step(loop) if not isinstance(part, CopyPart)]
    assert not any(isinstance(each, CopyPart) for part in inside for each in parts_of(part))


def parts_of(part: Any) -> Any:
    return getattr(part, "parts", ())


@settings(max_examples=40)
@given(
    st.integers(0, 9), st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 2**16)
)  # fmt: skip
def test_random_scans(count: int, carried: int, reverse: bool, has_rows: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(carried + 1, carried + 1))

    def step(carry: Any, x: Any) -> Any:
        values = [*carry, x if has_rows else 1.0]
        sums = [
            sum(float(factor) * value for factor, value in zip(row, values, strict=True))
            for row in factors
        ]
        # One value is passed on, as a delay line does it.
        after = [weft.sin(each) for each in sums[: max(carried - 1, 0)]] + list(carry[:1])
        return after[:carried], (sums[-1], [carry[0]] if carried else None)

    rows = rng.normal(size=(count, 2))

    def run(scan: Any) -> Any:
        def function(init: Any, rows: Any) -> Any:
            return scan(
                step, list(init), rows if has_rows else None, None if has_rows else count, reverse
            )

        return function

    init = [rng.normal(size=2) for _ in range(carried)]
    found = weft.jit(run(weft.scan), backend="numpy")(init, rows)
    if count:
        close(found, weft.jit(run(scan), backend="numpy")(init, rows))
    else:
        close(found[0], init)
        assert all(len(leaf) == 0 for leaf in trees.flatten(found[1])[0])


def test_loops_and_conditionals_take_values_from_around_them(backend: str) -> None:
    @weft.jit(backend=backend)
    def run(x: Any, n: Any, params: Any) -> Any:
        scale = weft.exp(x)
        power = weft.fori_loop(0, 4, lambda i, y: {"y": y["y"] * scale + i}, {"y": 1.0})
        steps = weft.fori_loop(1, n, lambda i, y: y + i * scale, x)
        doubled, count = weft.while_loop(
            lambda s: weft.logical_and(s[0] < params["most"], s[1] < 10),
            lambda s: (s[0] * 2 + params["zero"], s[1] + 1),
            (scale, 0),
        )
        chosen = weft.cond(n > 3, lambda a: (a * scale, 1), lambda a: (a - scale, 2.5), x)
        switched = weft.switch(n, [lambda a: a, lambda a: a * scale, lambda a: a - scale], x)
        return power["y"], steps, doubled, count, chosen, switched

    x, scale = 0.25, np.exp(0.25)
    for n in (-1, 0, 1, 2, 5):
        found = run(x, n, {"most": 20.0, "zero": 0.0})
        power = 1.0
        for i in range(4):
            power = power * scale + i
        doubled, count = scale, 0
        while doubled < 20 and count < 10:
            doubled, count = doubled * 2, count + 1
        chosen = (x * scale, 1) if n > 3 else (x - scale, 2.5)
        switched = [x, x * scale, x - scale][min(max(n, 0), 2)]
        wanted = power, x + scale * sum(range(1, n)), doubled, count, chosen, switched
        close(found, wanted, 1e-5)


@pytest.mark.parametrize("init", [None, ()])
def test_gradients_of_scans_that_carry_nothing_and_read_no_rows(init: Any, backend: str) -> None:
    def total(q: Any) -> Any:
        return weft.sum(weft.scan(lambda c, _: (c, weft.sin(q) * weft.cos(q)), init, length=3)[1])

    q = np.array([0.3, 0.5])
    gradient = weft.jit(weft.grad(total), backend=backend)(q)
    np.testing.assert_allclose(gradient, 3 * np.cos(2 * q), rtol=1e-6)


def test_gradients_of_an_update_inside_a_choice() -> None:
    def function(p: Any) -> Any:
        v = weft.cast(weft.broadcast_to(weft.cast(p, "int32"), (2, 2)), "float64")
        v = v.at[-1].multiply(p)
        branches = [lambda: p, lambda: v[1], lambda: p * 3]
        return weft.sum(weft.switch(weft.sum(weft.cast(p, "int32")), branches))

    with weft.backend("numpy"):
        assert weft.grad(function)(np.full(2, 0.5)).tolist() == [1.0, 1.0]
        assert weft.grad(function)(np.array([1.0, 0.5])).tolist() == [1.0, 0.0]
        assert weft.grad(function)(np.ones(2)).tolist() == [3.0, 3.0]


def test_gradients_of_loops_and_conditionals(backend: str) -> None:
    def function(x: Any, n: Any) -> Any:
        power = weft.fori_loop(0, 20, lambda i, y: weft.sin(y * x) + 1, x)
        return weft.cond(n > 0, lambda: power * x, lambda: weft.exp(power))

    def by_hand(x: float, n: int) -> Any:
        power = x
        for _ in range(20):
            power = np.sin(power * x) + 1
        return power * x if n > 0 else np.exp(power)

    gradient = weft.jit(weft.grad(function), backend=backend)
    x = np.float64(0.7)
    for n in (1, -1):
        wanted = (by_hand(x + 1e-6, n) - by_hand(x - 1e-6, n)) / 2e-6
        np.testing.assert_allclose(gradient(x, n), wanted, rtol=1e-6)


def test_gradients_of_sequences_of_values_from_around(backend: str) -> None:
    def squared(x: Any) -> Any:
        return weft.sequential([x + 1, x * x])

    def choice(x: Any) -> Any:
        h = weft.exp(x)
        return weft.sum(weft.cond(weft.sum(h) > 0, lambda: squared(h) + squared(x), lambda: h))

    def loop(x: Any) -> Any:
        h = weft.exp(x)
        return weft.sum(weft.fori_loop(0, 3, lambda i, c: c + squared(h) + squared(c + h), x))

    x = np.array([0.3, -0.4])
    steps = 1e-6 * np.eye(2)
    with weft.backend(backend):
        for function in (choice, loop):
            run = weft.jit(function)
            wanted = [(run(x + step) - run(x - step)) / 2e-6 for step in steps]
            np.testing.assert_allclose(weft.grad(function)(x), wanted, rtol=1e-6)


def test_a_known_condition_traces_one_branch() -> None:
    assert weft.jit(lambda x: weft.cond(True, lambda: x, lambda: 1 / 0))(2.0).item() == 2.0


def test_graphs_are_bodies_as_before() -> None:
    x = weft.placeholder(())
    double, half = weft.capture([x * 2], [x]), weft.capture([x / 2], [x])
    test = weft.capture([x < 10], [x])
    results = [
        *weft.cond(x > 1, double, half, [x], [x]),
        *weft.cond(x > 1, double, half, then_args=[x], else_args=[x]),
        *weft.while_loop(test, double, x),
    ]
    step = weft.make_transformer("numpy").computation(results, x)
    assert [value.item() for value in step(3.0)] == [6.0, 6.0, 12.0]


def body(result: Callable[[Any, Any], Any], init: Any = 0.0, xs: Any = None) -> Callable[[], Any]:
    rows = np.ones((3, 2), np.float32) if xs is None else xs
    return lambda: weft.scan(result, init, rows)


REFUSED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "no pair": (body(lambda c, x: c), ("must return a pair",)),
    "another structure": (
        body(lambda c, x: ({"a": c}, x)),
        ("after an iteration the carry has the structure {'a': *}, not *",),
    ),
    "another shape": (
        body(lambda c, x: ({"h": x}, None), {"h": 0.0}),
        ("carry['h'] has Axes()", "Axes(2) after an iteration"),
    ),
    "another dtype": (
        body(lambda c, x: ([weft.cast(c[0], "float64")], None), [np.float32(0)]),
        (
            "carry[0] is float32", "float64 after an iteration", "test_control_flow_functions.py",
            "begin with .astype('float64'), or return .astype('float32')",
        ),
    ),
    "rows of two numbers": (
        body(lambda c, x: (c, None), 0.0, {"a": np.ones(2), "b": np.ones(3)}),
        ("numbers of rows differ", "xs['a'] 2", "xs['b'] 3"),
    ),
    "a scalar to scan": (body(lambda c, x: (c, x), 0.0, [1.0]), ("xs[0] is a scalar",)),
    "nothing to scan": (lambda: weft.scan(lambda c, x: (c, x), 0.0), ("length=",)),
    "rows of two unknown numbers": (
        body(lambda c, x: (c, None), 0.0, {
            name: weft.placeholder((weft.symbol(name),)) for name in "ab"
        }),
        ("numbers of rows differ", "xs['a'] a", "xs['b'] b"),
    ),
    "a write in a scan": (
        body(lambda c, x: (c, weft.assign(weft.variable((2,), name="w"), x) and x)),
        ("writes the states w",),
    ),
    "branches of other structures": (
        lambda: weft.cond(weft.constant(True), lambda: 1.0, lambda: (1.0, 2.0)),
        ("the second has the structure (*, *), not *",),
    ),
    "branches of other shapes": (
        lambda: weft.cond(weft.constant(True), lambda: {"a": np.ones(2)}, lambda: {"a": 1.0}),
        ("result['a'] has Axes(2)", "Axes()"),
    ),
    "branches of other dtypes": (
        lambda: weft.cond(weft.constant(True), lambda: np.ones(2), lambda: np.ones(2, "int32")),
        ("result is float64 in one branch", "and int32 in the other", "cast"),
    ),
    "a condition that is not a bool": (
        lambda: weft.cond(weft.constant(1.0), lambda: 1.0, lambda: 2.0),
        ("bool scalar",),
    ),
    "a tree as the condition of a loop": (
        lambda: weft.while_loop(lambda x: (x < 3, x), lambda x: x + 1, 0.0),
        ("must return a bool scalar, not (*, *)",),
    ),
    "several values to carry": (
        lambda: weft.while_loop(lambda x, y: x < y, lambda x, y: (x, y), 0.0, 1.0),
        ("one tree to carry, not 2", "tuple"),
    ),
    "the gradient of a while loop": (
        lambda: weft.grad(
            lambda x: weft.while_loop(lambda y: y < 3, lambda y: y * x, x)
        )(2.0),
        ("no gradient", "scan"),
    ),
    "no functions to switch between": (lambda: weft.switch(0, []), ("list of functions",)),
    "an index that is not an integer": (
        lambda: weft.switch(weft.constant(0.7), [lambda: 1, lambda: 2]),
        ("switch: index", "integer scalar", "float32"),
    ),
    "several indices": (
        lambda: weft.switch(weft.constant(np.array([0, 1])), [lambda: 1, lambda: 2]),
        ("switch: index", "integer scalar", "Axes(2)"),
    ),
    "a traced bound that is not an integer": (
        lambda: weft.fori_loop(0, weft.constant(2.5), lambda i, x: x, 1.0),
        ("fori_loop: upper", "integer scalar", "float32"),
    ),
    "bounds that are no integers": (
        lambda: weft.fori_loop(0, 2.5, lambda i, x: x, 1.0),
        ("fori_loop: upper must be a whole number, not 2.5",),
    ),
    "a bound that is not an integer beside a traced one": (
        lambda: weft.fori_loop(0.5, weft.constant(2), lambda i, x: x, 1.0),
        ("fori_loop: lower must be a whole number, not 0.5",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_to_do(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    with weft.backend("numpy"), pytest.raises(weft.WeftError) as caught:
        call()
    for word in (*words, "test_control_flow_functions.py"):
        assert word in str(caught.value)

"""Functions of batches, Jacobians and Hessians: against loops and differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.functional import trees

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": (RNG.normal(size=2), RNG.normal(size=()))}
X, Y = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 2))


def net(params: Any, x: Any) -> Any:
    hidden = weft.tanh(x @ params["w"] + params["b"][0])
    return {"hidden": hidden, "scaled": weft.softmax(hidden) * params["b"][1]}


def loss(params: Any, x: Any, y: Any) -> Any:
    return weft.sum(weft.square(net(params, x)["scaled"] - y))


def close(found: Any, wanted: Any, rtol: float = 1e-9) -> None:
    leaves, structure = trees.flatten(found)
    for one, two in zip(leaves, trees.leaves_like(structure, wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol)


def looped(function: Any, in_axes: Any, out_axes: Any = 0) -> Any:
    """Return what `vmap` returns, by a loop; axes are integers or None, one for each argument."""

    def run(*args: Any) -> Any:
        count = next(
            np.shape(trees.flatten(arg)[0][0])[axis]
            for arg, axis in zip(args, in_axes, strict=True)
            if axis is not None
        )
        results = []
        for row in range(count):
            example = [
                arg
                if axis is None
                else trees.map_leaves(lambda x, a=axis, r=row: np.take(x, r, a), arg)
                for arg, axis in zip(args, in_axes, strict=True)
            ]
            results.append(weft.jit(function, backend="numpy")(*example))
        return trees.map_leaves(lambda *rows: np.stack(rows, out_axes), *results)

    return run


CASES: dict[str, tuple[Any, tuple[Any, ...], Any, tuple[Any, ...]]] = {
    "one argument": (lambda x: weft.cumsum(x, 0) / weft.sum(x), (0,), 0, (X,)),
    "shared parameters": (net, (None, 0), 0, (PARAMS, X)),
    "another axis": (net, (None, 1), 1, (PARAMS, X.T)),
    "a negative axis": (lambda x, y: x * y, (-1, 0), -1, (X.T, X)),
    "gradients of examples": (weft.grad(loss), (None, 0, 0), 0, (PARAMS, X, Y)),
    "batched parameters": (
        weft.grad(loss),
        (0, 0, 0),
        0,
        (trees.map_leaves(lambda p: RNG.normal(size=(5, *p.shape)), PARAMS), X, Y),
    ),
    "control flow": (
        lambda x: weft.cond(
            weft.sum(x) > 0,
            lambda: weft.while_loop(lambda z: weft.sum(weft.abs(z)) < 9, lambda z: 2 * z, x),
            lambda: weft.fori_loop(0, 3, lambda i, z: weft.sin(z) + i, x),
        ),
        (0,),
        0,
        (X,),
    ),
    "scans": (
        lambda c, x: weft.scan(lambda c, r: (c * r, {"y": c + r}), c, x),
        (None, 0),
        0,
        (np.float64(0.5), X),
    ),
    "scans of batched carries": (
        weft.grad(lambda c, x: weft.sum(weft.scan(lambda c, r: (weft.sin(c * r), c), c, x)[1])),
        (0, None),
        0,
        (X[:, 0], X[0]),
    ),
}


@pytest.mark.parametrize(("function", "in_axes", "out_axes", "args"), CASES.values(), ids=CASES)
def test_a_batch_is_a_loop_over_examples(
    function: Any, in_axes: Any, out_axes: Any, args: Any, backend: str
) -> None:
    mapped = weft.jit(weft.vmap(function, in_axes, out_axes), backend=backend)
    wanted = looped(function, in_axes, out_axes)(*args)
    close(mapped(*args), wanted, 1e-7)
    with weft.backend(backend):
        close(weft.vmap(function, in_axes, out_axes)(*args), wanted, 1e-7)


def test_axes_may_be_trees_and_results_may_be_shared() -> None:
    def function(tree: Any, scale: Any) -> Any:
        return {"a": tree["a"] * scale, "b": tree["b"][1] + 1, "c": scale}

    mapped = weft.vmap(
        function,
        in_axes=({"a": 1, "b": (0, None)}, None),
        out_axes={"a": 0, "b": None, "c": 0},
    )
    tree = {"a": X, "b": (np.ones(3), 2.0)}
    found = mapped(tree, 3.0)
    np.testing.assert_allclose(found["a"], 3 * X.T)
    assert (found["b"].item(), found["c"].tolist()) == (3.0, [3.0] * 3)
    assert weft.vmap(lambda x, *, y: x * y)(np.ones(2), y=np.arange(2.0)).tolist() == [0.0, 1.0]


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**16))
def test_nested_batches_commute_with_gradients(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(rows, 2)), rng.normal(size=(columns, 2))

    def pair(x: Any, y: Any) -> Any:
        return weft.exp(-weft.sum(weft.square(x - y)))

    kernel = weft.vmap(weft.vmap(pair, (None, 0)), (0, None))
    wanted = np.exp(-np.square(x[:, None] - y[None]).sum(-1))
    np.testing.assert_allclose(kernel(x, y), wanted, rtol=1e-6)
    inside = weft.vmap(weft.vmap(weft.grad(pair), (None, 0)), (0, None))(x, y)
    outside = weft.jacobian(kernel)(x, y)
    np.testing.assert_allclose(np.einsum("abac->abc", outside), inside, rtol=1e-6, atol=1e-12)


def test_the_size_of_a_batch_may_be_unknown(backend: str) -> None:
    mapped = weft.jit(weft.vmap(net, (None, 0)), backend=backend, dynamic={1: "batch"})
    for count in (5, 1, 3):
        close(mapped(PARAMS, X[:count]), looped(net, (None, 0))(PARAMS, X[:count]), 1e-7)
    assert len(mapped._compiled) == 1


def test_effects_happen_for_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    def noisy(x: Any) -> Any:
        weft.print_op(x, prefix="batched ")
        weft.print_op(weft.constant(1.0), prefix="shared ")
        return x

    weft.vmap(noisy)(np.ones(2))
    printed = capsys.readouterr().out
    assert "batched" in printed
    assert "shared" in printed


def scanned(keep: Any, x: Any) -> Any:
    return weft.scan(lambda c, r: (c * weft.sin(keep(r)), c), x[0], x)[0]


BODIES: dict[str, tuple[Any, int]] = {
    "a scan": (scanned, 3),
    "a scan in a scan": (
        lambda keep, x: weft.scan(lambda c, r: (c + scanned(keep, x), r), x[0], None, 2)[0],
        6,
    ),
    "a loop": (lambda keep, x: weft.fori_loop(0, 4, lambda i, c: weft.cos(keep(c)), x), 4),
    "a choice": (
        lambda keep, x: weft.cond(
            weft.constant(2.0) > 1, lambda: keep(weft.sin(x)) * x, lambda: x
        ),
        1,
    ),
}  # fmt: skip
TRANSFORMED: dict[str, Any] = {
    "grad": lambda f: weft.grad(lambda x: weft.sum(f(x))),
    "jvp": lambda f: lambda x: weft.jvp(f, (x,), (x,))[1],
    "vmap": lambda f: lambda x: weft.vmap(f)(np.stack([x, 2 * x])),
    "vmap of grad": lambda f: lambda x: weft.vmap(weft.grad(lambda x: weft.sum(f(x))))(x[None]),
}


@pytest.mark.parametrize("transform", TRANSFORMED)
@pytest.mark.parametrize("name", BODIES)
def test_effects_in_control_flow_happen_once(
    name: str, transform: str, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    function, count = BODIES[name]
    with weft.backend(backend):
        wanted = TRANSFORMED[transform](functools.partial(function, lambda y: y))(X[:3])
        printing = functools.partial(function, lambda y: weft.print_op(y, "seen"))
        found = TRANSFORMED[transform](printing)(X[:3])
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert capsys.readouterr().out.count("seen") == count


def wide(p: Any) -> Any:
    """More results than arguments."""
    return weft.sin(p["a"]) * weft.constant(np.arange(6.0)), p["a"] * p["b"][0]


def tall(p: Any) -> Any:
    """Fewer results than arguments."""
    return {"sum": weft.sum(p["m"] ** 2), "row": weft.sum(p["m"], axis=0) * p["a"]}


POINTS = {
    "wide": (wide, {"a": np.float64(0.3), "b": [np.float64(2.0)]}),
    "tall": (tall, {"m": RNG.normal(size=(3, 2)), "a": np.float64(0.7)}),
}


def mixed(p: Any) -> Any:
    """Real and complex results of real and complex arguments; those of complex are holomorphic."""
    z, a = p["z"], p["a"]
    return {
        "real of all": weft.sum(weft.absolute(z)) * a,
        "real of real": weft.sin(a)[None],
        "complex of all": weft.exp(z[0]) * z * a,
        "complex of real": weft.complex(weft.sin(a), a * a),
        "complex of complex": z[0] * np.array([2, 3j, 1 + 1j, 5]),
    }


Z = np.array([0.5 + 0.25j, -1 + 2j])
POINTS |= {
    "complex of real": (lambda x: weft.sum(x**2) * (Z * x), np.array([0.5, 2.0])),
    "fewer complex of real": (lambda x: weft.sum(x**2 * Z), np.array([0.5, 2.0])),
    "real of complex": (lambda z: weft.imag(weft.sum(z**2) * weft.conj(z)), Z),
    "more real of complex": (lambda z: weft.absolute(z * np.arange(1, 4)), Z[0]),
    "complex of complex": (lambda z: weft.sum(z**3) * z, Z),
    "mixed": (mixed, {"z": Z, "a": np.float64(0.7)}),
    "wider results": (lambda x: weft.cast(x, "float64") ** 2 * np.ones(2), np.float32(0.75)),
    "narrower results": (lambda x: weft.cast(weft.sum(x) ** 2, "float32"), np.array([1.0, 0.5])),
    "wider parts": (lambda x: weft.sum(weft.cast(x, "complex64") * 1j), np.array([1.0, 0.5])),
}


def central_differences(run: Callable[[Any], Any], tree: Any, number: int) -> list[Any]:
    """Return the derivatives of the leaves of a value by a leaf of its argument.

    A real value has two by a complex number, for each direction, and a complex value has one.
    """
    leaves, structure = trees.flatten(tree)
    leaf = np.asarray(leaves[number])
    step = 2**-12

    def along(at: tuple[int, ...], direction: complex) -> list[Any]:
        values = []
        for sign in (1, -1):
            changed = [np.array(each) for each in leaves]
            changed[number][at] += sign * step * direction
            values.append(trees.flatten(run(trees.unflatten(structure, changed)))[0])
        return [(one - other) / (2 * step) for one, other in zip(*values, strict=True)]

    columns = []
    for at in np.ndindex(leaf.shape):
        column = along(at, 1)
        if leaf.dtype.kind == "c":
            pairs = zip(column, along(at, 1j), strict=True)
            column = [dx if np.iscomplexobj(dx) else dx - 1j * dy for dx, dy in pairs]
        columns.append(column)
    return [
        np.reshape(np.stack(each, axis=-1), (*np.shape(each[0]), *leaf.shape))
        for each in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize("name", POINTS)
def test_jacobians_are_central_differences(name: str, backend: str) -> None:
    function, point = POINTS[name]
    with weft.backend(backend):
        found = weft.jacobian(function, holomorphic=True)(point)
    run = weft.jit(function, backend="numpy")
    leaves = trees.flatten(point)[0]
    outputs, returned = trees.flatten(run(point))
    rows = [trees.flatten(each)[0] for each in trees.flatten_up_to(returned, found)]
    for number, leaf in enumerate(leaves):
        wanted = central_differences(run, point, number)
        for output, row, differences in zip(outputs, rows, wanted, strict=True):
            assert row[number].dtype == np.result_type(output, leaf)
            is_narrow = {output.dtype, leaf.dtype} & {*map(np.dtype, ("f4", "c8"))}
            tolerance = 2e-3 if is_narrow else 1e-5
            np.testing.assert_allclose(row[number], differences, rtol=tolerance, atol=tolerance)


def test_hessians_are_symmetric_jacobians_of_gradients(backend: str) -> None:
    with weft.backend(backend):
        found = weft.hessian(loss, argnums=(0, 1))(PARAMS, X[0], Y[0])
        value, aux = weft.hessian(lambda x: (weft.sum(x**3), x), has_aux=True)(X[0])
    np.testing.assert_allclose(value, np.diag(6 * X[0]), rtol=1e-6)
    np.testing.assert_array_equal(aux, X[0])
    one, other = found[0]["w"][1], found[1][0]["w"]
    np.testing.assert_allclose(one, np.moveaxis(other, 0, -1), rtol=1e-6, atol=1e-9)
    step = 1e-6
    for at in np.ndindex(3, 2):
        change = np.zeros((3, 2))
        change[at] = step
        slopes = [
            weft.grad(loss)({**PARAMS, "w": PARAMS["w"] + sign * change}, X[0], Y[0])["w"]
            for sign in (1, -1)
        ]
        wanted = (slopes[0] - slopes[1]) / (2 * step)
        np.testing.assert_allclose(found[0]["w"][0]["w"][..., at[0], at[1]], wanted, atol=1e-6)


REFUSED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "batches of two sizes": (
        lambda: weft.vmap(lambda x, y: x)({"a": np.ones(3)}, np.ones(4)),
        ("args[1] has 4 examples along axis 0", "args[0]['a'] has 3"),
    ),
    "no batch": (lambda: weft.vmap(lambda x: x, None)(1.0), ("no argument has a batch axis",)),
    "an axis that is not there": (
        lambda: weft.vmap(lambda x: x, 2)([np.ones(3)]),
        ("args[0][0] has Axes(3), and no axis 2",),
    ),
    "a scalar": (lambda: weft.vmap(lambda x, y: x)(np.ones(3), 1.0), ("args[1] has Axes()",)),
    "a result of the batch without an axis": (
        lambda: weft.vmap(lambda x: {"y": x}, out_axes=None)(np.ones(3)),
        ("result['y'] depends on a batched argument",),
    ),
    "axes for fewer arguments": (
        lambda: weft.vmap(lambda x, y: x, (0,))(np.ones(3), 1.0),
        ("in_axes has (0,) for (*, *)",),
    ),
    "an output axis that is not there": (
        lambda: weft.vmap(lambda x: x, out_axes=2)(np.ones(3)),
        ("result has Axes(3), and no axis 2",),
    ),
    "an assignment of a batched value": (
        lambda: weft.vmap(lambda x: weft.assign(weft.variable(()), x) and x)(np.ones(2)),
        ("the value is batched", "reduce"),
    ),
    "a jacobian of more integers than arguments": (
        lambda: weft.jacobian(lambda x: x * np.ones(3) > 1)(1.0),
        ("result is bool", "has_aux"),
    ),
    "a jacobian of integers": (
        lambda: weft.jacobian(lambda x: weft.argsort(x))(np.ones(3)),
        ("result is int64", "has_aux"),
    ),
    "a jacobian of complex numbers by complex numbers": (
        lambda: weft.jacobian(lambda p: p["z"] * p["a"])({"z": 1j, "a": 1.0}),
        ("jacobian of <lambda>", "a result and an argument are complex", "holomorphic=True"),
    ),
    "a hessian by complex numbers": (
        lambda: weft.hessian(lambda z: weft.absolute(z) ** 2)(1 + 2j),
        ("a result and an argument are complex", "real and imaginary parts"),
    ),
    "not a function": (lambda: weft.vmap(3), ("takes a function, not 3",)),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_to_do(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    with weft.backend("numpy"), pytest.raises(weft.WeftError) as caught:
        call()
    for word in (*words, "test_vectorization.py"):
        assert word in str(caught.value)

"""Gradients of functions: against central differences, composed, and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import GradientError
from weft.functional import trees

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": [RNG.normal(size=2), 0.5 * np.ones(())]}
X = RNG.normal(size=(4, 3))


def net(params: Any, x: Any, power: Any = 2.0) -> Any:
    """A function of a tree, in weft or in NumPy."""
    tanh, total = (weft.tanh, weft.sum) if weft_is_tracing() else (np.tanh, np.sum)
    hidden = tanh(x @ params["w"] + params["b"][0])
    return total(hidden**power) * params["b"][1]


def weft_is_tracing() -> bool:
    return weft.functional.tracing.is_tracing()


def differences(function: Callable[..., Any], args: tuple[Any, ...], index: int) -> Any:
    """Return the gradient of a NumPy function by central differences."""
    leaves, structure = trees.flatten(args[index])
    leaves = [np.array(leaf, np.float64) for leaf in leaves]
    found = [np.zeros_like(leaf) for leaf in leaves]
    step = 1e-6
    for leaf, gradient in zip(leaves, found, strict=True):
        for place in np.ndindex(leaf.shape):
            kept, values = leaf[place], []
            for sign in (1, -1):
                leaf[place] = kept + sign * step
                changed = (*args[:index], trees.unflatten(structure, leaves), *args[index + 1 :])
                values.append(function(*changed))
            leaf[place] = kept
            gradient[place] = (values[0] - values[1]) / (2 * step)
    return trees.unflatten(structure, found)


def close(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    leaves, structure = trees.flatten(found)
    for one, two in zip(leaves, trees.leaves_like(structure, wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1,), -1])
def test_gradients_have_the_structure_of_the_arguments(argnums: Any, backend: str) -> None:
    with weft.backend(backend):
        found = weft.grad(net, argnums)(PARAMS, X)
        value, again = weft.jit(weft.value_and_grad(net, argnums))(PARAMS, X)
    numbers = [argnums] if isinstance(argnums, int) else argnums
    wanted = tuple(differences(net, (PARAMS, X), number % 2) for number in numbers)
    close(found, wanted[0] if isinstance(argnums, int) else wanted)
    close(again, found)
    assert value.item() == pytest.approx(net(PARAMS, X))


def test_auxiliary_results_and_keyword_arguments() -> None:
    def with_parts(params: Any, x: Any, scale: Any) -> Any:
        value = net(params, x) * scale
        return value, {"value": value, "mean": weft.mean(x)}

    gradient, aux = weft.grad(with_parts, has_aux=True)(PARAMS, X, scale=2.0)
    (value, same), again = weft.value_and_grad(with_parts, has_aux=True)(PARAMS, X, scale=2.0)
    wanted = differences(lambda p, x: 2 * net(p, x), (PARAMS, X), 0)
    close((gradient, again), (wanted, wanted))
    assert aux["value"].item() == value.item() == same["value"].item()
    assert aux["mean"].item() == pytest.approx(X.mean())


def cubes(x: Any) -> Any:
    return weft.sum(x**3)


def test_gradients_compose_to_any_order_with_jit_in_any_place(backend: str) -> None:
    x = np.array([1.0, 2.0])
    total = lambda f: lambda x: weft.sum(f(x))  # noqa: E731
    with weft.backend(backend):
        for second in (
            weft.grad(total(weft.grad(cubes))),
            weft.jit(weft.grad(total(weft.grad(cubes)))),
            weft.grad(total(weft.jit(weft.grad(weft.jit(cubes))))),
        ):
            np.testing.assert_allclose(second(x), 6 * x, rtol=1e-6)
        third = weft.grad(total(weft.grad(total(weft.grad(cubes)))))
        np.testing.assert_allclose(third(x), [6, 6], rtol=1e-6)


def test_only_the_argument_counts_where_a_value_comes_in_twice() -> None:
    x = weft.placeholder(())
    gradient = weft.grad(lambda a, b: a * b)(x, x)
    step = weft.make_transformer("numpy").computation(gradient, x)
    assert step(3.0).item() == 3.0
    assert weft.jit(lambda x: weft.grad(lambda y: x * y)(x))(3.0).item() == 3.0


def several(p: Any, x: Any) -> Any:
    hidden = weft.tanh(x @ p["w"])
    return {"hidden": hidden, "norm": (weft.sum(hidden * hidden), weft.argmax(hidden, -1))}


def test_vjp_and_jvp_are_transposes(backend: str) -> None:
    p = {"w": RNG.normal(size=(3, 2))}
    tangents = {"w": RNG.normal(size=(3, 2))}, RNG.normal(size=(4, 3))
    adjoint = {"hidden": RNG.normal(size=(4, 2)), "norm": (1.5, np.zeros(4, np.int64))}
    with weft.backend(backend):
        value, back = weft.vjp(several, p, X)
        same, tangent = weft.jvp(several, (p, X), tangents)
        adjoints = back(adjoint)
    close(value, same)
    assert tangent["norm"][1].dtype == np.int64
    left = sum(np.sum(a * b) for a, b in pairs((tangents, adjoints)))
    right = np.sum(adjoint["hidden"] * tangent["hidden"]) + 1.5 * tangent["norm"][0]
    assert left == pytest.approx(right)


def pairs(both: tuple[Any, Any]) -> Any:
    leaves, structure = trees.flatten(both[0])
    return zip(leaves, trees.leaves_like(structure, both[1]), strict=True)


def test_vjp_in_a_traced_function_computes_the_value_once() -> None:
    calls = []

    def square(x: Any) -> Any:
        calls.append(1)
        return x * x

    @weft.jit(backend="numpy")
    def both(x: Any) -> Any:
        value, back, aux = weft.vjp(lambda x: (square(x), x + 1), x, has_aux=True)
        return value, back(1.0), back(2.0), aux

    value, one, two, aux = both(3.0)
    assert (value.item(), one[0].item(), two[0].item(), aux.item()) == (9, 6, 12, 4)
    assert len(calls) == 1


def test_jvp_of_ops_is_that_of_the_graph() -> None:
    x = weft.placeholder(())
    step = weft.make_transformer("numpy").computation(weft.jvp(x * x, x, 2.0), x)
    assert step(3.0).item() == 12.0


def checkpointed(keep: Any) -> dict[str, Callable[[Any], Any]]:
    """Return functions that keep what a function has from its arguments and its surroundings."""

    def inside(x: Any, h: Any) -> Any:
        return keep(weft.tanh(x * h) * weft.sin(h))

    def at_exp(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        return lambda x: weft.sum(function(x, weft.exp(x)))

    def scanned(x: Any, h: Any, recompute: bool = False) -> Any:
        rows = np.ones((3, 2))
        return weft.scan(lambda c, r: (inside(c * r, h), c), x, rows, recompute=recompute)[0]

    return {
        "a sum": lambda x: weft.sum(keep(weft.tanh(x) * x)),
        "a value on the way": at_exp(inside),
        "a scan": at_exp(scanned),
        "a scan that recomputes": at_exp(lambda x, h: scanned(x, h, recompute=True)),
        "a choice": at_exp(
            lambda x, h: weft.cond(weft.sum(x) > 0, lambda: inside(x, h), lambda: h)
        ),
        "a batch": at_exp(lambda x, h: weft.vmap(lambda r: inside(r, h))(np.ones((3, 2)))),
        "a gradient": at_exp(lambda x, h: weft.grad(lambda y: weft.sum(inside(x, y)))(h)),
        "a tangent": at_exp(lambda x, h: weft.jvp(lambda y: inside(x, y), (h,), (x,))[1]),
        "a jacobian": at_exp(lambda x, h: weft.jacobian(lambda y: inside(x, y))(h)),
    }


@pytest.mark.parametrize("name", checkpointed(lambda y: y))
def test_gradients_reach_the_arguments_of_a_checkpointed_function(name: str, backend: str) -> None:
    x = np.array([0.3, 0.5])
    plain = checkpointed(lambda y: y)[name]
    function = checkpointed(weft.checkpoint)[name]
    with weft.backend(backend):
        wanted = weft.grad(plain)(x)
        assert np.all(np.abs(wanted) > 0.1)
        for gradient in (weft.grad(function), weft.jit(weft.grad(function))):
            np.testing.assert_allclose(gradient(x), wanted, rtol=1e-9)
        batch = weft.vmap(weft.grad(function))(np.stack([x, x]))
        np.testing.assert_allclose(batch, [wanted, wanted], rtol=1e-9)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: weft.grad(f)(x),
        lambda f, x: weft.value_and_grad(f)(x),
        lambda f, x: weft.vjp(f, x)[1](1.0),
        lambda f, x: weft.jvp(f, (x,), (x,)),
        lambda f, x: weft.jacobian(f)(x),
        lambda f, x: weft.hessian(f)(x),
    ],
    ids=["grad", "value_and_grad", "vjp", "jvp", "jacobian", "hessian"],
)
def test_arguments_inside_of_a_checkpoint_are_refused(transform: Callable[..., Any]) -> None:
    """The checkpoint begins further out, so its gradient is that of a copy of the argument."""

    def of_half(w: Any) -> Any:
        return transform(lambda x: weft.checkpoint(weft.sin(x), [w]), w / 2)

    with weft.backend("numpy"), pytest.raises(GradientError) as caught:
        weft.jit(of_half)(1.0)
    for word in ("inside of the checkpoint", "make it one of its inputs"):
        assert word in str(caught.value)


REFUSED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a vector": (lambda: weft.grad(lambda x: x * 2)(np.ones(3)), ("scalar float", "vjp", "sum")),
    "several results": (lambda: weft.grad(lambda x: (x, x))(1.0), ("(*, *)", "scalar float")),
    "an integer argument": (
        lambda: weft.grad(lambda p: p["n"] * 1.0)({"n": 1}),
        ("args[0]['n'] is int64", "argnums="),
    ),
    "an integer result": (lambda: weft.grad(lambda x: weft.argmax(x))(np.ones(3)), ("int64",)),
    "an argument that is not there": (
        lambda: weft.grad(lambda x: x, argnums=1)(1.0),
        ("argnums=1", "1 positional"),
    ),
    "an argument that is named twice": (
        lambda: weft.grad(lambda x, y: x * y, argnums=(0, -2))(1.0, 2.0),
        ("argnums=(0, -2)", "twice"),
    ),
    "no pair with has_aux": (lambda: weft.grad(lambda x: x, has_aux=True)(1.0), ("pair",)),
    "an adjoint of another structure": (
        lambda: weft.vjp(lambda x: (x, x), 1.0)[1](1.0),
        ("the tree of the adjoint has the structure *", "(*, *)"),
    ),
    "an adjoint of another shape": (
        lambda: weft.vjp(lambda x: x, np.ones(3))[1](np.ones(2)),
        ("Axes(2)", "Axes(3)"),
    ),
    "tangents of another structure": (
        lambda: weft.jvp(lambda x: x, (1.0,), (1.0, 2.0)),
        ("tangents",),
    ),
    "not a function": (lambda: weft.grad(3), ("grad takes a function, as in grad(f)(x), not 3",)),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_to_do(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    with weft.backend("numpy"), pytest.raises(weft.WeftError) as caught:
        call()
    for word in (*words, "test_gradient_functions.py"):
        assert word in str(caught.value)

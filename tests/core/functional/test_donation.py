"""Donated arguments: results in their memory, the same as without donation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from needs import skip_without_backend

import weft
from weft.errors import ArgumentError, CheckFailed
from weft.plan.plan import RESULT
from weft.plan.verifier import verify_plan

BACKENDS: dict[str, dict[str, Any]] = {
    "numpy": {"backend": "numpy"},
    "native": {"backend": "native"},
    "opencl": {"backend": "opencl"},
    "webgpu": {"backend": "webgpu"},
    "webgpu, on the device": {"backend": "webgpu", "device": True},
    "opencl, on the device": {"backend": "opencl", "device": True},
}


@pytest.fixture(params=BACKENDS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `jit` is given: a backend, and whether results stay on its device."""
    found = BACKENDS[request.param]
    skip_without_backend(found["backend"])
    return found


def on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


def given_to(options: Any, *arrays: Any) -> list[Any]:
    """Return copies of arrays as a function of these options returns them, if it is on a device."""
    if "device" in options:
        return list(weft.jit(lambda *arrays: arrays, **options)(*arrays))
    return [each.copy() for each in arrays]


def matrix(seed: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).normal(size=(300, 300)).astype(dtype)


def looped(a: Any, b: Any) -> Any:
    def body(carry: Any, _: None) -> Any:
        x, y = carry
        return (weft.sin(y) + x, weft.cos(x) + y), weft.sum(x)

    return weft.scan(body, (a, b), length=5)


def adam_step(a: Any, b: Any) -> Any:
    params = {"a": a, "b": b}
    optimizer = weft.optim.adam(0.01)
    gradients = weft.grad(lambda p: weft.sum(weft.tanh(p["a"] @ p["b"])))(params)
    return optimizer.update(gradients, optimizer.init(params), params)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda a, b: (a + b, a * b),
    "swapped": lambda a, b: (b, a),
    "passed on, then read": lambda a, b: (b, weft.sin(a) + b),
    "as it came": lambda a, b: (a, b + a),
    "read after it is written": lambda a, b: (a + 1, weft.sum(weft.sin(a)), b @ a),
    "another order of elements": lambda a, b: (a[::-1] + a, weft.transpose(b) * 2),
    "products": lambda a, b: (a @ a, a @ b @ a),
    "one value twice": lambda a, b: (a + b, a + b),
    "a constant": lambda a, b: (weft.zeros((300, 300)), a - b),
    "a partial update": lambda a, b: (weft.dynamic_update_slice(a, b[:10], [3, 0]), b),
    "a view": lambda a, b: (weft.reshape(weft.exp(a), (300, 300)), weft.transpose(b)),
    "a loop": looped,
    "a result that a loop reads": lambda a, b: (
        (v := a @ b * 0.01),
        weft.fori_loop(0, 3, lambda i, c: c + v, b),
    ),
    "a result that a loop begins with": lambda a, b: (
        (v := b * 2),
        weft.fori_loop(0, 3, lambda i, c: c * 0.5 + a, v),
    ),
    "a branch": lambda a, b: weft.cond(a[0, 0] > b[0, 0], lambda: (a, b), lambda: (b, a * 2)),
    "many results": lambda a, b: [a * number + b for number in range(20)],
    "an optimizer": adam_step,
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_donation_changes_no_value(options: Any, case: str):
    function = FUNCTIONS[case]
    a, b = matrix(0), matrix(1)
    wanted = weft.jit(function, backend=options["backend"])(a, b)
    donating = weft.jit(function, **options, donate_argnums=(0, 1))
    for _ in range(2):
        given = given_to(options, a, b)
        found = donating(*given)
        for one, other in zip(leaves(found), leaves(wanted), strict=True):
            np.testing.assert_array_equal(on_host(one), other)
        memory = [one for one in leaves(found) if any(one is each for each in given)]
        assert len(memory) == 2
    verify_plan(donating.lower(a, b).plan)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, tuple | list):
        return [leaf for each in tree for leaf in leaves(each)]
    return [tree]


def test_an_optimizer_computes_in_the_memory_of_its_arguments(options: Any):
    optimizer = weft.optim.adam(0.01)

    @weft.jit(**options, donate_argnums=("params", "state"))
    def step(params: Any, state: Any, gradients: Any) -> Any:
        return optimizer.update(gradients, state, params)

    params = dict(zip("ab", given_to(options, matrix(0), matrix(1)), strict=True))
    state, gradients = optimizer.init(params), {"a": matrix(2), "b": matrix(3)}
    given = leaves((params, state))
    found = leaves(step(params, state, gradients))
    memory = [found[number] is each for number, each in enumerate(given)]
    assert all(memory) or ("device" in options and sum(memory) == 2)  # others were on the host
    plan = step.lower(params, state, gradients).plan
    bases = [out.base for step in plan.steps for out in step.outs]
    written = {base.owner for base in bases if base.kind == RESULT}
    assert written == set(range(7))
    assert plan.arena_size < matrix(0).nbytes * 3  # no copy of a whole tree


def test_arrays_that_must_not_be_overwritten_are_copied(options: Any):
    add = weft.jit(lambda a, b: (a + b, b * 2), **options, donate_argnums=(0, 1))
    a, b = matrix(0), matrix(1)
    fixed = a.copy()
    fixed.flags.writeable = False
    found = on_host(add(fixed, b.copy())[0])
    np.testing.assert_array_equal(found, a + b)
    np.testing.assert_array_equal(fixed, a)
    (b,) = given_to(options, b)
    for one in add(b, b):
        np.testing.assert_array_equal(on_host(one), matrix(1) * 2)
    both = np.stack([a, matrix(1)]).reshape(-1)
    views = both[:-300].reshape(-1, 300), both[300:].reshape(-1, 300)
    wanted = views[0] + views[1], views[1] * 2
    for one, other in zip(add(*views), wanted, strict=True):
        np.testing.assert_array_equal(on_host(one), other)


def test_kept_arguments_are_never_overwritten():
    add = weft.jit(lambda a, b: (a + b, b * 2), donate_argnums="a")
    a, b = matrix(0), matrix(1)
    found = add(a, b)
    assert found[0] is a
    np.testing.assert_array_equal(b, matrix(1))
    np.testing.assert_array_equal(add(b, b)[1], matrix(1) * 2)
    np.testing.assert_array_equal(b, matrix(1))


def test_a_check_of_results_finds_the_op():
    with weft.make_transformer() as transformer:
        transformer.checks_finite = True
        log = weft.jit(lambda a: weft.log(a) + 1, donate_argnums=0, backend=transformer)
        assert log(np.ones((300, 300), "float32"))[0, 0] == 1
        with pytest.raises(CheckFailed, match="LogOp"):
            log(-np.ones((300, 300), "float32"))


def test_results_of_other_shapes_have_memory_of_their_own():
    a = matrix(0)
    assert weft.jit(weft.sum, donate_argnums=0)(a).shape == ()
    np.testing.assert_array_equal(a, matrix(0))


def test_lengths_may_vary(options: Any):
    add = weft.jit(
        lambda a, b: (a + b[::-1], b @ weft.transpose(a) @ a),
        donate_argnums=0, dynamic="rows", **options,
    )  # fmt: skip
    for rows in (300, 7, 40, 7):
        a, b = matrix(0)[:rows], matrix(1)[:rows]
        one, other = given_to(options, a, b)
        found = add(one, other)
        assert found[0] is one
        np.testing.assert_array_equal(on_host(found[0]), a + b[::-1])
        np.testing.assert_allclose(on_host(found[1]), b @ a.T @ a, rtol=1e-3, atol=1e-2)


def test_further_arguments_are_donated_by_number(options: Any):
    add = weft.jit(lambda a, *rest: [a + each for each in rest], donate_argnums=(1, 3), **options)
    a, b, c, d = given_to(options, *map(matrix, range(4)))
    found = add(a, b, c, d)
    assert [each is given for each, given in zip(found, (b, d, c), strict=True)] == [1, 1, 0]
    for number, each in enumerate(found):
        np.testing.assert_array_equal(on_host(each), matrix(0) + matrix(number + 1))


def test_a_computation_of_a_donating_function_serves_other_calls(tmp_path: Any):
    add = weft.jit(lambda a, b: a + b, donate_argnums=0, backend="numpy")
    a, b, out = matrix(0), matrix(1), matrix(2)
    computation = add.lower(a, b)
    computation(a.copy(), b, out=out)
    np.testing.assert_array_equal(out, a + b)
    computation.profile(a, b, repeat=1)
    assert computation.find_nonfinite(a, b) is None
    np.testing.assert_array_equal(a, matrix(0))
    computation.save(tmp_path / "add.weft")
    np.testing.assert_array_equal(weft.load(tmp_path / "add.weft")(a, b), a + b)
    computation.export_source(tmp_path / "add.py")
    scope: dict[str, Any] = {}
    exec((tmp_path / "add.py").read_text(), scope)
    np.testing.assert_array_equal(scope["call"](a, b)[0], a + b)
    np.testing.assert_array_equal(a, matrix(0))


def test_arguments_that_do_not_exist_are_refused():
    with pytest.raises(ArgumentError, match="donate_argnums= names the argument 'parms'"):
        weft.jit(lambda params: params, donate_argnums="parms")


def test_a_small_transformer_learns_with_donated_parameters(options: Any):
    nn, optimizer = weft.nn, weft.optim.adam(0.01)
    embed = nn.Embedding(6, 16)
    body = nn.Sequential(nn.TransformerBlock(2, 32), nn.LayerNorm(), nn.Dense(6))

    def loss(params: Any, digits: Any) -> Any:
        logits = body(params["body"], embed(params["embed"], digits) + params["places"])
        return weft.mean(weft.cross_entropy(logits, digits[:, ::-1], axis=-1))

    def step(params: Any, state: Any, digits: Any) -> Any:
        value, gradients = weft.value_and_grad(loss)(params, digits)
        return value, *optimizer.update(gradients, state, params)

    def losses(**donated: Any) -> tuple[list[float], Any]:
        rng = np.random.default_rng(0)
        params: Any = {
            "embed": embed.init(rng, (1, 5)),
            "places": rng.normal(size=(5, 16)).astype("float32"),
            "body": body.init(rng, (1, 5, 16)),
        }
        state, found = optimizer.init(params), []
        jitted = weft.jit(step, **options, **donated)
        for _ in range(80):
            digits = rng.integers(0, 6, (32, 5), dtype="int32")
            value, params, state = jitted(params, state, digits)
            found.append(on_host(value).item())
        plan = jitted.lower(params, state, digits).plan
        return found, plan

    found, plan = losses(donate_argnums=(0, 1))
    assert found[0] > 1.5
    assert found[-1] < 0.3
    verify_plan(plan)
    np.testing.assert_allclose(found, losses()[0], rtol=1e-4)


@pytest.mark.parametrize("view", [memoryview, lambda x: np.asarray(memoryview(x))[:]])
def test_memory_that_is_shared_behind_a_buffer_is_copied(view: Any) -> None:
    a = matrix(0)
    b = np.asarray(view(a))
    step = weft.jit(lambda a, b: (a + 1, weft.sum(weft.sin(a)) + b), donate_argnums=0)
    wanted = step(a.copy(), b.copy())
    for _ in range(2):
        for found, value in zip(step(a, b), wanted, strict=True):
            np.testing.assert_array_equal(found, value)

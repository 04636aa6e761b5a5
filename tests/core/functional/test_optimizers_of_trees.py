"""Optimizers as pairs of functions of trees, against those of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, AxesError, DTypeError

RNG = np.random.default_rng(5)
X, Y = (RNG.normal(size=shape).astype("float32") for shape in ((16, 5), (16, 3)))
PARAMS: dict[str, Any] = {
    "w": RNG.normal(size=(5, 3)).astype("float32"),
    "b": RNG.normal(size=3).astype("float32"),
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "sgd": [{}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}],
    "adam": [{}, {"weight_decay": 0.1}],
    "adamw": [{}],
    "lamb": [{}],
    "rmsprop": [{}, {"momentum": 0.5, "centered": True}],
    "adagrad": [{}],
    "adadelta": [{}],
    "lion": [{"weight_decay": 0.1}],
}
CASES = [(name, options) for name, several in OPTIONS.items() for options in several]


def loss(params: Any, x: Any, y: Any) -> Any:
    return weft.mean(weft.square(weft.tanh(x @ params["w"] + params["b"]) - y))


def train(optimizer: weft.optim.Optimizer, steps: int, params: Any, **options: Any):
    @weft.jit(**options)
    def step(params: Any, state: Any) -> Any:
        gradients = weft.grad(loss)(params, X, Y)
        return optimizer.update(gradients, state, params)

    state = optimizer.init(params)
    for _ in range(steps):
        params, state = step(params, state)
    return params, state


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_ten_steps_are_those_of_the_graph_optimizer_to_the_bit(
    backend: str, name: str, options: Any
):
    params, state = train(getattr(weft.optim, name)(0.05, **options), 10, PARAMS, backend=backend)
    variables = {
        key: weft.variable(value.shape, initial_value=value) for key, value in PARAMS.items()
    }
    update = getattr(weft, name)(loss(variables, X, Y), learning_rate=0.05, **options)
    with weft.make_transformer(backend) as transformer:
        step = transformer.computation(update)
        for _ in range(10):
            step()
        wanted = transformer.computation(list(variables.values()))()
    for key, value in zip(variables, wanted, strict=True):
        np.testing.assert_array_equal(params[key], value)
    assert state["steps"] == 10


def test_state_is_a_tree_of_zeros_like_the_parameters():
    params = {"a": [np.ones((2, 3), "float32"), np.ones((), "float64")], "b": None}
    state = weft.optim.adam().init(params)
    assert set(state) == {"steps", "first_moment", "second_moment"}
    moment = state["first_moment"]
    assert moment["b"] is None
    assert [each.dtype for each in moment["a"]] == ["float32", "float64"]
    assert [each.shape for each in moment["a"]] == [(2, 3), ()]
    assert set(weft.optim.sgd().init(params)) == {"steps"}


def test_parameters_of_16_bits_keep_their_dtype_and_have_wide_slots():
    params = {"w": PARAMS["w"].astype("float16"), "b": PARAMS["b"]}
    new, state = train(weft.optim.adam(0.05), 3, params)
    assert new["w"].dtype == "float16"
    assert state["first_moment"]["w"].dtype == "float32"


def test_a_schedule_sees_the_number_of_earlier_steps():
    optimizer = weft.optim.sgd(lambda step: weft.piecewise_constant(step, [2], [1.0, 0.0]))
    one = {"w": np.float32(0)}
    state, params = optimizer.init(one), one
    values = []
    for _ in range(4):
        params, state = optimizer.update({"w": np.float32(-1)}, state, params)
        values.append(params["w"].item())
    assert values == [1.0, 2.0, 2.0, 2.0]


def test_a_state_passes_through_scan():
    optimizer = weft.optim.adam(0.05)

    @weft.jit
    def trained(params: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, gradients = weft.value_and_grad(loss)(params, X, Y)
            return optimizer.update(gradients, state, params), value

        return weft.scan(step, (params, optimizer.init(params)), length=10)

    (params, state), losses = trained(PARAMS)
    wanted, _ = train(optimizer, 10, PARAMS)
    assert state["steps"] == 10
    assert losses[-1] < losses[0]
    for key in PARAMS:
        np.testing.assert_allclose(params[key], wanted[key], rtol=1e-6)


def test_clipping_by_the_norm_of_a_tree():
    tree = {"a": np.float32([3, 0]), "b": [np.float32([[4]])]}
    clipped = weft.optim.clip_by_global_norm(tree, 2.5)
    np.testing.assert_allclose(clipped["a"], [1.5, 0])
    np.testing.assert_allclose(clipped["b"][0], [[2]])
    same = weft.optim.clip_by_global_norm(tree, 6)
    np.testing.assert_array_equal(same["a"], tree["a"])


def test_mistakes_name_the_leaf():
    adam, sgd = weft.optim.adam(), weft.optim.sgd(momentum=0.9)
    params = {"w": np.ones(3, "float32")}
    with pytest.raises(ArgumentError, match=r"adam: the state must be a dict of steps, first_mom"):
        adam.update(params, sgd.init(params), params)
    with pytest.raises(ArgumentError, match=r"adam: the tree of gradients has the struct"):
        adam.update([np.ones(3, "float32")], adam.init(params), params)
    with pytest.raises(AxesError, match=r"adam: gradients\['w'\] has Axes\(4\), but"):
        adam.update({"w": np.ones(4, "float32")}, adam.init(params), params)
    with pytest.raises(DTypeError, match=r"adam: params\['w'\] is int32"):
        adam.update({"w": np.ones(3, "int32")}, adam.init(params), {"w": np.ones(3, "int32")})
    with pytest.raises(ArgumentError, match="beta1 must be less than 1"):
        weft.optim.adam(beta1=1.0)
    with pytest.raises(ArgumentError, match="learning_rate"):
        weft.optim.adam(-1)

"""Optimizers: several steps as the papers write them, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import StateError
from weft.testing.reference import evaluate

STEPS = 4
START = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]])
SLOPES = np.array([[0.5, -1.0, 2.0], [1.5, -0.75, 0.3]])


def gradient(w: np.ndarray):
    """Of the loss sum(w²/2 * slopes + sin w)."""
    return w * SLOPES + np.cos(w)


def loss_of(w: weft.TensorOp):
    return weft.sum(weft.square(w) * SLOPES * 0.5 + weft.sin(w))


def sgd(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    dampening: float = 0.0,
):
    g = g + weight_decay * w
    s["v"] = momentum * s.get("v", 0) + (1 - dampening) * g
    if not momentum:
        return w - rate * g
    return w - rate * (g + momentum * s["v"] if nesterov else s["v"])


def moments(g: np.ndarray, s: dict[str, Any], t: int, beta1: float, beta2: float):
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * g**2
    return s["m"] / (1 - beta1**t), s["v"] / (1 - beta2**t)


def adam(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
):
    m, v = moments(g + weight_decay * w, s, t, beta1, beta2)
    return w - rate * m / (np.sqrt(v) + epsilon)


def adamw(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
):
    m, v = moments(g, s, t, beta1, beta2)
    return w - rate * m / (np.sqrt(v) + epsilon) - rate * weight_decay * w


def lamb(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.01,
):
    m, v = moments(g, s, t, beta1, beta2)
    step = m / (np.sqrt(v) + epsilon) + weight_decay * w
    return w - rate * np.linalg.norm(w) / np.linalg.norm(step) * step


def rmsprop(
    w: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int, rate: float = 0.01,
    decay: float = 0.99, epsilon: float = 1e-08, momentum: float = 0.0, centered: bool = False,
    weight_decay: float = 0.0,
):  # fmt: skip
    g = g + weight_decay * w
    s["v"] = decay * s.get("v", 0) + (1 - decay) * g**2
    s["g"] = decay * s.get("g", 0) + (1 - decay) * g
    spread = s["v"] - s["g"] ** 2 if centered else s["v"]
    s["b"] = momentum * s.get("b", 0) + g / (np.sqrt(spread) + epsilon)
    return w - rate * s["b"]


def adagrad(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 0.01,
    epsilon: float = 1e-10,
    weight_decay: float = 0.0,
):
    g = g + weight_decay * w
    s["s"] = s.get("s", 0) + g**2
    return w - rate * g / (np.sqrt(s["s"]) + epsilon)


def adadelta(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 1.0,
    decay: float = 0.9,
    epsilon: float = 1e-6,
    weight_decay: float = 0.0,
):
    g = g + weight_decay * w
    s["v"] = decay * s.get("v", 0) + (1 - decay) * g**2
    d = np.sqrt(s.get("u", 0) + epsilon) / np.sqrt(s["v"] + epsilon) * g
    s["u"] = decay * s.get("u", 0) + (1 - decay) * d**2
    return w - rate * d


def lion(
    w: np.ndarray,
    g: np.ndarray,
    s: dict[str, Any],
    t: int,
    rate: float = 0.0001,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
):
    m = s.get("m", 0)
    s["m"] = beta2 * m + (1 - beta2) * g
    return w - rate * (np.sign(beta1 * m + (1 - beta1) * g) + weight_decay * w)


LOOPS = [
    (sgd, {}),
    (sgd, {"rate": 0.1, "weight_decay": 0.2}),
    (sgd, {"momentum": 0.9}),
    (sgd, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    (sgd, {"momentum": 0.8, "nesterov": True}),
    (adam, {}),
    (adam, {"rate": 0.1, "beta1": 0.0, "beta2": 0.5, "epsilon": 0.1, "weight_decay": 0.3}),
    (adamw, {}),
    (adamw, {"rate": 0.1, "weight_decay": 0.5}),
    (lamb, {"rate": 0.1}),
    (rmsprop, {}),
    (rmsprop, {"centered": True, "momentum": 0.9, "decay": 0.8, "weight_decay": 0.1}),
    (adagrad, {"rate": 0.1, "weight_decay": 0.1}),
    (adadelta, {}),
    (adadelta, {"rate": 0.5, "decay": 0.5, "weight_decay": 0.1}),
    (lion, {"rate": 0.1, "weight_decay": 0.1}),
]


def loop_ids():
    return [f"{loop.__name__}-{'-'.join(options)}" for loop, options in LOOPS]


def expected_steps(loop: Callable[..., Any], options: dict[str, Any]):
    w, slots, found = START, {}, []
    for t in range(1, STEPS + 1):
        w = loop(w, gradient(w), slots, t, **options)
        found.append(w)
    return found


def optimized(loop: Callable[..., Any], options: dict[str, Any], *given: Any, **more: Any):
    options = {("learning_rate" if key == "rate" else key): v for key, v in options.items()}
    return getattr(weft, loop.__name__)(*given, **{**options, **more})


def variable(start: np.ndarray = START, dtype: str = "float64", name: str = "w"):
    return weft.variable(start.shape, dtype, initial_value=start, name=name)


@pytest.mark.parametrize(("loop", "options"), LOOPS, ids=loop_ids())
def test_steps_are_those_of_a_plain_loop(
    transformer: weft.Transformer, loop: Callable[..., Any], options: dict[str, Any]
):
    w = variable()
    step = transformer.computation([w, optimized(loop, options, loss_of(w))])
    got = [step()[0] for _ in range(STEPS)]
    np.testing.assert_allclose(got, expected_steps(loop, options), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("loop", "options"), LOOPS, ids=loop_ids())
def test_steps_of_the_reference_are_those_too(loop: Callable[..., Any], options: dict[str, Any]):
    w = variable()
    graph = weft.capture([w, optimized(loop, options, loss_of(w))])
    states, got = None, []
    for _ in range(STEPS):
        (value,), states = evaluate(graph, states=states)
        got.append(value)
    np.testing.assert_allclose(got, expected_steps(loop, options), rtol=1e-12, atol=1e-13)


@pytest.mark.share(8)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("loop", "options"), LOOPS, ids=loop_ids())
def test_slots_of_narrow_variables_are_wide(
    transformer: weft.Transformer, loop: Callable[..., Any], options: dict[str, float], dtype: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"no {dtype}")
    w = variable(dtype=dtype)
    update = optimized(loop, options, [gradient(START).astype("float32")], [w])
    slots = update.variables(lambda state: state.is_state and state is not w)
    assert {slot.dtype.name for slot in slots} <= {"float32", "int32"}
    assert all(slot.name.startswith(("w_", loop.__name__)) for slot in slots)
    step = transformer.computation([w, update])
    accuracy = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}[dtype]
    wanted, state = START, {}
    for t in range(1, STEPS + 1):
        wanted = loop(wanted, gradient(START), state, t, **options)
        np.testing.assert_allclose(
            step()[0].astype("float64"), wanted, rtol=t * accuracy, atol=t * accuracy
        )


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lion"])
def test_all_gradients_see_the_old_values(transformer: weft.Transformer, optimizer: str):
    x, y = (weft.variable((), "float64", initial_value=v) for v in (2.0, 3.0))
    step = getattr(weft, optimizer)(weft.square(x) * y, learning_rate=0.5)
    got = transformer.computation([x, y, step])()[:2]
    slopes = {"sgd": (12.0, 4.0), "adam": (1.0, 1.0), "lion": (1.0, 1.0)}[optimizer]
    np.testing.assert_allclose(got, [2 - 0.5 * slopes[0], 3 - 0.5 * slopes[1]], rtol=1e-7)


def test_in_a_sequence_too(transformer: weft.Transformer):
    x, y = (weft.variable((), "float64", initial_value=v) for v in (0.0, 0.0))
    step = weft.sgd(weft.square(x) * y, learning_rate=0.5)
    again = weft.sgd(x * y, learning_rate=0.25)
    with weft.saved_user_deps():
        first = [weft.assign(x, 2.0), weft.assign(y, 3.0)]
    run = transformer.computation(weft.sequential([*first, step, again, weft.stack([x, y])]))
    # 2 - 0.5 * 12 and 3 - 0.5 * 4; then -4 - 0.25 * 1 and 1 - 0.25 * -4.
    np.testing.assert_allclose(run(), [-4.25, 2.0])


def test_only_a_computation_that_names_the_step_trains(transformer: weft.Transformer):
    w = variable()
    loss = loss_of(w)
    step = weft.adam(loss)
    evaluate_only = transformer.computation([loss, w])
    np.testing.assert_array_equal(evaluate_only()[1], START)
    np.testing.assert_array_equal(evaluate_only()[1], START)
    before, _ = transformer.computation([loss, step])()
    assert evaluate_only()[0] < before


def test_a_step_follows_the_writes_that_it_was_built_after(transformer: weft.Transformer):
    w = weft.variable((), "float64", initial_value=1.0)
    weft.assign(w, 5.0)
    loss = weft.square(w)
    assert transformer.computation([w, weft.sgd(loss, learning_rate=0.1)])()[0] == 4.0


def test_two_optimizers_share_a_loss(transformer: weft.Transformer):
    x, y = (weft.variable((), "float64", initial_value=v) for v in (2.0, 3.0))
    loss = x * y
    steps = [weft.sgd(loss, [x], learning_rate=1), weft.sgd(loss, [y], learning_rate=1)]
    assert transformer.computation([x, y, *steps])()[:2] == (-1.0, 1.0)


def test_two_steps_of_one_variable_are_refused(transformer: weft.Transformer):
    w = variable()
    steps = [weft.sgd(loss_of(w)), weft.sgd(loss_of(w))]
    with pytest.raises(StateError, match="written twice"):
        transformer.computation(steps)


def test_a_schedule_is_a_graph(transformer: weft.Transformer):
    w = weft.variable((), "float64", initial_value=0.0)
    calls = weft.persistent_tensor((), "int32", initial_value=0)
    with weft.saved_user_deps():
        count = weft.accumulate(calls, 1)
        rate = weft.where(weft.less(calls, 2), 1.0, 0.125)
        step = weft.sgd([1.0], [w], learning_rate=rate)
    run = transformer.computation([w, count, step])
    assert [run()[0].item() for _ in range(3)] == [-1.0, -1.125, -1.25]


def test_a_state_may_be_the_rate_and_hold_the_gradient(transformer: weft.Transformer):
    w = weft.variable((2,), "float32", initial_value=0.0)
    total = weft.persistent_tensor((2,), initial_value=[1.0, 2.0])
    rate = weft.persistent_tensor((), "float64", initial_value=0.5)
    run = transformer.computation([w, weft.sgd([total], [w], learning_rate=rate)])
    np.testing.assert_array_equal(run()[0], [-0.5, -1.0])


def test_an_unknown_batch_and_named_axes(transformer: weft.Transformer):
    batch, inner, outer = weft.ax.N, weft.make_axis(3, "C"), weft.make_axis(2, "H")
    x = weft.placeholder([batch, inner])
    w = weft.variable([inner, outer], initial_value=1.0)
    loss = weft.mean(weft.sum(weft.square(weft.dot(x, w)), out_axes=[batch]), batch)
    step = transformer.computation([loss, weft.adamw(loss, learning_rate=0.1)], x)
    data = np.random.default_rng(0).normal(size=(7, 3)).astype("f4")
    losses = [step(data)[0].item() for _ in range(30)]
    assert losses[-1] < 0.05 * losses[0]


def norms(arrays: list[Any]):
    return np.sqrt(sum((array.astype("f8") ** 2).sum() for array in arrays))


@pytest.mark.parametrize("size", [1e-30, 0.3, 1.0, 50.0, 1e30])
def test_clipping_needs_no_square_that_overflows(transformer: weft.Transformer, size: float):
    arrays = [np.array([3.0, -4.0]) * size, np.array(12.0 * size), np.zeros((0, 2))]
    tensors = [weft.placeholder(a.shape, "float32") for a in arrays]
    clipped = weft.clip_by_global_norm(tensors, 2.5)
    got = transformer.computation([*clipped, weft.clip_by_norm(tensors[0], 2.5)], *tensors)(*arrays)
    norm = 13 * size
    for array, result in zip(arrays, got[:3], strict=True):
        wanted = array * min(1.0, 2.5 / norm)
        np.testing.assert_allclose(result, wanted, rtol=1e-6)
    assert norms([got[3]]) == pytest.approx(min(5 * size, 2.5), rel=1e-6)


def test_what_is_short_enough_is_kept_to_the_bit(transformer: weft.Transformer):
    x = weft.placeholder((3,))
    data = np.array([0.1, -0.7, 1e-40], "f4")
    run = transformer.computation([weft.clip_by_norm(x, 1.0), weft.clip_by_norm(x, 1e9)], x)
    for result in run(data):
        np.testing.assert_array_equal(result, data)

"""Derivatives of any order and in a direction, rules from outside, recomputation, checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.autodiff import reverse
from weft.errors import ArgumentError, AxesError, CheckFailed, GradientError, StateError
from weft.ir import ax
from weft.testing.numeric import ACCURACY, STEP
from weft.testing.reference import evaluate


def value_of(op: weft.TensorOp, arrays: list[Any], placeholders: list[Any]):
    (value,), _ = evaluate(weft.capture([op], placeholders), arrays, wide=True)
    return value


FUNCTIONS = {
    "elementwise": lambda x: weft.tanh(x) * x,
    "reduction": lambda x: weft.sum(x * x) * weft.sin(x),
    "softmax": weft.softmax,
    "product": lambda x: x @ weft.transpose(x),
    "of itself": lambda x: x,
    "constant": lambda x: weft.constant(np.ones(2)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_jvp_is_a_central_difference(function: Callable[..., Any]):
    x, direction = weft.placeholder((2, 3), "float64"), weft.placeholder((2, 3), "float64")
    y = function(x)
    tangent = weft.jvp(y, x, direction)
    assert (tangent.axes, tangent.dtype) == (y.axes, y.dtype)
    random = np.random.default_rng(7)
    at, along = random.uniform(-2, 2, (2, 3)), random.uniform(-1, 1, (2, 3))
    above, below = (value_of(y, [at + sign * STEP * along], [x]) for sign in (1, -1))
    got = value_of(tangent, [at, along], [x, direction])
    np.testing.assert_allclose(got, (above - below) / (2 * STEP), atol=10 * ACCURACY)


def test_a_jvp_can_be_differentiated():
    x, direction = weft.placeholder((), "float64"), weft.placeholder((), "float64")
    second = weft.deriv(weft.jvp(x**3, x, direction), x)
    assert value_of(second, [2.0, 5.0], [x, direction]) == pytest.approx(6 * 2 * 5)


def test_a_tangent_must_have_the_axes_of_x():
    x = weft.placeholder((2,))
    with pytest.raises(AxesError, match="tangent has"):
        weft.jvp(x, x, weft.placeholder((3,)))


class HalvedOp(weft.TensorOp):
    def infer(self):
        return self.args[0].axes, self.args[0].dtype

    def reference(self, x: Any):
        return x / 2


class RootOp(weft.ElementwiseOp):
    reference = staticmethod(np.sqrt)

    def partials(self, delta: weft.TensorOp, x: weft.TensorOp):
        return (delta / (2 * self),)


@pytest.fixture
def _no_rules(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reverse, "_rules", dict(reverse._rules))


@pytest.mark.usefixtures("_no_rules")
def test_a_class_without_a_gradient_gets_one():
    x = weft.placeholder((2,))
    with pytest.raises(GradientError, match="gradient_of"):
        weft.deriv(weft.sum(HalvedOp(x)), x)

    @weft.gradient_of(HalvedOp)
    def rule(op: HalvedOp, delta: weft.TensorOp, operand: weft.TensorOp):
        assert isinstance(op, HalvedOp)
        assert operand is x
        return (delta / 2,)

    y = HalvedOp(x)
    assert value_of(weft.deriv(weft.sum(y), x), [[1, 2]], [x]).tolist() == [0.5, 0.5]
    with pytest.raises(ArgumentError, match="already"):
        weft.gradient_of(HalvedOp)(lambda op, delta, x: (None,))


@pytest.mark.usefixtures("_no_rules")
def test_a_rule_replaces_the_gradient_of_a_class_and_of_subclasses_without_one():
    class SameOp(RootOp):
        pass

    class OtherOp(RootOp):
        def partials(self, delta: weft.TensorOp, x: weft.TensorOp):
            return (delta * 7,)

    weft.gradient_of(RootOp)(lambda op, delta, x: (delta * 3,))
    found = []
    for kind in (RootOp, SameOp, OtherOp):
        x = weft.placeholder(())
        found.append(value_of(weft.deriv(kind(x), x), [4.0], [x]))
    assert found == [3, 3, 7]


def test_only_op_classes_get_rules():
    with pytest.raises(ArgumentError, match="takes an op class"):
        weft.gradient_of("HalvedOp")


def layers(x: weft.TensorOp, count: int, every: int | None = None):
    h = start = x
    for number in range(1, count + 1):
        h = weft.tanh(h * 1.5) + weft.sin(h)
        if every and number % every == 0:
            h = start = weft.checkpoint(h, [start])
    return h


@pytest.mark.parametrize("every", [1, 4, 6, 36])
def test_checkpoints_trade_memory_for_time(every: int):
    x = weft.placeholder((1000,))
    sizes, ops, gradients = [], [], []
    for distance in (None, every):
        y = weft.sum(layers(x, 36, distance))
        computation = weft.make_transformer("numpy").computation(weft.deriv(y, x), x)
        gradients.append(computation(np.linspace(-1, 1, 1000)))
        computation.plan.verify()
        sizes.append(computation.plan.arena_size)
        ops.append(computation.fusion_statistics.ops)
    np.testing.assert_array_equal(*gradients)
    if every == 6:
        assert sizes[1] < sizes[0] / 3
    assert ops[1] < 2 * ops[0]


def test_recomputation_draws_the_same_random_numbers_and_prints_once(
    capsys: pytest.CaptureFixture[str],
):
    x = weft.placeholder((50,))
    noise = weft.uniform((50,), seed=3)
    inner = weft.print_op(x, "seen") * noise
    y = weft.checkpoint(weft.sin(inner) * noise, [x])
    computation = weft.make_transformer("numpy").computation(
        [y, weft.deriv(weft.sum(y), x), noise], x
    )
    for _ in range(2):
        at = np.linspace(0, 1, 50, dtype=np.float32)
        _, gradient, drawn = computation(at)
        np.testing.assert_allclose(gradient, np.cos(at * drawn) * drawn**2, rtol=1e-5)
    assert capsys.readouterr().out.count("seen") == 2


def test_recomputation_reads_the_state_that_was_read():
    w = weft.variable((3,), initial_value=[1.0, 2.0, 3.0])
    y = weft.checkpoint(weft.tanh(w * 0.5), [w])
    weft.assign(w, w - weft.deriv(weft.sum(y), w))
    computation = weft.make_transformer("numpy").computation(w)
    want = np.array([1.0, 2.0, 3.0])
    for _ in range(2):
        want = want - 0.5 * (1 - np.tanh(want * 0.5) ** 2)
        np.testing.assert_allclose(computation(), want, rtol=1e-5)


def test_gradients_reach_what_a_checkpoint_does_not_name():
    x, w = weft.placeholder((3,)), weft.variable((3,), initial_value=2)
    kept = weft.exp(w)
    h = weft.tanh(x * kept)
    y = weft.sum(weft.checkpoint(h * w + kept, [h]))
    plain = weft.sum(h * w + kept)
    computation = weft.make_transformer("numpy").computation(
        [weft.deriv(each, by) for each in (y, plain) for by in (x, w)], x
    )
    first, second, *wanted = computation([0.1, 0.2, 0.3])
    np.testing.assert_allclose([first, second], wanted, rtol=1e-6)


def test_a_value_inside_of_a_checkpoint_has_no_gradient():
    x = weft.placeholder((3,))
    h = weft.tanh(x)
    y = weft.sum(weft.checkpoint(weft.sin(h)) + h)
    with pytest.raises(GradientError, match=r"inside of the checkpoint .*: make it one"):
        weft.deriv(y, h)
    z = weft.sum(weft.checkpoint(weft.sin(h), [h]) + h)
    got = weft.make_transformer("numpy").computation(weft.deriv(z, h), x)([0, 0, 0])
    np.testing.assert_array_equal(got, [2, 2, 2])


def test_a_checkpoint_must_not_span_a_write():
    x, w = weft.placeholder((3,)), weft.variable((3,))
    before = x * w
    weft.assign(w, w + 1)
    with pytest.raises(StateError, match="before and after a write"):
        weft.checkpoint(before * w, [x])


@pytest.mark.parametrize(
    ("build", "argument", "words"),
    [
        (weft.check_finite, [1, np.nan, np.inf], "in 2 of 3 elements, first at (1,), (2,)"),
        (lambda x: weft.assert_op(x, x > 0, "too small"), [1, 0, 2], "too small in 1 of 3"),
        (lambda x: weft.assert_op(x, weft.sum(x) > 0), [0, 0, 0], "the condition is false"),
    ],
)
def test_a_failed_check_ends_the_call(
    transformer: weft.Transformer, build: Callable[..., Any], argument: list[Any], words: str
):
    x = weft.placeholder((3,))
    w = weft.variable((), initial_value=0)
    weft.assign(w, w + 1)
    computation = transformer.computation([build(x), w], x)
    assert computation([1, 2, 3])[1] == 1
    with pytest.raises(CheckFailed) as caught:
        computation(argument)
    assert words in str(caught.value)
    assert "test_gradients.py" in str(caught.value)
    assert isinstance(caught.value, AssertionError)
    assert computation([1, 2, 3])[1] == 2


def test_gradients_of_any_order_have_the_lines_of_the_forward_ops():
    x = weft.placeholder((3,), name="x")
    root = weft.sqrt(x)
    wave = weft.sin(root)
    total = weft.sum(wave)
    first = weft.deriv(total, x)
    second = weft.deriv(weft.sum(first), x)
    forward = {op.location for op in (root, wave, total)}
    for gradient in (first, second):
        lines = {op.location for op in weft.capture([gradient], [x]).ops if op.args}
        assert {root.location, wave.location} <= lines
        assert len(lines - forward) <= 2  # the seeds have the lines of the derivs
    assert first.location == root.location


C, W, N = weft.make_axis(3, "C"), weft.make_axis(2, "W"), weft.make_axis(2, "N")


def central_difference(function: Callable[..., Any], x: np.ndarray, step: float = 1e-4):
    """Return the derivative of a function from an array to a number, in float64."""
    gradient = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up) - function(down)) / (2 * step)
    return gradient


def test_gradients_of_a_layer_are_those_of_its_definition(transformer: weft.Transformer):
    x = weft.placeholder((ax.C, ax.W, ax.H, ax.N))
    y0 = weft.placeholder((ax.Y, ax.N))
    w = weft.variable((ax.C, ax.W, ax.H, ax.Y))
    b = weft.variable((ax.Y,))
    y = weft.tanh(weft.dot(w, x) + b)
    c = weft.squared_L2(y - y0)
    d = weft.deriv(c, w)
    assert c.axes == weft.make_axes()
    assert list(c.variables()) == [w, b]
    assert d.axes == w.axes
    loss_and_gradients = transformer.computation([c, d, weft.deriv(c, b)], x, y0)
    rng = np.random.default_rng(1)
    images = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    labels = rng.normal(size=(6, 5)).astype(np.float32)
    loss_and_gradients(images, labels)
    weights = rng.normal(size=(2, 3, 4, 6)).astype(np.float32) / 5
    bias = rng.normal(size=6).astype(np.float32)
    transformer.set_value(w, weights)
    transformer.set_value(b, bias)
    loss, dw, db = loss_and_gradients(images, labels)
    out = np.tanh(np.einsum("cwhy,cwhn->yn", weights, images) + bias[:, None])
    delta = 2 * (out - labels) * (1 - out**2)
    np.testing.assert_allclose(loss, np.sum((out - labels) ** 2), rtol=1e-4)
    np.testing.assert_allclose(dw, np.einsum("yn,cwhn->cwhy", delta, images), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(db, delta.sum(1), rtol=1e-3, atol=1e-4)


def test_a_second_derivative_over_slices_is_unaffected_by_the_first(transformer: weft.Transformer):
    x = weft.placeholder((2, 3))
    first = weft.deriv(weft.sum(x[0, :] * 7 + x[1, :]), x)
    second = weft.deriv(weft.sum(x[0, :] * 7) + weft.sum(x * x), x)
    again = weft.deriv(weft.sum(x[0, ::-1] * x[1, 0]), x)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = transformer.computation([first, second, again], x)(value)
    assert got[0].tolist() == [[7, 7, 7], [1, 1, 1]]
    assert got[1].tolist() == (2 * value + [[7], [0]]).tolist()
    assert got[2].tolist() == [[3, 3, 3], [3, 0, 0]]


@pytest.mark.parametrize("normalized", ["C", "CW", "W"])
def test_softmax_along_some_of_the_axes(transformer: weft.Transformer, normalized: str):
    x = weft.placeholder((C, W, N), dtype="float64")
    weights = np.random.default_rng(2).normal(size=(3, 2, 2))
    y = weft.softmax(x, normalization_axes=[C if name == "C" else W for name in normalized])
    loss = weft.sum(y * weft.constant(weights, (C, W, N)), reduction_axes=(C, W, N))
    c = transformer.computation([loss, weft.deriv(loss, x)], x)
    places = tuple("CW".index(name) for name in normalized)

    def numpy_loss(value: np.ndarray):
        powers = np.exp(value - value.max())
        return float(np.sum(weights * powers / powers.sum(places, keepdims=True)))

    value = np.random.default_rng(3).normal(size=(3, 2, 2))
    got, gradient = c(value)
    np.testing.assert_allclose(got, numpy_loss(value), rtol=1e-10)
    np.testing.assert_allclose(gradient, central_difference(numpy_loss, value), atol=1e-7)


def test_gradients_read_what_the_forward_op_read(transformer: weft.Transformer):
    w, x = weft.variable((), initial_value=3), weft.placeholder(())
    y = w * x
    weft.assign(w, w + 1)
    d = weft.deriv(y, x)
    c = transformer.computation([d, w], x)
    assert [value.item() for value in c(10)] == [3, 4]
    assert [value.item() for value in c(10)] == [4, 5]


def test_a_captured_op_has_gradients_of_its_own(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    y = weft.sum(x * x)
    weft.deriv(y, x)
    graph = weft.capture([y], [x])
    d = weft.deriv(graph.outputs[0], graph.inputs[0])
    c = transformer.computation(graph.replace(outputs=[d]))
    assert c([1, 2])[0].tolist() == [2, 4]


def test_no_gradient_flows_through_stop_gradient(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    d = weft.deriv(weft.sum(weft.stop_gradient(x) * x), x)
    assert transformer.computation(d, x)([3, 4]).tolist() == [3, 4]


def test_quotients_at_zero_have_a_finite_gradient(transformer: weft.Transformer):
    x, y = weft.placeholder(()), weft.placeholder(())
    c = transformer.computation([weft.deriv(x / y, x), weft.deriv(x / y, y)], x, y)
    assert [value.item() for value in c(0, 2)] == [0.5, 0]


def test_gradients_of_gradients(transformer: weft.Transformer):
    x = weft.placeholder(())
    y = x * x * x
    second = weft.deriv(weft.deriv(y, x), x)
    third = weft.deriv(second, x)
    assert [v.item() for v in transformer.computation([second, third], x)(2)] == [12, 6]


@pytest.mark.parametrize("reduction", [weft.max, weft.min])
def test_ties_share_the_gradient_of_an_extremum(
    transformer: weft.Transformer, reduction: Callable[..., Any]
):
    x = weft.placeholder((3,))
    d = weft.deriv(reduction(x), x)
    assert transformer.computation(d, x)([2, 2, 2]).tolist() == pytest.approx([1 / 3] * 3)


def test_deriv_computes_nothing_and_makes_no_transformer(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_args: Any, **_options: Any):
        raise AssertionError("deriv made a transformer")

    monkeypatch.setattr(weft.Transformer, "__init__", refuse)
    x = weft.placeholder((3,))
    d = weft.deriv(weft.sum(x * x), x)
    assert isinstance(d, weft.Op)
    assert d.axes == x.axes


def test_deriv_of_many_variables_shares_one_graph():
    a, b = weft.variable((2,)), weft.variable((2,))
    c = weft.sum(weft.tanh(a * b))
    with weft.Op.captured_ops() as first:
        weft.deriv(c, a)
    with weft.Op.captured_ops() as second:
        weft.deriv(c, b)
    assert len(first) > 0
    assert second == []


def test_deriv_of_a_tensor_needs_an_error():
    x = weft.placeholder((3,))
    with pytest.raises(ValueError, match="deriv needs a scalar"):
        weft.deriv(x * x, x)
    e = weft.placeholder((3,))
    c = weft.make_transformer("numpy").computation(weft.deriv(x * x, x, e), x, e)
    assert c([1, 2, 3], [1, 0, 2]).tolist() == [2, 0, 12]


def test_an_unrelated_operand_has_a_derivative_of_zeros(transformer: weft.Transformer):
    x, other = weft.placeholder((3,)), weft.variable((2, 2))
    d = weft.deriv(weft.sum(x), other)
    assert d.axes == other.axes
    assert transformer.computation(d)().tolist() == [[0, 0], [0, 0]]


def test_a_gradient_is_computed_for_batches_of_any_length(transformer: weft.Transformer):
    x = weft.placeholder((ax.C, ax.W, ax.H, ax.N))
    y0 = weft.placeholder((ax.Y, ax.N))
    w = weft.variable((ax.C, ax.W, ax.H, ax.Y))
    b = weft.variable((ax.Y,))
    y = weft.tanh(weft.dot(w, x) + b)
    c = weft.squared_L2(y - y0)
    d = weft.deriv(c, w)

    assert list(c.variables()) == [w, b]
    assert d.axes == w.axes
    given = transformer.computation(d, x, y0)
    rng = np.random.default_rng(0)
    for batch in (4, 7):
        images = rng.normal(size=(2, 3, 2, batch)).astype(np.float32)
        labels = rng.normal(size=(5, batch)).astype(np.float32)
        # With w and b zero, y is 0 and dc/dw is -2 x y0.
        expected = np.einsum("cwhn,yn->cwhy", images, -2 * labels)
        np.testing.assert_allclose(given(images, labels), expected, rtol=1e-4, atol=1e-5)

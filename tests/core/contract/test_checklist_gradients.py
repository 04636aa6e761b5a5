"""The rows of contract/graph.md, section 4, on gradients and deep graphs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.ir import ax

C, W, N = weft.make_axis(3, "C"), weft.make_axis(2, "W"), weft.make_axis(2, "N")


def central_difference(function, x, step=1e-4):
    """Return the derivative of a function from an array to a number, in float64."""
    gradient = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up) - function(down)) / (2 * step)
    return gradient


def test_c21_the_example_of_the_document(transformer):
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


@pytest.mark.long("opencl")
def test_c38_a_chain_of_20000_ops(transformer):
    x = weft.placeholder((2,))
    y = x
    for _ in range(6_667):
        y = y * 1.0001 - y * 0.0001
    c = transformer.computation([y, weft.deriv(weft.sum(y), x)], x)
    value, gradient = c([1, 2])
    np.testing.assert_allclose(value, [1, 2], rtol=1e-3)
    np.testing.assert_allclose(gradient, [1, 1], rtol=1e-3)


@pytest.mark.long
def test_c38_a_chain_of_100000_ops_is_captured_differentiated_and_printed():
    x = weft.placeholder(())
    y = x
    for _ in range(100_000):
        y = weft.sin(y)
    d = weft.deriv(y, x)
    graph = weft.capture([d], [x])
    assert len(graph.ops) > 200_000
    assert len(graph.text().splitlines()) > 200_000


def test_c39_a_second_derivative_over_slices_is_unaffected_by_the_first(transformer):
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
def test_c40_softmax_along_some_of_the_axes(transformer, normalized):
    x = weft.placeholder((C, W, N), dtype="float64")
    weights = np.random.default_rng(2).normal(size=(3, 2, 2))
    y = weft.softmax(x, normalization_axes=[C if name == "C" else W for name in normalized])
    loss = weft.sum(y * weft.constant(weights, (C, W, N)), reduction_axes=(C, W, N))
    c = transformer.computation([loss, weft.deriv(loss, x)], x)
    places = tuple("CW".index(name) for name in normalized)

    def numpy_loss(value):
        powers = np.exp(value - value.max())
        return float(np.sum(weights * powers / powers.sum(places, keepdims=True)))

    value = np.random.default_rng(3).normal(size=(3, 2, 2))
    got, gradient = c(value)
    np.testing.assert_allclose(got, numpy_loss(value), rtol=1e-10)
    np.testing.assert_allclose(gradient, central_difference(numpy_loss, value), atol=1e-7)


def test_gradients_read_what_the_forward_op_read(transformer):
    w, x = weft.variable((), initial_value=3), weft.placeholder(())
    y = w * x
    weft.assign(w, w + 1)
    d = weft.deriv(y, x)
    c = transformer.computation([d, w], x)
    assert [value.item() for value in c(10)] == [3, 4]
    assert [value.item() for value in c(10)] == [4, 5]


def test_a_captured_op_has_gradients_of_its_own(transformer):
    x = weft.placeholder((2,))
    y = weft.sum(x * x)
    weft.deriv(y, x)
    graph = weft.capture([y], [x])
    d = weft.deriv(graph.outputs[0], graph.inputs[0])
    c = transformer.computation(graph.replace(outputs=[d]))
    assert c([1, 2])[0].tolist() == [2, 4]


def test_no_gradient_flows_through_stop_gradient(transformer):
    x = weft.placeholder((2,))
    d = weft.deriv(weft.sum(weft.stop_gradient(x) * x), x)
    assert transformer.computation(d, x)([3, 4]).tolist() == [3, 4]


def test_quotients_at_zero_have_a_finite_gradient(transformer):
    x, y = weft.placeholder(()), weft.placeholder(())
    c = transformer.computation([weft.deriv(x / y, x), weft.deriv(x / y, y)], x, y)
    assert [value.item() for value in c(0, 2)] == [0.5, 0]


def test_gradients_of_gradients(transformer):
    x = weft.placeholder(())
    y = x * x * x
    second = weft.deriv(weft.deriv(y, x), x)
    third = weft.deriv(second, x)
    assert [v.item() for v in transformer.computation([second, third], x)(2)] == [12, 6]


@pytest.mark.parametrize("reduction", [weft.max, weft.min])
def test_ties_share_the_gradient_of_an_extremum(transformer, reduction):
    x = weft.placeholder((3,))
    d = weft.deriv(reduction(x), x)
    assert transformer.computation(d, x)([2, 2, 2]).tolist() == pytest.approx([1 / 3] * 3)

"""Plans of whole models: the arena is no larger than what is in use at the peak, and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planned import graph_of, target, with_kernels

import weft
from weft.plan.plan import make_plan

pytestmark = pytest.mark.slow


def weight(*shape: Any):
    return weft.variable(shape, initial_value=0.1)


def classifier():
    """A network for handwritten digits."""
    x = weft.placeholder((32, 784))
    h = weft.relu(x @ weight(784, 128) + weight(128))
    h = weft.relu(h @ weight(128, 64) + weight(64))
    return [weft.softmax(h @ weight(64, 10) + weight(10))], x


def fibonacci():
    """A hundred sums of the two before."""
    first, second = weft.placeholder((8,)), weft.placeholder((8,))
    a, b = first, second
    for _ in range(100):
        a, b = b, a + b
    return [b], first, second


def normalized(x: weft.TensorOp):
    return x / weft.sqrt(weft.mean(weft.square(x), -1, keepdims=True) + 1e-5)


def decoder(layers: int = 4, units: int = 32, heads: int = 4, length: int = 16):
    """One token of a decoder whose keys and values are states."""
    x = h = weft.placeholder((1, units))
    place = weft.placeholder((), dtype="int32")
    results = []
    for _ in range(layers):
        keys, values = (weft.persistent_tensor((length, units)) for _ in range(2))
        normal = normalized(h)
        query, key, value = (normal @ weight(units, units) for _ in range(3))
        at = weft.cast(weft.equal(weft.arange(length), place), "float32")[:, None]
        for state, new in ((keys, key), (values, value)):
            results.append(weft.assign(state, state * (1 - at) + at * new))
        split = [weft.transpose(weft.reshape(each, (-1, heads, units // heads)), (1, 0, 2))
                 for each in (query, keys, values)]  # fmt: skip
        mixed = weft.softmax(split[0] @ weft.matrix_transpose(split[1])) @ split[2]
        h = h + weft.reshape(weft.transpose(mixed, (1, 0, 2)), (1, units)) @ weight(units, units)
        normal = normalized(h)
        gate = weft.silu(normal @ weight(units, 2 * units)) * (normal @ weight(units, 2 * units))
        h = h + gate @ weight(2 * units, units)
    return [normalized(h) @ weight(units, 100), weft.doall(results)], x, place


def block(x: weft.TensorOp, units: int = 64, heads: int = 4):
    batch, length, _ = x.shape

    def dense(h: weft.TensorOp, size: int):
        return weft.matmul(h, weight(h.shape[-1], size)) + weight(size)

    normal = weft.layer_norm(x, weight(units), weight(units))
    split = [weft.transpose(weft.reshape(dense(normal, units), (batch, length, heads, -1)),
                            (0, 2, 1, 3)) for _ in range(3)]  # fmt: skip
    mixed = weft.transpose(weft.attention(*split), (0, 2, 1, 3))
    x = x + dense(weft.reshape(mixed, (batch, length, units)), units)
    return x + dense(weft.gelu(dense(weft.layer_norm(x, weight(units), weight(units)), 256)), units)


def transformer_block():
    x = weft.placeholder((2, 32, 64))
    return [block(x)], x


def trained(loss: weft.TensorOp, *inputs: Any):
    """Return the loss, and updates of everything that the loss depends on."""
    with weft.saved_user_deps():
        updates = [weft.assign(v, v - 0.1 * weft.deriv(loss, v)) for v in loss.variables()]
        return [loss, weft.doall(updates)], *inputs


def mlp_step():
    x, t = weft.placeholder((32, 64)), weft.placeholder((32, 10))
    h = weft.relu(x @ weight(64, 128) + weight(128))
    y = weft.softmax(h @ weight(128, 10) + weight(10))
    return trained(weft.mean(weft.cross_entropy_multi(y, t)), x, t)


def cnn_step():
    x, t = weft.placeholder((8, 1, 28, 28)), weft.placeholder((8, 10))
    h = weft.max_pool(weft.relu(weft.conv2d(x, weight(4, 1, 3, 3), padding=1)), 2)
    h = weft.max_pool(weft.relu(weft.conv2d(h, weight(8, 4, 3, 3), padding=1)), 2)
    logits = weft.matmul(weft.reshape(h, (8, 392)), weight(392, 10)) + weight(10)
    return trained(weft.cross_entropy(logits, t), x, t)


def encoder_step():
    x = h = weft.placeholder((2, 16, 64))
    for _ in range(4):
        h = block(h)
    return trained(weft.sum(weft.square(h), reduction_axes=range(3)), x)


def lstm():
    x = weft.placeholder((12, 4, 8))
    h = c = weft.constant(np.zeros((4, 16)), dtype="float32")
    into, over, bias = weight(8, 64), weight(16, 64), weight(64)
    for each in weft.unstack(x):
        z = each @ into + h @ over + bias
        i, f, g, o = (z[:, n * 16 : n * 16 + 16] for n in range(4))
        c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
        h = weft.sigmoid(o) * weft.tanh(c)
    return [h], x


MODELS = (
    classifier, fibonacci, decoder, transformer_block, mlp_step, cnn_step, encoder_step
)  # fmt: skip


GRAPHS = {
    "ops": graph_of,
    "pairs": lambda *model: with_kernels(graph_of(*model)),
    "fused": lambda *model: graph_of(*model, passes=None),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_arena_is_what_is_in_use_at_the_peak(
    model: Callable[..., Any], graph: Callable[..., Any]
):
    plan = make_plan(graph(*model()), target())
    plan.verify()
    assert plan.alignment == 256
    assert plan.arena_size == plan.peak_live <= plan.peak_as_written


def test_of_two_sums_one_lies_in_the_result():
    assert make_plan(graph_of(*fibonacci()), target()).arena_size == 256


def test_an_unrolled_network_comes_close():
    plan = make_plan(graph_of(*lstm()), target())
    plan.verify()
    assert plan.peak_live < plan.peak_as_written
    assert plan.arena_size <= 1.15 * plan.peak_live


def test_a_better_order_saves_memory():
    plan = make_plan(graph_of(*transformer_block()), target())
    assert plan.peak_live <= 0.8 * plan.peak_as_written

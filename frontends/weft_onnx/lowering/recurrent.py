"""Recurrent networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.ir.op import Op
from weft_onnx.nodes import Node, cast, lowers

Step = Callable[[Op, list[Op]], list[Op]]

ACTIVATIONS: dict[str, Callable[[Op, float, float], Op]] = {
    "Relu": lambda x, a, b: weft.relu(x),
    "Tanh": lambda x, a, b: weft.tanh(x),
    "Sigmoid": lambda x, a, b: weft.sigmoid(x),
    "Affine": lambda x, a, b: x * a + b,
    "LeakyRelu": lambda x, a, b: weft.leaky_relu(x, a),
    "ThresholdedRelu": lambda x, a, b: weft.where(weft.greater(x, a), x, weft.zeros_like(x)),
    "ScaledTanh": lambda x, a, b: weft.tanh(x * b) * a,
    "HardSigmoid": lambda x, a, b: weft.clip(x * a + b, 0, 1),
    "Elu": lambda x, a, b: weft.elu(x, a),
    "Softsign": lambda x, a, b: x / (weft.absolute(x) + 1),
    "Softplus": lambda x, a, b: weft.softplus(x),
}
DEFAULTS = {
    "Affine": (1.0, 0.0), "LeakyRelu": (0.01, 0.0), "ThresholdedRelu": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0),
}  # fmt: skip
"""Alpha and beta of activations where a node gives none."""


def _activations(node: Node, default: list[str], directions: int) -> list[list[Callable[[Op], Op]]]:
    """Return the activation functions of each direction."""
    names = list(node.attr("activations") or default * directions)
    alphas, betas = list(node.attr("activation_alpha") or []), list(node.attr("activation_beta") or [])
    found: list[Callable[[Op], Op]] = []
    limit = node.attr("clip")
    for name in names:
        title = next((each for each in ACTIVATIONS if each.lower() == name.lower()), None)
        if title is None:
            raise node.error(f"unknown activation {name!r}")
        a, b = DEFAULTS.get(title, (0.0, 0.0))
        if title in DEFAULTS and alphas:
            a = alphas.pop(0)
        if title in ("Affine", "ScaledTanh", "HardSigmoid") and betas:
            b = betas.pop(0)

        def apply(x: Op, function: Any = ACTIVATIONS[title], a: float = a, b: float = b) -> Op:
            return function(x if limit is None else weft.clip(x, -limit, limit), a, b)

        found.append(apply)
    each = len(default)
    return [found[at * each : (at + 1) * each] for at in range(directions)]


class _Sequence:
    """The operands that recurrent nodes share."""

    def __init__(self, node: Node, gates: int) -> None:
        self.node = node
        direction = node.attr("direction", "forward")
        self.directions = 2 if direction == "bidirectional" else 1
        self.is_reverse = [direction == "reverse"] if self.directions == 1 else [False, True]
        self.is_batch_first = bool(node.attr("layout", 0))
        x = node[0]
        self.x = weft.transpose(x, (1, 0, 2)) if self.is_batch_first else x
        self.steps, self.batch, _ = self.x.axes.shape
        self.hidden = node.attr("hidden_size") or node.shape(2)[-1]
        self.gates = gates
        self.lengths = cast(node[4], "int32") if node.has(4) else None

    def weights(self, index: int) -> tuple[Op, Op, Op | None]:
        """Return the weights and biases of a direction."""
        node = self.node
        w, r = (weft.slice_along_axis(node[n], 0, index) for n in (1, 2))
        bias = weft.slice_along_axis(node[3], 0, index) if node.has(3) else None
        return w, r, bias

    def state(self, operand: int, index: int) -> Op:
        """Return an initial state of a direction."""
        if not self.node.has(operand):
            return weft.zeros((self.batch, self.hidden), self.x.dtype.name)
        given = self.node[operand]
        return weft.slice_along_axis(given, 1 if self.is_batch_first else 0, index)

    def run(self, index: int, states: list[Op], step: Step) -> tuple[list[Op], list[Op]]:
        """Return the hidden states of all steps, and the last states."""
        hidden: list[Op] = []
        for place in range(self.steps):
            at = self.steps - 1 - place if self.is_reverse[index] else place
            new = step(weft.slice_along_axis(self.x, 0, at), states)
            if self.lengths is not None:
                is_inside = weft.unsqueeze(weft.less(at, self.lengths), 1)
                new = [weft.where(is_inside, n, old) for n, old in zip(new, states, strict=True)]
                hidden.append(weft.where(is_inside, new[0], weft.zeros_like(new[0])))
            else:
                hidden.append(new[0])
            states = new
        return (hidden[::-1] if self.is_reverse[index] else hidden), states

    def results(self, found: list[tuple[list[Op], list[Op]]]) -> tuple[Any, ...]:
        """Return the results of a node: hidden states of all steps, and each last state."""
        y = weft.stack([weft.stack(hidden) for hidden, _ in found], pos=1)
        last = [weft.stack(list(each)) for each in zip(*(states for _, states in found), strict=True)]
        if self.is_batch_first:
            y = weft.transpose(y, (2, 0, 1, 3))
            last = [weft.transpose(each, (1, 0, 2)) for each in last]
        return y, *last


def _halves(bias: Op | None, size: int) -> tuple[Any, Any]:
    if bias is None:
        return 0.0, 0.0
    return tuple(weft.tensor_slice(bias, (slice(at * size, (at + 1) * size),)) for at in (0, 1))


def _gates(x: Op, count: int) -> list[Op]:
    return list(weft.split(x, count, 1))


@lowers("RNN")
def rnn(node: Node) -> Any:
    """Run a simple recurrent network."""
    sequence = _Sequence(node, 1)
    functions = _activations(node, ["Tanh"], sequence.directions)
    found = []
    for index in range(sequence.directions):
        w, r, bias = sequence.weights(index)
        wb, rb = _halves(bias, sequence.hidden)
        (activation,) = functions[index]

        def step(x: Op, states: list[Op], w: Op = w, r: Op = r, b: Any = wb + rb,
                 activation: Any = activation) -> list[Op]:  # fmt: skip
            return [activation(x @ w.mT + states[0] @ r.mT + b)]

        found.append(sequence.run(index, [sequence.state(5, index)], step))
    return sequence.results(found)


@lowers("GRU")
def gru(node: Node) -> Any:
    """Run gated recurrent units."""
    sequence = _Sequence(node, 3)
    functions = _activations(node, ["Sigmoid", "Tanh"], sequence.directions)
    is_linear_first = bool(node.attr("linear_before_reset", 0))
    size = sequence.hidden
    found = []
    for index in range(sequence.directions):
        w, r, bias = sequence.weights(index)
        wb, rb = _halves(bias, 3 * size)
        f, g = functions[index]

        def step(x: Op, states: list[Op], w: Op = w, r: Op = r, wb: Any = wb, rb: Any = rb,
                 f: Any = f, g: Any = g) -> list[Op]:  # fmt: skip
            (h,) = states
            xz, xr, xh = _gates(x @ w.mT + wb, 3)
            if is_linear_first:
                hz, hr, hh = _gates(h @ r.mT + rb, 3)
                z, reset = f(xz + hz), f(xr + hr)
                new = g(xh + reset * hh)
            else:
                rz = weft.tensor_slice(r, (slice(0, 2 * size), slice(None)))
                rh = weft.tensor_slice(r, (slice(2 * size, None), slice(None)))
                zb, hb = (0.0, 0.0) if isinstance(rb, float) else (
                    weft.tensor_slice(rb, (slice(0, 2 * size),)),
                    weft.tensor_slice(rb, (slice(2 * size, None),)),
                )  # fmt: skip
                hz, hr = _gates(h @ rz.mT + zb, 2)
                z, reset = f(xz + hz), f(xr + hr)
                new = g(xh + (reset * h) @ rh.mT + hb)
            return [(1 - z) * new + z * h]

        found.append(sequence.run(index, [sequence.state(5, index)], step))
    return sequence.results(found)


@lowers("LSTM")
def lstm(node: Node) -> Any:
    """Run long short-term memories, with peepholes on request."""
    sequence = _Sequence(node, 4)
    functions = _activations(node, ["Sigmoid", "Tanh", "Tanh"], sequence.directions)
    size, couples = sequence.hidden, bool(node.attr("input_forget", 0))
    found = []
    for index in range(sequence.directions):
        w, r, bias = sequence.weights(index)
        wb, rb = _halves(bias, 4 * size)
        f, g, h = functions[index]
        peepholes: list[Any] = [0.0, 0.0, 0.0]
        if node.has(7):
            peepholes = list(weft.split(weft.slice_along_axis(node[7], 0, index), 3, 0))

        def step(x: Op, states: list[Op], w: Op = w, r: Op = r, b: Any = wb + rb, f: Any = f,
                 g: Any = g, h: Any = h, peepholes: Any = peepholes) -> list[Op]:  # fmt: skip
            hidden, cell = states
            i, o, forget, c = _gates(x @ w.mT + hidden @ r.mT + b, 4)
            pi, po, pf = peepholes
            i = f(i + pi * cell)
            forget = 1 - i if couples else f(forget + pf * cell)
            cell = forget * cell + i * g(c)
            return [f(o + po * cell) * h(cell), cell]

        states = [sequence.state(5, index), sequence.state(6, index)]
        found.append(sequence.run(index, states, step))
    return sequence.results(found)


__all__ = ["np"]

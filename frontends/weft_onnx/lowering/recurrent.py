"""Recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft_onnx.nodes import Node, cast, lowers
from weft_onnx.values import Tensor

Activation = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, list[Tensor]], list[Tensor]]

ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "Relu": lambda x, a, b: weft.relu(x),
    "Tanh": lambda x, a, b: weft.tanh(x),
    "Sigmoid": lambda x, a, b: weft.sigmoid(x),
    "Affine": lambda x, a, b: x * a + b,
    "LeakyRelu": lambda x, a, b: weft.leaky_relu(x, a),
    "ThresholdedRelu": lambda x, a, b: weft.where(weft.greater_equal(x, a), x, weft.zeros_like(x)),
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


def _activations(node: Node, default: list[str], directions: int) -> list[list[Activation]]:
    """Return the activation functions of each direction."""
    names = list(node.choice("activations") or default * directions)
    if len(names) < len(default) * directions:
        raise node.error(
            f"it has {len(names)} activations; {directions} directions need "
            f"{len(default) * directions}"
        )
    alphas = list(node.attr("activation_alpha") or [])
    betas = list(node.attr("activation_beta") or [])
    found: list[Activation] = []
    for name in names:
        title = next(each for each in ACTIVATIONS if each.lower() == name.lower())
        a, b = DEFAULTS.get(title, (0.0, 0.0))
        if title in DEFAULTS and alphas:
            a = alphas.pop(0)
        if title in ("Affine", "ScaledTanh", "HardSigmoid") and betas:
            b = betas.pop(0)
        found.append(_activation(title, a, b, node.attr("clip")))
    each = len(default)
    return [found[at * each : (at + 1) * each] for at in range(directions)]


def _activation(title: str, a: float, b: float, limit: float | None) -> Activation:
    function = ACTIVATIONS[title]
    if limit is None:
        return lambda x: function(x, a, b)
    return lambda x: function(weft.clip(x, -limit, limit), a, b)


class RecurrentSequence:
    """The operands that recurrent nodes share."""

    def __init__(self, node: Node) -> None:
        self.node = node
        direction = node.choice("direction", default="forward")
        self.directions = 2 if direction == "bidirectional" else 1
        self.is_reverse = [direction == "reverse"] if self.directions == 1 else [False, True]
        self.is_batch_first = node.flag("layout")
        x = node[0]
        self.x = weft.transpose(x, (1, 0, 2)) if self.is_batch_first else x
        shape: tuple[int, ...] = self.x.axes.shape
        self.steps, self.batch = shape[:2]
        self.hidden = node.attr("hidden_size") or node.shape(2)[-1]
        self.lengths = cast(node[4], "int32") if node.has(4) else None

    def weights(self, index: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the weights and biases of a direction."""
        node = self.node
        w, r = (weft.slice_along_axis(node[n], 0, index) for n in (1, 2))
        bias = weft.slice_along_axis(node[3], 0, index) if node.has(3) else None
        return w, r, bias

    def fed_back(self, hidden: Tensor) -> Tensor:
        """Return a hidden state as the products with recurrent weights take it."""
        return hidden

    def state(self, operand: int, index: int) -> Tensor:
        """Return an initial state of a direction."""
        if not self.node.has(operand):
            return weft.zeros((self.batch, self.hidden), self.x.dtype.name)
        given = self.node[operand]
        return weft.slice_along_axis(given, 1 if self.is_batch_first else 0, index)

    def run(
        self, index: int, states: list[Tensor], step: Step
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the hidden states of all steps, and the last states."""
        hidden: list[Tensor] = []
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

    def results(self, found: list[tuple[list[Tensor], list[Tensor]]]) -> tuple[Any, ...]:
        """Return the results of a node: hidden states of all steps, and each last state."""
        y = weft.stack([weft.stack(hidden) for hidden, _ in found], pos=1)
        last = [
            weft.stack(list(each)) for each in zip(*(states for _, states in found), strict=True)
        ]
        if self.is_batch_first:
            y = weft.transpose(y, (2, 0, 1, 3))
            last = [weft.transpose(each, (1, 0, 2)) for each in last]
        return y, *last


def _halves(bias: Tensor | None, size: int) -> tuple[Any, Any]:
    if bias is None:
        return 0.0, 0.0
    return bias[:size], bias[size : 2 * size]


def _gates(x: Tensor, count: int) -> list[Tensor]:
    return list(weft.split(x, count, 1))


@lowers("RNN")
def rnn(node: Node) -> Any:
    """Run a simple recurrent network."""
    sequence = RecurrentSequence(node)
    functions = _activations(node, ["Tanh"], sequence.directions)
    found = []
    for index in range(sequence.directions):
        w, r, bias = sequence.weights(index)
        wb, rb = _halves(bias, sequence.hidden)
        step = _rnn_step(w, r, wb + rb, functions[index][0])
        found.append(sequence.run(index, [sequence.state(5, index)], step))
    return sequence.results(found)


def _rnn_step(w: Tensor, r: Tensor, bias: Tensor, activation: Activation) -> Step:
    return lambda x, states: [activation(x @ w.mT + states[0] @ r.mT + bias)]


@lowers("GRU")
def gru(node: Node) -> Any:
    """Run gated recurrent units."""
    sequence = RecurrentSequence(node)
    functions = _activations(node, ["Sigmoid", "Tanh"], sequence.directions)
    size = sequence.hidden
    found = []
    for index in range(sequence.directions):
        w, r, bias = sequence.weights(index)
        biases = _halves(bias, 3 * size)
        if node.flag("linear_before_reset"):
            step = _gru_step_linear_first(w, r, biases, functions[index])
        else:
            step = _gru_step(w, r, biases, functions[index], size)
        found.append(sequence.run(index, [sequence.state(5, index)], step))
    return sequence.results(found)


def _gru_step(
    w: Tensor, r: Tensor, biases: Sequence[Tensor], functions: Sequence[Activation], size: int
) -> Step:
    """Return the step in which the state is reset before it is multiplied."""
    (wb, rb), (f, g) = biases, functions
    gates, candidate = r[: 2 * size], r[2 * size :]
    gate_bias, candidate_bias = rb, rb
    if not isinstance(rb, float):
        gate_bias, candidate_bias = rb[: 2 * size], rb[2 * size :]

    def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
        (h,) = states
        xz, xr, xh = _gates(x @ w.mT + wb, 3)
        hz, hr = _gates(h @ gates.mT + gate_bias, 2)
        z, reset = f(xz + hz), f(xr + hr)
        new = g(xh + (reset * h) @ candidate.mT + candidate_bias)
        return [(1 - z) * new + z * h]

    return step


def _gru_step_linear_first(
    w: Tensor, r: Tensor, biases: Sequence[Tensor], functions: Sequence[Activation]
) -> Step:
    """Return the step in which the product with the state is reset."""
    (wb, rb), (f, g) = biases, functions

    def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
        (h,) = states
        xz, xr, xh = _gates(x @ w.mT + wb, 3)
        hz, hr, hh = _gates(h @ r.mT + rb, 3)
        z, reset = f(xz + hz), f(xr + hr)
        return [(1 - z) * g(xh + reset * hh) + z * h]

    return step


@lowers("LSTM")
def lstm(node: Node) -> Any:
    """Run long short-term memories, with peepholes on request."""
    return long_short_term_memory(node, RecurrentSequence(node))


def long_short_term_memory(node: Node, sequence: RecurrentSequence) -> Any:
    """Run long short-term memories with a node's attributes on a sequence."""
    functions = _activations(node, ["Sigmoid", "Tanh", "Tanh"], sequence.directions)
    couples = node.flag("input_forget")
    found = []
    for index in range(sequence.directions):
        w, r, bias = sequence.weights(index)
        wb, rb = _halves(bias, 4 * sequence.hidden)
        peepholes: list[Any] = [0.0, 0.0, 0.0]
        if node.has(7):
            peepholes = list(weft.split(weft.slice_along_axis(node[7], 0, index), 3, 0))
        gates = _lstm_gates(sequence, w, r, wb + rb)
        step = _lstm_step(gates, functions[index], peepholes, couples)
        states = [sequence.state(5, index), sequence.state(6, index)]
        found.append(sequence.run(index, states, step))
    return sequence.results(found)


def _lstm_gates(
    sequence: RecurrentSequence, w: Tensor, r: Tensor, bias: Tensor
) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Return the function from an element and a hidden state to what the four gates take."""
    return lambda x, hidden: _gates(x @ w.mT + sequence.fed_back(hidden) @ r.mT + bias, 4)


def _lstm_step(
    gates: Callable[[Tensor, Tensor], list[Tensor]],
    functions: Sequence[Activation],
    peepholes: Sequence[Any],
    couples: bool,
) -> Step:
    (f, g, h), (pi, po, pf) = functions, peepholes

    def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
        hidden, cell = states
        i, o, forget, c = gates(x, hidden)
        i = f(i + pi * cell)
        forget = 1 - i if couples else f(forget + pf * cell)
        cell = forget * cell + i * g(c)
        return [f(o + po * cell) * h(cell), cell]

    return step

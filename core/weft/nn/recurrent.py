"""Recurrent networks: cells unrolled along a sequence, in one or more layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np

from weft import ops
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import upcalls
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import Array, DType
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.nn.cells import (
    ARRAYS,
    GRU_GATES,
    LSTM_GATES,
    RNN_GATES,
    TENSORS,
    WEIGHTS,
    CellOperands,
    Functions,
    Weights,
    checked_activation,
    gru_step,
    lstm_step,
    of_one_dtype,
    rnn_step,
)
from weft.ops.arguments import check_flags
from weft.ops.products.roles import RoleSignature, SequenceRoles, by_roles, is_named
from weft.support.backports import override

__all__ = [
    "GruOp",
    "LstmOp",
    "RecurrentOp",
    "RnnOp",
    "gru",
    "lstm",
    "rnn",
]


class RecurrentOp(CompositeOp):
    """The states after each step along a sequence, of shape (time, states, batch, units).

    Operands are the projected inputs (time, batch, gates * units), the initial states (states,
    batch, units), the recurrent weights (gates * units, units) and optionally their bias.

    Attributes
    ----------
    reverse
        Whether to run from the last input to the first; results keep the position of their input.
    """

    reverse: bool
    gates: ClassVar[int]
    states: ClassVar[int]
    gates_products: ClassVar[bool] = False
    """Whether products with recurrent weights are gated, so that their bias must be separate."""

    @override
    def infer(self) -> tuple[Axes, DType]:
        x, initial, weight, *bias = self.args
        if (x.rank, initial.rank, weight.rank) != (3, 3, 2) or any(b.rank != 1 for b in bias):
            raise AxesError("inputs and states must have 3 axes, weights 2, and a bias 1")
        time, batch, width = x.axes.lengths
        units = weight.axes.lengths[-1]
        if not isinstance(time, int) or not isinstance(units, int) or not time:
            raise AxesError(
                f"the sequence {x.axes} must have a known length of 1 or more along its first axis,"
                " since it is unrolled"
            )
        wanted = [(self.states, batch, units), (self.gates * units, units)]
        wanted += [(self.gates * units,)] if bias else []
        found = [y.axes.lengths for y in (initial, weight, *bias)]
        if width != self.gates * units or found != wanted:
            raise AxesError(
                f"inputs {x.axes} need states, weights and bias of the shapes {wanted}, not {found}"
            )
        if len({y.dtype for y in self.args}) != 1:
            raise DTypeError(f"operands have different dtypes, {[y.dtype for y in self.args]}")
        return make_axes((time, self.states, batch, units)), x.dtype

    def step(self, functions: Functions, given: CellOperands) -> list[Any]:
        """Return the states after one step."""
        raise NotImplementedError

    def run(
        self, functions: Functions, inputs: Sequence[Any] | Array, initial: Any, *rest: Any
    ) -> list[Any]:
        """Return all states of all steps, in the order of the inputs."""
        states = [initial[number] for number in range(self.states)]
        after: list[Any] = [None] * len(inputs)
        order = range(len(inputs))
        for place in reversed(order) if self.reverse else order:
            after[place] = states = self.step(functions, CellOperands(inputs[place], states, *rest))
        return [state for states in after for state in states]

    @override
    def reference(self, x: Array, initial: Array, *rest: Any) -> Any:
        found = np.stack(self.run(ARRAYS, x, initial, *rest))
        return found.reshape(self.axes.shape).astype(self.dtype)

    @override
    def decompose(self, x: TensorOp, *rest: TensorOp) -> TensorOp:
        return self._unrolled([x[place] for place in range(x.axes[0].length)], *rest)

    def _unrolled(self, inputs: Sequence[TensorOp], *rest: TensorOp) -> TensorOp:
        return ops.cast_axes(ops.stack(self.run(TENSORS, inputs, *rest)), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, *rest: TensorOp) -> Any:
        """Differentiate the unrolled steps, with the adjoints of all inputs stacked once."""
        inputs = [x[place] for place in range(x.axes[0].length)]
        shares = upcalls.adjoints_through(self._unrolled(inputs, *rest), delta, (*inputs, *rest))
        return (ops.stack(shares[: len(inputs)]), *shares[len(inputs) :])


class RnnOp(RecurrentOp):
    """The Elman network, h' = activation(x + W h + b).

    Attributes
    ----------
    activation
        ``tanh`` or ``relu``.
    """

    activation: str
    gates = RNN_GATES
    states = 1

    @override
    def step(self, functions: Functions, given: CellOperands) -> list[Any]:
        return rnn_step(functions, given, self.activation)


class GruOp(RecurrentOp):
    """The gated recurrent unit; gates are reset, update and new.

    Attributes
    ----------
    linear_before_reset
        Whether the reset gate acts after the product with the recurrent weights.
    """

    linear_before_reset: bool
    gates = GRU_GATES
    states = 1
    gates_products = True

    @override
    def step(self, functions: Functions, given: CellOperands) -> list[Any]:
        return gru_step(functions, given, self.linear_before_reset)


class LstmOp(RecurrentOp):
    """The long short-term memory; gates are input, forget, cell and output."""

    gates = LSTM_GATES
    states = 2

    @override
    def step(self, functions: Functions, given: CellOperands) -> list[Any]:
        return lstm_step(functions, given)


class Recurrence(NamedTuple):
    """The results of a recurrent network: all hidden states, and the last of each layer."""

    outputs: TensorOp
    hidden: TensorOp


class LstmRecurrence(NamedTuple):
    """The results of an LSTM: all hidden states, and the last states of each layer."""

    outputs: TensorOp
    hidden: TensorOp
    cell: TensorOp


class Layers(NamedTuple):
    """The layers of a recurrent network.

    Attributes
    ----------
    make
        A function of operands and `reverse` that builds the op of one layer in one direction.
    """

    function: str
    kind: type[RecurrentOp]
    make: Callable[..., RecurrentOp]
    reverse: bool
    bidirectional: bool
    batch_first: bool

    def apply(
        self, x: Any, weights: Any, initial: Sequence[Any], axes: SequenceRoles
    ) -> tuple[TensorOp, ...]:
        """Return all outputs, and a tensor of the last states of all layers for each state."""
        flags = ("reverse", "bidirectional", "batch_first")
        check_flags(self.function, **{name: getattr(self, name) for name in flags})
        if self.batch_first and is_named(x):
            problem = "batch_first is for positional axes, named ones may be in any order"
            raise ArgumentError(explain(self.function, problem, (x,)))
        sets = _weight_tuples(self.function, weights)
        count = len(initial)

        def positional(x: TensorLike, *rest: Any) -> tuple[TensorOp, ...]:
            rows = [rest[place : place + 4] for place in range(count, len(rest), 4)]
            return tuple(self._layers(x, rows, rest[:count]))

        operands = (x, *initial, *(each for one in sets for each in one))
        signature = self._signature(len(sets), count)
        return by_roles(self.function, signature, operands, axes, positional)

    def _signature(self, sets: int, states: int) -> RoleSignature:
        """Return the roles of the sequence, initial states, and weights of each layer."""
        deeper = tuple(text.replace("features", "inner") for text in WEIGHTS)
        weights = (WEIGHTS if number < self.directions else deeper for number in range(sets))
        return RoleSignature(
            "time batch? features+",
            *["layers? batch? units+"] * states,
            *(text for one in weights for text in one),
            results=["time batch? units", *["layers batch? units"] * self.kind.states],
            same={"units": "features"},
        )

    def _layers(self, x: Any, weights: Any, initial: Sequence[Any]) -> list[TensorOp]:
        op, before, sets = self._operands(x, weights, initial)
        is_single, is_swapped = op.rank == 2, self.batch_first and op.rank == 3
        if is_single:
            op = ops.cast_axes(op, (op.axes[0], 1, op.axes[1]))
        op = ops.transpose(op, (1, 0, 2)) if is_swapped else op
        starts = self._starts(op, before, sets)
        lasts: list[TensorOp] = []
        for layer in range(0, len(sets), self.directions):
            outputs = []
            for number in range(layer, layer + self.directions):
                states = self._along(op, starts[number], sets[number], number - layer)
                outputs.append(states[:, 0])
                lasts.append(states[0 if self._goes_back(number - layer) else -1])
            op = outputs[0] if self.directions == 1 else ops.concat(outputs, -1)
        found = [ops.stack([last[number] for last in lasts]) for number in range(self.kind.states)]
        if is_single:
            return [op[:, 0], *(state[:, 0] for state in found)]
        return [ops.transpose(op, (1, 0, 2)) if is_swapped else op, *found]

    @property
    def directions(self) -> int:
        """The number of directions in each layer."""
        return 2 if self.bidirectional else 1

    def _goes_back(self, direction: int) -> bool:
        return self.reverse or direction == 1

    def _operands(
        self, x: Any, sets: Sequence[Sequence[Any]], initial: Sequence[Any]
    ) -> tuple[TensorOp, list[TensorOp | None], list[Weights]]:
        """Return input, initial states and weights, as positional tensors of one dtype."""
        if self.reverse and self.bidirectional:
            problem = "reverse and bidirectional exclude each other"
            raise ArgumentError(explain(self.function, problem, ()))
        if len(sets) % self.directions:
            problem = f"{len(sets)} tuples of weights are not two for each layer"
            raise ArgumentError(explain(self.function, problem, ()))
        count = len(sets)
        matrices = [each for one in sets for each in one[:2]]
        biases = [each for one in sets for each in one[2:]]
        op, *rest = of_one_dtype(self.function, [x, *matrices], [*biases, *initial])
        if op.rank not in (2, 3):
            problem = f"takes (time, batch, features) or (time, features), not {op.axes}"
            raise AxesError(explain(self.function, problem, (op,)))
        found = [
            Weights(*rest[2 * n : 2 * n + 2], *rest[2 * (count + n) : 2 * (count + n) + 2])
            for n in range(count)
        ]
        for number, one in enumerate(found):
            wide = number >= self.directions
            features = found[0].units * self.directions if wide else op.axes[-1].length
            one.check(self.function, self.kind.gates, found[0].units, features)
        return op, rest[4 * count :], found

    def _starts(
        self, x: TensorOp, before: list[TensorOp | None], sets: list[Weights]
    ) -> list[TensorOp]:
        """Return the initial states of each layer and direction, by default zeros."""
        wanted = make_axes((len(sets), x.axes[1].length, sets[0].units))
        zeros = ops.broadcast(constant(0, dtype=x.dtype), wanted)
        given = [zeros if state is None else self._start(state, wanted) for state in before]
        return [ops.stack([state[number] for state in given]) for number in range(len(sets))]

    def _start(self, state: TensorOp, wanted: Axes) -> TensorOp:
        op = ops.cast_axes(state, (state.axes[0], 1, state.axes[1])) if state.rank == 2 else state
        if op.axes != wanted:
            problem = f"an initial state must have the axes {wanted}, not {state.axes}"
            raise AxesError(explain(self.function, problem, (state,)))
        return op

    def _along(self, x: TensorOp, start: TensorOp, weights: Weights, direction: int) -> TensorOp:
        """Return the states of all steps of one layer in one direction."""
        _, matrix, bias, hidden_bias = weights
        reverse = self._goes_back(direction)
        if self.kind.gates_products and hidden_bias is not None:
            x = weights.projected(x, bias)
            return self.make(x, start, matrix, hidden_bias, reverse=reverse)
        return self.make(weights.projected(x, bias, hidden_bias), start, matrix, reverse=reverse)


def _weight_tuples(function: str, weights: Any) -> list[tuple[Any, ...]]:
    """Return the weights and biases, or None, of each layer and direction."""
    if isinstance(weights, list | tuple) and weights:
        sets = weights if isinstance(weights[0], list | tuple) else [weights]
        if all(isinstance(one, list | tuple) and len(one) in (2, 4) for one in sets):
            return [(*one, None, None)[:4] for one in sets]
    problem = (
        "weights must be a tuple (input_weight, hidden_weight) or (input_weight, hidden_weight, "
        f"input_bias, hidden_bias), or a list of such tuples, not {weights!r}"
    )
    raise ArgumentError(explain(function, problem, ()))


def rnn(
    x: TensorLike,
    weights: Sequence[Any],
    initial: TensorLike | None = None,
    activation: str = "tanh",
    reverse: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **axes: Unpack[SequenceRoles],
) -> Recurrence:
    """Return the states of an Elman network along a sequence, and the last ones.

    A step is that of `rnn_cell`. The sequence is unrolled, so its length must be known. The inputs
    of all steps are projected in one product.

    Parameters
    ----------
    x
        The inputs, (time, batch, features), or (time, features).
    weights
        A tuple ``(input_weight, hidden_weight)`` or ``(input_weight, hidden_weight, input_bias,
        hidden_bias)``, of the shapes (units, features), (units, units) and twice (units,). For
        several layers it is a list of such tuples, each for the outputs of the layer before. With
        `bidirectional` there are two for each layer, forward and backward.
    initial
        The states before the first step, (layers * directions, batch, units), or without the batch
        if x has none; by default 0.
    activation
        ``"tanh"`` or ``"relu"``.
    reverse
        Whether the last input comes first; outputs stay beside their inputs.
    bidirectional
        Whether each layer runs in both directions and concatenates the outputs: deeper layers have
        2 * units features.
    batch_first
        Whether x and the outputs are (batch, time, ...); states are not.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order. Those of x are the ``time=``, by default ``REC``, the ``batch=``, by default ``N``,
        and the ``features=``, all others; for weights see `rnn_cell`. States have an axis
        ``layers=``, by default called ``layers``, in place of the time.

    Returns
    -------
    Recurrence
        ``outputs``, (time, batch, directions * units), and the last states ``hidden``, (layers *
        directions, batch, units), in the promoted dtype; integers count as float32.

    Raises
    ------
    AxesError
        If the length of the sequence is unknown or 0, or the shape of an operand does not fit.
    ArgumentError
        If `weights` have another form, an option is not what it should be, or options exclude each
        other.

    Examples
    --------
    >>> x, weights = np.ones((4, 1, 1)), (np.ones((1, 1)), np.ones((1, 1)))
    >>> count = weft.jit(lambda x, weights: weft.rnn(x, weights, activation="relu"))
    >>> outputs, hidden = count(x, weights)
    >>> outputs.ravel(), hidden.ravel()
    (array([1., 2., 3., 4.]), array([4.]))
    """
    make = partial(RnnOp, activation=checked_activation("rnn", activation))
    layers = Layers("rnn", RnnOp, make, reverse, bidirectional, batch_first)
    return Recurrence(*layers.apply(x, weights, [initial], axes))


def gru(
    x: TensorLike,
    weights: Sequence[Any],
    initial: TensorLike | None = None,
    linear_before_reset: bool = True,
    reverse: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **axes: Unpack[SequenceRoles],
) -> Recurrence:
    """Return the states of a gated recurrent unit along a sequence, and the last ones.

    A step is that of `gru_cell`. The sequence is unrolled, so its length must be known. The inputs
    of all steps are projected in one product.

    Parameters
    ----------
    x
        The inputs, (time, batch, features), or (time, features).
    weights
        A tuple ``(input_weight, hidden_weight)`` or ``(input_weight, hidden_weight, input_bias,
        hidden_bias)``, of the shapes (3 * units, features), (3 * units, units) and twice (3 *
        units,). The rows are those of the reset gate, then of the update gate, then of the new
        state. For several layers it is a list of such tuples, each for the outputs of the layer
        before. With `bidirectional` there are two for each layer, forward and backward.
    initial
        The states before the first step, (layers * directions, batch, units), or without the batch
        if x has none; by default 0.
    linear_before_reset
        Whether the reset gate acts after the product with the recurrent weights; see `gru_cell`.
    reverse
        Whether the last input comes first; outputs stay beside their inputs.
    bidirectional
        Whether each layer runs in both directions and concatenates the outputs: deeper layers have
        2 * units features.
    batch_first
        Whether x and the outputs are (batch, time, ...); states are not.
    **axes
        The roles of named axes, as for `rnn`: ``time=``, ``batch=``, ``features=``, ``units=``,
        ``gates=`` and ``layers=``.

    Returns
    -------
    Recurrence
        ``outputs``, (time, batch, directions * units), and the last states ``hidden``, (layers *
        directions, batch, units), in the promoted dtype; integers count as float32.

    Raises
    ------
    AxesError
        If the length of the sequence is unknown or 0, or the shape of an operand does not fit.
    ArgumentError
        If `weights` have another form, an option is not what it should be, or options exclude each
        other.

    Examples
    --------
    >>> x, weights = np.ones((5, 2, 3)), (np.zeros((12, 3)), np.zeros((12, 4)))
    >>> both = weft.jit(lambda x, weights: weft.gru(x, [weights, weights], bidirectional=True))
    >>> outputs, hidden = both(x, weights)
    >>> outputs.shape, hidden.shape
    ((5, 2, 8), (2, 2, 4))
    """
    check_flags("gru", linear_before_reset=linear_before_reset)
    make = partial(GruOp, linear_before_reset=linear_before_reset)
    layers = Layers("gru", GruOp, make, reverse, bidirectional, batch_first)
    return Recurrence(*layers.apply(x, weights, [initial], axes))


def lstm(
    x: TensorLike,
    weights: Sequence[Any],
    initial: Sequence[Any] | None = None,
    reverse: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **axes: Unpack[SequenceRoles],
) -> LstmRecurrence:
    """Return the states of a long short-term memory along a sequence, and the last ones.

    A step is that of `lstm_cell`. The sequence is unrolled, so its length must be known. The inputs
    of all steps are projected in one product.

    Parameters
    ----------
    x
        The inputs, (time, batch, features), or (time, features).
    weights
        A tuple ``(input_weight, hidden_weight)`` or ``(input_weight, hidden_weight, input_bias,
        hidden_bias)``, of the shapes (4 * units, features), (4 * units, units) and twice (4 *
        units,). The rows are those of the input gate, then of the forget gate, of the new cell and
        of the output gate. For several layers it is a list of such tuples, each for the outputs of
        the layer before. With `bidirectional` there are two for each layer, forward and backward.
    initial
        A pair of the hidden and the cell states before the first step, each (layers * directions,
        batch, units), or without the batch if x has none; by default 0.
    reverse
        Whether the last input comes first; outputs stay beside their inputs.
    bidirectional
        Whether each layer runs in both directions and concatenates the outputs: deeper layers have
        2 * units features.
    batch_first
        Whether x and the outputs are (batch, time, ...); states are not.
    **axes
        The roles of named axes, as for `rnn`: ``time=``, ``batch=``, ``features=``, ``units=``,
        ``gates=`` and ``layers=``.

    Returns
    -------
    LstmRecurrence
        ``outputs``, (time, batch, directions * units), and the last states ``hidden`` and ``cell``,
        (layers * directions, batch, units), in the promoted dtype; integers count as float32.

    Raises
    ------
    AxesError
        If the length of the sequence is unknown or 0, or the shape of an operand does not fit.
    ArgumentError
        If `weights` have another form, `initial` is not a pair, an option is not what it should be,
        or options exclude each other.

    Examples
    --------
    >>> x, weights = np.ones((2, 5, 3)), (np.zeros((16, 3)), np.zeros((16, 4)))
    >>> run = weft.jit(lambda x, weights: weft.lstm(x, weights, batch_first=True))
    >>> outputs, hidden, cell = run(x, weights)
    >>> outputs.shape, hidden.shape, cell.shape
    ((2, 5, 4), (1, 2, 4), (1, 2, 4))
    """
    if initial is None:
        initial = (None, None)
    if not isinstance(initial, list | tuple) or len(initial) != 2:
        problem = f"initial must be a pair of hidden and cell state, not {initial!r}"
        raise ArgumentError(explain("lstm", problem, ()))
    layers = Layers("lstm", LstmOp, LstmOp, reverse, bidirectional, batch_first)
    return LstmRecurrence(*layers.apply(x, weights, initial, axes))

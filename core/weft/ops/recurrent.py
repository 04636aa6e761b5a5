"""Recurrent layers: cells unrolled along a sequence, in one layer or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import upcalls
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.cells import (
    ARRAYS,
    GRU_GATES,
    LSTM_GATES,
    RNN_GATES,
    TENSORS,
    WEIGHTS,
    Functions,
    Step,
    Weights,
    check_flags,
    checked_activation,
    gru_step,
    lstm_step,
    of_one_dtype,
    rnn_step,
)
from weft.ops.joining import concat, stack
from weft.ops.movement import broadcast, cast_axes, transpose
from weft.ops.roles import Layout, SequenceRoles, by_roles, is_named

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

    Operands are the inputs (time, batch, gates * units), multiplied with their weights already; the
    states before the first step (states, batch, units); the recurrent weights (gates * units,
    units) and, optionally, their bias.

    Attributes
    ----------
    reverse
        Whether the last input comes first; results keep the place of their input.
    """

    reverse: bool
    gates: ClassVar[int]
    states: ClassVar[int]
    gates_products: ClassVar[bool] = False
    """Whether products with recurrent weights are gated, so that their bias stays with them."""

    def infer(self) -> tuple[Axes, DType]:
        """Check the shapes against each other."""
        x, initial, weight, *bias = self.args
        if (x.rank, initial.rank, weight.rank) != (3, 3, 2) or any(b.rank != 1 for b in bias):
            raise AxesError("inputs and states must have 3 axes, weights 2, and a bias 1")
        time, batch, width = x.axes.lengths
        units = weight.axes.lengths[-1]
        if not isinstance(time, int) or not isinstance(units, int) or not time:
            raise AxesError(
                f"the sequence {x.axes} must have a known length of 1 or more along its first axis:"
                " every step of it becomes ops of its own"
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

    def step(self, functions: Functions, given: Step) -> list[Any]:
        """Return the states after one step."""
        raise NotImplementedError

    def run(
        self, functions: Functions, inputs: Sequence[Any], initial: Any, *rest: Any
    ) -> list[Any]:
        """Return all states of all steps, those of the first input first."""
        states = [initial[number] for number in range(self.states)]
        after: list[Any] = [None] * len(inputs)
        order = range(len(inputs))
        for place in reversed(order) if self.reverse else order:
            after[place] = states = self.step(functions, Step(inputs[place], states, *rest))
        return [state for states in after for state in states]

    def reference(self, x: Any, initial: Any, *rest: Any) -> Any:
        """Loop over the steps."""
        found = np.stack(self.run(ARRAYS, x, initial, *rest))
        return found.reshape(self.axes.shape).astype(self.dtype)

    def decompose(self, x: TensorOp, *rest: TensorOp) -> TensorOp:
        """Write out the steps."""
        return self._unrolled([x[place] for place in range(x.axes[0].length)], *rest)

    def _unrolled(self, inputs: Sequence[TensorOp], *rest: TensorOp) -> TensorOp:
        return cast_axes(stack(self.run(TENSORS, inputs, *rest)), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, *rest: TensorOp) -> Any:
        """Go back through the steps, and join the shares of the inputs once for all."""
        inputs = [x[place] for place in range(x.axes[0].length)]
        shares = upcalls.adjoints_through(self._unrolled(inputs, *rest), delta, (*inputs, *rest))
        return (stack(shares[: len(inputs)]), *shares[len(inputs) :])


class RnnOp(RecurrentOp):
    """h' = activation(x + W h + b).

    Attributes
    ----------
    activation
        ``tanh`` or ``relu``.
    """

    activation: str
    gates = RNN_GATES
    states = 1

    def step(self, functions: Functions, given: Step) -> list[Any]:
        """Apply the formula."""
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

    def step(self, functions: Functions, given: Step) -> list[Any]:
        """Apply the formulas."""
        return gru_step(functions, given, self.linear_before_reset)


class LstmOp(RecurrentOp):
    """The long short-term memory; gates are input, forget, cell and output."""

    gates = LSTM_GATES
    states = 2

    def step(self, functions: Functions, given: Step) -> list[Any]:
        """Apply the formulas."""
        return lstm_step(functions, given)


class Recurrence(NamedTuple):
    """What a recurrent layer gives: the hidden states of all steps, and the last of each layer."""

    outputs: TensorOp
    hidden: TensorOp


class LstmRecurrence(NamedTuple):
    """What an LSTM layer gives: all hidden states, and the last states of each layer."""

    outputs: TensorOp
    hidden: TensorOp
    cell: TensorOp


class Layers(NamedTuple):
    """A recurrent network: its name, its kind of op with the attributes, and how it goes.

    Attributes
    ----------
    make
        From operands and whether to go backwards, the op of one layer in one direction.
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
        """Return all outputs, and the last states of each layer, one tensor for each kind."""
        check_flags(
            self.function,
            reverse=self.reverse,
            bidirectional=self.bidirectional,
            batch_first=self.batch_first,
        )
        if self.batch_first and is_named(x):
            problem = "batch_first is of positional axes, named ones lie in any order"
            raise ArgumentError(explain(self.function, problem, (x,)))
        sets = _weight_tuples(self.function, weights)
        count = len(initial)

        def positional(x: Any, *rest: Any) -> tuple[TensorOp, ...]:
            rows = [rest[place : place + 4] for place in range(count, len(rest), 4)]
            return tuple(self._layers(x, rows, rest[:count]))

        operands = (x, *initial, *(each for one in sets for each in one))
        layout = self._layout(len(sets), count)
        return by_roles(self.function, layout, operands, axes, positional)

    def _layout(self, sets: int, states: int) -> Layout:
        """Return the roles of the sequence, of initial states, and of the weights of each set."""
        deeper = tuple(text.replace("features", "inner") for text in WEIGHTS)
        weights = (WEIGHTS if number < self.directions else deeper for number in range(sets))
        return Layout(
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
            op = cast_axes(op, (op.axes[0], 1, op.axes[1]))
        op = transpose(op, (1, 0, 2)) if is_swapped else op
        starts = self._starts(op, before, sets)
        lasts: list[TensorOp] = []
        for layer in range(0, len(sets), self.directions):
            outputs = []
            for number in range(layer, layer + self.directions):
                states = self._along(op, starts[number], sets[number], number - layer)
                outputs.append(states[:, 0])
                lasts.append(states[0 if self._goes_back(number - layer) else -1])
            op = outputs[0] if self.directions == 1 else concat(outputs, -1)
        found = [stack([last[number] for last in lasts]) for number in range(self.kind.states)]
        if is_single:
            return [op[:, 0], *(state[:, 0] for state in found)]
        return [transpose(op, (1, 0, 2)) if is_swapped else op, *found]

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
            problem = "reverse and bidirectional exclude each other: both directions are taken"
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
        """Return the initial states of each layer and direction, zeros unless given."""
        wanted = make_axes((len(sets), x.axes[1].length, sets[0].units))
        zeros = broadcast(constant(0, dtype=x.dtype), wanted)
        given = [zeros if state is None else self._start(state, wanted) for state in before]
        return [stack([state[number] for state in given]) for number in range(len(sets))]

    def _start(self, state: TensorOp, wanted: Axes) -> TensorOp:
        op = cast_axes(state, (state.axes[0], 1, state.axes[1])) if state.rank == 2 else state
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
    """Return input and hidden weights and two biases, or None, for each layer and direction."""
    if isinstance(weights, list | tuple) and weights:
        sets = weights if isinstance(weights[0], list | tuple) else [weights]
        if all(isinstance(one, list | tuple) and len(one) in (2, 4) for one in sets):
            return [(*one, None, None)[:4] for one in sets]
    problem = (
        "weights must be a tuple (input_weight, hidden_weight) or (input_weight, hidden_weight, "
        f"input_bias, hidden_bias), or a list of such, not {weights!r}"
    )
    raise ArgumentError(explain(function, problem, ()))


def rnn(
    x: Any,
    weights: Any,
    initial: Any = None,
    activation: str = "tanh",
    reverse: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **axes: Unpack[SequenceRoles],
) -> Recurrence:
    """Return the hidden states along a sequence of a `rnn_cell`, and the last, as a named tuple.

    ``x`` lies as (time, batch, features), as (batch, time, features) with `batch_first`, or without
    a batch. `weights` are a tuple (input_weight, hidden_weight) or (input_weight, hidden_weight,
    input_bias, hidden_bias) of arrays or tensors; for several layers a list of such, each for the
    outputs of the one before; with `bidirectional` two for each layer, forwards and backwards,
    whose outputs are joined. `reverse` goes backwards only. `initial` is 0 unless given, and like
    the last states of shape (layers * directions, batch, units). Outputs lie as x does.

    Named axes may lie in any order: those of `x` are the `time`, by default REC, the `batch`, by
    default N, and the `features`, all others; those of weights are as for `rnn_cell`. Outputs have
    the units in place of the features; last states lie so too, with an axis called layers, or as
    given by `layers`, in place of time.

    The sequence is unrolled, so its length must be known; inputs of all steps are multiplied with
    their weights at once. Integers count as float32.
    """
    activation = checked_activation("rnn", activation)

    def make(*operands: TensorOp, reverse: bool) -> RnnOp:
        return RnnOp(*operands, reverse=reverse, activation=activation)

    layers = Layers("rnn", RnnOp, make, reverse, bidirectional, batch_first)
    return Recurrence(*layers.apply(x, weights, [initial], axes))


def gru(
    x: Any,
    weights: Any,
    initial: Any = None,
    linear_before_reset: bool = True,
    reverse: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **axes: Unpack[SequenceRoles],
) -> Recurrence:
    """Return the hidden states along a sequence of a `gru_cell`, and the last, as a named tuple.

    See `rnn` for the arguments, with 3 * units rows of weights.
    """
    check_flags("gru", linear_before_reset=linear_before_reset)

    def make(*operands: TensorOp, reverse: bool) -> GruOp:
        return GruOp(*operands, reverse=reverse, linear_before_reset=linear_before_reset)

    layers = Layers("gru", GruOp, make, reverse, bidirectional, batch_first)
    return Recurrence(*layers.apply(x, weights, [initial], axes))


def lstm(
    x: Any,
    weights: Any,
    initial: Any = None,
    reverse: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **axes: Unpack[SequenceRoles],
) -> LstmRecurrence:
    """Return the hidden states along a sequence of a `lstm_cell`, and the last of both states.

    The result is a named tuple of outputs, hidden and cell. See `rnn` for the arguments, with
    4 * units rows of weights; `initial` is a pair of hidden and cell state.
    """
    if initial is None:
        initial = (None, None)
    if not isinstance(initial, list | tuple) or len(initial) != 2:
        problem = f"initial must be a pair of hidden and cell state, not {initial!r}"
        raise ArgumentError(explain("lstm", problem, ()))
    layers = Layers("lstm", LstmOp, LstmOp, reverse, bidirectional, batch_first)
    return LstmRecurrence(*layers.apply(x, weights, initial, axes))

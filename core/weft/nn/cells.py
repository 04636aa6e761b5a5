"""Recurrent cells: one step of an RNN, a GRU or an LSTM.

The formulas, the order of gates and the shapes of weights, (gates * units, features), follow
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir.dtypes import Array, accumulator_dtype
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn import activation
from weft.ops.arguments import check_flags
from weft.ops.pointwise import math
from weft.ops.pointwise.elementwise import FloatOp, cast, common_dtype
from weft.ops.products.linalg import matmul, matrix_transpose, require_positional
from weft.ops.products.roles import RoleSignature, SequenceRoles, by_roles

__all__ = ["gru_cell", "lstm_cell", "rnn_cell"]

RNN_GATES, GRU_GATES, LSTM_GATES = 1, 3, 4


class Functions(NamedTuple):
    """The functions in the formula of a step, for NumPy arrays or for tensors."""

    product: Callable[[Any, Any], Any]
    sigmoid: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    relu: Callable[[Any], Any]


def _array_product(x: Array, weight: Array) -> Any:
    wide = accumulator_dtype(x.dtype)
    return (np.asarray(x, wide) @ np.asarray(weight, wide).T).astype(x.dtype)


def _array_sigmoid(x: Array) -> Any:
    half = np.asarray(0.5, x.dtype)
    return half * np.tanh(half * x) + half


ARRAYS = Functions(_array_product, _array_sigmoid, np.tanh, lambda x: np.maximum(x, 0))
TENSORS = Functions(
    lambda x, weight: matmul(x, matrix_transpose(weight)),
    activation.sigmoid,
    math.tanh,
    activation.relu,
)
_ACTIVATIONS = ("tanh", "relu")
_ALL = slice(None)


class CellOperands(NamedTuple):
    """The operands of one step: projected input, previous states, and recurrent weights."""

    x: Any
    states: Sequence[Any]
    weight: Any
    bias: Any = None

    def product(self, functions: Functions, hidden: Any, rows: slice = _ALL) -> Any:
        """Return the product of a hidden state and rows of the weights, plus their bias."""
        result = functions.product(hidden, self.weight[rows])
        return result if self.bias is None else result + self.bias[rows]


def _parts(x: Any, count: int) -> list[Any]:
    """Return equal parts of a tensor along its last axis."""
    length = x.shape[-1] // count
    return [x[..., length * number : length * (number + 1)] for number in range(count)]


def rnn_step(functions: Functions, given: CellOperands, activation: str) -> list[Any]:
    """Return the hidden state after one step."""
    (hidden,) = given.states
    return [getattr(functions, activation)(given.x + given.product(functions, hidden))]


def gru_step(functions: Functions, given: CellOperands, linear_before_reset: bool) -> list[Any]:
    """Return the hidden state after one step."""
    (hidden,) = given.states
    sigmoid, gates = functions.sigmoid, 2 * hidden.shape[-1]
    reset_input, update_input, new_input = _parts(given.x, 3)
    if linear_before_reset:
        reset_hidden, update_hidden, new_hidden = _parts(given.product(functions, hidden), 3)
        reset = sigmoid(reset_input + reset_hidden)
        new_hidden = reset * new_hidden
    else:
        both = given.product(functions, hidden, slice(gates))
        reset_hidden, update_hidden = _parts(both, 2)
        reset = sigmoid(reset_input + reset_hidden)
        new_hidden = given.product(functions, reset * hidden, slice(gates, None))
    update, new = sigmoid(update_input + update_hidden), functions.tanh(new_input + new_hidden)
    return [new + update * (hidden - new)]


def lstm_step(functions: Functions, given: CellOperands) -> list[Any]:
    """Return the hidden and the cell state after one step."""
    hidden, cell = given.states
    sigmoid, tanh = functions.sigmoid, functions.tanh
    enter, forget, new, leave = _parts(given.x + given.product(functions, hidden), 4)
    cell = sigmoid(forget) * cell + sigmoid(enter) * tanh(new)
    return [sigmoid(leave) * tanh(cell), cell]


class LstmState(NamedTuple):
    """The state that an LSTM carries from step to step."""

    hidden: TensorOp
    cell: TensorOp


def of_one_dtype(function: str, required: Sequence[Any], optional: Sequence[Any]) -> list[Any]:
    """Return operands as positional tensors of one float dtype; optional ones may be None."""
    ops = [*map(as_op, required), *(None if x is None else as_op(x) for x in optional)]
    known = [x for x in ops if x is not None]
    require_positional(function, *known)
    dtype = explained(function, known, lambda: FloatOp.operand_dtype(common_dtype(known)))
    return [None if x is None else cast(x, dtype) for x in ops]


class Weights(NamedTuple):
    """The parameters of one layer in one direction."""

    input_weight: TensorOp
    hidden_weight: TensorOp
    input_bias: TensorOp | None
    hidden_bias: TensorOp | None

    @property
    def units(self) -> Any:
        """The number of units of a state."""
        return self.hidden_weight.axes.lengths[-1] if self.hidden_weight.axes else None

    def check(self, function: str, gates: int, units: Any, features: Any) -> None:
        """Raise AxesError unless the shapes match the numbers of gates, units and features."""
        rows = gates * units if isinstance(units, int) else None
        wanted = [(rows, features), (rows, units), (rows,), (rows,)]
        for name, x, shape in zip(self._fields, self, wanted, strict=True):
            if x is not None and x.axes.lengths != shape:
                problem = (
                    f"{name} must have the shape {shape}, for {gates} gates, {units} units and "
                    f"{features} features, not {x.axes.lengths}"
                )
                raise AxesError(explain(function, problem, (x,)))

    def projected(self, x: TensorOp, *biases: TensorOp | None) -> TensorOp:
        """Return the input projection of all steps as one product, plus biases."""
        result = matmul(x, matrix_transpose(self.input_weight))
        for bias in biases:
            result = result if bias is None else result + bias
        return result


def _step(
    function: str,
    gates: int,
    x: TensorLike,
    states: Sequence[Any],
    weights: Sequence[Any],
    *biases: Any,
) -> CellOperands:
    """Return the operands of one step, after a check of their shapes."""
    op, *rest = of_one_dtype(function, (x, *states, *weights), biases)
    before, found = rest[: len(states)], Weights(*rest[len(states) :])
    found.check(function, gates, found.units, op.axes[-1].length if op.axes else None)
    wanted = (*op.axes.lengths[:-1], found.units)
    for state in before:
        if state.axes.lengths != wanted:
            problem = f"beside inputs {op.axes} a state must have the shape {wanted}"
            raise AxesError(explain(function, f"{problem}, not {state.axes}", (op, state)))
    return CellOperands(
        found.projected(op, found.input_bias), before, found.hidden_weight, found.hidden_bias
    )


def checked_activation(function: str, activation: str) -> str:
    """Return the name of an activation; raises ArgumentError for an unknown one."""
    if activation not in _ACTIVATIONS:
        problem = f"activation must be one of {', '.join(_ACTIVATIONS)}, not {activation!r}"
        raise ArgumentError(explain(function, problem, ()))
    return str(activation)


WEIGHTS = ("gates+ features+", "gates+ units+", "gates+", "gates+")
"""The roles of the weights and biases of one layer; an axis of gates has gates * units rows."""
_STATE = "batch? units+"
_CELL = RoleSignature(
    "batch? features+", _STATE, *WEIGHTS, results=["batch? units"], same={"units": "features"}
)
_LSTM_CELL = RoleSignature(
    "batch? features+", _STATE, _STATE, *WEIGHTS,
    results=["batch? units"], same={"units": "features"},
)  # fmt: skip


def rnn_cell(
    x: TensorLike,
    hidden: TensorLike,
    input_weight: TensorLike,
    hidden_weight: TensorLike,
    input_bias: TensorLike | None = None,
    hidden_bias: TensorLike | None = None,
    activation: str = "tanh",
    **axes: Unpack[SequenceRoles],
) -> TensorOp:
    """Return the next hidden state of an Elman network, ``activation(W x + b + U hidden + c)``.

    (Elman: Finding structure in time, 1990.)

    Parameters
    ----------
    x
        The input, (batch, features), or with other axes than the last one.
    hidden
        The hidden state, (batch, units): the axes of x with the units in place of the features.
    input_weight
        The matrix W, (units, features).
    hidden_weight
        The matrix U, (units, units).
    input_bias, hidden_bias
        The vectors b and c, (units,); by default 0.
    activation
        ``"tanh"`` or ``"relu"``.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order. The axes of x are the ``batch=``, by default ``N``, and the ``features=``, all
        others; those of the state the batch and the ``units=``. Weights have the axis of rows,
        called ``gates=``, and the features or units, or are positional.

    Returns
    -------
    TensorOp
        The new state, (batch, units), in the promoted dtype; integers count as float32.

    Raises
    ------
    AxesError
        If the shape of an operand does not fit.
    ArgumentError
        If the activation is another word, or a role does not exist.

    Examples
    --------
    >>> x, hidden = np.ones((1, 2)), np.zeros((1, 3))
    >>> weights = np.full((3, 2), 0.5), np.zeros((3, 3))
    >>> weft.jit(lambda *args: weft.rnn_cell(*args, activation="relu"))(x, hidden, *weights)
    array([[1., 1., 1.]])
    """
    activation = checked_activation("rnn_cell", activation)

    def apply(x: Any, hidden: Any, *weights: Any) -> TensorOp:
        given = _step("rnn_cell", RNN_GATES, x, [hidden], weights[:2], *weights[2:])
        return rnn_step(TENSORS, given, activation)[0]  # type: ignore[no-any-return]

    operands = (x, hidden, input_weight, hidden_weight, input_bias, hidden_bias)
    return by_roles("rnn_cell", _CELL, operands, axes, apply)


def gru_cell(
    x: TensorLike,
    hidden: TensorLike,
    input_weight: TensorLike,
    hidden_weight: TensorLike,
    input_bias: TensorLike | None = None,
    hidden_bias: TensorLike | None = None,
    linear_before_reset: bool = True,
    **axes: Unpack[SequenceRoles],
) -> TensorOp:
    """Return the next hidden state of a gated recurrent unit (GRU), ``(1 - z) * n + z * hidden``.

    The reset gate is ``r = sigmoid(Wr x + br + Ur hidden + cr)``, the update gate z likewise, and
    the new state ``n = tanh(Wn x + bn + r * (Un hidden + cn))``. (Cho et al.: Learning phrase
    representations, 2014.)

    Parameters
    ----------
    x
        The input, (batch, features), or with other axes than the last one.
    hidden
        The hidden state, (batch, units): the axes of x with the units in place of the features.
    input_weight
        The matrices W, (3 * units, features): the rows of r, then those of z, then those of n.
    hidden_weight
        The matrices U, (3 * units, units), in the same order.
    input_bias, hidden_bias
        The vectors b and c, (3 * units,), in the same order; by default 0.
    linear_before_reset
        Whether the reset gate acts after the product with Un, as above. Otherwise n contains ``Un
        (r * hidden) + cn``, as in the paper.
    **axes
        The roles of named axes, as for `rnn_cell`: ``batch=``, ``features=``, ``units=`` and
        ``gates=``.

    Returns
    -------
    TensorOp
        The new state, (batch, units), in the promoted dtype; integers count as float32.

    Raises
    ------
    AxesError
        If the shape of an operand does not fit.
    ArgumentError
        If `linear_before_reset` is not a bool, or a role does not exist.

    Examples
    --------
    >>> x, hidden = np.zeros((1, 2)), np.ones((1, 3))
    >>> weft.jit(weft.gru_cell)(x, hidden, np.zeros((9, 2)), np.zeros((9, 3)))
    array([[0.5, 0.5, 0.5]])
    """
    check_flags("gru_cell", linear_before_reset=linear_before_reset)

    def apply(x: Any, hidden: Any, *weights: Any) -> TensorOp:
        given = _step("gru_cell", GRU_GATES, x, [hidden], weights[:2], *weights[2:])
        return gru_step(TENSORS, given, linear_before_reset)[0]  # type: ignore[no-any-return]

    operands = (x, hidden, input_weight, hidden_weight, input_bias, hidden_bias)
    return by_roles("gru_cell", _CELL, operands, axes, apply)


def lstm_cell(
    x: TensorLike,
    hidden: TensorLike,
    cell: TensorLike,
    input_weight: TensorLike,
    hidden_weight: TensorLike,
    input_bias: TensorLike | None = None,
    hidden_bias: TensorLike | None = None,
    **axes: Unpack[SequenceRoles],
) -> LstmState:
    """Return the next hidden and cell state of a long short-term memory (LSTM), as a named tuple.

    The input gate is ``i = sigmoid(Wi x + bi + Ui hidden + ci)``, the forget gate f and the output
    gate o likewise, and g likewise with tanh. Then ``cell = f * cell + i * g``, and ``hidden = o *
    tanh(cell)`` of the new cell. (Hochreiter and Schmidhuber, 1997; Gers et al., 2000.)

    Parameters
    ----------
    x
        The input, (batch, features), or with other axes than the last one.
    hidden, cell
        The states, (batch, units): the axes of x with the units in place of the features.
    input_weight
        The matrices W, (4 * units, features): the rows of i, then those of f, g and o.
    hidden_weight
        The matrices U, (4 * units, units), in the same order.
    input_bias, hidden_bias
        The vectors b and c, (4 * units,), in the same order; by default 0.
    **axes
        The roles of named axes, as for `rnn_cell`: ``batch=``, ``features=``, ``units=`` and
        ``gates=``.

    Returns
    -------
    LstmState
        The new states ``hidden`` and ``cell``, (batch, units), in the promoted dtype; integers
        count as float32.

    Raises
    ------
    AxesError
        If the shape of an operand does not fit.
    ArgumentError
        If a role does not exist.

    Examples
    --------
    >>> x, state = np.zeros((1, 2)), np.ones((1, 3))
    >>> step = weft.jit(weft.lstm_cell)
    >>> hidden, cell = step(x, state, state, np.zeros((12, 2)), np.zeros((12, 3)))
    >>> hidden, cell
    (array([[0.2311, 0.2311, 0.2311]]), array([[0.5, 0.5, 0.5]]))
    """

    def apply(x: Any, hidden: Any, cell: Any, *weights: Any) -> LstmState:
        given = _step("lstm_cell", LSTM_GATES, x, [hidden, cell], weights[:2], *weights[2:])
        return LstmState(*lstm_step(TENSORS, given))

    operands = (x, hidden, cell, input_weight, hidden_weight, input_bias, hidden_bias)
    return by_roles("lstm_cell", _LSTM_CELL, operands, axes, apply)

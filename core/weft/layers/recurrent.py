"""Recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from weft.ir.tensor import TensorOp
from weft.layers.initial import Parameter, Shape, uniform
from weft.layers.layer import Layer, Tree
from weft.nn.cells import GRU_GATES, LSTM_GATES
from weft.nn.recurrent import gru, lstm
from weft.support.backports import override


@dataclass(frozen=True)
class _Recurrent(Layer):
    units: int
    depth: int = 1
    bidirectional: bool = False
    batch_first: bool = False
    bias: bool = True

    gates: ClassVar[int]
    function: ClassVar[Callable[..., Any]]

    @property
    def _suffixes(self) -> list[list[str]]:
        """The ends of the names of parameters, by layer and direction."""
        ends = ("", "_reverse") if self.bidirectional else ("",)
        return [[f"_l{number}{end}" for end in ends] for number in range(self.depth)]

    @override
    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        inputs, rows = self.features(shape, least=2), self.gates * self.units
        initial = uniform(1 / math.sqrt(self.units))
        made: dict[str, Parameter] = {}
        for suffixes in self._suffixes:
            for suffix in suffixes:
                made[f"weight_ih{suffix}"] = Parameter((rows, inputs), initial)
                made[f"weight_hh{suffix}"] = Parameter((rows, self.units), initial)
                for name in ("bias_ih", "bias_hh") if self.bias else ():
                    made[f"{name}{suffix}"] = Parameter((rows,), initial)
            inputs = self.units * len(suffixes)
        return made

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        return self.states(params, x, **options).outputs  # type: ignore[no-any-return]

    def states(self, params: Any, x: Any, initial: Any = None) -> Any:
        """Return all outputs, and the last states of each layer, as a named tuple.

        Parameters
        ----------
        params
            The parameters.
        x
            The inputs, (time, batch, features), or (batch, time, features) with `batch_first`.
        initial
            The states before the first step, (depth * directions, batch, units), of an LSTM a pair
            of those and of cell states; by default 0.

        Returns
        -------
        Recurrence or LstmRecurrence
            ``outputs``, and the last states ``hidden``, of an LSTM also ``cell``, (depth *
            directions, batch, units).
        """
        names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        weights = [
            tuple(params[f"{name}{suffix}"] for name in names)
            for suffixes in self._suffixes
            for suffix in suffixes
        ]
        return type(self).function(
            x,
            weights,
            initial,
            bidirectional=self.bidirectional,
            batch_first=self.batch_first,
        )


class LSTM(_Recurrent):
    """A long short-term memory of one or more layers, by `weft.lstm`.

    Inputs are (time, batch, features); it returns the outputs of all steps, (time, batch,
    directions * units), and `states` returns the last states too. Its parameters are
    ``weight_ih_l0`` (4 * units, features), ``weight_hh_l0`` (4 * units, units), ``bias_ih_l0`` and
    ``bias_hh_l0`` (4 * units,), and so on for each layer, with the end ``_reverse`` for the other
    direction. The rows are those of the input gate, then of the forget gate, of the new cell and of
    the output gate. All are uniform within ``1 / sqrt(units)`` at first.

    Parameters
    ----------
    units
        The number of units of a state.
    depth
        The number of layers, each on the outputs of the one before.
    bidirectional
        Whether each layer runs in both directions and concatenates the outputs.
    batch_first
        Whether inputs and outputs are (batch, time, ...); states are not.
    bias
        Whether there are biases.

    Examples
    --------
    >>> layer = weft.nn.LSTM(4, batch_first=True)
    >>> params = layer.init(weft.random.key(0), (2, 5, 3))
    >>> params["weight_ih_l0"].shape, params["weight_hh_l0"].shape
    ((16, 3), (16, 4))
    >>> weft.jit(layer)(params, np.ones((2, 5, 3), "float32")).shape
    (2, 5, 4)
    >>> outputs, hidden, cell = weft.jit(layer.states)(params, np.ones((2, 5, 3), "float32"))
    >>> hidden.shape
    (1, 2, 4)
    """

    gates = LSTM_GATES
    function = staticmethod(lstm)


class GRU(_Recurrent):
    """A gated recurrent unit of one or more layers, by `weft.gru`.

    Inputs are (time, batch, features); it returns the outputs of all steps, (time, batch,
    directions * units), and `states` returns the last states too. Its parameters are
    ``weight_ih_l0`` (3 * units, features), ``weight_hh_l0`` (3 * units, units), ``bias_ih_l0`` and
    ``bias_hh_l0`` (3 * units,), and so on for each layer, with the end ``_reverse`` for the other
    direction. The rows are those of the reset gate, then of the update gate, then of the new state.
    All are uniform within ``1 / sqrt(units)`` at first.

    Parameters
    ----------
    units
        The number of units of a state.
    depth
        The number of layers, each on the outputs of the one before.
    bidirectional
        Whether each layer runs in both directions and concatenates the outputs.
    batch_first
        Whether inputs and outputs are (batch, time, ...); states are not.
    bias
        Whether there are biases.

    Examples
    --------
    >>> layer = weft.nn.GRU(4, depth=2, bidirectional=True)
    >>> params = layer.init(weft.random.key(0), (5, 2, 3))
    >>> params["weight_ih_l0"].shape, params["weight_ih_l1_reverse"].shape
    ((12, 3), (12, 8))
    >>> weft.jit(layer)(params, np.ones((5, 2, 3), "float32")).shape
    (5, 2, 8)
    """

    gates = GRU_GATES
    function = staticmethod(gru)

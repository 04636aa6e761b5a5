"""Dropout as a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import ArgumentError
from weft.ir.tensor import TensorOp
from weft.layers.layer import Layer, Mode, Tree
from weft.nn.regularization import dropout
from weft.support.backports import override


@dataclass(frozen=True)
class Dropout(Layer):
    """Dropout in training, by `weft.dropout`: elements become 0, and the others are scaled.

    It has no parameters. In training it needs a ``key=`` of `weft.random`: the same key drops the
    same elements.

    Parameters
    ----------
    rate
        The probability of 0.

    Examples
    --------
    >>> layer = weft.nn.Dropout(0.5)
    >>> train = weft.jit(lambda x, key: layer({}, x, train=True, key=key))
    >>> sorted(set(train(np.ones(8), weft.random.key(0)).tolist()))
    [0.0, 2.0]
    >>> weft.jit(layer)({}, np.ones(4))
    array([1., 1., 1., 1.])
    """

    rate: float = 0.5

    @override
    def run(
        self, params: Tree, x: TensorOp, state: Tree | None, mode: Mode, **options: Any
    ) -> tuple[TensorOp, Tree]:
        if not mode.train or not self.rate:
            return x, {}
        if mode.key is None:
            raise self.refusal(ArgumentError, "in training it needs key=, of weft.random", x)
        return dropout(x, self.rate, key=mode.key), {}

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
    """Dropout in training: elements become 0 with probability `rate`; see `weft.dropout`.

    It has no parameters. In training it needs a `key` of `weft.random`: the same key drops the same
    elements.
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

"""Ops with several results, and the op that selects one of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.errors import ArgumentError
from weft.ir.axes import Axes
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.support.backports import override


class TupleOp(Op):
    """The base of ops with several results: no tensor itself, each result is taken by `ResultOp`.

    The plan gives memory to every result; a backend's step has one description for each.
    """

    is_tuple: ClassVar[bool] = True

    @property
    @abstractmethod
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        """The axes and dtype of each result."""

    def interpret(self, args: Sequence[Any], compute: Callable[..., Any]) -> tuple[Any, ...]:
        """Return the results as arrays; an op that contains others has `compute` do each of them.

        `compute` takes an op and the values of its operands.
        """
        return tuple(np.asarray(value) for value in self.reference(*args))

    def may_overwrite_with(self, result: int, index: int) -> bool:
        """Whether a result may be written into the memory of the operand at an index."""
        return False


class ResultOp(TensorOp):
    """One result of an op that has several.

    Attributes
    ----------
    index
        Which one, counted from 0.
    """

    index: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        (made,) = self.args
        types = made.result_types if isinstance(made, TupleOp) else ()
        if not 0 <= self.index < len(types):
            raise ArgumentError(f"there is no result {self.index}: the operand has {len(types)}")
        return types[self.index]


def results_of(op: TupleOp) -> tuple[ResultOp, ...]:
    """Return an op for each result of another, in order."""
    if not op.result_types:
        return ()
    first = ResultOp(op, index=0)
    rest = ((index, *types) for index, types in enumerate(op.result_types) if index)
    return (first, *first.siblings("index", rest))

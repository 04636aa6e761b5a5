"""The fused op: a kernel as a node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.ir.axes import Axes
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ir.results import TupleOp
from weft.kernels.kernel import Kernel
from weft.kernels.verifier import problem
from weft.support.backports import override

__all__ = ["FusedOp"]


class FusedOp(TupleOp):
    """An op that computes a kernel; created by passes, after differentiation.

    Attributes
    ----------
    kernel
        The kernel, whose operands are this op's, in order.
    """

    kernel: Kernel

    @override
    def infer(self) -> tuple[Axes, None]:
        found = problem(self.kernel)
        if found is not None:
            raise ArgumentError(f"the kernel is malformed: {found}")
        given = [(arg.axes, arg.dtype) for arg in self.args]
        taken = [(operand.axes, operand.dtype) for operand in self.kernel.operands]
        if given != taken:
            raise ArgumentError(f"the kernel takes {_types(taken)}, not {_types(given)}")
        return Axes(), None

    @property
    @override
    def contained(self) -> tuple[Op, ...]:
        return tuple(each.op for each in self.kernel.body)

    @property
    @override
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        return self.kernel.result_types

    @property
    @override
    def flops(self) -> int:
        return self.kernel.count * sum(op.flops for op in self.contained)

    @override
    def may_overwrite_with(self, result: int, index: int) -> bool:
        return self.kernel.may_overwrite(result, index)

    @override
    def reference(self, *args: Any) -> tuple[Any, ...]:
        arrays = [np.asarray(arg) for arg in args]
        return self.interpret(arrays, lambda op, values: np.asarray(op.reference(*values)))

    @override
    def interpret(self, args: Sequence[Any], compute: Callable[..., Any]) -> tuple[Any, ...]:
        operands, kernel = list(args), self.kernel
        values: list[Any] = []
        for _ in range(kernel.count):
            values = [*operands]
            for each in kernel.body:
                values.append(compute(each.op, [values[number] for number in each.args]))
            for operand, number in kernel.carried:
                operands[operand] = values[number]
        return tuple(values[number] for number in kernel.outputs)


def _types(types: Iterable[tuple[Axes, DType]]) -> str:
    return ", ".join(f"{dtype} {axes}" for axes, dtype in types) or "nothing"

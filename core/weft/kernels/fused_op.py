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

__all__ = ["FusedOp"]


class FusedOp(TupleOp):
    """The ops of a kernel, computed as one; made by passes, after which nothing is differentiated.

    Attributes
    ----------
    kernel
        What is computed; its operands are this op's, in order.
    """

    kernel: Kernel

    def infer(self) -> tuple[Axes, None]:
        """Check the kernel, and that the operands are those it takes."""
        found = problem(self.kernel)
        if found is not None:
            raise ArgumentError(f"the kernel is malformed: {found}")
        given = [(arg.axes, arg.dtype) for arg in self.args]
        taken = [(operand.axes, operand.dtype) for operand in self.kernel.operands]
        if given != taken:
            raise ArgumentError(f"the kernel takes {_types(taken)}, not {_types(given)}")
        return Axes(), None

    @property
    def contained(self) -> tuple[Op, ...]:
        """The ops of the kernel."""
        return tuple(each.op for each in self.kernel.body)

    @property
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        """What the kernel declares."""
        return self.kernel.result_types

    def may_overwrite_with(self, result: int, index: int) -> bool:
        """As the kernel says."""
        return self.kernel.may_overwrite(result, index)

    def reference(self, *args: Any) -> tuple[Any, ...]:
        """Compute op by op, as their references do."""
        arrays = [np.asarray(arg) for arg in args]
        return self.interpret(arrays, lambda op, values: np.asarray(op.reference(*values)))

    def interpret(self, args: Sequence[Any], compute: Callable[..., Any]) -> tuple[Any, ...]:
        """Have each op of the kernel computed."""
        values = list(args)
        for each in self.kernel.body:
            values.append(compute(each.op, [values[number] for number in each.args]))
        return tuple(values[number] for number in self.kernel.outputs)


def _types(types: Iterable[tuple[Axes, DType]]) -> str:
    return ", ".join(f"{dtype} {axes}" for axes, dtype in types) or "nothing"

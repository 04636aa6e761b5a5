"""Assignment through views of a state: slices, transposes and reshapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import StateError
from weft.ir.op import Op, explain
from weft.ir.tensor import TensorOp
from weft.ops.indexing.slicing import SliceOp, UpdateSliceOp
from weft.ops.shape.movement import ReshapeOp, TransposeOp, cast_axes, transpose

VIEWS = (SliceOp, ReshapeOp, TransposeOp)
"""The views that allow assignment: each element of the state occurs at most once."""


class WriteTarget:
    """The target of a write: a state, or a part of one given by views.

    Raises StateError, with the name of the function, for other targets.

    Attributes
    ----------
    state
        The written state.
    value
        The present value of the target.
    """

    def __init__(self, function: str, target: TensorOp) -> None:
        views: list[Any] = []
        state: Any = target
        while isinstance(state, VIEWS):
            views.append(state)
            (state,) = state.args
        if not isinstance(state, Op) or not state.is_state:
            is_constant = isinstance(state, Op) and state.is_constant
            what = "a constant" if is_constant else "not a stored tensor"
            problem = (
                f"{target} is not assignable, it is {what}: {function} takes a variable, or a "
                "slice, a transpose or a reshape of one"
            )
            if function == "set_item":
                problem += "; x.at[index].set(value) returns a changed tensor"
            raise StateError(explain(function, problem, [target] if isinstance(target, Op) else []))
        self.state: Any = state
        self._steps: list[tuple[Any, TensorOp]] = []
        value: Any = state
        for view in reversed(views):
            self._steps.append((view, value))
            value = type(view)(value, **view.attributes())
        self.value = value

    def holding(self, value: TensorOp) -> TensorOp:
        """Return the whole state with a value, of the target's axes and dtype, in the target."""
        for view, inner in reversed(self._steps):
            if isinstance(view, SliceOp):
                value = UpdateSliceOp(inner, value, bounds=view.bounds)
            elif isinstance(view, TransposeOp):
                value = transpose(value, tuple(map(int, np.argsort(view.permutation))))
            else:
                value = cast_axes(value, inner.axes)
        return value

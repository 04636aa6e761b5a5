"""Tensors from values: variables, constants, and operands that are not tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import WeftError
from weft_popxl import dtypes
from weft_popxl.arguments import flag, one_of
from weft_popxl.context import get_current_graph
from weft_popxl.errors import refuse_type, refuse_value
from weft_popxl.program import Constant, Tensor, Variable
from weft_popxl.replica_grouping import ReplicaGrouping
from weft_popxl.replicas import grouping_of

RETRIEVAL_MODES = ("one_per_group", "all_replicas")


def as_array(value: Any, dtype: Any = None, downcast: bool = True) -> np.ndarray[Any, Any]:
    """Return a value as an array; without a dtype, 64-bit data become 32-bit.

    Raises TypeError for non-numeric values, ValueError for values out of the range of the dtype.
    """
    if hasattr(value, "detach") and not isinstance(value, Tensor):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        refuse_type(f"{value!r} is not a number or an array of numbers")
    if array.dtype.kind not in "biufV":
        refuse_type(f"{value!r} is not a number or an array of numbers")
    if dtype is None:
        found = dtypes.dtype.as_dtype(array.dtype)
        dtype = dtypes.narrowed(found) if flag("downcast", downcast) else found
    wanted = dtypes.dtype.as_dtype(dtype).as_numpy()
    try:
        return weft.dtypes.host_array(array, wanted, "value")
    except WeftError as error:
        refuse_value(error.problem)


def variable(
    data: Any,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: str | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """Return a variable of the main graph, which keeps its value between runs.

    Without a `dtype`, 64-bit data become 32-bit unless `downcast` is false. With several groups in
    `replica_grouping` the data have a first axis for these, and a replica has those of its group.
    `retrieval_mode` is ``one_per_group`` or ``all_replicas``, without effect: a session has the
    data of its own replica. The other arguments have none either: there are no 8-bit floats. Raises
    ValueError in another graph than the main one, for another `retrieval_mode`, and if the first
    axis is not as long as there are groups.
    """
    graph = get_current_graph()
    if not graph.is_main:
        refuse_value(
            f"variables belong to the main graph, not to {graph}: pass them to it as inputs"
        )
    array = as_array(data, dtype, downcast)
    mode = one_of("variable: retrieval_mode", retrieval_mode or "one_per_group", RETRIEVAL_MODES)
    grouping = grouping_of("variable", replica_grouping)
    count = grouping.num_groups
    if count > 1 and array.shape[:1] != (count,):
        refuse_value(f"variable: data for {count} groups must have as many rows: {array.shape}")
    # A session sets the value of the replica; all ranks compile the same.
    first = array[0] if count > 1 else array
    op = weft.variable(first.shape, array.dtype, initial_value=first, name=name)
    made = graph._add(Variable, op, name)
    made.__dict__.update(data=array, replica_grouping=grouping, retrieval_mode=mode)
    return made


def constant(
    data: Any,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """Return a constant in the current graph; see `variable`."""
    graph = get_current_graph()
    graph._require_open()
    array = as_array(data, dtype, downcast)
    made = graph._add(Constant, weft.constant(array), name)
    made.__dict__["data"] = array
    return made


def as_tensor(value: Any, like: Tensor | dtypes.dtype | None = None) -> Tensor:
    """Return a tensor of the current graph unchanged, and other values as constants.

    A constant takes the dtype of the tensor `like`. Raises ValueError for a tensor of another graph
    and for an empty value, TypeError for a non-numeric value.
    """
    graph = get_current_graph()
    if isinstance(value, Tensor):
        if value.graph is not graph:
            refuse_value(
                f"{value!r} is not in the current graph {graph}: pass it as an input of that graph"
            )
        return value
    array = as_array(value, like.dtype if isinstance(like, Tensor) else like)
    if not array.size:
        refuse_value(f"{value!r} has no elements, so it makes no operand")
    return constant(array, array.dtype)

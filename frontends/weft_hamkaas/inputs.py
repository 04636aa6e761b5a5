"""The inputs of a model: their declarations, and checks of the arguments of an evaluation."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import IndexOutOfRange
from weft.ir.dtypes import Array, DType
from weft.support import source
from weft_hamkaas.errors import NodeError
from weft_hamkaas.nodes import (
    ConstantTensor,
    HamKaasNode,
    InputTensor,
    ReplaceSliceNode,
    SlicedSoftmaxNode,
)
from weft_hamkaas.tensors import DTYPES, as_array, dtype_name, is_tensor
from weft_hamkaas.traversal import named_inputs


class Inputs:
    """The inputs of a model, from its nodes in evaluation order."""

    def __init__(self, order: Sequence[HamKaasNode]) -> None:
        self._nodes = order
        self._wanted = [
            (name, DTYPES[node.meta.dtype], tuple(node.meta.shape))
            for name, node in named_inputs(order).items()
        ]

    @property
    def names(self) -> list[str]:
        """The names of the inputs, in order."""
        return [name for name, _, _ in self._wanted]

    def arrays(self, given: Mapping[str, Any]) -> list[Array]:
        """Return the arguments as arrays, in the order of the inputs.

        Raises NodeError for an input that is unknown, missing, or has a wrong type or shape.
        """
        arrays = []
        for name, dtype, shape in self._wanted:
            tensor = given.get(name)
            if type(tensor) is np.ndarray and tensor.dtype == dtype and tensor.shape == shape:
                arrays.append(tensor)
            elif tensor is None:
                raise NodeError("; ".join([f"Missing input tensor: {name}", *self._unknown(given)]))
            else:
                arrays.append(_fitting(name, tensor, dtype, shape))
        if len(given) > len(arrays):
            raise NodeError("; ".join(self._unknown(given)))
        return arrays

    def explained(self, error: IndexOutOfRange, arrays: Sequence[Array]) -> IndexOutOfRange:
        """Return the error with the node whose bounds are out of range."""
        values = {name: each for (name, *_), each in zip(self._wanted, arrays, strict=True)}

        def known(node: HamKaasNode) -> int:
            if isinstance(node, InputTensor):
                return int(values[node.get_name()][0])
            return int(node.value[0]) if isinstance(node, ConstantTensor) else 0

        for node in self._nodes:
            try:
                if isinstance(node, ReplaceSliceNode):
                    node.require_bounds(*map(known, node.inputs[2:]))
                elif isinstance(node, SlicedSoftmaxNode):
                    node.require_prefix(known(node.inputs[1]))
            except NodeError as found:
                where = source.file_info(node.location)
                return IndexOutOfRange(f"{type(node).__name__}: {found.problem}\n  {where}")
        return error

    def _unknown(self, given: Mapping[str, Any]) -> list[str]:
        """Return a list with the message for the first unknown name, or an empty list."""
        known = self.names
        there = f"there are {', '.join(known) or 'none'}"
        return [f"Unknown input tensor: {n} ({there})" for n in given if n not in known][:1]


def _fitting(name: str, tensor: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return a tensor as an array; raises NodeError for a wrong type or shape."""
    if not is_tensor(tensor):
        raise NodeError(f"Input tensor {name} is not a tensor, but {reprlib.repr(tensor)}")
    found = dtype_name(tensor.dtype)
    if found != dtype.name:
        raise NodeError(f"Input tensor {name} has wrong type: {found} vs {dtype} (given, wanted)")
    if tuple(tensor.shape) != shape:
        lengths = f"{list(tensor.shape)} vs {list(shape)} (given, wanted)"
        raise NodeError(f"Input tensor {name} has wrong shape: {lengths}")
    return as_array(tensor)

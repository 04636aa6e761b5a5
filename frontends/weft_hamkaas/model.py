"""Models: nodes compiled for a backend, ready to be evaluated."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

import weft
from weft import Computation, Transformer, plugins, source
from weft.dtypes import DType
from weft.errors import BackendError, IndexOutOfRange
from weft.kernels.account import Account
from weft_hamkaas.errors import NodeError
from weft_hamkaas.lowering import lower
from weft_hamkaas.memory import MemoryPlan, plan_memory
from weft_hamkaas.nodes import (
    ConstantTensor,
    HamKaasNode,
    InputTensor,
    ReplaceSliceNode,
    SlicedSoftmaxNode,
)
from weft_hamkaas.tensors import (
    DTYPES,
    Array,
    as_array,
    dtype_name,
    is_tensor,
    is_torch,
    like,
)
from weft_hamkaas.traversal import TraversalResult, evaluation_order, traverse_node


class HamKaasModel:
    """A compiled model; `HamKaasPlugin.compile_model` makes one.

    Its buffers begin as zeros, and keep what is written to them until the model is freed.

    Attributes
    ----------
    node
        What it evaluates.
    traversal
        The script of it, the constants, and what it takes and returns.
    computation
        The computation of weft behind it.
    """

    def __init__(self, node: HamKaasNode, transformer: Transformer) -> None:
        self.node = node
        self.traversal: TraversalResult = traverse_node(node)
        self._order = evaluation_order(node)
        self._inputs = [
            (name, DTYPES[meta.dtype], tuple(meta.shape))
            for name, meta in self.traversal.inputs.items()
        ]
        constants = self.traversal.constants.values()
        self._like: Any = next(filter(is_torch, constants), None)
        lowered = lower(node)
        self.computation: Computation = transformer.computation(
            lowered.results, *lowered.inputs.values(), name="hamkaas"
        )
        weakref.finalize(self, transformer.close).atexit = False
        transformer.initialize()

    def evaluate(self, inputs: Mapping[str, Any] | None = None) -> Any:
        """Return the value of the node for the values of its inputs, by name.

        The result is new: an array, or a tensor of torch where one was given or is a constant.
        Raises NodeError for an input that is unknown, missing, or of another type or shape, and
        IndexOutOfRange for bounds and prefixes that are; nothing is written then.
        """
        given = {} if inputs is None else inputs
        if not isinstance(given, Mapping):
            raise NodeError(f"Inputs are a mapping of names to tensors, not {given!r:.100}")
        arrays = [self._array(name, dtype, shape, given) for name, dtype, shape in self._inputs]
        if len(given) > len(arrays):
            known = {name for name, _, _ in self._inputs}
            unknown = next(name for name in given if name not in known)
            raise NodeError(f"Unknown input tensor: {unknown} (there are {', '.join(known)})")
        try:
            result = self.computation(*arrays)[0]
        except IndexOutOfRange as error:
            self._explain(dict(zip(self.traversal.inputs, arrays, strict=True)), error)
            raise
        for tensor in given.values():
            if type(tensor) is not np.ndarray and is_torch(tensor):
                return like(result, tensor)
        return result if self._like is None else like(result, self._like)

    def _array(
        self, name: str, dtype: DType, shape: tuple[int, ...], given: Mapping[str, Any]
    ) -> Array:
        tensor = given.get(name)
        if type(tensor) is np.ndarray and tensor.dtype == dtype and tensor.shape == shape:
            return tensor
        if tensor is None:
            unknown = [each for each in given if each not in self.traversal.inputs]
            hint = f"; Unknown input tensor: {unknown[0]}" if unknown else ""
            raise NodeError(f"Missing input tensor: {name}{hint}")
        if not is_tensor(tensor):
            raise NodeError(f"Input tensor {name} is no tensor, but {tensor!r:.100}")
        if dtype_name(tensor.dtype) != dtype.name:
            raise NodeError(
                f"Input tensor {name} has wrong type: {dtype_name(tensor.dtype)} vs {dtype}"
            )
        if tuple(tensor.shape) != shape:
            raise NodeError(
                f"Input tensor {name} has wrong shape: {list(tensor.shape)} vs {list(shape)}"
            )
        return as_array(tensor)

    def _explain(self, arrays: Mapping[str, Array], error: IndexOutOfRange) -> None:
        """Say which node was given bounds that are out of range."""

        def known(node: HamKaasNode) -> int:
            if isinstance(node, InputTensor):
                return int(arrays[node.get_name()][0])
            return int(node.value[0]) if isinstance(node, ConstantTensor) else 0

        for node in self._order:
            try:
                if isinstance(node, ReplaceSliceNode):
                    node.require_bounds(*map(known, node.inputs[2:]))
                elif isinstance(node, SlicedSoftmaxNode):
                    node.require_prefix(known(node.inputs[1]))
            except NodeError as found:
                where = source.file_info(node.location)
                problem = f"{type(node).__name__}: {found.problem}\n  {where}"
                raise IndexOutOfRange(problem) from error

    @cached_property
    def memory(self) -> MemoryPlan:
        """Which memory the nodes need, and where it lies, as the memory model of the lab says."""
        return plan_memory(self.node)

    @property
    def plan(self) -> str:
        """The memory of the nodes, and what the backend runs and where that lies, as text."""
        return f"{self.memory}\n\n{self.computation.plan.table()}\n"

    @property
    def account(self) -> Account:
        """What fusion did to the model, in ops, kernels and bytes; a table as text."""
        return self.computation.account


class HamKaasPlugin:
    """A compiler of models for a backend.

    `backend` is the name of a backend of weft. A path, where a shared library of the lab would be,
    is accepted and nothing is loaded from it: the default backend is used. So it is without any.
    Other options are those of the backend.
    """

    def __init__(self, backend: str | os.PathLike[str] | None = None, **options: Any) -> None:
        name = None if backend is None or _is_path(backend) else os.fspath(backend)
        if name is not None:
            plugins.load(plugins.BACKENDS, name)
        self.backend = name
        self.options = options

    def compile_model(
        self, node: HamKaasNode, use_gpu: bool = False, use_cudnn: bool = False
    ) -> HamKaasModel:
        """Return a node compiled.

        With `use_gpu` it runs on an NVIDIA GPU (backend cupy) or on a GPU of OpenCL; raises
        BackendError if there is none. `use_cudnn` asks for matrix products and elementwise nodes in
        one kernel: that is what fusion makes of them anyway. Raises NodeError for what is no node,
        and for two inputs or constants of one name.
        """
        if not isinstance(node, HamKaasNode):
            raise NodeError(f"A model is compiled from a node, not from {node!r:.100}")
        if use_gpu:
            return HamKaasModel(node, gpu_transformer(self.backend, self.options))
        return HamKaasModel(node, weft.make_transformer(self.backend, **self.options))

    def inverse_elements(self, tensor: Any) -> Any:
        """Return 1 over each element of a float32 tensor of any shape; raises NodeError for a 0."""
        if not is_tensor(tensor) or dtype_name(tensor.dtype) != "float32":
            found = dtype_name(tensor.dtype) if is_tensor(tensor) else type(tensor).__name__
            raise NodeError(f"inverse_elements takes a float32 tensor, not {found}")
        array = as_array(tensor)
        if not array.all():
            at = tuple(np.argwhere(array == 0)[0].tolist())
            raise NodeError(f"Division by zero (element = {at})")
        return like(np.asarray(np.float32(1) / array), tensor)


_ON_GPUS = ("cupy", "opencl")
"""The backends that can compute on a GPU, the best first."""


def _is_path(name: str | os.PathLike[str]) -> bool:
    text = os.fspath(name)
    return not isinstance(name, str) or os.path.basename(text) != text or "." in text


def _is_gpu(transformer: Any) -> bool:
    """Whether neighbouring work items of the device have neighbouring elements."""
    return not transformer.processor.is_serial


def gpu_transformer(backend: str | None, options: Mapping[str, Any]) -> Transformer:
    """Return a transformer that computes on a GPU: by the backend if it can, else by one that can.

    Raises BackendError, with what is missing, if there is none.
    """
    reasons = []
    for name in [backend] if backend in _ON_GPUS else _ON_GPUS:
        usable = plugins.backend_status(str(name)).usable
        if not usable:
            reasons.append(f"  {name}: {usable.reason}")
            continue
        transformer = weft.make_transformer(name, **(options if name == backend else {}))
        if _is_gpu(transformer):
            return transformer
        transformer.close()
        reasons.append(f"  {name}: its device is no GPU, but {usable.reason}")
    raise BackendError("use_gpu=True, but no GPU can be used:\n" + "\n".join(reasons))

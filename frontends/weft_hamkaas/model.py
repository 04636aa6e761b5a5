"""HamKaasModel: nodes compiled for a backend, ready for evaluation."""

from __future__ import annotations

import os
import reprlib
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import weft
from weft import Computation, Transformer, plugins
from weft.errors import BackendError, IndexOutOfRange
from weft.plan.fusion_statistics import FusionStatistics
from weft.runtime.out_of_memory import note_largest_tensors
from weft.support.locks import cached_property
from weft_hamkaas.errors import KindError, NodeError
from weft_hamkaas.inputs import Inputs
from weft_hamkaas.lowering import lower
from weft_hamkaas.memory import MemoryPlan, plan_memory
from weft_hamkaas.nodes import (
    BufferTensor,
    ConstantTensor,
    HamKaasNode,
    InputTensor,
)
from weft_hamkaas.tensors import as_array, dtype_name, is_tensor, is_torch, is_torch_dtype, like
from weft_hamkaas.traversal import TraversalResult, evaluation_order, traverse_node


class HamKaasModel:
    """A compiled model, created by `HamKaasPlugin.compile_model`.

    Its buffers are initialized to zeros, and keep their values until the model is freed.

    Attributes
    ----------
    node
        The root.
    traversal
        The script, the constants, the inputs and the output.
    computation
        The computation of weft.
    """

    def __init__(self, node: HamKaasNode, transformer: Transformer) -> None:
        close = weakref.finalize(self, transformer.close)
        close.atexit = False
        try:
            self._compile(node, transformer)
        except BaseException:
            close()
            raise

    def _compile(self, node: HamKaasNode, transformer: Transformer) -> None:
        self.node = node
        self.traversal: TraversalResult = traverse_node(node)
        order = evaluation_order(node)
        self._inputs = Inputs(order)
        self._like = _example(order)
        lowered = lower(node)
        self.computation: Computation = transformer.computation(
            lowered.results, *lowered.inputs.values(), name="hamkaas"
        )
        try:
            transformer.initialize()
        except MemoryError as error:
            note_largest_tensors(error, self.computation.graph)
            raise

    def evaluate(self, inputs: Mapping[str, Any] | None = None) -> Any:
        """Evaluate the model for inputs by name, and return the value of the root.

        The result is a new array. It is a torch tensor if an input or a constant is one, or if the
        dtype of an input or a buffer is torch's. Without inputs the argument may be omitted.
        Raises KindError if the argument is not a mapping, NodeError for an input that is unknown,
        missing, or has a wrong type or shape, and IndexOutOfRange for bounds and prefixes out of
        range, before any write. A MemoryError has the lines of the largest requests.
        """
        given = {} if inputs is None and not self._inputs.names else inputs
        if not isinstance(given, Mapping):
            names = ", ".join(self._inputs.names) or "none"
            raise KindError(
                f"Inputs are a mapping of names to tensors, not {reprlib.repr(given)} "
                f"(there are {names})"
            )
        arrays = self._inputs.arrays(given)
        try:
            result = self.computation(*arrays)[0]
        except MemoryError as error:
            note_largest_tensors(error, self.computation.graph)
            raise
        except IndexOutOfRange as error:
            raise self._inputs.explained(error, arrays) from error
        for tensor in given.values():
            if type(tensor) is not np.ndarray and is_torch(tensor):
                return like(result, tensor)
        return result if self._like is None else like(result, self._like)

    @cached_property
    def memory(self) -> MemoryPlan:
        """The memory plan of the nodes, by the memory model of the course."""
        return plan_memory(self.node)

    @property
    def plan(self) -> str:
        """The memory plan of the nodes and the plan of the backend, as text."""
        return f"{self.memory}\n\n{self.computation.plan.table()}\n"

    @property
    def fusion_statistics(self) -> FusionStatistics:
        """The statistics of fusion: ops, kernels and bytes; a table as text."""
        return self.computation.fusion_statistics


def _example(order: Iterable[HamKaasNode]) -> Any:
    """Return a torch tensor among the constants, else a torch dtype of a node, else None."""
    dtypes = []
    for node in order:
        if isinstance(node, ConstantTensor) and is_torch(tensor := node.get_tensor()):
            return tensor
        if isinstance(node, InputTensor | BufferTensor) and is_torch_dtype(node.get_type()):
            dtypes.append(node.get_type())
    return next(iter(dtypes), None)


class HamKaasPlugin:
    """A compiler of models for a backend.

    `backend` is the name of a backend of weft. For compatibility a path of a shared library is
    accepted, but not loaded; the default backend is used then, as without an argument.
    Other options are those of the backend.
    """

    def __init__(self, backend: str | os.PathLike[str] | None = None, **options: Any) -> None:
        if not isinstance(backend, str | bytes | os.PathLike | None):
            found = reprlib.repr(backend)
            raise KindError(f"A backend is given by its name, or as a path, not as {found}")
        name = None if backend is None or _is_path(backend) else os.fspath(backend)
        if name is not None:
            plugins.load(plugins.BACKENDS, name)
        self.backend = name
        self.options = options

    def compile_model(
        self, node: HamKaasNode, use_gpu: bool = False, use_cudnn: bool = False
    ) -> HamKaasModel:
        """Compile a node.

        With `use_gpu` the model runs on an NVIDIA GPU (backend cupy) or on a GPU of OpenCL; raises
        BackendError if there is none. `use_cudnn` has no effect: fusion always merges matrix
        products with elementwise nodes. Raises NodeError for duplicate names of inputs or constants
        and for a constant without a value, KindError if the argument is not a node, and MemoryError
        with the lines of the largest requests if memory is exhausted.
        """
        if use_gpu:
            return HamKaasModel(node, gpu_transformer(self.backend, self.options))
        return HamKaasModel(node, weft.make_transformer(self.backend, **self.options))

    def inverse_elements(self, tensor: Any) -> Any:
        """Return the reciprocals of a float32 tensor's elements; raises NodeError for a 0.

        A result larger than any float32, as for some subnormal numbers, is infinite.
        """
        if not is_tensor(tensor) or dtype_name(tensor.dtype) != "float32":
            found = dtype_name(tensor.dtype) if is_tensor(tensor) else type(tensor).__name__
            raise NodeError(f"inverse_elements takes a float32 tensor, not {found}")
        array = as_array(tensor)
        if not array.all():
            at = tuple(np.argwhere(array == 0)[0].tolist())
            raise NodeError(f"Division by zero (element = {at})")
        with np.errstate(over="ignore"):
            return like(np.asarray(np.float32(1) / array), tensor)


_ON_GPUS = ("cupy", "opencl")
"""The backends for GPUs, in order of preference."""


def _is_path(name: str | os.PathLike[str]) -> bool:
    text = os.fspath(name)
    return not isinstance(name, str) or os.path.basename(text) != text or "." in text


def _is_gpu(transformer: Any) -> bool:
    """Whether kernels for the device use its parallel form, which is for GPUs."""
    return not transformer.processor.is_serial


def gpu_transformer(backend: str | None, options: Mapping[str, Any]) -> Transformer:
    """Return a transformer on a GPU: of the given backend if it is for GPUs, else of any that is.

    Raises BackendError with the reasons if there is none.
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
        reasons.append(f"  {name}: its device is not a GPU, but {usable.reason}")
    raise BackendError("use_gpu=True, but no GPU can be used:\n" + "\n".join(reasons))

"""A whole backend on one page: it interprets a program, one op after the other.

Instead of a rule for each op it runs the op's reference meaning in NumPy. The memory is the host's,
laid out as the plan says: in one arena, views over it, results straight in the caller's arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import CompositeOp, DeviceBufferStorage, DeviceTensor, Op, Target, Transformer
from weft.description import TensorDescription
from weft.device import host_view
from weft.hookspecs import hookimpl
from weft.plan import INPUT, Step
from weft.program import Program

WEFT_API = "1.0"


class ToyTensor(DeviceTensor):
    """A view of host memory."""

    def attach(self) -> None:
        """Find the elements in the buffer, which has memory now."""
        self.array = host_view(self.description, self.storage.memory)

    def get(self, out: Any = None) -> np.ndarray:
        """Copy the elements into `out`, or into a new array, and return it."""
        if out is None:
            return self.array.copy()
        out[...] = self.array
        return out

    def __getitem__(self, key: Any) -> np.ndarray:
        return np.array(self.array[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = value


class ToyBuffer(DeviceBufferStorage):
    """Host memory."""

    def allocate(self) -> None:
        """Make the memory, filled with zeros."""
        self.memory = np.zeros(self.bytes, np.uint8)

    def make_tensor(self, description: TensorDescription) -> ToyTensor:
        """Return a tensor on this buffer."""
        return ToyTensor(self, description)


class ToyTransformer(Transformer):
    """The toy backend."""

    transformer_name = "toy"

    @property
    def target(self) -> Target:
        """Any primitive; composites are decomposed before they get here."""
        return Target("toy", supports=_is_primitive, fast_math=self.fast_math)

    def device_buffer_storage(self, nbytes: int, name: str) -> ToyBuffer:
        """Return a new, unallocated buffer."""
        return ToyBuffer(self, nbytes, name)

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Return a function that interprets the steps."""
        inputs = len(program.graph.inputs)

        def place(op: Op, description: TensorDescription, arrays: Sequence[Any]) -> np.ndarray:
            tensor = program.tensors.get(op)
            if tensor is not None:
                return tensor.array
            buffer = description.base
            owner = buffer.owner if buffer.kind == INPUT else inputs + buffer.owner
            return host_view(description, arrays[owner])

        def run(*arrays: np.ndarray) -> None:
            for step in ordered_ops:
                operands = zip(step.op.args, step.args, strict=True)
                with np.errstate(all="ignore"):
                    value = step.op.reference(*(place(*each, arrays) for each in operands))
                if not step.op.has_effect:
                    place(step.op, step.out, arrays)[...] = value

        return run


def _is_primitive(op: Op) -> bool:
    return not isinstance(op, CompositeOp)


@hookimpl
def weft_register_backends(register: Callable[[str, type[Transformer]], None]) -> None:
    """Register the backend."""
    register("toy", ToyTransformer)

"""The interface of backends: the methods that a backend's transformer implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from weft.cache.serialization import Deserializer, Serializer
from weft.errors import BackendError
from weft.ir.op import Op
from weft.ir.target import Target
from weft.plan.plan import Step
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.runtime.device_arrays import HOST, DeviceArrays
from weft.runtime.program import Program
from weft.support.overrides import misfit


class BackendInterface(ABC):
    """The interface of a backend: its target, buffers and executable code.

    `target`, `device_buffer_storage` and `transform_ordered_ops` are abstract; the rest has
    defaults.
    """

    transformer_name: ClassVar[str] = ""
    is_concurrent: ClassVar[bool] = False
    """Whether programs without state may run in several threads at once."""
    survives_fork: ClassVar[bool] = True
    """Whether memory and code can be used in a forked process; else they are not even released."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        problem = misfit(cls, "weft")
        if problem:
            raise BackendError(f"{problem}: weft calls it with these, by position")

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return a description of the device, or None and the reason why there is none."""
        return "the host's processor", ""

    @property
    def device_name(self) -> str:
        """The name of the device, as profiles show it."""
        return "the host's processor"

    @property
    def threads(self) -> int | None:
        """The most threads of the host that a call uses; None for a device of its own."""
        return None

    def on_one_thread(self) -> AbstractContextManager[None] | None:
        """Return a context in which kernels run on one thread; None if the backend has none."""
        return None

    @property
    def device_arrays(self) -> DeviceArrays:
        """The arrays in which results can stay on the device; those of NumPy for the host."""
        return HOST

    @property
    @abstractmethod
    def target(self) -> Target:
        """The capabilities of the backend."""

    @abstractmethod
    def device_buffer_storage(self, nbytes: int, name: str) -> DeviceBufferStorage:
        """Return a new, unallocated buffer."""

    @abstractmethod
    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Return a callable that runs the steps.

        It takes the input arrays, C-contiguous and of the right dtype and shape, then for each
        result a C-contiguous array to write to; each may be one of `device_arrays` if
        `program.on_device`. The memory of operands and results is given by `program.tensors` and,
        for memory of the caller, by the layout in the step.
        """

    shares_code: bool = False
    """Whether `lower` is there, so that programs for several lengths share code."""

    def lower(self, program: Program) -> None:
        """Generate the code of a planned program for `export`, without compiling it.

        Lengths may be `TracedLength` objects: what text says of one is replaced later.
        """
        raise NotImplementedError

    def code_options(self) -> Sequence[Any]:
        """Return the inputs of code generation beside graph, target and passes, for the cache key.

        These are numbers, text, dtypes, and functions and classes with importable names.
        """
        return ()

    def export(self, program: Program, packing: Serializer) -> Any:
        """Return the code of a compiled program as JSON; None if that is not supported.

        `packing` says places in memory, values and lines of source as JSON. It raises
        NotCanonical where it cannot, which may pass: the program is not kept then.
        """
        return None

    def restore(self, program: Program, unpacking: Deserializer) -> Callable[..., None]:
        """Return the callable for a program of which `unpacking.code` is what `export` returned.

        Replaces `transform_ordered_ops`: there are no steps, and no plan until it is accessed.
        """
        raise NotImplementedError

    def start_transform_allocate(self) -> None:  # noqa: B027
        """Prepare for the transformation of allocations."""

    def finish_transform_allocate(self) -> None:  # noqa: B027
        """Finish the transformation of allocations."""

    def arena_storage(self, program: Program) -> DeviceBufferStorage:
        """Return a new, unallocated arena for a program, and for smaller ones."""
        return self.device_buffer_storage(program.arena_size, "arena")

    def constant_storage(self, op: Op) -> DeviceBufferStorage:
        """Return a buffer for a constant, whose value is copied after allocation."""
        nbytes = self.target.whole_words(op.const.nbytes)
        return self.device_buffer_storage(nbytes, f"constant {op.name}")

    def finish_transform(self) -> None:  # noqa: B027
        """Finish the transformation of computations, which have executors now."""

    def set_constant(self, tensor: DeviceTensor, op: Op) -> None:
        """Copy the host value of a constant to the device."""
        tensor[...] = op.const

    def set_initial(self, tensor: DeviceTensor, op: Op) -> None:
        """Copy the initial value of a state, a constant, to the device."""
        tensor[...] = op.const

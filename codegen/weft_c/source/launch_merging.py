"""Launch merging: a sequence of small launches as one kernel.

A launch costs some microseconds, and the first one of each kernel tens of milliseconds in some
drivers, however little it does. On a serial device a launch of one work item is a function call, so
a kernel can make several of them. Launches that access the same memory as different types are not
merged: compilers assume that pointers of different types do not alias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft_c.source.code import Code
from weft_c.source.functions import Function, GPUKernel, Parameter

MAX_FUNCTIONS, MAX_PARAMETERS = 16, 64
"""The most calls and parameters of a merged kernel; OpenCL guarantees room for 128 pointers."""


class LaunchMerger:
    """Collects consecutive launches that become one kernel."""

    def __init__(self) -> None:
        self.kernels: list[GPUKernel] = []
        self._types: dict[Any, list[tuple[int, int, str]]] = {}
        self._places: set[Any] = set()

    def takes(self, kernel: GPUKernel) -> bool:
        """Whether a launch can join the kernel of those collected so far."""
        places = self._places | {_place(layout) for layout in kernel.args}
        return (
            len(self.kernels) < MAX_FUNCTIONS
            and len(places) <= MAX_PARAMETERS
            and not any(map(self._has_another_type, kernel.args, kernel.function.parameters))
        )

    def add(self, kernel: GPUKernel) -> None:
        """Add a launch."""
        self.kernels.append(kernel)
        for layout, parameter in zip(kernel.args, kernel.function.parameters, strict=True):
            self._places.add(_place(layout))
            if layout is not None:
                first, size = layout.byte_range
                known = self._types.setdefault(layout.base, [])
                known.append((first, first + size, parameter.ctype))

    def _has_another_type(self, layout: TensorDescription | None, parameter: Parameter) -> bool:
        if layout is None:
            return False
        first, size = layout.byte_range
        return any(
            first < end and start < first + size and ctype != parameter.ctype
            for start, end, ctype in self._types.get(layout.base, ())
        )

    def merged(self) -> GPUKernel | None:
        """Return the collected launches as one, or None if there are none, and start over."""
        kernels, self.kernels, self._types, self._places = self.kernels, [], {}, set()
        return _merged(kernels) if len(kernels) > 1 else next(iter(kernels), None)


def is_small(kernel: GPUKernel) -> bool:
    """Whether a launch has one work item and no error word."""
    return kernel.items == 1 and kernel.function.group == 1 and None not in kernel.args


def _place(layout: TensorDescription | None) -> Any:
    return None if layout is None else (layout.base, layout.byte_range[0], layout.dtype)


def _merged(kernels: Sequence[GPUKernel]) -> GPUKernel:
    """Return the launch of a kernel that calls the functions of several launches."""
    code = Code()
    names: dict[Any, str] = {}
    args: dict[str, TensorDescription | None] = {}
    types: dict[str, str] = {}
    written: set[str] = set()
    ops: dict[Op, None] = {}
    for kernel in kernels:
        passed = []
        for layout, parameter in zip(kernel.args, kernel.function.parameters, strict=True):
            key = (_place(layout), parameter.ctype)
            name = names.setdefault(key, f"p{len(names)}")
            args[name], types[name] = _larger(args.get(name), layout), parameter.ctype
            if parameter.is_written:
                written.add(name)
            passed.append(name)
        code.line(f"{kernel.function.device_function_name}({', '.join(passed)});")
        ops.update(dict.fromkeys(kernel.ops))
    parameters = tuple(Parameter(name, types[name], name in written) for name in args)
    callees = tuple({kernel.function.name: kernel.function for kernel in kernels}.values())
    title = f"{callees[0].title}_and_{len(kernels) - 1}_more"
    function = Function(title, parameters, str(code), 1, callees)
    return GPUKernel(function, tuple(args.values()), 1, tuple(ops))


def _larger(
    one: TensorDescription | None, other: TensorDescription | None
) -> TensorDescription | None:
    """Return the tensor that covers more bytes, of two that begin at the same one."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda layout: layout.byte_range[1])

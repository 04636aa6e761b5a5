"""Lowering rules and kernel builders: from a step of a plan to launches of functions in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.description import TensorDescription, row_major
from weft.ir.dtypes import DType
from weft.ir.guards import NUMBER
from weft.ir.op import Op
from weft.ir.rules import RuleTable
from weft.plan.plan import Step
from weft.support.dispatch import ClassTable
from weft_c.processor import Processor
from weft_c.source.code import Address, Code
from weft_c.source.functions import (
    Function,
    GPUKernel,
    HostCall,
    LibraryCall,
    Parameter,
    ctype,
)
from weft_c.source.index_types import is_wide
from weft_c.source.numbers import TABLE, loads, require_constant_sizes
from weft_c.source.values import ValueEmitter

rules = RuleTable("c")
"""Rules of backends that are programmed in C: functions of an op and the `Lowering` of its step.

A plugin adds some in the group ``weft.rules`` with entry names ``c.<name>``.
"""

_scratch = ClassTable[Callable[[Any, Processor], int]]()


def needs_scratch(*kinds: type[Op]) -> Callable[[Any], Any]:
    """Decorate a function of op and processor that returns the bytes of scratch memory of ops."""

    def mark(function: Callable[[Any, Processor], int]) -> Callable[[Any, Processor], int]:
        for kind in kinds:
            _scratch[kind] = function
        return function

    return mark


def scratch_bytes(op: Op, processor: Processor) -> int:
    """Return the bytes of scratch memory that the rule of an op needs."""
    rule = _scratch.nearest(type(op))
    return 0 if rule is None else rule(op, processor)


def lower(step: Step, processor: Processor) -> list[GPUKernel | LibraryCall | HostCall]:
    """Return the launches and host calls of a step in order; KeyError for an op without a rule."""
    lowering = Lowering(step, processor)
    rules[type(step.op)](step.op, lowering)
    return lowering.work


class Lowering:
    """The lowering of one step: a rule appends launches and host calls to `work`.

    Attributes
    ----------
    step, processor
        The step, and the processor that it is lowered for.
    work
        The launches and host calls so far, in order.
    """

    def __init__(self, step: Step, processor: Processor) -> None:
        self.step = step
        self.processor = processor
        self.work: list[GPUKernel | LibraryCall | HostCall] = []
        self._taken = 0

    @property
    def args(self) -> tuple[TensorDescription, ...]:
        """The layouts of the operands."""
        return self.step.args

    @property
    def out(self) -> TensorDescription:
        """The layout of the result."""
        return self.step.out

    def kernel(self, title: str) -> KernelBuilder:
        """Begin a kernel; `KernelBuilder.launch` ends it."""
        return KernelBuilder(self, title)

    def host(
        self, work: Callable[..., Any], args: Sequence[TensorDescription], written: Sequence[int]
    ) -> None:
        """Append a call of a Python function with arrays.

        `written` are the positions in `args` of the arrays that it overwrites; it does not read
        them.
        """
        self.work.append(HostCall(work, tuple(args), tuple(written), self.step.op))

    def library(self, name: str, args: Sequence[TensorDescription]) -> None:
        """Append a call of the device's BLAS, as described by `LibraryCall`."""
        self.work.append(LibraryCall(name, tuple(args), self.step.op))

    def scratch(self, shape: Sequence[int], dtype: DType) -> TensorDescription:
        """Allocate scratch memory of the step, within the bytes that `needs_scratch` computed."""
        memory = self.step.workspace
        assert memory is not None, "rules with scratch memory declare its size"
        strides, offset = row_major(shape, dtype.itemsize), memory.offset + self._taken
        tensor = TensorDescription(tuple(shape), dtype, strides, offset, memory.base)
        self._taken += -(-tensor.nbytes // 256) * 256
        assert self._taken <= memory.nbytes + 255, "scratch memory is as large as declared"
        return tensor


class Array:
    """An array that a kernel accesses: the name of its pointer, and strides in elements."""

    def __init__(self, code: Code, name: str, layout: TensorDescription, start: int) -> None:
        self.code = code
        self.name = name
        self.layout = layout
        self.dtype = layout.dtype
        self.start = start
        self.strides = tuple(stride // layout.dtype.itemsize for stride in layout.strides)
        self._cast = "(i64)" if is_wide(layout) else ""

    def at(self, *indices: str | int) -> Address:
        """Return the address of the element at an index for each dimension.

        Offsets that may exceed 32 bits are computed in 64 bits, whatever the type of the indices.
        """
        terms = [
            str(index) if stride == 1 else f"{self._cast}{_parenthesized(index)} * {stride}"
            for index, stride in zip(indices, self.strides, strict=True)
            if stride and index != 0
        ]
        if self.start or not terms:
            terms.append(str(self.start))
        return Address(self.name, " + ".join(terms))

    def get(self, *indices: str | int) -> str:
        """Return the scalar at an index for each dimension."""
        return ValueEmitter(self.code).load(self.dtype, self.at(*indices))

    def set(self, value: str, *indices: str | int) -> str:
        """Return the statement that stores a scalar at an index for each dimension."""
        return ValueEmitter(self.code).store(self.dtype, self.at(*indices), value)


def _parenthesized(index: str | int) -> str:
    text = str(index)
    return text if text.replace("_", "").isalnum() else f"({text})"


class KernelBuilder:
    """Builds a kernel: its code, its parameters, and its launch.

    Attributes
    ----------
    code
        The lines of its body so far.
    """

    def __init__(self, lowering: Lowering, title: str, within: KernelBuilder | None = None) -> None:
        """Begin a kernel, or share the code and parameters of the builder `within`."""
        self.lowering = lowering
        self.processor = lowering.processor
        self.title = title
        self.code: Code = Code() if within is None else within.code
        self._parameters: list[Parameter] = [] if within is None else within._parameters
        self._args: list[TensorDescription | None] = [] if within is None else within._args
        self._known: dict[tuple[TensorDescription, TensorDescription, bool], Array] = (
            {} if within is None else within._known
        )

    def array(
        self,
        hint: str,
        layout: TensorDescription,
        written: bool = False,
        within: TensorDescription | None = None,
    ) -> Array:
        """Return an array, adding a parameter to the kernel where it is new.

        `within` is the part of it that is accessed, where loops end before `layout` does.
        """
        covered = layout if within is None else within
        array = self._known.get((layout, covered, written))
        if array is None:
            name = self.code.name(hint)
            first, _ = covered.byte_range
            start = (
                layout.offset - first // self.alignment * self.alignment
            ) // layout.dtype.itemsize
            array = Array(self.code, name, layout, start)
            self._known[layout, covered, written] = array
            self._parameters.append(Parameter(name, ctype(layout.dtype), written))
            self._args.append(covered)
        return array

    @property
    def alignment(self) -> int:
        """The alignment of addresses, in bytes."""
        return self.processor.alignment

    def report(self, code: int) -> str:
        """Return the statement that reports an error code, such as an index out of range."""
        if None not in self._args:
            self._parameters.append(Parameter("error_word", "i32", True))
            self._args.append(None)
        return f"REPORT(error_word, {code});"

    def launch(self, items: int, group: int = 1) -> None:
        """End the kernel; launch it with `items` work items, a multiple of the group size."""
        code = self.code
        body, calls, shuffles = str(code), tuple(code.calls), code.shuffles
        if NUMBER in body:
            table = code.name("numbers")
            self._parameters.append(Parameter(table, "i64", False))
            self._args.append(TABLE)
            require_constant_sizes(body)
            body = loads(body, table) + body
        function = Function(self.title, tuple(self._parameters), body, group, (), calls, shuffles)
        step = self.lowering.step
        self.lowering.work.append(GPUKernel(function, tuple(self._args), items, (step.op,)))

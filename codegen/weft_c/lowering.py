"""Lowering: from a step of a plan to launches of functions in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.description import TensorDescription, row_major
from weft.ir.dtypes import DType
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
    byte_range,
    ctype,
)
from weft_c.source.index_types import is_wide
from weft_c.source.values import Emitter

rules = RuleTable("c")
"""Rules for backends that are programmed in C: functions of an op and the `Lowering` of its step.

A plugin adds some in the group ``weft.rules`` with entry names ``c.<name>``.
"""

_scratch = ClassTable[Callable[[Any, Processor], int]]()


def needs_scratch(*kinds: type[Op]) -> Callable[[Any], Any]:
    """Mark a function of op and processor as what tells the bytes of scratch memory of ops."""

    def mark(function: Callable[[Any, Processor], int]) -> Callable[[Any, Processor], int]:
        for kind in kinds:
            _scratch[kind] = function
        return function

    return mark


def scratch_bytes(op: Op, processor: Processor) -> int:
    """Return the bytes of scratch memory that an op's rule takes."""
    found = _scratch.nearest(type(op))
    return 0 if found is None else found(op, processor)


def lower(step: Step, processor: Processor) -> list[GPUKernel | LibraryCall | HostCall]:
    """Return what computes a step, in order; raises KeyError for an op without a rule."""
    lowering = Lowering(step, processor)
    rules[type(step.op)](step.op, lowering)
    return lowering.work


class Lowering:
    """One step on its way; a rule fills `work`.

    Attributes
    ----------
    step, processor
        What is computed, and what with.
    work
        What has been found so far, in order.
    """

    def __init__(self, step: Step, processor: Processor) -> None:
        self.step = step
        self.processor = processor
        self.work: list[GPUKernel | LibraryCall | HostCall] = []
        self._taken = 0

    @property
    def args(self) -> tuple[TensorDescription, ...]:
        """Where the operands lie."""
        return self.step.args

    @property
    def out(self) -> TensorDescription:
        """Where the result goes."""
        return self.step.out

    def kernel(self, title: str) -> KernelBuilder:
        """Begin a kernel; `Writing.launch` ends it."""
        return KernelBuilder(self, title)

    def host(
        self, work: Callable[..., Any], args: Sequence[TensorDescription], written: Sequence[int]
    ) -> None:
        """Let the host call a function with arrays.

        It writes every element of those at the places `written`, and reads none of these.
        """
        self.work.append(HostCall(work, tuple(args), tuple(written), self.step.op))

    def library(self, name: str, args: Sequence[TensorDescription]) -> None:
        """Let a library of the device do what it calls so, as `LibraryCall` says."""
        self.work.append(LibraryCall(name, tuple(args), self.step.op))

    def scratch(self, shape: Sequence[int], dtype: DType) -> TensorDescription:
        """Return scratch memory of the step; what `needs_scratch` told must cover all of it."""
        memory = self.step.workspace
        assert memory is not None, "the rule tells how much scratch memory it needs"
        strides, offset = row_major(shape, dtype.itemsize), memory.offset + self._taken
        found = TensorDescription(tuple(shape), dtype, strides, offset, memory.base)
        self._taken += -(-found.nbytes // 256) * 256
        assert self._taken <= memory.nbytes + 255, "scratch memory is as large as told"
        return found


class Array:
    """An array that a kernel reads or writes, by the name of a pointer and strides in elements."""

    def __init__(self, code: Code, name: str, layout: TensorDescription, start: int) -> None:
        self.code = code
        self.name = name
        self.layout = layout
        self.dtype = layout.dtype
        self.start = start
        self.strides = tuple(stride // layout.dtype.itemsize for stride in layout.strides)
        self._cast = "(i64)" if is_wide(layout) else ""

    def at(self, *indices: str | int) -> Address:
        """Return the place of the element at an index for each dimension.

        Where it may be far away, an index of any type is multiplied in 64 bits.
        """
        terms = [
            str(index) if stride == 1 else f"{self._cast}{_parenthesised(index)} * {stride}"
            for index, stride in zip(indices, self.strides, strict=True)
            if stride and index != 0
        ]
        if self.start or not terms:
            terms.append(str(self.start))
        return Address(self.name, " + ".join(terms))

    def get(self, *indices: str | int) -> str:
        """Return the value at an index for each dimension, as a number in a register."""
        return Emitter(self.code).load(self.dtype, self.at(*indices))

    def set(self, value: str, *indices: str | int) -> str:
        """Return the statement that stores a number at an index for each dimension."""
        return Emitter(self.code).store(self.dtype, self.at(*indices), value)


def _parenthesised(index: str | int) -> str:
    text = str(index)
    return text if text.replace("_", "").isalnum() else f"({text})"


class KernelBuilder:
    """A kernel that is being written.

    Attributes
    ----------
    code
        Its lines so far.
    """

    def __init__(self, lowering: Lowering, title: str, within: KernelBuilder | None = None) -> None:
        """Begin a kernel, or a part of one, whose lines and parameters are those of that."""
        self.lowering = lowering
        self.processor = lowering.processor
        self.title = title
        self.code: Code = Code() if within is None else within.code
        self._parameters: list[Parameter] = [] if within is None else within._parameters
        self._args: list[TensorDescription | None] = [] if within is None else within._args
        self._known: dict[tuple[TensorDescription, bool], Array] = (
            {} if within is None else within._known
        )

    def array(
        self,
        hint: str,
        layout: TensorDescription,
        written: bool = False,
        within: TensorDescription | None = None,
    ) -> Array:
        """Return an array at a place, which the kernel takes as a parameter.

        `within` covers what is really read, where loops end before `lies` does.
        """
        found = self._known.get((layout, written))
        if found is None:
            name = self.code.name(hint)
            covered = layout if within is None else within
            first, _ = byte_range(covered)
            start = (
                layout.offset - first // self.alignment * self.alignment
            ) // layout.dtype.itemsize
            found = self._known[layout, written] = Array(self.code, name, layout, start)
            self._parameters.append(Parameter(name, ctype(layout.dtype), written))
            self._args.append(covered)
        return found

    @property
    def alignment(self) -> int:
        """The bytes to which addresses are aligned."""
        return self.processor.alignment

    def report(self, code: int) -> str:
        """Return the statement that reports an error, such as an index out of range."""
        if None not in self._args:
            self._parameters.append(Parameter("error_word", "i32", True))
            self._args.append(None)
        return f"REPORT(error_word, {code});"

    def launch(self, items: int, group: int = 1) -> None:
        """End the kernel, and launch it with so many work items, a multiple of the group."""
        taken, code = tuple(self._parameters), self.code
        calls, shuffles = tuple(code.calls), code.shuffles
        function = Function(self.title, taken, str(code), group, (), calls, shuffles)
        step = self.lowering.step
        self.lowering.work.append(GPUKernel(function, tuple(self._args), items, (step.op,)))

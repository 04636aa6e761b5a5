"""Lowering rules and kernel builders: from a step of a plan to launches of functions in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from weft.errors import ArgumentError, PluginError
from weft.ir.description import TensorDescription, row_major
from weft.ir.dtypes import DType
from weft.ir.guards import NUMBER
from weft.ir.op import Op
from weft.ir.rules import RuleTable
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.plan.plan import Step
from weft.support.backports import override
from weft.support.dispatch import ClassTable
from weft_c.processor import Processor
from weft_c.source.code import Address, Code
from weft_c.source.expressions import Expression
from weft_c.source.functions import (
    Function,
    GPUKernel,
    HostCall,
    LibraryCall,
    Parameter,
    ctype,
)
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.numbers import TABLE, loads, require_constant_sizes
from weft_c.source.values import ValueEmitter


class LoweringRules(RuleTable):
    """The rules of ops in C: functions of an op and the `Lowering` of its step, or expressions."""

    @override
    def add(self, kind: type[Op], rule: Callable[..., Any]) -> None:
        is_elementwise = isinstance(kind, type) and issubclass(kind, ElementwiseOp)
        if isinstance(rule, Expression) and not is_elementwise:
            raise PluginError(
                f"{kind!r} is not an ElementwiseOp, so it has no expression of its elements: "
                "register a function of the op and its Lowering as its rule"
            )
        super().add(kind, rule)

    @override
    def supports(self, op: Op) -> bool:
        rule = self.find(type(op))
        return rule.takes(op) if isinstance(rule, Expression) else rule is not None

    def refusal(self, op: Op) -> str:
        """Return why there is no rule that computes an op; empty where there is none for it."""
        rule = self.find(type(op))
        if not isinstance(rule, Expression) or not isinstance(rule.text, Mapping):
            return ""
        return f"its expression in C takes {', '.join(rule.text)}, not {op.args[0].dtype}"

    def is_own(self, op: Op) -> bool:
        """Whether weft itself brings the rule of an op."""
        found = self.registration(type(op))
        return found is None or found.module.partition(".")[0] == __package__

    def expression(self, op: Op) -> Expression | None:
        """Return the expression that computes an op; None if there is none for its dtypes."""
        rule = self.find(type(op))
        return rule if isinstance(rule, Expression) and rule.takes(op) else None


rules = LoweringRules("c")
"""The rules of all backends that are programmed in C: `native`, `opencl` and `cupy`.

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
        """Allocate scratch memory of the step, within the bytes that `needs_scratch` computed.

        Raises PluginError for more, each piece rounded up to 256 bytes.
        """
        memory = self.step.workspace
        if memory is None:
            self._refuse("takes scratch memory without a function under weft_c.needs_scratch")
        strides, offset = row_major(shape, dtype.itemsize), memory.offset + self._taken
        tensor = TensorDescription(tuple(shape), dtype, strides, offset, memory.base)
        self._taken += -(-tensor.nbytes // 256) * 256
        if self._taken > memory.nbytes + 255:
            self._refuse(f"takes more scratch memory than the {memory.nbytes} bytes it asked for")
        return tensor

    def require_written(self) -> None:
        """Raise PluginError if there is a result that no launch or host call writes."""
        written = {layout.base for work in self.work for layout in _written_by(work)}
        for out in self.step.outs:
            if out.base not in written and 0 not in out.shape:
                self._refuse("launches nothing that writes the result: parallel_for and launch do")

    def _refuse(self, problem: str) -> NoReturn:
        raise PluginError(self.step.op.explain(f"its rule {problem}"))


def _written_by(work: GPUKernel | LibraryCall | HostCall) -> Iterator[TensorDescription]:
    """Yield the layouts of what a launch or a host call writes."""
    match work:
        case GPUKernel():
            for layout, parameter in zip(work.args, work.function.parameters, strict=True):
                if parameter.is_written and layout is not None:
                    yield layout
        case HostCall():
            yield from (work.args[place] for place in work.written)
        case LibraryCall():
            yield work.args[-1]


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

        Raises ArgumentError for another number of indices. Offsets that may exceed 32 bits are
        computed in 64 bits, whatever the type of the indices.
        """
        if len(indices) != len(self.strides):
            raise ArgumentError(
                f"the array {self.name} has the shape {self.layout.shape}, so it takes "
                f"{len(self.strides)} indices, not {len(indices)}"
            )
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

    @property
    def is_wide(self) -> bool:
        """Whether indices into any of the arrays so far need 64 bits."""
        return is_wide(*[layout for layout in self._args if layout is not None])

    @property
    def index_type(self) -> str:
        """The type of counters and indices in C: ``i32``, or ``i64`` for a large array."""
        return index_type(self.is_wide)

    def report(self, code: int) -> str:
        """Return the statement that reports an error code, such as an index out of range."""
        if None not in self._args:
            self._parameters.append(Parameter("error_word", "i32", True))
            self._args.append(None)
        return f"REPORT(error_word, {code});"

    def launch(self, items: int, group: int = 1) -> None:
        """End the kernel; launch it with `items` work items, a multiple of the group size."""
        code = self.code
        body, calls, helpers = str(code), tuple(code.calls), tuple(code.helpers)
        if NUMBER in body:
            table = code.name("numbers")
            self._parameters.append(Parameter(table, "i64", False))
            self._args.append(TABLE)
            require_constant_sizes(body)
            body = loads(body, table) + body
        parameters = tuple(self._parameters)
        function = Function(self.title, parameters, body, group, (), calls, helpers, code.shuffles)
        step = self.lowering.step
        self.lowering.work.append(GPUKernel(function, tuple(self._args), items, (step.op,)))

"""Serialization of a program's functions and segments as JSON, for the compile cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.plan.plan import Step
from weft_c.runtime.control_flow import Conditional, Control, Repeat, While
from weft_c.runtime.segments import Launch, Segment, SegmentBuilder
from weft_c.source.functions import Function, GPUKernel, HostCall, LibraryCall, Parameter
from weft_c.source.numbers import TABLE

if TYPE_CHECKING:
    from weft.cache.serialization import Deserializer, Serializer
    from weft_c.runtime.kernel_group import GPUKernelGroup


_NUMBERS = "numbers"
"""What stands for the table of numbers among arguments."""


def serialize(group: GPUKernelGroup, serializer: Serializer) -> Any:
    """Return the functions and segments of a group; raises NotCanonical for unsupported values."""
    called = {each.name: each for f in group.source.functions.values() for each in f.callees}
    functions = {**called, **group.source.functions}
    numbers = {name: number for number, name in enumerate(functions)}
    return {
        "functions": [
            [
                f.title,
                [[p.name, p.ctype, p.is_written] for p in f.parameters],
                f.body,
                f.group,
                [numbers[each.name] for each in f.callees],
                f.calls,
                f.helpers,
                f.shuffles,
                [serializer.origin(order) for order in group.source.locations.get(f.name, ())],
            ]
            for f in functions.values()
        ],
        "segments": _SegmentSerializer(group, serializer, numbers).segments(group.segments),
    }


class _SegmentSerializer:
    """Serializes segments; functions are referred to by their index."""

    def __init__(
        self, group: SegmentBuilder, serializer: Serializer, numbers: Mapping[str, int]
    ) -> None:
        self.serializer = serializer
        self.numbers = numbers
        self.reports = {report.word: report for report in group.reports}

    def segments(self, segments: Sequence[Segment]) -> list[Any]:
        return [
            [[self.launch(*each) for each in segment.kernels], self.host(segment.host)]
            for segment in segments
        ]

    def launch(self, kernel: Launch, word: int | None) -> Any:
        tensors = [self.argument(layout) for layout in kernel.args]
        if isinstance(kernel, LibraryCall):
            return [kernel.name, tensors, 0, self.origins((kernel.op,)), None]
        reported: Any = None
        if kernel.is_guarded:
            reported = "guarded"
        elif word is not None:
            report = self.reports[word]
            op, places = self.serializer.value(report.step.op), self.places(report.step.args)
            reported = [report.start, op, places]
        number = self.numbers[kernel.function.name]
        return [number, tensors, kernel.items, self.origins(kernel.ops), reported]

    def argument(self, layout: TensorDescription | None) -> Any:
        if layout is None or layout is TABLE:
            return None if layout is None else _NUMBERS
        return self.serializer.tensor(layout)

    def host(self, work: HostCall | Control | None) -> Any:
        match work:
            case None:
                return None
            case Repeat(count, segments):
                return {"repeat": [count, self.segments(segments)]}
            case While(test, flag, segments):
                inner = self.segments(test), self.segments(segments)
                return {"while": [inner[0], self.serializer.tensor(flag), inner[1]]}
            case Conditional(flag, then, otherwise):
                inner = self.segments(then), self.segments(otherwise)
                return {"choice": [self.serializer.tensor(flag), *inner]}
            case _:
                called, op = self.serializer.value(work.work), self.serializer.value(work.op)
                return {"call": [called, self.places(work.args), list(work.written), op]}

    def places(self, tensors: Iterable[TensorDescription]) -> list[int]:
        return [self.serializer.tensor(layout) for layout in tensors]

    def origins(self, ops: Iterable[Op]) -> list[int]:
        return [self.serializer.origin(each.order) for op in ops for each in op.contained or (op,)]


def restore(group: GPUKernelGroup, deserializer: Deserializer) -> None:
    """Add the functions and segments that `serialize` returned to an empty group."""
    functions: list[Function] = []
    for each in deserializer.code["functions"]:
        title, parameters, body, size, called, calls, helpers, shuffles, origins = each
        inner = tuple(functions[number] for number in called)
        function_parameters = tuple(Parameter(*each) for each in parameters)
        function = Function(
            *(title, function_parameters, body, size, inner),
            *(tuple(calls), tuple(helpers), shuffles),
        )
        functions.append(function)
        group.source.locations[function.name] = {
            origin: location
            for origin in origins
            if (location := deserializer.location(origin)) is not None
        }
    _SegmentDeserializer(group, deserializer, functions).segments(deserializer.code["segments"])


class _SegmentDeserializer:
    """Adds serialized segments to a group."""

    def __init__(
        self, group: SegmentBuilder, deserializer: Deserializer, functions: Sequence[Function]
    ) -> None:
        self.group = group
        self.deserializer = deserializer
        self.tensor = deserializer.tensor
        self.functions = functions

    def segments(self, described: Sequence[Any]) -> None:
        group = self.group
        group.segments.clear()
        for launches, host in described:
            group.segments.append(Segment())
            for each in launches:
                self.launch(*each)
            if host is not None:
                ((kind, content),) = host.items()
                _HOST[kind](self, *content)
                group.segments.pop()  # the next iteration begins the segment that follows

    def inside(self, described: Sequence[Any]) -> list[Segment]:
        with self.group.inside() as segments:
            self.segments(described)
        return segments

    def launch(
        self, number: Any, tensors: Any, items: int, origins: list[int], reported: Any
    ) -> None:
        op = self.op(origins)
        if isinstance(number, str):
            library = LibraryCall(number, tuple(map(self.tensor, tensors)), op)
            self.group.add_work(library, Step(op, (), ()), 0)
            return
        args = tuple(map(self.argument, tensors))
        is_guarded = reported == "guarded"
        kernel = GPUKernel(self.functions[number], args, items, (op,), is_guarded)
        self.group.source.functions.setdefault(kernel.function.name, kernel.function)
        start, step = 0, Step(op, (), ())
        if reported is not None and not is_guarded:
            start, serialized_op, operands = reported
            step = Step(
                self.deserializer.value(serialized_op), (), tuple(map(self.tensor, operands))
            )
        self.group.add_work(kernel, step, start)

    def argument(self, number: Any) -> TensorDescription | None:
        if number is None or number == _NUMBERS:
            return None if number is None else self.deserializer.table
        return self.tensor(number)

    def call(self, work: Any, places: Any, written: Any, op: Any) -> None:
        called, args = _callable(self.deserializer.value(work)), tuple(map(self.tensor, places))
        host = HostCall(called, args, tuple(written), self.deserializer.value(op))
        self.group.add_work(host, Step(host.op, (), ()), 0)

    def repeat(self, count: int, segments: Any) -> None:
        self.group.add_control(Repeat(count, self.inside(segments)))

    def while_(self, test: Any, flag: int, segments: Any) -> None:
        inner = self.inside(test), self.inside(segments)
        self.group.add_control(While(inner[0], self.tensor(flag), inner[1]))

    def choice(self, flag: int, then: Any, otherwise: Any) -> None:
        inner = self.inside(then), self.inside(otherwise)
        self.group.add_control(Conditional(self.tensor(flag), *inner))

    def op(self, origins: list[int]) -> Op:
        """Return the first op of the captured graph that a kernel stems from, or any op."""
        return self.deserializer.structure.all_ops[next((o for o in origins if o >= 0), 0)]


_HOST: Mapping[str, Callable[..., None]] = {
    "call": _SegmentDeserializer.call,
    "repeat": _SegmentDeserializer.repeat,
    "while": _SegmentDeserializer.while_,
    "choice": _SegmentDeserializer.choice,
}


def _callable(value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"{value!r} is not a function that the host can call")
    return value  # type: ignore[no-any-return]

"""The work of a kernel group as JSON, so that another process need not lower it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weft import source
from weft.description import TensorDescription
from weft.kernels.c.function import Function, GPUKernel, HostCall, LibraryCall, Parameter
from weft.kernels.c.group import GPUKernelGroup, Segment
from weft.op import Op
from weft.plan import Step

if TYPE_CHECKING:
    from weft.packing import Packing, Unpacking


def packed(group: GPUKernelGroup, packing: Packing) -> Any:
    """Return the functions and the work of a group; raises NotDescribable where that cannot be."""
    called = {each.name: each for f in group.source.functions.values() for each in f.inner}
    functions = {**called, **group.source.functions}
    numbers = {name: number for number, name in enumerate(functions)}
    steps = {report.word: report for report in group.reports}
    segments = []
    for segment in group.segments:
        kernels = []
        for kernel, word in segment.kernels:
            tensors = [None if lies is None else packing.tensor(lies) for lies in kernel.args]
            if isinstance(kernel, LibraryCall):
                kernels.append([kernel.name, tensors, 0, _origins((kernel.op,), packing), None])
                continue
            number = numbers[kernel.function.name]
            reported = None
            if word is not None:
                step = steps[word].step
                reported = [steps[word].start, packing.value(step.op), _places(step.args, packing)]
            kernels.append([number, tensors, kernel.items, _origins(kernel.ops, packing), reported])
        segments.append([kernels, _packed_call(segment.host, packing)])
    return {
        "functions": [
            [
                f.title,
                [[p.name, p.ctype, p.is_written] for p in f.parameters],
                f.body,
                f.group,
                [numbers[each.name] for each in f.inner],
            ]
            for f in functions.values()
        ],
        "segments": segments,
    }


def _places(tensors: tuple[TensorDescription, ...], packing: Packing) -> list[int]:
    return [packing.tensor(lies) for lies in tensors]


def _origins(ops: Iterable[Op], packing: Packing) -> list[int]:
    return [packing.origin(each.order) for op in ops for each in op.contained or (op,)]


def _packed_call(call: HostCall | None, packing: Packing) -> Any:
    if call is None:
        return None
    work, op = packing.value(call.work), packing.value(call.op)
    return [work, _places(call.args, packing), list(call.written), op]


def restore(group: GPUKernelGroup, unpacking: Unpacking) -> None:
    """Add to an empty group what `packed` described."""
    functions: list[Function] = []
    for title, parameters, body, size, called in unpacking.code["functions"]:
        inner = tuple(functions[number] for number in called)
        taken = tuple(Parameter(*each) for each in parameters)
        functions.append(Function(title, taken, body, size, inner))
    tensor = unpacking.tensor
    group.segments.clear()
    for kernels, call in unpacking.code["segments"]:
        group.segments.append(Segment())
        for number, tensors, items, origins, reported in kernels:
            if isinstance(number, str):
                call_op = _op(origins, unpacking)
                library = LibraryCall(number, tuple(map(tensor, tensors)), call_op)
                group.add_work(library, Step(call_op, (), ()), 0)
                continue
            args = tuple(None if place is None else tensor(place) for place in tensors)
            kernel = GPUKernel(functions[number], args, items, (_op(origins, unpacking),))
            _add_function(group, functions[number], origins, unpacking)
            start, step = 0, Step(kernel.ops[0], (), ())
            if reported is not None:
                start, op, operands = reported
                step = Step(unpacking.value(op), (), tuple(map(tensor, operands)))
            group.add_work(kernel, step, start)
        if call is not None:
            work, places, written, op = call
            host = HostCall(
                _callable(unpacking.value(work)),
                tuple(map(tensor, places)),
                tuple(written),
                unpacking.value(op),
            )
            group.add_work(host, Step(host.op, (), ()), 0)
            group.segments.pop()


def _op(origins: list[int], unpacking: Unpacking) -> Op:
    """Return the op of the user that a kernel came from."""
    return unpacking.structure.ops[max(origins[0], 0)]


def _add_function(
    group: GPUKernelGroup, function: Function, origins: list[int], unpacking: Unpacking
) -> None:
    """Add a function with the user's lines to the source."""
    name = function.name
    group.source.functions.setdefault(name, function)
    lines = group.source.lines.setdefault(name, {})
    for origin in origins:
        location = unpacking.location(origin)
        if location is not None:
            lines[source.file_info(location)] = None


def _callable(value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"{value!r} is not what the host can call")
    return value  # type: ignore[no-any-return]

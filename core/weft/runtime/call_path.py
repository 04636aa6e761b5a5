"""Generates the function between a call and its program: argument tests, results, lock.

Per argument there is one test of type, dtype and shape; everything else takes the slow road of
`Arguments.coerce`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.ir.op import Op
from weft.runtime import result_pool
from weft.runtime.device_arrays import HOST
from weft.support.quoting import harmless
from weft.transforms.computation_op import single

if TYPE_CHECKING:
    from weft.runtime.computation import Computation
    from weft.runtime.program import Program


def make_executor(
    computation: Computation, program: Program, bound: Mapping[int, Any] | None = None
) -> Callable[..., Any]:
    """Return a generated function from arguments to packed results.

    For each argument it tests type, dtype and shape, and leaves everything else to the slow road;
    the lock is taken only if the program touches state. `bound` has the arguments, by number, that
    are the same in each call: the function does not take them, and tests nothing.
    """
    graph, bound = program.captured, bound or {}
    names = [f"a{number}" for number in range(len(graph.inputs))]
    scope: dict[str, Any] = {
        "__name__": "weft.generated",
        "kind": computation.arrays.kind, "is_ready": computation.arrays.is_ready,
        "coerce": computation.coerce,
        "pack": computation.pack, "with_none": computation.with_none,
    }  # fmt: skip

    def first_run(*arrays: Any) -> None:
        run = computation.ready_to_run(program)
        run(*arrays)
        computation.transformer.note_writes(program)
        scope["run"] = run

    scope.update({names[number]: array for number, array in bound.items()})
    taken = [number for number in range(len(names)) if number not in bound]
    lines = [f"def call({', '.join(names[number] for number in taken)}):"]
    for number in taken:
        op = graph.inputs[number]
        scope[f"d{number}"], scope[f"s{number}"] = op.dtype, op.axes.shape
        contiguous = (
            f" or not a{number}.flags.c_contiguous"
            if op.rank > 1
            else (f" or a{number}.strides != ({op.dtype.itemsize},)" if op.rank else "")
        )
        if program.on_device:
            contiguous += f" or not is_ready(a{number})"
        lines.append(
            f"    if type(a{number}) is not kind or a{number}.dtype is not d{number} "
            f"or a{number}.shape != s{number}{contiguous}:"
        )
        scope[f"axes{number}"] = op.axes
        lines.append(f"        a{number} = coerce({number}, a{number}, axes{number})")
    ran, results = running(computation, program, names, first_run, scope)
    lines += ran
    lines.append(f"    return {_packed(computation, results)}")
    exec(compile("\n".join(lines), f"<weft call of {harmless(computation.name)}>", "exec"), scope)
    computation.calls.add(scope["call"])
    return scope["call"]  # type: ignore[no-any-return]


def running(
    computation: Computation,
    program: Program,
    names: Sequence[str],
    run: Callable[..., None],
    scope: dict[str, Any],
) -> tuple[list[str], list[str]]:
    """Return lines that make results and run a program, and expressions for the results.

    `names` are those of the arguments, which have the right types. What the lines refer to goes
    into `scope`.
    """
    outputs = program.captured.outputs
    arrays = computation.arrays
    empty = np.empty if arrays is HOST else arrays.empty
    scope.update(run=run, empty=empty, lock=computation.transformer.state_lock)
    lines = []
    # What checks the results looks at the arguments of a call afterwards.
    end = ".copy()" if computation.checks_finite else ""
    taken = {result: f"{names[number]}{end}" for result, number in program.donated.items()}
    if taken and not computation.checks_finite:
        scope["writable"] = arrays.writable
        lines.append(_writable_line(names, program.donated.values()))
    if len(outputs) > FEW:
        given, results = ["*results"], [f"results[{number}]" for number in range(len(outputs))]
        scope["takes"] = [
            None if number in taken else _result_allocator(output, computation)
            for number, output in enumerate(outputs)
        ]
        lines.append("    results = [take and take() for take in takes]")
        lines += [f"    {results[number]} = {array}" for number, array in taken.items()]
    else:
        given = results = [f"r{number}" for number in range(len(outputs))]
        lines += _result_lines(outputs, computation, taken, scope)
    call = f"run({', '.join([*names, *given])})"
    if program.states or not computation.transformer.is_concurrent:
        lines += ["    with lock:", f"        {call}"]
    else:
        lines.append(f"    {call}")
    return lines, results


def make_dispatcher(
    executors: Mapping[tuple[Any, ...], Callable[..., Any]],
    arity: int,
    otherwise: Callable[..., Any],
) -> Callable[..., Any]:
    """Return a function that runs the executor for the shapes of its arguments.

    `otherwise` is called with the arguments if there is none.
    """
    dispatcher: Callable[..., Any] = _dispatcher_factory(arity)(executors, otherwise)
    return dispatcher


@cache
def _dispatcher_factory(arity: int) -> Callable[..., Any]:
    names = [f"a{number}" for number in range(arity)]
    args = ", ".join(names)
    lines = [
        "def factory(executors, otherwise):",
        f"    def dispatch({args}):",
        "        try:",
        f"            run = executors[{''.join(f'{name}.shape, ' for name in names) or '()'}]",
        "        except (AttributeError, KeyError, TypeError):",
        "            run = otherwise",
        f"        return run({args})",
        "    return dispatch",
    ]
    scope: dict[str, Any] = {"__name__": "weft.generated"}
    exec(compile("\n".join(lines), "<weft dispatch by shapes>", "exec"), scope)
    return scope["factory"]  # type: ignore[no-any-return]


FEW = 16
"""The results up to which each has a line of its own, quick to run but slow to compile."""


def _writable_line(names: Sequence[str], donated: Iterable[int]) -> str:
    """Return the line that makes sure that donated arguments may be overwritten."""
    first = [names[number] for number in donated]
    both = ", ".join(dict.fromkeys([*first, *names]))
    return f"    {both}, = writable([{both}], {len(first)})"


def _result_lines(
    outputs: Iterable[Op],
    computation: Computation,
    taken: Mapping[int, str],
    scope: dict[str, Any],
) -> Iterator[str]:
    """Yield the lines that make memory for results, one for each, but for those in `taken`."""
    for number, output in enumerate(outputs):
        if number in taken:
            yield f"    r{number} = {taken[number]}"
        elif computation.arrays is not HOST or _is_small(output):
            scope[f"t{number}"], scope[f"z{number}"] = output.dtype, output.axes.shape
            yield f"    r{number} = empty(z{number}, t{number})"
        else:
            scope[f"take{number}"] = _result_allocator(output, computation)
            yield f"    r{number} = take{number}()"


def _result_allocator(output: Op, computation: Computation) -> Callable[[], Any]:
    """Return a function that makes memory for a result of a computation."""
    shape, dtype = output.axes.shape, output.dtype
    if computation.arrays is not HOST or _is_small(output):
        return partial(computation.arrays.empty, shape, dtype)
    what = f"{output} of {dtype} {shape}, {output.file_info}"
    return result_pool.ResultPool(shape, dtype, f"a result of {computation.name}, {what}").take


def _is_small(output: Op) -> bool:
    return output.nbytes < result_pool.SMALLEST


def _packed(computation: Computation, results: Sequence[str]) -> str:
    """Return the expression for the structure of the results, with None for those without value."""
    if len(results) > FEW:
        is_all = len(results) == len(computation.results)
        return "pack(results)" if is_all else "pack(with_none(results))"
    each = iter(results)
    values = [next(each) if op.is_tensor else "None" for op in computation.results]
    if computation.pack is single:
        return values[0]
    if computation.pack is tuple:
        return f"({', '.join(values)},)" if values else "()"
    return f"pack([{', '.join(values)}])"

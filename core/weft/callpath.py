"""The way from a call to a program, generated so that a call only does what must wait for it.

Per argument there is one test of type, dtype and shape; everything else takes the slow road of
`Computation.coerce`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import recycling
from weft.errors import ArgumentError
from weft.graph import Graph
from weft.op import Op

if TYPE_CHECKING:
    from weft.program import Computation, Program


def make_executor(computation: Computation, program: Program) -> Callable[..., Any]:
    """Return a generated function from arguments to packed results.

    For each argument it tests type, dtype and shape, and leaves everything else to the slow road;
    the lock is taken only if the program touches state.
    """
    graph = program.captured
    names = [f"a{number}" for number in range(len(graph.inputs))]
    scope: dict[str, Any] = {
        "__name__": "weft.generated",
        "ndarray": np.ndarray, "empty": np.empty, "run": program.run, "coerce": computation.coerce,
        "lock": computation.transformer.state_lock, "pack": computation.pack,
    }  # fmt: skip
    lines = [f"def {_identifier(computation.name)}({', '.join(names)}):"]
    for number, op in enumerate(graph.inputs):
        scope[f"d{number}"], scope[f"s{number}"] = op.dtype, op.axes.shape
        contiguous = (
            f" or not a{number}.flags.c_contiguous"
            if op.rank > 1
            else (f" or a{number}.strides != ({op.dtype.itemsize},)" if op.rank else "")
        )
        lines.append(
            f"    if type(a{number}) is not ndarray or a{number}.dtype is not d{number} "
            f"or a{number}.shape != s{number}{contiguous}:"
        )
        scope[f"axes{number}"] = op.axes
        lines.append(f"        a{number} = coerce({number}, a{number}, axes{number})")
    outputs = []
    for number, output in enumerate(graph.outputs):
        scope[f"t{number}"], scope[f"z{number}"] = output.dtype, output.axes.shape
        if output.axes.size * output.dtype.itemsize < recycling.SMALLEST:
            lines.append(f"    r{number} = empty(z{number}, t{number})")
        else:
            scope[f"take{number}"] = recycling.Recycled(output.axes.shape, output.dtype).take
            lines.append(f"    r{number} = take{number}()")
        outputs.append(f"r{number}")
    call = f"run({', '.join([*names, *outputs])})"
    if program.states or not computation.transformer.is_concurrent:
        lines += ["    with lock:", f"        {call}"]
    else:
        lines.append(f"    {call}")
    rest = iter(outputs)
    values = [next(rest) if op.is_tensor else "None" for op in computation.results]
    lines.append(f"    return {_packed(computation, values)}")
    exec(compile("\n".join(lines), f"<weft call of {computation.name}>", "exec"), scope)
    return scope[_identifier(computation.name)]  # type: ignore[no-any-return]


def _packed(computation: Computation, values: list[str]) -> str:
    if computation.pack is single:
        return values[0]
    if computation.pack is tuple:
        return f"({', '.join(values)},)" if values else "()"
    return f"pack([{', '.join(values)}])"


def _identifier(name: str) -> str:
    return "call_" + "".join(letter if letter.isalnum() else "_" for letter in name)


def single(values: Sequence[Any]) -> Any:
    """Return the only value, for a computation of one op."""
    return values[0]


def _nothing(values: Sequence[Any]) -> None:
    return None


def structure(results: Any) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], Any]]:
    """Return the flat results, and how to give values the structure that the user asked for."""
    if results is None:
        return (), _nothing
    if isinstance(results, Op):
        return (results,), single
    if isinstance(results, Graph):
        return results.outputs, tuple
    if isinstance(results, Mapping):
        keys = list(results)
        return tuple(results.values()), lambda values: dict(zip(keys, values, strict=True))
    if isinstance(results, list | tuple):
        return tuple(results), tuple
    if not isinstance(results, Iterable):
        raise ArgumentError(f"a computation returns ops, not {results!r}")
    ops = tuple(results)
    return ops, lambda values: dict(zip(ops, values, strict=True))

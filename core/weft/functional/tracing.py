"""Tracing: calls a Python function once, with ops in place of arrays, and captures its graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, WeftError
from weft.functional import trees
from weft.functional.trees import Structure
from weft.ir import dtypes, scope
from weft.ir.dlpack import from_dlpack
from weft.ir.dtypes import Array
from weft.ir.graph import Graph
from weft.ir.op import Op, next_serial
from weft.ir.storage import AssignOp, ParameterOp, constant, placeholder
from weft.ir.tensor import TensorOp
from weft.ir.traced import close_arguments, explain_leak, open_arguments
from weft.ops.random.philox import counts_calls
from weft.support import source
from weft.support.source import Location
from weft.transforms.capture import capture, capture_closure

Function = Callable[..., Any]
"""A function of the user, or one that transforms it."""

_depth: ContextVar[int] = ContextVar("weft_tracing", default=0)

is_tracing: Callable[[], int] = _depth.get
"""Returns how many functions are being traced in this thread or task, each within the last one."""


class Trace(NamedTuple):
    """What a function built.

    Attributes
    ----------
    graph
        Its outputs are the leaves of the results, in order.
    structure
        The structure of the results.
    """

    graph: Graph
    structure: Structure


class Body(NamedTuple):
    """A function as a graph, for control flow.

    Attributes
    ----------
    what
        The function for messages.
    graph
        Its outputs are the leaves of the results; its last inputs are what the function takes from
        its surroundings.
    structure
        The structure of the results.
    free
        What the function takes from its surroundings.
    is_number
        Whether the function returned a Python number, for each output.
    """

    what: str
    graph: Graph
    structure: Structure
    free: tuple[TensorOp, ...]
    is_number: tuple[bool, ...]

    def with_outputs(self, outputs: Sequence[TensorOp]) -> Body:
        """Return a body with these ops, of its graph or built from them, as the outputs."""
        return self._replace(graph=self.graph.replace(outputs=outputs))

    def taking(self, free: Sequence[TensorOp]) -> Body:
        """Return a body that takes these from its surroundings, which include its own."""
        count = len(self.graph.inputs) - len(self.free)
        own = dict(zip(self.free, self.graph.inputs[count:], strict=True))
        taken = [
            own[op] if op in own else ParameterOp(source=op, target_axes=op.axes) for op in free
        ]
        graph = self.graph.replace(inputs=[*self.graph.inputs[:count], *taken])
        return self._replace(graph=graph, free=tuple(free))


@contextmanager
def tracing(parameters: Iterable[Op] = ()) -> Iterator[None]:
    """Call a function of these inside as part of a trace: nested transformations build ops."""
    token = _depth.set(_depth.get() + 1)
    try:
        yield
    finally:
        _depth.reset(token)
        close_arguments(parameters)


def holds_ops(leaves: Iterable[Any]) -> bool:
    """Whether one of the leaves is an op."""
    return any(isinstance(leaf, Op) for leaf in leaves)


def name_of(function: Function) -> str:
    """Return the name of a function for messages."""
    return getattr(function, "__name__", None) or type(function).__name__


def location_of(function: Function) -> Location | None:
    """Return file and line of a user's function; None for one that has no Python code."""
    own = getattr(function, "__wrapped__", function)
    code = getattr(own, "__code__", None)
    if code is None or source.is_internal(own.__module__):
        return None
    return code.co_filename, code.co_firstlineno


def parameters_for(
    function: Function,
    names: Sequence[str],
    types: Iterable[tuple[Any, Any]],
    static: Container[str] = (),
) -> list[Any]:
    """Return placeholders for the leaves of a function's arguments, of (axes, dtype) each.

    `static` names those that may be made static.
    """
    location = location_of(function)
    with scope.located(location) if location else scope.captured_ops():
        parameters = [
            placeholder(axes, dtype, name=name)
            for name, (axes, dtype) in zip(names, types, strict=True)
        ]
    open_arguments(parameters, name_of(function), names, static)
    return parameters


def trace(
    function: Callable[[], Any], parameters: Sequence[Any], name: str, may_write: bool = False
) -> Trace:
    """Return what a call of a function without arguments builds, with all its effects.

    `may_write` allows it to use states. Raises ArgumentError for a result that is not a tensor, for
    an op of another traced function that is still in use after its call, and for a use of states
    that is not allowed.
    """
    with tracing(parameters), scope.saved_user_deps(), scope.captured_ops() as built:
        try:
            result = function()
        except RecursionError as error:
            raise ArgumentError(
                f"{name} calls itself without end while it is traced: a condition on traced values "
                "cannot end a recursion, use weft.while_loop or weft.fori_loop"
            ) from error
        leaves, structure = trees.flatten(result)
        ops = _results(leaves, structure, name)
        effects = effects_among(built)
        graph = capture([*ops, *effects], parameters, name)
    graph = graph.replace(outputs=graph.outputs[: len(ops)])
    for state in graph.states:
        if state.is_placeholder:
            raise ArgumentError(explain_leak(name, graph, state))
        if not may_write:
            raise ArgumentError(_refusal_of_state(name, state, effects))
    return Trace(graph, structure)


def trace_body(
    function: Function,
    structure: Structure,
    types: Iterable[tuple[Any, Any]],
    what: str,
    names: Sequence[str],
) -> Body:
    """Return a function of arguments of a structure as a graph.

    `types` are axes and dtype of each leaf. Raises ArgumentError for a result that is not a tensor.
    """
    before = next_serial()
    parameters = parameters_for(function, names, types)
    with tracing(parameters), scope.saved_user_deps(), scope.captured_ops() as built:
        result = function(*trees.unflatten(structure, parameters))
        leaves, returned = trees.flatten(result)
        ops = _results(leaves, returned, what)
        _refuse_lost_writes(built, {*parameters}, what)
        effects = effects_among(built)
        graph, free = capture_closure([*ops, *effects], parameters, before, name_of(function))
    is_number = tuple(isinstance(leaf, bool | int | float | complex) for leaf in leaves)
    body = Body(what, graph, returned, free, is_number)
    return body.with_outputs(graph.outputs[: len(ops)])


def _refuse_lost_writes(built: Iterable[Op], own: Container[Op], what: str) -> None:
    """Raise ArgumentError where a body writes an argument of a function around it.

    It sees a copy, so that function would not see the new value.
    """
    for op in built:
        if isinstance(op, AssignOp) and op.args[0].is_placeholder and op.args[0] not in own:
            problem = f"the body writes {op.args[0]}, which is not its own ({op.file_info})"
            raise ArgumentError(f"{what}: {problem}: return the new value, and carry it in a loop")


def effects_among(built: Iterable[Op]) -> list[Op]:
    """Return the effects among ops, without writes of what states that were built hold at first."""
    return [
        op
        for op in built
        if op.has_effect and not (isinstance(op, AssignOp) and op in op.args[0].initializers)
    ]


def _refusal_of_state(name: str, state: Op, effects: Iterable[Op]) -> str:
    if counts_calls(state):
        return (
            f"{name} draws random numbers ({state.file_info}) that are new at every call, counted "
            "by a state, which belongs to a transformer: take a key as an argument and draw from "
            "that, as in weft.random.uniform(key, shape), or give the transformer, as in jit(f, "
            "backend=transformer)"
        )
    written = any(isinstance(op, AssignOp) and op.args[0] is state for op in effects)
    verb = "writes" if written else "reads"
    return (
        f"{name} {verb} the state {state} ({state.file_info}), whose values belong to a "
        "transformer: take it as an argument and return its new value, or give the transformer, as "
        "in jit(f, backend=transformer)"
    )


def _results(leaves: Iterable[Any], structure: Structure, what: str) -> list[TensorOp]:
    names = trees.paths(structure, "result")
    return [
        op_of(leaf, f"{what}: {name}", "return tensors and numbers, the rest is known before")
        for leaf, name in zip(leaves, names, strict=True)
    ]


def op_of(leaf: Any, what: str, way: str = "") -> TensorOp:
    """Return a leaf as a tensor op; raises ArgumentError for what is not a number or array.

    `way` says what to do instead.
    """
    if isinstance(leaf, TensorOp):
        return leaf
    if isinstance(leaf, Op):
        raise ArgumentError(f"{what}: {leaf!r} yields no tensor")
    return constant(array_of(leaf, what, way))


def ops_like(
    structure: Structure, tree: Any, what: str, called: str, root: str
) -> Iterator[tuple[TensorOp, str]]:
    """Yield the leaves of a tree as ops, each with how messages name it.

    Raises ArgumentError if the tree, which is `called` so, has another structure.
    """
    leaves = trees.leaves_like(structure, tree, f"{what}: the tree of {called}", root)
    for leaf, path in zip(leaves, trees.paths(structure, root), strict=True):
        where = f"{what}: {path}"
        yield op_of(leaf, where), where


def array_of(leaf: Any, what: str, way: str = "") -> Array:
    """Return a leaf as an array.

    Python numbers become bool, int64, float32 or complex64; arrays keep their dtype, those of other
    libraries too, whose memory is shared if it is the host's. Raises ArgumentError for anything
    else.
    """
    if type(leaf) is np.ndarray:
        array = leaf
    elif isinstance(leaf, np.generic):
        array = np.asarray(leaf)
    elif isinstance(leaf, bool | int | float | complex):
        array = _number(leaf, what)
    else:
        array = _foreign(leaf, what, way)
    try:
        dtypes.as_dtype(array.dtype)
    except WeftError:
        raise ArgumentError(_no_array(what, f"an array of {array.dtype}", way)) from None
    return array


_NUMBERS = ((bool, "bool"), (int, "int64"), (float, "float32"), (complex, "complex64"))
"""The dtypes of Python's numbers."""


def _number(number: complex, what: str) -> Array:
    dtype = next(dtype for kind, dtype in _NUMBERS if isinstance(number, kind))
    try:
        return np.asarray(number, dtype)
    except OverflowError:
        raise ArgumentError(f"{what} is {number}, which does not fit {dtype}") from None


def _foreign(leaf: Any, what: str, way: str) -> Array:
    """Return an array of another library as one of NumPy's, sharing its memory if it can."""
    try:
        if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray):
            return from_dlpack(leaf)
        if hasattr(leaf, "__array__"):
            return np.asarray(leaf)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        problem = f"{what}: {type(leaf).__name__} cannot be read as an array of the host: {error}"
        raise ArgumentError(problem) from error
    if isinstance(leaf, Iterable) and not isinstance(leaf, str | bytes):
        way = f"{type(leaf).__name__} is not a part of trees, make a tuple, list or dict of it"
    raise ArgumentError(_no_array(what, repr(leaf), way))


def _no_array(what: str, kind: str, way: str) -> str:
    return f"{what} is {kind:.80}, not a number or an array{way and ': '}{way}"

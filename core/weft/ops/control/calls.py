"""Calls, loops and conditionals over graphs.

A called graph may read and write states. The op then takes their values as further operands and
yields their new values as further results, which are written at the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from weft.errors import ArgumentError, AxesError, DTypeError, StateError, WeftError
from weft.ir import dtypes, scope
from weft.ir.graph import Graph, exchanges
from weft.ir.op import Op, explain
from weft.ir.results import results_of
from weft.ir.state_lifting import LiftedGraph, carrying, function_of, writing
from weft.ir.storage import AssignOp, ParameterOp, as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.control.effects import DecisionOp
from weft.ops.control.graph_ops import (
    RESULTS,
    AfterOp,
    CallOp,
    CondOp,
    GraphsOp,
    LoopOp,
    SavedOp,
    WhileOp,
)
from weft.ops.control.scans import ScanOp, as_scan
from weft.ops.pointwise.elementwise import cast
from weft.ops.shape.movement import broadcast, transpose

__all__ = [
    "AfterOp",
    "CallOp",
    "CondOp",
    "LoopOp",
    "SavedOp",
    "WhileOp",
    "call",
    "loop",
    "saved",
]

G = TypeVar("G", bound=GraphsOp)


def call(graph: Graph, *args: Any) -> tuple[TensorOp, ...]:
    """Return the outputs of a call of a graph.

    States are read and written at the call; computing any result performs the writes.

    Parameters
    ----------
    graph
        The graph, which `capture` returns.
    args
        A value for each input, which is cast and broadcast to it.

    Returns
    -------
    tuple of TensorOp
        The outputs.

    Raises
    ------
    ArgumentError
        If there are more or fewer arguments than inputs.
    AxesError
        If an argument does not broadcast to its input.
    DTypeError
        If an argument does not convert to the dtype of its input.

    Examples
    --------
    >>> x = weft.placeholder((2,))
    >>> graph = weft.capture([2 * x + 1], [x])
    >>> (y,) = weft.call(graph, [1.0, 2.0])
    >>> weft.make_transformer().computation(y)()
    array([3., 5.], dtype=float32)
    """
    return call_op(graph, *args).results


def call_op(graph: Graph, *args: Any) -> CallOp:
    """Return the op of `call`."""
    lifted = _lifted("call", graph)
    op = CallOp(*_operands("call", graph, args), *lifted.reads, graph=lifted.graph)
    return _with_writes(op, len(graph.outputs), lifted.writes)


def loop(graph: Graph, count: int, *args: Any, recompute: bool = False) -> tuple[TensorOp, ...]:
    """Return the outputs of a graph after a number of iterations, each on the outputs of the last.

    Parameters
    ----------
    graph
        The body, which `capture` returns. The loop carries as many values as it has outputs.
    count
        The number of iterations; 0 gives the initial values.
    args
        The initial values of what is carried, then what each iteration is given alike.
    recompute
        Whether the gradient computes values of the body again, for each iteration from what it
        carries, instead of keeping them all.

    Returns
    -------
    tuple of TensorOp
        The outputs of the last iteration.

    Raises
    ------
    ArgumentError
        If there are more or fewer arguments than inputs, or the number is not an integer, or is
        negative.
    AxesError
        If an argument or output does not fit its input.
    DTypeError
        If an argument or output does not convert to the dtype of its input.

    Examples
    --------
    >>> x = weft.placeholder()
    >>> double = weft.capture([2 * x], [x])
    >>> (y,) = weft.loop(double, 10, 1.0)
    >>> weft.make_transformer().computation(y)()
    array(1024., dtype=float32)
    """
    count = checked_integer("loop", "the count", count, 0)
    if not count:
        return _not_at_all(graph, args)
    return loop_op(graph, count, *args, recompute=recompute).results


def loop_op(graph: Graph, count: int, *args: Any, recompute: bool = False) -> LoopOp | ScanOp:
    """Return the op of `loop`, for at least one iteration."""
    lifted = _lifted("loop", graph)
    operands = _operands("loop", graph, args)
    carried, _ = _split("loop", graph, operands)
    ordered, states = carrying(lifted, len(carried))
    op: LoopOp | ScanOp
    op = LoopOp(*_reordered(graph, operands, lifted, states), graph=ordered, count=count)
    if recompute:
        op = as_scan(op, op.args, recompute=True)
    return _with_writes(op, len(graph.outputs), lifted.writes)


def scan_op(graph: Graph, args: Sequence[Any], **fields: Any) -> ScanOp:
    """Return the op of a scan; `fields` are its attributes without the graph.

    Raises StateError for a body that writes states.
    """
    lifted = _lifted("scan", graph)
    if lifted.writes:
        names = ", ".join(map(format, lifted.writes))
        problem = f"{graph.name} writes the states {names}: carry their values instead"
        raise StateError(explain("scan", problem, ()))
    return ScanOp(*args, *lifted.reads, graph=lifted.graph, **fields)


def cond(
    condition: TensorLike,
    then_graph: Graph,
    else_graph: Graph,
    then_args: Iterable[Any] = (),
    else_args: Iterable[Any] = (),
) -> tuple[TensorOp, ...]:
    """Return the outputs of one graph if a bool is true, else those of another.

    Only the chosen graph runs, if the backend can branch. The outputs of both have the same axes
    and dtypes. Raises the errors of `call`.
    """
    return cond_op(condition, then_graph, else_graph, then_args, else_args).results


def cond_op(
    condition: TensorLike,
    then_graph: Graph,
    else_graph: Graph,
    then_args: Iterable[Any] = (),
    else_args: Iterable[Any] = (),
) -> CondOp:
    """Return the op of `cond`."""
    one, other = _lifted("cond", then_graph), _lifted("cond", else_graph)
    writes = tuple(dict.fromkeys((*one.writes, *other.writes)))
    count = len(then_graph.outputs)
    one, other = (writing(each, writes, count) for each in (one, other))
    chosen = as_op(condition)
    if any(map(exchanges, (one.graph, other.graph))):
        chosen = DecisionOp(chosen)
    op = CondOp(
        chosen,
        *_operands("cond", then_graph, _branch(then_args)),
        *one.reads,
        *_operands("cond", else_graph, _branch(else_args)),
        *other.reads,
        then_graph=one.graph,
        else_graph=other.graph,
    )
    return _with_writes(op, count, writes)


def while_loop(condition: Graph, body: Graph, *args: Any) -> tuple[TensorOp, ...]:
    """Return the outputs of a graph iterated on its own outputs while a condition holds.

    Both graphs take all arguments. The loop carries as many values as the body has outputs; the
    first arguments are their initial values, the others are loop-invariant. Neither graph may use
    states, and there is no gradient. Raises the errors of `loop`.
    """
    return while_op(condition, body, *args).results


def while_op(condition: Graph, body: Graph, *args: Any) -> WhileOp:
    """Return the op of `while_loop`."""
    for graph in (condition, body):
        if _lifted("while_loop", graph).reads:
            names = ", ".join(f"{state}" for state in function_of(graph).reads)
            problem = f"{graph.name} uses the states {names}: make them inputs and outputs"
            raise ArgumentError(explain("while_loop", problem, ()))
    if any(map(exchanges, (condition, body))) and len(condition.outputs) == 1:
        decision = DecisionOp(condition.outputs[0])
        effects = (*condition.effects, decision)
        condition = condition.replace(outputs=(decision,), effects=effects)
    return WhileOp(*_operands("while_loop", body, args), condition=condition, body=body)


_REPEATABLE = (CallOp, LoopOp, ScanOp)


def saved(of: GraphsOp, op: TensorOp, turn: int = 0) -> TensorOp:
    """Return the value of an inner op of a called graph, in one call of it.

    Parameters
    ----------
    of
        The op of a call, a loop or a scan, whose results depend on it.
    op
        An op of its graph.
    turn
        The iteration of a loop, from 0; the program keeps the values of all.

    Returns
    -------
    TensorOp
        The value of that op; of a scan those of all iterations, stacked.

    Raises
    ------
    ArgumentError
        If the op is not one of the graph, the first argument is not a call, or there is no such
        iteration.

    Examples
    --------
    >>> x = weft.placeholder((2,))
    >>> graph = weft.capture([weft.square(x) + 1], [x])
    >>> (y,) = weft.call(graph, [1.0, 2.0])
    >>> square = graph.outputs[0].args[0]
    >>> weft.make_transformer().computation([y, weft.saved(y.args[0], square)])()
    (array([2., 5.], dtype=float32), array([1., 4.], dtype=float32))
    """
    (value,) = all_saved(of, [op])
    if not isinstance(of, LoopOp) or op.is_constant:
        return value
    if checked_integer("saved", "the iteration", turn, 0) >= of.count:
        raise ArgumentError(explain("saved", f"{of} has {of.count} iterations, not {turn + 1}", ()))
    found: TensorOp = value[turn]
    return found


def all_saved(of: GraphsOp, ops: Sequence[TensorOp]) -> list[TensorOp]:
    """Return the values of several inner ops, of a loop or a scan those of all iterations."""
    if not isinstance(of, _REPEATABLE):
        raise ArgumentError(explain("saved", f"takes a call, a loop or a scan, not {of!r}", ()))
    graph = of.graph
    places = graph.places if isinstance(of, CallOp) else {}
    inside = [op for op in ops if op not in places and not op.is_constant]
    for op in inside:
        if (op.args[0] if isinstance(op, SavedOp) else op) not in graph.members:
            raise ArgumentError(explain("saved", f"{op} is not an op of {graph.name}", (op,)))
    values: dict[Op, TensorOp] = {}
    if inside:
        first = values[inside[0]] = SavedOp(of, inner=inside[0])
        rest = [op for op in dict.fromkeys(inside) if op not in values]
        types = ((op, of.axes_of_saved(op), op.dtype) for op in rest)
        values.update(zip(rest, first.siblings("inner", types), strict=True))
    return [
        of.args[places[op]] if op in places else op if op.is_constant else values[op] for op in ops
    ]


# Arguments


def _lifted(name: str, graph: object) -> LiftedGraph:
    if not isinstance(graph, Graph):
        problem = f"takes a graph, as weft.capture(results, parameters) returns it, not {graph!r}"
        raise ArgumentError(explain(name, problem, ()))
    lifted = function_of(graph)
    _require_own_scope(name, graph, lifted)
    return lifted


def _require_own_scope(name: str, graph: Graph, lifted: LiftedGraph) -> None:
    """Refuse a graph whose writes would also run in the surrounding program."""
    token = scope.current.get().scope
    for state in lifted.writes:
        write = state.last_write(token)
        if write in graph.writes:
            problem = (
                f"the write of {state} in {graph.name} would also run where it was built "
                f"({write.file_info}): build the graph inside `with weft.saved_user_deps():`"
            )
            raise StateError(explain(name, problem, ()))


def _branch(args: Iterable[Any]) -> tuple[Any, ...]:
    """Return the arguments of one branch of a conditional."""
    if isinstance(args, Op | str) or not isinstance(args, Iterable):
        problem = f"the arguments of each graph come in a list, as in [x, y], not {args!r}"
        raise ArgumentError(explain("cond", problem, [args] if isinstance(args, Op) else []))
    return tuple(args)


def _operands(name: str, graph: Graph, args: tuple[Any, ...]) -> tuple[TensorOp, ...]:
    """Return arguments cast and broadcast to the inputs of a graph."""
    if len(args) != len(graph.inputs):
        inputs = ", ".join(f"{op.source}" for op in graph.inputs) or "none"
        problem = f"{graph.name} has {len(graph.inputs)} inputs ({inputs}), not {len(args)}"
        raise ArgumentError(explain(name, problem, [x for x in args if isinstance(x, Op)]))
    return tuple(
        _operand(name, graph, parameter, arg)
        for parameter, arg in zip(graph.inputs, args, strict=True)
    )


def _operand(name: str, graph: Graph, parameter: ParameterOp, arg: TensorLike) -> TensorOp:
    if isinstance(arg, TensorOp) and (arg.dtype, arg.axes) == (parameter.dtype, parameter.axes):
        return arg
    value: TensorOp = constant(arg, dtype=parameter.dtype) if _is_number(arg) else as_op(arg)
    axes = parameter.axes
    if value.dtype != parameter.dtype:
        if dtypes.promote(value.dtype, parameter.dtype) != parameter.dtype:
            problem = f"{_wanted(graph, parameter)}, which {value.dtype} does not convert to"
            raise DTypeError(explain(name, f"{problem}: use cast", (value,)))
        value = cast(value, parameter.dtype)
    if value.axes == axes:
        return value
    try:
        if value.axes.is_named and value.axes.agrees_with(axes):
            return transpose(value, axes)
        return broadcast(value, axes)
    except WeftError:
        problem = f"{_wanted(graph, parameter)}, not {value.axes}"
        raise AxesError(explain(name, problem, (value,))) from None


def _wanted(graph: Graph, parameter: ParameterOp) -> str:
    return f"the input {parameter.source} of {graph.name} is {parameter.dtype} {parameter.axes}"


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float | complex)


def _split(
    name: str, graph: Graph, operands: tuple[TensorOp, ...]
) -> tuple[tuple[TensorOp, ...], tuple[TensorOp, ...]]:
    """Return the loop-carried operands, and the loop-invariant ones."""
    count = len(graph.outputs)
    if count > len(operands):
        problem = f"{graph.name} has {count} outputs, but only {len(operands)} inputs to carry"
        raise ArgumentError(explain(name, problem, operands))
    return operands[:count], operands[count:]


def _not_at_all(graph: Graph, args: tuple[Any, ...]) -> tuple[TensorOp, ...]:
    _lifted("loop", graph)
    operands = _operands("loop", graph, args)
    return _split("loop", graph, operands)[0]


def _reordered(
    graph: Graph, operands: tuple[TensorOp, ...], lifted: LiftedGraph, states: tuple[Any, ...]
) -> tuple[Any, ...]:
    count, written = len(graph.outputs), len(lifted.writes)
    return (*operands[:count], *states[:written], *operands[count:], *states[written:])


def _with_writes(op: G, count: int, states: tuple[Any, ...]) -> G:
    """Write states at a call, and make its results depend on the writes."""
    results = results_of(op)
    writes: list[Any] = [
        AssignOp(state, value) for state, value in zip(states, results[count:], strict=True)
    ]
    values: tuple[TensorOp, ...] = results[:count]
    if writes:
        values = tuple(AfterOp(value, *writes) for value in values)
    op.memo(RESULTS, lambda: values)
    return op


# Checks

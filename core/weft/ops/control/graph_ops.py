"""Ops that run graphs: call, loop, conditional and while.

The graph of such an op is a pure function of its inputs. `weft.ops.control.calls` builds these ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, make_axes
from weft.ir.dtypes import DType
from weft.ir.graph import Graph
from weft.ir.interpreter import evaluate
from weft.ir.results import TupleOp, results_of
from weft.ir.tensor import TensorOp
from weft.ops.shape.movement import IdentityOp
from weft.support.backports import override
from weft.support.locks import cached_property

Evaluate = Callable[[Graph, tuple[Any, ...]], tuple[Any, ...]]
"""A function that returns the outputs of a graph for values of its inputs."""


RESULTS = "results"
"""The key of an op's results in its memo."""

STACK = "STACK"
"""The name of the axis along which rows with named axes are stacked, if nobody gave another."""


class GraphsOp(TupleOp):
    """The base of ops that run graphs; its results are the outputs of the graphs.

    Backends build one function for each graph, so ops with equal graphs share one graph.
    """

    @cached_property
    def has_effect(self) -> bool:
        """Whether an inner op has a side effect."""
        return any(graph.effects for graph in self.graphs)

    @cached_property
    def may_raise(self) -> bool:
        """Whether an inner op may raise."""
        return any(graph.may_raise for graph in self.graphs)

    @cached_property
    @override
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        return tuple((op.axes, op.dtype) for op in self.graphs[-1].outputs)

    @property
    def results(self) -> tuple[TensorOp, ...]:
        """The results as ops."""
        return self.memo(RESULTS, lambda: results_of(self))

    def axes_of_saved(self, op: TensorOp) -> Axes:
        """Return the axes of the value of an inner op, as `SavedOp` gives it."""
        return op.axes

    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the results for operands, using a function that evaluates graphs."""
        raise NotImplementedError

    @override
    def reference(self, *args: Any) -> tuple[Any, ...]:
        return self.run(_evaluated, args)

    def generate_adjoints(self, delta: Any, *args: Any) -> Iterable[Any]:
        """Refuse; `weft.autodiff.call_adjoints` has the rules of those with a gradient."""
        raise NotImplementedError


class CallOp(GraphsOp):
    """A call of a graph: operands are its inputs, results its outputs.

    Attributes
    ----------
    graph
        The called graph, without states.
    """

    graph: Any

    @property
    def graphs(self) -> tuple[Graph, ...]:  # type: ignore[override]
        """The called graph."""
        return (self.graph,)

    @override
    def infer(self) -> tuple[Axes, Any]:
        check_operands(self.graph, self.args)
        return super().infer()

    @override
    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return evaluate(self.graph, args)


class LoopOp(GraphsOp):
    """A loop with a static trip count, whose body is a graph.

    The first operands, one for each output, are the initial values of the loop-carried ones; the
    others are loop-invariant.

    Attributes
    ----------
    graph
        The body of the loop.
    count
        The number of iterations, at least one.
    """

    graph: Any
    count: int
    may_raise = True  # an interrupt, between iterations

    @property
    def graphs(self) -> tuple[Graph, ...]:  # type: ignore[override]
        """The body of the loop."""
        return (self.graph,)

    # What it is as a scan.
    scanned = 0
    reverse = recompute = False
    stack_name = STACK

    @property
    def carried(self) -> int:
        """How many operands are carried."""
        return len(self.graph.outputs)

    @override
    def axes_of_saved(self, op: TensorOp) -> Axes:
        return stacked(op.axes, self.count, self.stack_name)

    def infer(self) -> tuple[Axes, Any]:
        """Check operands against inputs, and inputs against outputs."""
        check_operands(self.graph, self.args)
        check_carried(self.graph, self.graph.outputs)
        return super().infer()

    @override
    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        carried = len(self.graph.outputs)
        for _ in range(self.count):
            args = (*evaluate(self.graph, args), *args[carried:])
        return args[:carried]


class CondOp(GraphsOp):
    """A conditional: a bool selects one of two graphs at the call.

    Operands are the bool, the inputs of the first graph, and the inputs of the second.

    Attributes
    ----------
    then_graph, else_graph
        The graph for true, and the graph for false.
    """

    then_graph: Any
    else_graph: Any

    @property
    def graphs(self) -> tuple[Graph, ...]:  # type: ignore[override]
        """Both branches."""
        return (self.then_graph, self.else_graph)

    def infer(self) -> tuple[Axes, Any]:
        """Check the bool, the operands, and that both branches have the same outputs."""
        _check_bool("the condition", self.args[0])
        place = 1 + len(self.then_graph.inputs)
        check_operands(self.then_graph, self.args[1:place])
        check_operands(self.else_graph, self.args[place:])
        found = [[(op.axes, op.dtype) for op in graph.outputs] for graph in self.graphs]
        if found[0] != found[1]:
            one, other = (", ".join(f"{d} {a}" for a, d in types) for types in found)
            raise AxesError(f"one graph yields {one or 'nothing'}, the other {other or 'nothing'}")
        return super().infer()

    def operands_of(self, which: bool) -> tuple[TensorOp, ...]:
        """Return the operands of one branch."""
        place = 1 + len(self.then_graph.inputs)
        return self.args[1:place] if which else self.args[place:]

    @override
    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        condition, place = bool(args[0]), 1 + len(self.then_graph.inputs)
        chosen = args[1:place] if condition else args[place:]
        return evaluate(self.graphs[not condition], chosen)


class WhileOp(GraphsOp):
    """A while loop: a graph is the body, another one the condition.

    Operands are those of `LoopOp`; the condition takes all of them before each iteration. The op
    has no gradient.

    Attributes
    ----------
    condition
        A graph with a bool as its only output.
    body
        The body of the loop.
    """

    condition: Any
    body: Any

    may_raise = True  # an interrupt, between iterations

    @property
    def graphs(self) -> tuple[Graph, ...]:  # type: ignore[override]
        """The condition and the body."""
        return (self.condition, self.body)

    def infer(self) -> tuple[Axes, Any]:
        """Check operands against inputs, inputs against outputs, and the bool."""
        check_operands(self.condition, self.args)
        check_operands(self.body, self.args)
        check_carried(self.body, self.body.outputs)
        if len(self.condition.outputs) != 1:
            raise ArgumentError("the condition must have one output")
        _check_bool("the output of the condition", self.condition.outputs[0])
        return super().infer()

    @override
    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        carried = len(self.body.outputs)
        while bool(evaluate(self.condition, args)[0]):
            args = (*evaluate(self.body, args), *args[carried:])
        return args[:carried]


class SavedOp(TensorOp):
    """The value of an inner op of a called graph; of a loop or a scan those of all iterations.

    Capture replaces it by a further output of the called graph.

    Attributes
    ----------
    inner
        The op of the called graph.
    """

    inner: Any

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.args[0].axes_of_saved(self.inner), self.inner.dtype

    @property
    def key(self) -> Any:
        """The key of its adjoint in the rule of the operand."""
        return self.inner


class AfterOp(IdentityOp):
    """The first operand, with a dependency on the writes that are the others."""


def stacked(axes: Axes, count: Any, name: str) -> Axes:
    """Return the axes of some values with these axes, stacked along a first axis."""
    return make_axes((Axis(count, name if axes.is_named and axes else None), *axes))


def check_operands(graph: Graph, args: tuple[TensorOp, ...]) -> None:
    """Check operands against the inputs of a graph."""
    if len(args) != len(graph.inputs):
        raise ArgumentError(f"{graph.name} has {len(graph.inputs)} inputs, not {len(args)}")
    for parameter, arg in zip(graph.inputs, args, strict=True):
        if (arg.axes.lengths, arg.dtype) != (parameter.axes.lengths, parameter.dtype):
            raise AxesError(
                f"{arg.dtype} {arg.axes} is given for the input {parameter.source} of "
                f"{graph.name}, which is {parameter.dtype} {parameter.axes}"
            )


def check_carried(graph: Graph, outputs: Iterable[TensorOp]) -> None:
    """Check carried values after an iteration against the inputs of the body."""
    for output, parameter in zip(outputs, graph.inputs, strict=False):
        if (output.axes.lengths, output.dtype) != (parameter.axes.lengths, parameter.dtype):
            raise AxesError(
                f"{graph.name} carries {output.dtype} {output.axes} to its input "
                f"{parameter.source}, which is {parameter.dtype} {parameter.axes}"
            )


def _check_bool(what: str, op: TensorOp) -> None:
    if op.axes or not dtypes.is_bool(op.dtype):
        way = "where() chooses by elements, any() or all() is one" if op.axes else "compare it"
        raise DTypeError(f"{what} must be a bool scalar, not {op.dtype} {op.axes}: {way}")


def _evaluated(graph: Graph, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Evaluate a graph, in wide precision if its operands are wide."""
    wide = any(x.dtype != op.dtype for x, op in zip(args, graph.inputs, strict=True))
    return tuple(evaluate(graph, args, wide=wide)[0])

"""Gradient graphs: turns a graph into the graph of its gradients.

The inputs of a gradient graph are the gradients of the forward graph's outputs, and the forward
values that the adjoint rules read. Its outputs are the gradients of the forward graph's inputs.
Values of cheap ops are recomputed from their operands where that saves fewer bytes. (PopXL's
`autodiff`; reverse accumulation as in `weft.autodiff.reverse`.)

Gradient graphs are cached on their forward graph. The key is the request and the gradient graphs
given for called graphs. So a graph is differentiated once for each set of outputs with gradients,
however often it is called, and earlier requests change no result. A request for the gradient graphs
of all graphs returns one for each graph, which fits every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from weft.autodiff.reverse import Missing, walk_back
from weft.errors import ArgumentError, GradientError
from weft.ir import dtypes, scope
from weft.ir.effects import without_effect
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op, are_same, explain
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp, placeholder
from weft.ir.tensor import TensorOp
from weft.ir.traversal import postorder
from weft.ir.views import may_be_view
from weft.ops.control.calls import all_saved
from weft.ops.control.graph_ops import CallOp, SavedOp, WhileOp
from weft.ops.pointwise.comparison import ComparisonOp, MaximumOp, MinimumOp, WhereOp
from weft.ops.pointwise.elementwise import (
    AddOp,
    CastOp,
    MultiplyOp,
    NegativeOp,
    SquareOp,
    SubtractOp,
    add,
)
from weft.ops.shape.movement import zeros_like
from weft.support.gc_pause import gc_paused
from weft.transforms.inlining import without_saved

__all__ = ["GradientGraph", "autodiff"]

CHEAP = (
    AddOp, CastOp, ComparisonOp, MaximumOp, MinimumOp, MultiplyOp, NegativeOp, SquareOp, SubtractOp,
    WhereOp,
)  # fmt: skip
"""The ops that are cheaper to recompute than to save; views are cheap too."""


@dataclass(frozen=True, eq=False)
class GradientGraph:
    """A gradient graph, and the forward tensors of its inputs and outputs.

    Attributes
    ----------
    graph, forward_graph
        The gradient graph, and the differentiated graph.
    provided
        The forward tensors whose gradients are its first inputs.
    values
        The forward tensors whose values are its other inputs.
    outputs
        The forward inputs whose gradients are its outputs.
    missing
        For inputs of the forward graph without a gradient, the op without an adjoint rule, and the
        path to it.
    independent
        Inputs of the forward graph whose gradient is zero, required or not.
    """

    graph: Graph
    forward_graph: Graph
    provided: tuple[Any, ...]
    values: tuple[Any, ...]
    outputs: tuple[Any, ...]
    missing: Mapping[Any, Missing] = field(default_factory=dict, repr=False)
    independent: frozenset[Any] = field(default=frozenset(), repr=False)
    _part: Callable[[tuple[Any, ...]], GradientGraph] | None = field(default=None, repr=False)
    _parts: dict[frozenset[Any], GradientGraph] = field(default_factory=dict, repr=False)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The forward tensors of the inputs."""
        return (*self.provided, *self.values)

    def part(self, provided: Collection[Any]) -> GradientGraph:
        """Return the gradient graph for a subset of the outputs' gradients, derived once.

        It computes nothing for the others. One that `autodiff` did not derive has no other parts.
        """
        key = frozenset(provided)
        if self._part is None or not key < set(self.provided):
            return self
        if key not in self._parts:
            self._parts[key] = self._part(tuple(provided))
        made = self._parts[key]
        return replace(made, independent=self.independent | made.independent)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The gradient graph, and the parts derived so far."""
        return (self.graph, *(part.graph for part in self._parts.values()))

    def saved_values(self, forward: CallOp) -> dict[Any, TensorOp]:
        """Return, for each input that is a forward value, its value in a call.

        Raises ArgumentError unless it is a call of the forward graph.
        """
        self._require(forward, self.forward_graph, "forward graph")
        saved = all_saved(forward, self.values)
        return dict(zip(self.graph.inputs[len(self.provided) :], saved, strict=True))

    def gradients(self, backward: CallOp) -> dict[Any, TensorOp]:
        """Return, for inputs of the forward graph, their gradients in a call of the gradient graph.

        Raises ArgumentError unless it is a call of the gradient graph.
        """
        self._require(backward, self.graph, "gradient graph")
        return dict(zip(self.outputs, backward.results, strict=True))

    def operand_gradients(self, forward: CallOp, backward: CallOp) -> dict[TensorOp, TensorOp]:
        """Return the gradients of a forward call's operands, summed for repeated operands."""
        self._require(forward, self.forward_graph, "forward graph")
        found: dict[TensorOp, TensorOp] = {}
        operands = dict(zip(forward.graph.inputs, forward.args, strict=True))
        for inner, gradient in self.gradients(backward).items():
            outer = operands[inner]
            found[outer] = add(found[outer], gradient) if outer in found else gradient
        return found

    def _require(self, call: CallOp, graph: Graph, what: str) -> None:
        if not isinstance(call, CallOp) or call.graph is not graph:
            raise ArgumentError(
                f"{call} is not a call of the {what} {graph.name}: give the op that call_op "
                "returned"
            )


Known = Mapping[Graph, GradientGraph]


given_graphs: ContextVar[Known] = ContextVar("weft_gradient_graphs", default=MappingProxyType({}))
"""The gradient graphs given for called graphs."""


@contextmanager
def given(known: Known) -> Iterator[None]:
    """Use gradient graphs for the calls of their graphs, which are then not differentiated."""
    token = given_graphs.set(known)
    try:
        yield
    finally:
        given_graphs.reset(token)


def autodiff(
    graph: Graph,
    grads_provided: Iterable[TensorOp] | None = None,
    grads_required: Iterable[TensorOp] | None = None,
    called_graphs_grad_info: Known | None = None,
    return_all_grad_graphs: bool = False,
    recompute: bool = False,
) -> Any:
    """Return the gradient graph of a graph.

    Parameters
    ----------
    graph
        A graph without states, as `capture` returns it; its variables are inputs.
    grads_provided
        The outputs whose gradients the gradient graph takes; by default all of a float dtype, a
        repeated one twice.
    grads_required
        The inputs whose gradients it yields, in that order; by default all of a float dtype.
    called_graphs_grad_info
        Gradient graphs of called graphs, which are not differentiated again.
    return_all_grad_graphs
        Whether to return a mapping with the gradient graphs of called graphs as well. These take
        the gradients of all outputs of a float dtype, so that they fit other calls too; a call with
        only some of them runs a part.
    recompute
        Whether the gradient graph recomputes inner values of the forward graph from its inputs,
        rather than taking them as inputs. Effects, such as printing, are never repeated.

    Returns
    -------
    GradientGraph
        The gradient graph, with the forward tensors of its inputs and outputs; or a dict of these
        by graph.

    Raises
    ------
    ArgumentError
        For arguments of other types, tensors of other graphs, and gradient graphs of other graphs.
    GradientError
        If a required gradient does not exist, or the given gradient graph of a called graph lacks a
        provided or required gradient. The message lists each with the reason.

    Examples
    --------
    >>> x = weft.placeholder((), "float64", name="x")
    >>> graph = weft.capture([weft.square(x)], [x])
    >>> gradients = weft.autodiff(graph)
    >>> slope = weft.make_transformer().computation(gradients.graph)

    It takes the gradient of the output, and the value of the input:

    >>> slope(1.0, 3.0)
    (array(6.),)
    """
    if not isinstance(graph, Graph):
        raise ArgumentError(f"autodiff takes a graph, not {graph!r}")
    if graph.states:
        used = "".join(f"\n  {state} from {state.file_info}" for state in graph.states)
        raise GradientError(
            f"{graph.name} uses states, as random numbers do, which a gradient graph does not "
            f"take: make them inputs, or let weft.deriv differentiate a call{used}"
        )
    provided = _chosen(graph, "grads_provided", graph.outputs, grads_provided)
    required = _chosen(graph, "grads_required", graph.inputs, grads_required)
    known = _checked_known(called_graphs_grad_info)
    info, made = known.get(graph), {}
    if info is None or not (are_same(info.provided, provided) and are_same(info.outputs, required)):
        made = gradients_below(graph, known) if return_all_grad_graphs else {}
        with given({**known, **made}):
            info = gradient_graph(graph, provided, required, recompute)
    if info.missing:
        raise GradientError(_missing_message(graph, info.missing))
    if not return_all_grad_graphs:
        return info
    inside = frozenset(called_graphs(info.graph))
    made = {each: found for each, found in made.items() if not inside.isdisjoint(found.graphs)}
    return {**known, **made, graph: info}


def _chosen(
    graph: Graph, what: str, among: tuple[Any, ...], given: Iterable[TensorOp] | None
) -> tuple[TensorOp, ...]:
    if given is None:
        return _inexact(among)
    if isinstance(given, Op) or not isinstance(given, Iterable):
        raise ArgumentError(f"{what} is a list of tensors, not {given!r}")
    chosen = tuple(given)
    if not chosen:
        raise ArgumentError(f"Calling Autodiff on Graph {graph.name} with defined but empty vector")
    for op in chosen:
        if not isinstance(op, TensorOp):
            raise ArgumentError(f"{what} holds tensors, not {op!r}")
        if not any(op is each for each in among):
            problem = f"{what} holds {op}, but this tensor is not in the forward graph's "
            kind = "outputs" if what == "grads_provided" else "inputs"
            raise ArgumentError(explain("autodiff", f"{problem}{kind} ({graph.name})", (op,)))
    if Counter(chosen) - Counter(among):
        raise ArgumentError(f"{what} holds a tensor twice")
    return chosen


def _inexact(ops: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([op for op in ops if dtypes.is_inexact(op.dtype)])


def _checked_known(given: Known | None) -> dict[Graph, GradientGraph]:
    if given is None:
        return {}
    what = "called_graphs_grad_info"
    if not isinstance(given, Mapping):
        raise ArgumentError(f"{what} maps graphs to what autodiff returned for them, not {given!r}")
    for graph, info in given.items():
        if not isinstance(graph, Graph):
            raise ArgumentError(f"{what} maps graphs, not {graph!r}")
        if not isinstance(info, GradientGraph):
            raise ArgumentError(
                f"{what} maps {graph.name} to {info!r}: give what autodiff returned for it"
            )
        if info.forward_graph is not graph:
            raise ArgumentError(
                f"{what} maps {graph.name} to the gradient graph of another graph, "
                f"{info.forward_graph.name}"
            )
    return dict(given)


def _missing_message(graph: Graph, missing: Mapping[Any, Missing]) -> str:
    lines = [f"Unable to provide required gradient output of {graph.name} for:"]
    for op, reason in missing.items():
        why = f"{reason.op} ({type(reason.op).__name__}) {reason.problem}"
        lines.append(f"  {op.source}: {why}, {reason.op.file_info}")
    return "\n".join(lines)


def gradients_below(graph: Graph, known: Known) -> dict[Graph, GradientGraph]:
    """Return gradient graphs that fit every call, for all graphs that a graph calls.

    They take the gradients of all outputs of a float dtype. Graphs in `known` are left out, and
    graphs that only these call.
    """
    made: dict[Graph, GradientGraph] = {}
    for each in _below(graph, known):
        provided, required = _inexact(each.outputs), _inexact(each.inputs)
        if each not in known and provided and required:
            with given({**known, **made}):
                made[each] = gradient_graph(each, provided, required)
    return made


def _below(graph: Graph, known: Known) -> list[Graph]:
    """Return the graphs called through differentiable ops, callees first.

    The known graphs are among them, but not their callees.
    """

    def called(each: Any) -> Sequence[Any]:
        return () if each in known else _called_with_gradient(each)

    found: list[Any] = postorder(_called_with_gradient(graph), called)
    return found


def _called_with_gradient(graph: Graph) -> Sequence[Any]:
    if WhileOp not in graph.kinds:
        called: Sequence[Any] = graph.called
        return called
    return [each for op in graph.ops if not isinstance(op, WhileOp) for each in op.graphs]


def gradient_graph(
    graph: Graph,
    provided: tuple[TensorOp, ...],
    required: tuple[TensorOp, ...],
    recompute: bool = False,
) -> GradientGraph:
    """Return the gradient graph for some outputs or inner ops and some inputs, from the cache.

    Inputs without a gradient are in `missing`, and not among the outputs. Inner calls use the
    `given` gradient graphs.
    """
    known = given_graphs.get()
    used = [(each, known[each]) for each in _below(graph, known) if each in known] if known else ()
    key = (gradient_graph, provided, required, recompute, frozenset(used))

    def differentiated() -> GradientGraph:
        with given(known), gc_paused(), scope.saved_user_deps(), scope.captured_ops():
            made = _GradientGraphBuilder(graph, provided, recompute).info(required)
        return replace(made, _part=part)

    def part(fewer: tuple[TensorOp, ...]) -> GradientGraph:
        with given(dict(used)):
            return gradient_graph(graph, fewer, required, recompute)

    return graph.memo_nested(key, differentiated)


class _GradientGraphBuilder:
    """A reverse walk through a graph, and the gradient graph built from it."""

    def __init__(self, graph: Graph, provided: Sequence[TensorOp], recompute: bool) -> None:
        self.graph = graph
        self.provided = tuple(provided)
        self.recompute = recompute
        self.members = frozenset(graph.ops)
        self.seeds = tuple(like_parameter(op, "Gradient___") for op in provided)
        extra = [op for op in provided if op not in self.members]
        order = postorder([*graph.outputs, *graph.ops, *extra], lambda op: op.args)
        adjoints: dict[Op, Any] = {}
        for op, seed in zip(provided, self.seeds, strict=True):
            adjoints[op] = add(adjoints[op], seed) if op in adjoints else seed
        self.adjoints = walk_back(order, adjoints, frozenset(graph.inputs))

    def info(self, required: Sequence[TensorOp]) -> GradientGraph:
        """Return the gradient graph for some inputs."""
        found = {op: self.adjoints.get(op) for op in required}
        missing = {op: a for op, a in found.items() if isinstance(a, Missing)}
        wanted = [op for op in required if op not in missing]
        gradients: list[Any] = [zeros_like(op) if found[op] is None else found[op] for op in wanted]
        values = [] if self.recompute else self.activations(gradients)
        values = self.ordered(gradients, values)
        parameters = {op: like_parameter(op, "") for op in values}
        made = self.rebuilt(gradients, parameters)
        return GradientGraph(
            graph=without_saved(
                Graph(
                    inputs=[*self.seeds, *parameters.values()],
                    outputs=[made[op] for op in gradients],
                    name=f"{self.graph.name}_bwd",
                ),
                recomputed={made[op] for op in made if op in self.members and op.graphs},
            ),
            forward_graph=self.graph,
            provided=self.provided,
            values=tuple(values),
            outputs=tuple(wanted),
            missing=missing,
            independent=frozenset(op for op in self.graph.inputs if self.adjoints.get(op) is None),
        )

    def is_forward(self, op: Op) -> bool:
        """Whether an op belongs to the forward graph, or is a saved value of one of its calls."""
        return op in self.members or (isinstance(op, SavedOp) and op.args[0] in self.members)

    def activations(self, gradients: Sequence[Op]) -> list[Any]:
        """Return the forward values that the gradients read, or the operands of cheap ones."""
        read = postorder(gradients, lambda op: () if self.is_forward(op) else op.args)
        kept: dict[Op, None] = {}
        for op in read:
            if self.is_forward(op) and not op.is_constant:
                self.keep(op, kept)
        return list(kept)

    def keep(self, op: Op, kept: dict[Op, None]) -> None:
        """Save an op's value, or the values that cheap ops compute it from if these are smaller."""
        base = postorder([op], lambda each: each.args if _is_cheap(each) else ())
        ends = [
            each
            for each in base
            if not _is_cheap(each) and not each.is_constant and each not in kept
        ]
        new = [each for each in ends if not isinstance(each, ParameterOp)]
        fits = all(each.is_tensor for each in new)
        if fits and sum(map(_bytes, new)) <= _bytes(op):
            kept.update(dict.fromkeys(ends))
        else:
            kept[op] = None

    def rebuilt(self, gradients: Sequence[Op], parameters: Mapping[Any, Any]) -> dict[Op, Any]:
        """Return the ops rebuilt on the gradient graph's parameters.

        Recomputed ops lose their effects.
        """
        made: dict[Op, Any] = dict(parameters)
        for op in postorder(gradients, lambda op: () if op in parameters else op.args):
            if op in made:
                continue
            args = tuple([made[arg] for arg in op.args])
            if op in self.members and not op.graphs:
                made[op] = without_effect(op, args)
            else:
                made[op] = op.on(args)
        return made

    def ordered(self, gradients: Sequence[Op], values: Sequence[Any]) -> list[Any]:
        """Return the forward values that are read: inputs first, in their order."""
        ends = {*values, *self.graph.inputs}
        read = set(postorder(gradients, lambda op: () if op in ends else op.args))
        return [op for op in dict.fromkeys([*self.graph.inputs, *values]) if op in read]


def _is_cheap(op: Op) -> bool:
    return bool(op.args) and (
        isinstance(op, CHEAP) or (op.is_tensor and may_be_view(op) and not isinstance(op, ResultOp))
    )


def _bytes(op: Op) -> int:
    size = op.axes.size
    return size * op.dtype.itemsize if isinstance(size, int) else 1


def like_parameter(op: TensorOp, prefix: str) -> ParameterOp:
    label = op.source.name if isinstance(op, ParameterOp) else op.name
    source = placeholder(op.axes, op.dtype, name=f"{prefix}{label}")
    return ParameterOp(source=source, target_axes=op.axes)

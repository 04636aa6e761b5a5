"""Inlines called graphs, and adds the inner values that gradients need to their outputs.

A value that a gradient wants from inside a call becomes one more output of the graph that is
called. A call that the backend does not make is replaced by the ops of its graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.ir import scope
from weft.ir.effects import without_effect, without_effects
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op, are_same
from weft.ir.results import ResultOp
from weft.ir.storage import as_op
from weft.ir.target import Target
from weft.ir.traversal import postorder
from weft.ops.control.graph_ops import CallOp, CondOp, GraphsOp, LoopOp, SavedOp, WhileOp
from weft.ops.control.passing_loops import passing
from weft.ops.control.scans import ScanOp, as_scan, with_scans, without_scans
from weft.ops.pointwise.comparison import where
from weft.transforms.pruning import MANY, Pruning


def without_saved(graph: Graph, recomputed: Collection[Op] = ()) -> Graph:
    """Return a graph in which values from inside calls are results of those calls.

    A loop that is asked for values becomes a scan that stacks them. Ops that run graphs and
    are `recomputed` run them without their effects.
    """
    if SavedOp not in graph.kinds and not recomputed:
        return graph
    wanted: dict[Op, dict[Op, None]] = {}
    recomputed = set(recomputed)
    for op in graph.ops:
        if isinstance(op, SavedOp):
            wanted.setdefault(op.args[0], {}).setdefault(op)
    new: dict[Op, Op] = {}
    made: list[Op] = []
    for op in graph.ops:
        args = tuple([new.get(arg, arg) for arg in op.args])
        if op in wanted and isinstance(op, CallOp | LoopOp | ScanOp):
            new[op] = _augmented(op, args, list(wanted[op]), new, op in recomputed)
        elif op in recomputed:
            new[op] = without_effect(op, args)
        elif op not in new:
            new[op] = op.on(args)
        made.append(new[op])
    return graph.mapped(new, dict.fromkeys(made))


def _augmented(
    op: CallOp | LoopOp | ScanOp,
    args: tuple[Any, ...],
    saved: Sequence[Any],
    new: dict[Op, Op],
    is_recomputed: bool,
) -> Op:
    """Return an op with what is saved of it as further results, which are put into `new`."""
    inner = tuple(dict.fromkeys(each.inner for each in saved))
    graph = with_outputs(op.graph, inner)
    if is_recomputed:
        graph = without_effects(graph)
    places = {each: place for place, each in enumerate(inner, len(op.graph.outputs))}
    made: GraphsOp
    with scope.replacing(op):
        if isinstance(op, CallOp):
            made = CallOp(*args, graph=graph)
        else:
            made = as_scan(op, args, graph=graph)
    turned = scope.Replacements()
    with turned:
        for each in saved:
            turned.turn_to(each)
            new[each] = ResultOp(made, index=places[each.inner])
    return made


def with_outputs(graph: Graph, inner: tuple[Any, ...]) -> Graph:
    """Return a graph that yields some of its inner ops too, the same one each time."""
    return graph.memo(
        (with_outputs, inner),
        lambda: without_saved(graph.replace(outputs=(*graph.outputs, *inner))),
    )


FEWEST = 16
"""The ops that a graph has at least for its calls to be made, and not replaced by them."""


def with_callees_prepared(
    graph: Graph, target: Target, finished: Callable[[Graph], Graph], inline_calls: bool = False
) -> Graph:
    """Return a graph in which a target can run every op that runs graphs.

    What is small is replaced by its ops, and what is called once, unless it is part of what `MANY`
    calls are of: its ops would be in every pass's way. So are all calls with `inline_calls`, and
    everything for a target that runs no graphs. Loops without a known length stay, and so does a
    choice between graphs that act on the world or may raise. Graphs that stay are finished by a
    function, each once, and yield little more than what is used.
    """
    graph = with_scans(graph, target.keeps_whole)
    if not graph.called:
        return graph
    pruning = Pruning()
    graph = pruning.graph(without_scans(graph))
    uses = Counter(each for called in called_graphs(graph, own=True) for each in _calls_in(called))
    alike = Counter(pruning.whole.get(each, each) for each in uses.elements())
    shared = {
        each
        for each, count in uses.items()
        if count > 1 or alike[pruning.whole.get(each, each)] >= MANY
    }
    return _Inlining(target.runs_graphs, () if inline_calls else shared, finished).graph(graph)


@dataclass
class _Inlining:
    may_stay: bool
    shared: Container[Graph]
    finished: Callable[[Graph], Graph]
    known: dict[Graph, Graph] = field(default_factory=dict)
    done: dict[Graph, Graph] = field(default_factory=dict)

    def graph(self, graph: Graph) -> Graph:
        """Return a graph with what is to be replaced in it, and in the graphs that it calls."""
        for each in called_graphs(graph, own=True):
            self.known[each] = self.replaced(each)
        return self.known[graph]

    def replaced(self, graph: Graph) -> Graph:
        """Return a graph whose called graphs have been looked at already."""
        if not graph.called:
            return graph
        new: dict[Op, Any] = {}
        made: list[Op] = []
        effects: list[Op] = []
        for op in graph.ops:
            if isinstance(op, ResultOp) and isinstance(new[op.args[0]], tuple):
                new[op] = new[op.args[0]][op.index]
                continue
            args = tuple([new[arg] for arg in op.args])
            if not op.graphs:
                new[op] = op.on(args)
                made.append(new[op])
            elif self.stays(op):
                new[op] = self.with_known_graphs(op, args)
                made.append(new[op])
            else:
                new[op] = self.body(op, args, made, effects)
        values = {op: value for op, value in new.items() if not isinstance(value, tuple)}
        kept = [new[op] for op in graph.effects if op in values]
        rest = graph.replace(effects=[op for op in graph.effects if op in values])
        mapped = rest.mapped(values, dict.fromkeys(made))
        return mapped if not effects else mapped.replace(effects=[*kept, *effects])

    def stays(self, op: Op) -> bool:
        """Whether an op is not replaced."""
        if isinstance(op, WhileOp):
            return True
        size = sum(len(self.known[graph].ops) for graph in op.graphs)
        if isinstance(op, CondOp):
            may = self.may_stay and size >= FEWEST
            return may or op.has_effect or op.may_raise
        if isinstance(op, LoopOp):
            return self.may_stay and op.count > 1 and size * op.count >= FEWEST
        return self.may_stay and op.graphs[0] in self.shared and size >= FEWEST

    def with_known_graphs(self, op: Op, args: tuple[Any, ...]) -> Op:
        """Return an op that stays, on graphs that have been finished."""
        for graph in op.graphs:
            if graph not in self.done:
                # A copy, since the plan that it keeps is for one target.
                self.done[graph] = self.finished(self.known[graph].copied())
        fields: dict[str, Any] = {
            name: self.done[value] if isinstance(value, Graph) else value
            for name, value in op.attributes().items()
        }
        with scope.replacing(op):
            made = type(op)(*args, **fields)
            return passing(made) if isinstance(made, LoopOp) else made

    def body(
        self, op: Any, args: tuple[Any, ...], made: list[Op], effects: list[Op]
    ) -> tuple[Op, ...]:
        """Return the results of an op, from copies of the ops inside."""
        splice = _Splice(op, made, effects)
        if isinstance(op, CondOp):
            place = 1 + len(op.then_graph.inputs)
            one = splice.run(self.known[op.then_graph], args[1:place])
            other = splice.run(self.known[op.else_graph], args[place:])
            with scope.replacing(op):
                found = tuple(
                    where(args[0], as_op(x), as_op(y)) for x, y in zip(one, other, strict=True)
                )
            made.extend(postorder(found, lambda each: each.args))
            return found
        graph = self.known[op.graph]
        results = splice.run(graph, args)
        for _ in range(op.count - 1 if isinstance(op, LoopOp) else 0):
            results = splice.run(graph, (*results, *args[len(results) :]))
        return results


class _Splice:
    """Copies ops of called graphs; they come right after the op whose graphs they are from."""

    def __init__(self, op: GraphsOp, made: list[Op], effects: list[Op]) -> None:
        self.op = op
        self.made = made
        self.effects = effects
        self.count = 0

    def run(self, graph: Graph, args: Iterable[Op]) -> tuple[Op, ...]:
        """Return the outputs of a graph for some inputs."""
        new: dict[Op, Op] = dict(zip(graph.inputs, args, strict=True))
        for op in graph.ops:
            if op not in new:
                new[op] = self.copy(op, new)
        self.effects.extend(new[op] for op in graph.effects)
        return tuple([new[op] for op in graph.outputs])

    def copy(self, op: Op, new: Mapping[Op, Op]) -> Op:
        """Return an op on other operands."""
        args = tuple([new[arg] for arg in op.args])
        copy = op
        if op.has_effect or not are_same(args, op.args):
            copy = op.with_args(args)
            self.count += 1
            copy.__dict__["order"] = self.op.order + 1 - 1 / (self.count + 1)
            copy.__dict__["_prefix"] = copy._prefix or self.op._prefix
        self.made.append(copy)
        return copy


def _calls_in(graph: Graph) -> Iterable[Graph]:
    return (each for op in graph.ops if op.graphs for each in op.graphs)

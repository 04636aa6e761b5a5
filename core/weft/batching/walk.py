"""The walk that batches ops: each by the rule of its class, else by its decomposition.

A batched op has the axes of the op that it stands for, with the batch axis in front: a named one
before named axes, a positional one before positional axes or none. An op that depends on no batched
op is used as it is. (As `jax.vmap` does; the rules for primitives, the rest decomposes.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.errors import ArgumentError, AxesError, BatchingError, StateError
from weft.ir import scope
from weft.ir.axes import Axes, Axis, make_axes, make_axis
from weft.ir.graph import Graph
from weft.ir.lengths import Size
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp, results_of
from weft.ir.storage import AssignOp, ParameterOp, placeholder
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ir.traversal import dependencies, operands, postorder
from weft.ops.shape.movement import BroadcastOp, TransposeOp, reshaped
from weft.support.gc_pause import gc_paused

__all__ = ["Batch", "Batched", "BatchedGraph", "Results", "batched", "batching_rule_of"]


class Batched(NamedTuple):
    """What an op became.

    Attributes
    ----------
    op
        The op to compute in its place.
    is_batched
        Whether that has the batch axis in front; otherwise it is the same for all examples.
    """

    op: Any
    is_batched: bool


class Results(NamedTuple):
    """What an op with several results became: the op of the results, if it is one, and these."""

    op: TupleOp | None
    values: tuple[Batched, ...]


@dataclass(frozen=True)
class Batch:
    """The batch axis, as the rule of an op sees it.

    Attributes
    ----------
    size
        The number of examples: an int, or a `Length`.
    name
        The name of the axis before named axes.
    operands
        For each operand of the op whether it has the batch axis.
    """

    size: Size
    name: str
    operands: tuple[bool, ...] = ()
    _made: dict[int, tuple[Axes, Axes]] = field(default_factory=dict, compare=False, repr=False)

    def before(self, axes: Axes) -> Axes:
        """Return the axes with the batch axis in front."""
        if id(axes) not in self._made:
            axis = Axis(self.size, self.name if axes.is_named else None)
            self._made[id(axes)] = axes, Axes((axis, *axes))
        return self._made[id(axes)][1]

    def spread(self, args: Iterable[TensorOp]) -> list[TensorOp]:
        """Return the operands, all of them with the batch axis."""
        pairs = zip(args, self.operands, strict=True)
        return [arg if is_batched else self.repeated(arg) for arg, is_batched in pairs]

    def repeated(self, x: TensorOp) -> TensorOp:
        """Return a tensor repeated along the batch axis."""
        return BroadcastOp(x, target_axes=self.before(x.axes), dims=tuple(range(1, 1 + x.rank)))

    def of(self, operands: tuple[bool, ...]) -> Batch:
        """Return the same axis, for other operands."""
        return Batch(self.size, self.name, operands, self._made)


def moved(x: TensorOp, source: int, goal: int) -> TensorOp:
    """Return a tensor with the axis at one position moved to another."""
    if source == goal:
        return x
    order = [place for place in range(x.rank) if place != source]
    order.insert(goal, source)
    return TransposeOp(x, permutation=tuple(order))


Rule = Callable[..., Any]
_rules: dict[type[Op], Rule] = {}


def batching_rule_of(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    """Register a function as the batching rule of op classes.

    The function is called as ``rule(op, batch, *args)`` when at least one operand of `op` is
    batched. `args` are the operands; those for which `batch.operands` is true have the batch axis
    in front. `batch.spread(args)` gives it to all of them. The rule returns an op with the axes of
    `op` and the batch axis in front, or `Batched` of an op and whether it has that axis, or
    NotImplemented for the decomposition of `op`. The rule is global and covers subclasses.
    Raises ArgumentError for anything but op classes, and for a second rule of one.
    """
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Op)):
            raise ArgumentError(f"batching_rule_of takes op classes, not {kind!r}")

    def mark(rule: Rule) -> Rule:
        for kind in kinds:
            if _rules.setdefault(kind, rule) is not rule:
                raise ArgumentError(f"{kind.__name__} has a rule of batching_rule_of already")
        return rule

    return mark


def rule_of(kind: type[Op]) -> Rule | None:
    """Return the rule of the nearest base class, or None."""
    return next((_rules[base] for base in kind.__mro__ if base in _rules), None)


def batched(
    outputs: Sequence[Op], inputs: Mapping[TensorOp, TensorOp], size: Size
) -> list[Batched]:
    """Return what ops become if some ops that they depend on get a batch axis.

    Parameters
    ----------
    outputs
        The ops to compute.
    inputs
        For ops that the outputs depend on, the ops that take their place: of the same dtype, with
        one more axis in front, the batch axis.
    size
        The length of the batch axis, which may be symbolic.

    Returns
    -------
        For each output an op with the batch axis in front; or the op itself where it depends on no
        input, with ``is_batched`` false. The batch axis of a named tensor has a new name.

    Raises AxesError or ArgumentError for an input that does not fit, BatchingError (a ValueError)
    for an op that cannot be batched, and StateError for an assignment of a batched value.
    """
    walk = Walk(Batch(make_axes((size,))[0].length, str(make_axis(size).name)))
    for op, value in inputs.items():
        walk.give(op, value)
    with gc_paused():
        walk.reach(outputs)
    return [walk.value(op) for op in outputs]


class Walk:
    """What ops become for one batch axis.

    Attributes
    ----------
    values
        What ops became; those that are missing remain what they are.
    effects
        For ops with effects, the ops that have these effects now.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.values: dict[Op, Batched | Results] = {}
        self.effects: dict[Op, tuple[Op, ...]] = {}

    def give(self, op: TensorOp, value: TensorOp) -> None:
        """Put a batched op in the place of another; raises an error unless it fits."""
        if not isinstance(op, TensorOp) or not isinstance(value, TensorOp):
            raise ArgumentError(f"batched takes tensor ops, and cannot put {value!r} for {op!r}")
        lengths = (self.batch.size, *op.axes.lengths)
        if value.axes.lengths != lengths or value.dtype != op.dtype:
            raise AxesError(
                value.explain(
                    f"{value.dtype} {value.axes} cannot stand for {op}, which is {op.dtype} "
                    f"{op.axes}: it needs a batch axis of length {self.batch.size} in front"
                )
            )
        self.values[op] = Batched(reshaped(value, self.batch.before(op.axes)), True)

    def value(self, op: Op) -> Batched:
        """Return what an op became."""
        found = self.values.get(op)
        if isinstance(found, Results):
            return Batched(found.op, True)
        return Batched(op, False) if found is None else found

    def reach(self, outputs: Iterable[Op]) -> None:
        """Batch the ops that these depend on, and those that write them if they are states."""
        token, roots = scope.current.get().scope, list(outputs)
        states: Iterable[Any] = (op for op in roots if op.is_state)
        writes = [state.last_write(token) for state in states]
        roots += [op for op in writes if op is not None]
        self.run(postorder(roots, lambda op: () if op in self.values else dependencies(op)))

    def run(self, order: Iterable[Op]) -> None:
        """Batch ops that come in an order with each after what it depends on."""
        for op in order:
            if op not in self.values and any(each in self.values for each in dependencies(op)):
                self._visit(op, op.meaning)

    def _visit(self, op: Op, meaning: Op) -> None:
        found = [self.values.get(arg) for arg in meaning.args]
        if isinstance(meaning, ResultOp):
            (results,) = found
            assert isinstance(results, Results)
            self.values[op] = results.values[meaning.index]
            return
        flags = tuple(map(_is_batched, found))
        pairs = zip(meaning.args, found, strict=True)
        args: list[Any] = [arg if each is None else each.op for arg, each in pairs]
        reads = zip(meaning.args, meaning.reads, strict=True)
        versions = {
            state: None if read is None else self.value(read).op
            for state, read in reads
            if state.is_state
        }
        with scope.replacing(op), scope.pinned(versions):
            if isinstance(meaning, AssignOp):
                made: Batched | Results = self._written(meaning, flags, args)
            else:
                made = self._checked(meaning, self._batched(meaning, flags, args))
        self.values[op] = made
        if op.has_effect:
            self.effects[op] = _effects(made, args)

    def _written(self, op: AssignOp, flags: tuple[bool, ...], args: list[Any]) -> Batched:
        """Return the write of the same value, which is the last one where the other was."""
        if any(flags):
            raise StateError(op.explain(_ASSIGNED))
        is_last = op.args[0].last_write(scope.current.get().scope) is op
        with nullcontext() if is_last else scope.saved_user_deps():
            return Batched(AssignOp(*args), False)

    def _batched(self, op: Any, flags: tuple[bool, ...], args: list[Any]) -> Any:
        if not any(flags):
            same = type(op)(*args, **op.attributes())
            several = results_of(same) if isinstance(same, TupleOp) else ()
            values = tuple(Batched(each, False) for each in several)
            return Results(same, values) if isinstance(same, TupleOp) else Batched(same, False)
        rule = rule_of(type(op))
        made = NotImplemented if rule is None else rule(op, self.batch.of(flags), *args)
        if made is not NotImplemented:
            return made
        if isinstance(op, CompositeOp):
            return self._through(op.decompose(*op.args), op.args)
        raise BatchingError(
            op.explain(
                "cannot be batched: give the class a rule by weft.batching.batching_rule_of, or "
                "derive it from CompositeOp with a decomposition into ops that have one"
            )
        )

    def _through(self, op: TensorOp, args: tuple[Op, ...]) -> Batched:
        """Return what an op became that was made from others, which are known."""
        known = frozenset(args)
        order = postorder(
            [op], lambda each: () if each in known or each in self.values else operands(each)
        )
        self.run(order)
        return self.value(op)

    def _checked(self, op: Op, made: Any) -> Batched | Results:
        if isinstance(made, Results):
            return made
        value = made if isinstance(made, Batched) else Batched(made, True)
        axes = self.batch.before(op.axes) if value.is_batched else op.axes
        got: Any = value.op
        if not op.is_tensor:
            return value
        wanted = axes.lengths, op.dtype
        if not isinstance(got, TensorOp) or (got.axes.lengths, got.dtype) != wanted:
            problem = f"its batching rule must return {op.dtype} {axes}, not {got!r}"
            raise BatchingError(op.explain(problem))
        return Batched(reshaped(got, axes), value.is_batched)


_ASSIGNED = (
    "the value is batched, and a state has no batch axis: reduce the value over the batch, or make "
    "the state an input and an output"
)


def _is_batched(value: Batched | Results | None) -> bool:
    """Whether an operand has the batch axis; one with several results counts as if it had."""
    return value is not None and (isinstance(value, Results) or value.is_batched)


def _effects(made: Batched | Results, args: Iterable[Op]) -> tuple[Op, ...]:
    """Return the ops with effects between results and operands."""
    values = (made,) if isinstance(made, Batched) else made.values
    calls = [made.op] if isinstance(made, Results) and made.op is not None else []
    ends = frozenset(args)
    roots = [*calls, *(each.op for each in values)]
    found = postorder(roots, lambda op: () if op in ends else op.args)
    return tuple(op for op in found if op.has_effect and op not in ends)


class BatchedGraph:
    """A graph on batched inputs.

    Attributes
    ----------
    graph
        The graph, whose outputs are those of the original.
    outputs
        For each output whether it is batched.
    walk
        What the ops of the original became.
    """

    def __init__(self, graph: Graph, batch: Batch, wanted: tuple[bool, ...]) -> None:
        walk = self.walk = Walk(batch.of(()))
        inputs = [
            self._given(op, is_batched)
            for op, is_batched in zip(graph.inputs, batch.operands, strict=True)
        ]
        walk.run(graph.ops)
        found = [walk.value(op) for op in graph.outputs]
        self.outputs = tuple(
            each.is_batched or is_wanted
            for each, is_wanted in zip(found, wanted or (False,) * len(found), strict=True)
        )
        outputs = [
            walk.batch.repeated(each.op) if is_wanted and not each.is_batched else each.op
            for each, is_wanted in zip(found, self.outputs, strict=True)
        ]
        after = {
            op: [other for each in firsts for other in self._now(each)]
            for late, firsts in graph.after.items()
            for op in self._now(late)
        }
        effects = [now for op in graph.effects for now in self._now(op)]
        self.graph = Graph(inputs, outputs, (), effects, after, f"{graph.name}_batched")
        self.graph.memo(walk_of, lambda: walk)

    def _given(self, op: ParameterOp, is_batched: bool) -> ParameterOp:
        if not is_batched:
            return op
        axes = self.walk.batch.before(op.axes)
        with scope.replacing(op):
            source = placeholder(axes, op.dtype, name=op.source.name)
            made = ParameterOp(source=source, target_axes=axes)
        self.walk.give(op, made)
        return made

    def _now(self, op: Op) -> tuple[Op, ...]:
        return self.walk.effects.get(op) or (self.walk.value(op).op,)


def batched_graph(graph: Graph, batch: Batch, wanted: tuple[bool, ...] = ()) -> BatchedGraph:
    """Return a graph for inputs of which some are batched, made once for each combination.

    `wanted` says which outputs are to be batched even if they depend on no batched input.
    """
    axis = Batch(batch.size, batch.name if _has_names(graph) else "", batch.operands)

    def made() -> BatchedGraph:
        with scope.captured_ops():
            return BatchedGraph(graph, axis, wanted)

    return graph.memo_nested((BatchedGraph, axis, wanted), made)


def _has_names(graph: Graph) -> bool:
    """Whether a graph, or one that it calls, has named axes."""

    def found() -> bool:
        return any(op.axes.is_named for op in graph.ops) or any(map(_has_names, graph.called))

    return graph.memo_nested(_has_names, found)


def walk_of(graph: Graph) -> Walk | None:
    """Return the walk that made a batched graph, or None for another graph."""
    return graph.memo(walk_of, lambda: None)

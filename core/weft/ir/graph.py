"""Graphs: immutable programs of ops between inputs and outputs, with explicit effects.

A captured graph holds values only. A state enters as a `ReadOp`, the value it has when a call
begins; what a call writes into it is listed in `updates` and happens when all reads are done. So
passes rearrange, merge and drop ops without ever looking at scopes or at the order of writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from weft.errors import GraphError, ImmutableError, NotPicklable, WeftError
from weft.ir import scope, upcalls
from weft.ir.axes import Axes
from weft.ir.lengths import Length, Symbol, substitute
from weft.ir.op import Op, are_same
from weft.ir.storage import AssignableTensorOp, ParameterOp, ReadOp
from weft.ir.tensor import TensorOp
from weft.ir.traversal import nested, postorder
from weft.support.locks import cached_property

T = TypeVar("T")


class Graph:
    """A program of ops; immutable.

    Parameters
    ----------
    inputs
        The parameters in order; a call gives each a value.
    outputs
        The tensors that a call returns.
    updates
        Pairs of a state and the value that it takes when a call ends.
    effects
        Ops that must run although nothing uses their value.
    after
        Ordering edges beyond operands: for an op, the ops that must come first.
    name
        Shown in listings.

    Attributes
    ----------
    writes
        The user's writes that were captured as the updates, if they were captured here.
    """

    inputs: tuple[ParameterOp, ...]
    outputs: tuple[TensorOp, ...]
    updates: tuple[tuple[AssignableTensorOp, TensorOp], ...]
    effects: tuple[Op, ...]
    after: dict[Op, tuple[Op, ...]]
    name: str
    writes: frozenset[Op]

    def __init__(
        self,
        inputs: Iterable[ParameterOp] = (),
        outputs: Iterable[TensorOp] = (),
        updates: Iterable[tuple[AssignableTensorOp, TensorOp]] = (),
        effects: Iterable[Op] = (),
        after: Mapping[Op, Sequence[Op]] | None = None,
        name: str = "graph",
    ) -> None:
        self.__dict__.update(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            updates=tuple(updates),
            effects=tuple(effects),
            after={op: tuple(first) for op, first in (after or {}).items()},
            name=name,
        )
        self.writes = frozenset()
        self._made: tuple[Op, ...] = ()
        self._memo: dict[Any, Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PARTS:
            problem = f"{self!r} is immutable: {name!r} cannot be set, replace() makes another"
            raise ImmutableError(problem)
        object.__setattr__(self, name, value)

    def __deepcopy__(self, memo: object) -> Graph:
        return self

    def __copy__(self) -> Graph:
        return self

    def copied(self) -> Graph:
        """Return a graph with the same parts, to which other things can be attached."""
        made = object.__new__(Graph)
        made.__dict__.update(self.__dict__, _memo=self._memo.copy())
        return made

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value cached under a key, calling `make` on a miss.

        Of two threads that ask at once, both may call it, and both get the same result.
        """
        kept: dict[Any, T] = self._memo
        return kept[key] if key in kept else kept.setdefault(key, make())

    def memo_nested(self, key: Hashable, make: Callable[[], T]) -> T:
        """Like `memo`, for a `make` that asks the called graphs for the same.

        They may be nested to any depth; see `traversal.nested`.
        """
        kept: dict[Any, T] = self._memo
        return kept[key] if key in kept else nested(kept, key, make)

    def __reduce_ex__(self, protocol: object) -> Any:
        problem = (
            f"{self!r} cannot be pickled: keep its text(full=True), which weft.parse reads back"
        )
        raise NotPicklable(problem)

    def __delattr__(self, name: str) -> None:
        raise ImmutableError(f"{self!r} is immutable: {name!r} cannot be deleted")

    @property
    def roots(self) -> tuple[Op, ...]:
        """The ops that everything else is there for."""
        return (*self.effects, *self.outputs, *(value for _, value in self.updates))

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Every op in an order that respects operands and `after`, else the user's own.

        Raises GraphError for a cycle.
        """
        made, self._made = self._made, ()
        known = () if self.after else _needed(made, (*self.inputs, *self.roots))
        return known or self._ordered_ops()

    def _ordered_ops(self) -> tuple[Op, ...]:
        children = self.children if self.after else _args
        found = postorder((*self.inputs, *self.roots), children)
        found.sort(key=_user_order)
        return tuple(found if _is_ordered(found, children) else _ordered(found, children))

    def children(self, op: Op) -> tuple[Op, ...]:
        """Return the ops to compute before an op: its operands, and those that `after` lists."""
        return (*op.args, *self.after.get(op, ()))

    @cached_property
    def members(self) -> frozenset[Op]:
        """Its ops, for the question whether one is among them."""
        return frozenset(self.ops)

    @cached_property
    def places(self) -> dict[Op, int]:
        """The place of each input among the inputs."""
        return {op: place for place, op in enumerate(self.inputs)}

    @cached_property
    def kinds(self) -> frozenset[type[Op]]:
        """The classes of its ops: what a pass looks for need not be looked for op by op."""
        return frozenset(map(type, self.ops))

    @property
    def may_raise(self) -> bool:
        """Whether one of its ops may end the call."""
        return self.memo_nested("may_raise", lambda: any(op.may_raise for op in self.ops))

    @property
    def states(self) -> tuple[AssignableTensorOp, ...]:
        """Every state that is read or updated, each once."""
        read = (op.state for op in self.ops if isinstance(op, ReadOp))
        return tuple(dict.fromkeys((*read, *(state for state, _ in self.updates))))

    def replace(self, made: Collection[Op] = (), **parts: Any) -> Graph:
        """Return a graph with some of the constructor's parts exchanged; itself if none differs.

        `made` may be its ops in their order, as for `mapped`.
        """
        graph = Graph(**{key: parts.pop(key, getattr(self, key)) for key in _PARTS}, **parts)
        if graph._has_parts_of(self):
            return self
        graph._made = tuple(made)
        return graph

    def _has_parts_of(self, other: Graph) -> bool:
        """Whether it would be made of the same parts as another one."""
        updates, others = chain(*self.updates), chain(*other.updates)
        return (
            self.name == other.name
            and are_same(self.inputs, other.inputs)
            and are_same(self.outputs, other.outputs)
            and are_same(tuple(updates), tuple(others))
            and are_same(self.effects, other.effects)
            and self.after.keys() == other.after.keys()
            and all(are_same(ops, other.after[op]) for op, ops in self.after.items())
        )

    def rewrite(self, change: Callable[[Op], Op], made: Collection[Op] = ()) -> Graph:
        """Return the graph with each op, its operands already rewritten, replaced by another.

        Ops that nothing changed are shared with the old graph; if none changed it is the very same
        graph. Where `change` makes several ops at a time, `made` may be where it keeps them; see
        `mapped`.
        """
        new: dict[Op, Op] = {}
        changed: set[Op] = set()
        for op in self.ops:
            new[op] = now = change(op if changed.isdisjoint(op.args) else on_new_operands(op, new))
            if now is not op:
                changed.add(op)
        return self.mapped(new, made or dict.fromkeys(new.values())) if changed else self

    def mapped(self, new: Mapping[Op, Op], made: Collection[Op] = ()) -> Graph:
        """Return the graph whose inputs, roots and edges are those that `new` maps to.

        `made` may hold all ops of the result and others, each once and after its operands. They
        keep that order then, and need not be looked for.
        """
        after = {
            new[op]: tuple(new[first] for first in firsts)
            for op, firsts in self.after.items()
            if op in new and all(first in new for first in firsts)
        }
        return self.replace(
            made,
            inputs=[new[op] for op in self.inputs],
            outputs=[new[op] for op in self.outputs],
            updates=[(state, new[value]) for state, value in self.updates],
            effects=[new[op] for op in self.effects],
            after=after,
        )

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The unknown lengths of all ops and states, each once."""
        return self.memo_nested("symbols", self._all_symbols)

    def _all_symbols(self) -> tuple[Symbol, ...]:
        unknown = [op.axes for op in self.ops if not op.axes.is_static]
        unknown.extend(state.axes for state, _ in self.updates)
        # What a parameter, or the reading of a state, declares is what it has.
        made = [op for op in self.ops if not op.args and not isinstance(op, _GIVEN)]
        leaves = (op.attributes().values() for op in made)
        unknown.extend(value for values in leaves for value in values if isinstance(value, Axes))
        called = (symbol for graph in self.called for symbol in graph.symbols)
        own = (symbol for axes in unknown for symbol in axes.symbols())
        return tuple(dict.fromkeys((*own, *called)))

    @cached_property
    def called(self) -> tuple[Graph, ...]:
        """The graphs that its ops run, each once."""
        running = [op.graphs for op in self.ops if op.graphs]
        return tuple(dict.fromkeys(graph for graphs in running for graph in graphs))

    def specialize(self, solution: Mapping[Symbol, int]) -> Graph:
        """Return the graph with unknown lengths replaced, and all axes inferred anew."""
        new: dict[Op, Op] = {}
        for op in self.ops:
            args = tuple(new[arg] for arg in op.args)
            if not args and op.is_constant:
                new[op] = op
                continue
            fields = {k: _substituted(v, solution) for k, v in op.attributes().items()}
            with scope.replacing(op):
                new[op] = type(op)(*args, **fields)
        return self.mapped(new, dict.fromkeys(new.values()))

    def specialized(self, solution: Mapping[Symbol, int]) -> Graph:
        """Like `specialize`, but the very same graph each time, and itself without symbols."""
        if not self.symbols:
            return self
        key = Graph.specialized, frozenset(solution.items())
        return self.memo_nested(key, lambda: self.specialize(solution))

    def verify(self) -> None:
        """Check every rule that a graph must keep.

        Raises GraphError that names the op and its line: a stored state as an operand, axes or
        dtype that do not follow from the operands, a parameter that is not an input, an update that
        does not fit its state, a state with two updates, or a cycle.
        """
        for graph in called_graphs(self, own=True):
            graph._verify_ops()
            graph._verify_updates()

    def _verify_ops(self) -> None:
        # Whoever changed an op in place did not change the order that is remembered.
        children = self.children if self.after else _args
        ops = self.ops if _is_ordered(self.ops, children) else self._ordered_ops()
        inputs = set(self.inputs)
        for op in ops:
            if op.is_state:
                raise GraphError(op.explain("a stored state is used as a value: read it instead"))
            if isinstance(op, ParameterOp) and op not in inputs:
                raise GraphError(op.explain("the parameter is not an input of the graph"))
            _check_inference(op)
            for inner in op.contained:
                _check_inference(inner)

    def _verify_updates(self) -> None:
        if len(dict(self.updates)) < len(self.updates):
            states = [state for state, _ in self.updates]
            twice = next(state for state in states if states.count(state) > 1)
            raise GraphError(twice.explain("the graph updates the state twice"))
        for state, value in self.updates:
            if (value.axes.lengths, value.dtype) != (state.axes.lengths, state.dtype) and (
                state.axes.is_static
            ):
                raise GraphError(
                    value.explain(
                        f"{value.dtype} {value.axes} cannot update {state} of "
                        f"{state.dtype} {state.axes}"
                    )
                )

    def text(self, full: bool = False) -> str:
        """Return the graph as a program that `weft.parse` reads back if `full` is true."""
        return upcalls.print_graph(self, full)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        try:
            count = f"{len(self.ops)} ops"
        except GraphError:
            count = "ops in a cycle"
        return f"<Graph {self.name}: {count}, {len(self.outputs)} outputs>"

    def _repr_html_(self) -> str:
        return upcalls.graph_as_html(self)


def called_graphs(graph: Graph, own: bool = False) -> list[Graph]:
    """Return all graphs that a graph calls, those called first; with `own` itself, as the last."""
    order: list[Graph] = []
    seen = {graph}
    path = [(graph, iter(graph.called))]
    while path:
        each, rest = path[-1]
        below = next((found for found in rest if found not in seen), None)
        if below is None:
            path.pop()
            order.append(each)
        else:
            seen.add(below)
            path.append((below, iter(below.called)))
    return order if own else order[:-1]


def exchanges(graph: Graph) -> list[Op]:
    """Return the ops of a graph, and of those that it calls, in which other ranks take part."""

    def found() -> list[Op]:
        return [op for each in called_graphs(graph, own=True) for op in each.ops if op.is_exchange]

    return graph.memo("exchanges", found)


def on_new_operands(op: Op, new: Mapping[Op, Op]) -> Op:
    """Return an op on what its operands became; the op itself if none changed."""
    if not op.args:
        return op
    return op.on(tuple([new.get(arg, arg) for arg in op.args]))


def in_order(graph: Graph, ops: Sequence[Op]) -> Graph:
    """Return a graph whose ops were built in another order, each after its operands."""
    if are_same(ops, graph.ops):
        return graph
    new: dict[Op, Op] = {}
    for number, op in enumerate(ops):
        new[op] = made = op.with_args(tuple([new[arg] for arg in op.args]))
        made.__dict__["order"] = number
    return graph.mapped(new, new.values())


_GIVEN = (ParameterOp, ReadOp)
_PARTS = ("inputs", "outputs", "updates", "effects", "after", "name")


_args = attrgetter("args")
_user_order = attrgetter("order", "serial")


def _needed(made: tuple[Op, ...], roots: Iterable[Op]) -> tuple[Op, ...]:
    """Return those of some ops that roots need, or none if one is missing or before an operand."""
    roots, given = tuple(roots), set(made)
    if len(given) == len(made) and given == set(roots).union(*map(_args, made)):
        return made if _is_ordered(made, _args) else ()
    needed = set(roots)
    found: list[Op] = []
    after: set[Op] = set()
    for op in reversed(made):
        if op in needed:
            if not after.isdisjoint(op.args):
                return ()
            after.add(op)
            found.append(op)
            needed.update(op.args)
    return tuple(reversed(found)) if len(found) == len(needed) else ()


def _is_ordered(ops: Iterable[Op], children: Callable[[Op], Iterable[Op]]) -> bool:
    """Whether every op comes after all its children."""
    before: set[Op] = set()
    for op in ops:
        if not before.issuperset(children(op)):
            return False
        before.add(op)
    return True


def _ordered(ops: list[Op], children: Callable[[Op], Iterable[Op]]) -> list[Op]:
    """Return ops in the order given, but each delayed until its children have been."""
    place = {op: index for index, op in enumerate(ops)}
    users: list[list[int]] = [[] for _ in ops]
    waiting = []
    for index, op in enumerate(ops):
        first = {place[child] for child in children(op)}
        waiting.append(len(first))
        for child in first:
            users[child].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(ops[index])
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(order) < len(ops):
        stuck = [op for op, count in zip(ops, waiting, strict=True) if count]
        raise GraphError(_cycle_message(stuck, children))
    return order


def _cycle_message(ops: list[Op], children: Callable[[Op], Iterable[Op]]) -> str:
    stuck = set(ops)
    op = ops[0]
    places: dict[Op, int] = {}
    while op not in places:
        places[op] = len(places)
        op = next(child for child in children(op) if child in stuck)
    cycle = list(places)[places[op] :]
    lines = [f"  {found} waits for the next, {found.file_info}" for found in cycle]
    return "\n".join(["the order of ops has a cycle:", *lines])


def _check_inference(op: Op) -> None:
    try:
        axes, dtype = op.infer()
    except WeftError as error:
        raise GraphError(op.explain(error.problem)) from error
    except Exception as error:
        problem = f"its operands do not fit: {type(error).__name__}: {error}"
        raise GraphError(op.explain(problem)) from error
    is_same = axes is op.axes and dtype is op.dtype
    if not is_same and (axes != op.axes or dtype != op.dtype):
        raise GraphError(
            op.explain(f"yields {op.dtype} {op.axes}, but its operands give {dtype} {axes}")
        )


def _substituted(value: Any, solution: Mapping[Symbol, int]) -> Any:
    if isinstance(value, Axes):
        return value.substitute(solution)
    if isinstance(value, Length):
        return substitute(value, solution)
    if isinstance(value, Graph):
        return value.specialized(solution)
    if type(value) is tuple:
        return tuple(_substituted(part, solution) for part in value)
    return value

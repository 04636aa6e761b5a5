"""Graph: the ops between inputs and outputs, with every effect made explicit; immutable.

A captured graph holds values only. A state enters as a `ReadOp`, the value it has when a call
begins; what a call writes into it is listed in `updates` and happens when all reads are done. So
passes rearrange, merge and drop ops without ever looking at scopes or at the order of writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from weft import scope
from weft.axes import Axes
from weft.errors import GraphError, WeftError
from weft.lengths import Length, Symbol, substitute
from weft.op import Op
from weft.ops.storage import AssignableTensorOp, ParameterOp, ReadOp
from weft.tensor import TensorOp
from weft.traversal import postorder


class Graph:
    """A program of ops.

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
    """

    def __init__(
        self,
        inputs: Iterable[ParameterOp] = (),
        outputs: Iterable[TensorOp] = (),
        updates: Iterable[tuple[AssignableTensorOp, TensorOp]] = (),
        effects: Iterable[Op] = (),
        after: Mapping[Op, Sequence[Op]] | None = None,
        name: str = "graph",
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.updates = tuple(updates)
        self.effects = tuple(effects)
        self.after = {op: tuple(first) for op, first in (after or {}).items()}
        self.name = name

    @property
    def roots(self) -> tuple[Op, ...]:
        """The ops that everything else is there for."""
        return (*self.effects, *self.outputs, *(value for _, value in self.updates))

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Every op in an order that respects operands and `after`, else the user's own.

        Raises GraphError for a cycle.
        """
        children = self._children if self.after else _args
        found = postorder((*self.inputs, *self.roots), children)
        found.sort(key=_user_order)
        place = {op: index for index, op in enumerate(found)}
        if all(place[child] < index for op, index in place.items() for child in children(op)):
            return tuple(found)
        return self._sorted(found, children)

    def _children(self, op: Op) -> tuple[Op, ...]:
        return (*op.args, *self.after.get(op, ()))

    def _sorted(self, ops: list[Op], children: Callable[[Op], Iterable[Op]]) -> tuple[Op, ...]:
        users: dict[Op, list[Op]] = {op: [] for op in ops}
        waiting = {}
        for op in ops:
            first = set(children(op))
            waiting[op] = len(first)
            for child in first:
                users[child].append(op)
        ready = [(*_user_order(op), op) for op in ops if not waiting[op]]
        heapq.heapify(ready)
        order = []
        while ready:
            op = heapq.heappop(ready)[2]
            order.append(op)
            for user in users[op]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (*_user_order(user), user))
        if len(order) < len(ops):
            raise GraphError(_cycle_message([op for op in ops if waiting[op]], children))
        return tuple(order)

    @property
    def states(self) -> tuple[AssignableTensorOp, ...]:
        """Every state that is read or updated, each once."""
        read = (op.state for op in self.ops if isinstance(op, ReadOp))
        return tuple(dict.fromkeys((*read, *(state for state, _ in self.updates))))

    def replace(self, **parts: Any) -> Graph:
        """Return a graph with some of the constructor's parts exchanged."""
        own = {key: getattr(self, key) for key in _PARTS}
        return Graph(**{**own, **parts})

    def rewrite(self, change: Callable[[Op], Op]) -> Graph:
        """Return the graph with each op, its operands already rewritten, replaced by another.

        Ops that nothing changed are shared with the old graph; if none changed it is the very same
        graph.
        """
        new: dict[Op, Op] = {}
        for op in self.ops:
            new[op] = change(on_new_operands(op, new))
        return self.mapped(new)

    def mapped(self, new: Mapping[Op, Op]) -> Graph:
        """Return the graph whose inputs, roots and edges are those that `new` maps to."""
        if all(new[op] is op for op in (*self.inputs, *self.roots)) and not self.after:
            return self
        after = {
            new[op]: tuple(new[first] for first in firsts)
            for op, firsts in self.after.items()
            if op in new and all(first in new for first in firsts)
        }
        return self.replace(
            inputs=[new[op] for op in self.inputs],
            outputs=[new[op] for op in self.outputs],
            updates=[(state, new[value]) for state, value in self.updates],
            effects=[new[op] for op in self.effects],
            after=after,
        )

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The unknown lengths of all ops and states, each once."""
        unknown = [op.axes for op in self.ops if not op.axes.is_static]
        unknown.extend(state.axes for state, _ in self.updates)
        leaves = (op.attributes().values() for op in self.ops if not op.args)
        unknown.extend(value for values in leaves for value in values if isinstance(value, Axes))
        return tuple(dict.fromkeys(found for axes in unknown for found in axes.symbols()))

    def specialise(self, solution: Mapping[Symbol, int]) -> Graph:
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
        return self.mapped(new)

    def verify(self, known: Iterable[Op] = ()) -> None:
        """Check every rule that a graph must keep; ops in `known` are taken as checked.

        Raises GraphError that names the op and its line: a stored state as an operand, axes or
        dtype that do not follow from the operands, a parameter that is no input, an update that
        does not fit its state, or a cycle.
        """
        checked = set(known)
        inputs = set(self.inputs)
        for op in self.ops:
            if op in checked:
                continue
            if op.is_state:
                raise GraphError(op.explain("a stored state is used as a value: read it instead"))
            if isinstance(op, ParameterOp) and op not in inputs:
                raise GraphError(op.explain("the parameter is no input of the graph"))
            _check_inference(op)
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
        from weft.text import print_graph

        return print_graph(self, full)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.ops)} ops, {len(self.outputs)} outputs>"


def on_new_operands(op: Op, new: Mapping[Op, Op]) -> Op:
    """Return an op on what its operands became; the op itself if none changed."""
    for arg in op.args:
        if new.get(arg, arg) is not arg:
            return op.with_args(tuple([new.get(arg, arg) for arg in op.args]))
    return op


_PARTS = ("inputs", "outputs", "updates", "effects", "after", "name")


def _args(op: Op) -> tuple[Any, ...]:
    return op.args


def _user_order(op: Op) -> tuple[int, int]:
    return (op.order, op.serial)


def _cycle_message(ops: list[Op], children: Callable[[Op], Iterable[Op]]) -> str:
    stuck = set(ops)
    op, path = ops[0], []
    while op not in path:
        path.append(op)
        op = next(child for child in children(op) if child in stuck)
    cycle = path[path.index(op) :]
    lines = [f"  {found} waits for the next, {found.file_info}" for found in cycle]
    return "\n".join(["the order of ops has a cycle:", *lines])


def _check_inference(op: Op) -> None:
    try:
        axes, dtype = op.infer()
    except WeftError as error:
        raise GraphError(op.explain(error.problem)) from error
    if axes != op.axes or dtype != op.dtype:
        raise GraphError(
            op.explain(f"yields {op.dtype} {op.axes}, but its operands give {dtype} {axes}")
        )


def _substituted(value: Any, solution: Mapping[Symbol, int]) -> Any:
    if isinstance(value, Axes):
        return value.substitute(solution)
    if isinstance(value, Length):
        return substitute(value, solution)
    if type(value) is tuple:
        return tuple(_substituted(part, solution) for part in value)
    return value

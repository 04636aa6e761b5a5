"""Capture: turns the user's ops into a graph in which every effect is explicit.

Writes become values. An op that read a state after a write uses the value written; one that read
it before uses the `ReadOp` of the state; what the last write of each state left is an update of the
graph. Write-after-read needs no edges then: the plan sees how long the old value is in use.

The closure of the results goes through operands and `other_deps`; a result that is itself a state
brings the last write of the scope in which the capture happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.errors import ArgumentError, GraphError, StateError
from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op, listed
from weft.ir.storage import AssignableTensorOp, AssignOp, ParameterOp, ReadOp
from weft.ir.tensor import TensorOp
from weft.ir.traversal import dependencies, postorder
from weft.ops.control.effects import ParallelOp, SequentialOp
from weft.ops.control.graph_ops import AfterOp
from weft.ops.shape.movement import broadcast
from weft.support.gc_pause import gc_paused
from weft.transforms.inlining import without_saved

_SPECIAL = (ReadOp, ParameterOp, SequentialOp, AssignOp, ParallelOp, AfterOp)


def capture(
    results: Sequence[Op], parameters: Sequence[AssignableTensorOp] = (), name: str = "graph"
) -> Graph:
    """Return the graph of results, with one output for each that yields a tensor.

    Parameters
    ----------
    results
        Ops in a list; their effects and writes belong to the graph.
    parameters
        The placeholders that are the inputs of the graph, in a list.
    name
        A name for listings.

    Returns
    -------
    Graph
        The graph, immutable and independent of what is built or written afterwards.

    Raises
    ------
    ArgumentError
        For what is not a list of ops, and for a parameter that is not a placeholder.
    GraphError
        For an op that belongs to another captured graph.
    StateError
        For writes whose order is ambiguous.

    Examples
    --------
    >>> x = weft.placeholder((2,), name="x")
    >>> graph = weft.capture([weft.sum(weft.exp(x))], [x])
    >>> graph
    <Graph graph: 3 ops, 1 outputs>
    >>> [type(op).__name__ for op in graph.ops]
    ['ParameterOp', 'ExpOp', 'SumOp']
    """
    results, parameters = listed("capture", results), listed("capture", parameters, object)
    if not isinstance(name, str):
        raise ArgumentError(f"the name of a graph must be text, not {name!r}")
    for parameter in parameters:
        if not isinstance(parameter, Op) or not getattr(parameter, "is_placeholder", False):
            raise ArgumentError(not_a_placeholder(parameter))
    if len(dict.fromkeys(parameters)) != len(parameters):
        raise ArgumentError(f"a placeholder is listed twice among the parameters of {name}")
    with gc_paused():
        made = _Capture(parameters)
        with made.context:
            return made.run(results, name)


def capture_closure(
    results: Sequence[Op], parameters: Sequence[AssignableTensorOp], before: int, name: str
) -> tuple[Graph, tuple[TensorOp, ...]]:
    """Return the graph of results as a function, and the ops that are its last inputs.

    Those are the tensors with a serial number less than `before` that the results depend on, but
    for constants and variables: what a function that built the other ops took from its
    surroundings. (Closure conversion.)
    """
    with gc_paused():
        made = _Capture(parameters, before)
        with made.context:
            graph = made.run(results, name)
    return graph, tuple(op.source for op in graph.inputs[len(parameters) :])


def not_a_placeholder(parameter: Any) -> str:
    """Return the problem of a parameter, and its remedy."""
    if isinstance(parameter, AssignableTensorOp) and parameter.is_state:
        kind = "variable" if parameter.is_trainable else "persistent tensor"
        return parameter.explain(
            f"the parameter {parameter} is a {kind}, not a placeholder: set its value between "
            f"calls by transformer.set_value({parameter}, value), or take a placeholder as the "
            "parameter, and assign that to it"
        )
    return (
        f"{parameter!r} of type {type(parameter).__name__} is not a placeholder: give the "
        "placeholders one by one, as in computation(result, x, y)"
    )


class _Execution:
    """What has been executed of one sequence, or outside of all of them."""

    def __init__(self, sequence: SequentialOp | None = None) -> None:
        self.ordered = sequence is not None
        self.values: dict[Op, Any] = {}
        self.writers: dict[Op, Op] = {}
        self.done: dict[Op, int] = {}
        members = [] if sequence is None else postorder([sequence], _members)
        self.pending = {op for op in members if isinstance(op, AssignOp)}

    def version(self, read: Op | None) -> Op | None:
        """Return the write that a reader sees, passing over members whose turn has not come."""
        while read in self.pending and read is not None:
            read = read.reads[0]
        return read


class _Capture:
    def __init__(self, parameters: Sequence[AssignableTensorOp], before: int = 0) -> None:
        self.leaves: dict[Any, Any] = {}
        self.context = scope.Replacements()
        self.inputs: list[ParameterOp] = []
        self.before = before
        self.free: dict[Op, ParameterOp] = {}
        for op in parameters:
            self.leaves[op] = self._input(op)
        self.written: dict[Op, TensorOp] = {}
        self.successor: dict[tuple[Any, Op | None], Op] = {}
        self.effects: dict[Op, None] = {}
        self.effect_values: dict[Op, Op] = {}
        self.bases: dict[Op, Op | None] = {}
        self.main = _Execution()
        self.within: dict[Op, Any] = {}
        """What one sequence alone has computed, None for what several have."""

    def run(self, results: Sequence[Op], name: str) -> Graph:
        token = scope.current.get().scope
        last = (op.last_write(token) for op in results if isinstance(op, AssignableTensorOp))
        roots = [*results, *(write for write in last if write is not None)]
        if self.before:
            found = postorder(roots, lambda op: () if self._is_free(op) else dependencies(op))
            for op in filter(self._is_free, found):
                values = self.leaves if op.is_state else self.free
                values[op] = self._input(op)
            self.main.values.update(self.free)
            found = [op for op in found if op not in self.free]
        else:
            found = postorder(roots, dependencies)
        sequences = [op for op in found if isinstance(op, SequentialOp)]
        if sequences:
            self._run_sequences(sequences)
            for root in roots:
                self._execute(root, self.main)
        else:
            for op in found:
                if not op.is_state:
                    self.main.values[op] = self._convert(op, self.main)
        final = {state: self._final_value(state) for state, base in self.successor if base is None}
        graph = Graph(
            inputs=self.inputs,
            outputs=[self._output(op, final) for op in results if op.is_tensor],
            updates=[
                (state, value)
                for state, value in final.items()
                if state not in self.leaves or isinstance(self.leaves[state], ReadOp)
            ],
            effects=self.effects,
            name=name,
        )
        graph = without_saved(graph)
        graph.writes = frozenset(self.written)
        return graph

    def _input(self, op: Op) -> ParameterOp:
        with scope.replacing(op):
            made = ParameterOp(source=op, target_axes=op.axes)
        self.inputs.append(made)
        return made

    def _is_free(self, op: Op) -> bool:
        """Whether an op is from the surroundings of the function whose graph is captured."""
        if op.serial >= self.before or op.is_constant or not op.is_tensor:
            return False
        return not op.is_state or getattr(op, "is_placeholder", False)

    def _run_sequences(self, sequences: Iterable[SequentialOp]) -> None:
        """Execute each outermost sequence by itself, the last built first.

        A sequence that is a member of another runs as part of it.
        """
        for op in sorted(sequences, key=lambda op: op.serial, reverse=True):
            if op in self.main.values:
                continue
            execution = _Execution(op)
            execution.values.update(self.free)
            self._execute(op, execution)
            for inner, value in execution.values.items():
                self.within[inner] = None if inner in self.within else value
                if isinstance(inner, SequentialOp):
                    self.main.values.setdefault(inner, value)

    def _output(self, op: Op, final: dict[Any, TensorOp]) -> TensorOp:
        if op.is_state:
            return final[op] if op in final else self._leaf(op)
        within = self.within.get(op)
        value: TensorOp = self.main.values[op] if within is None else within
        return value

    def _final_value(self, state: Op) -> TensorOp:
        write = self.successor[state, None]
        while (state, write) in self.successor:
            write = self.successor[state, write]
        return self.written[write]

    def _leaf(self, state: Op) -> Any:
        leaf = self.leaves.get(state)
        if leaf is None:
            self.context.turn_to(state)
            leaf = self.leaves[state] = ReadOp(state=state, target_axes=state.axes)
        return leaf

    def _execute(self, root: Op, execution: _Execution) -> None:
        """Convert an op and, first, all it needs, without recursion."""
        stack = [] if root.is_state else [root]
        values = execution.values
        while stack:
            op = stack[-1]
            if op in values:
                stack.pop()
                continue
            missing = self._missing(op, execution)
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            values[op] = self._convert(op, execution)

    def _missing(self, op: Op, execution: _Execution) -> list[Op]:
        """Return the ops to execute before an op; members of a sequence one at a time."""
        values = execution.values
        if isinstance(op, SequentialOp):
            for number in range(execution.done.get(op, 0), len(op.args)):
                execution.done[op] = number
                if op.args[number] not in values and not op.args[number].is_state:
                    return [op.args[number]]
            return []
        meaning = op.meaning
        needed = [arg for arg in meaning.args if not arg.is_state and arg not in values]
        for state, seen in zip(meaning.args, meaning.reads, strict=True):
            read = execution.version(seen)
            if read is not None and read not in self.written and state not in execution.writers:
                needed.append(read)
        needed.reverse()
        return needed

    def _convert(self, op: Op, execution: _Execution) -> Op:
        if op.is_constant and not op.args:
            return op
        if isinstance(op, _SPECIAL):
            return self._convert_special(op, execution)
        meaning = op.meaning
        args = tuple(
            [
                self._current(arg, read, execution) if arg.is_state else execution.values[arg]
                for arg, read in zip(meaning.args, meaning.reads, strict=True)
            ]
        )
        new = op.on(args) if meaning is op else meaning.with_args(args)
        if meaning is not op:
            new.stand_for(op)
        if new.has_effect:
            new = self.effect_values.setdefault(op, new)
            self.effects[new] = None
        return new

    def _convert_special(self, op: Op, execution: _Execution) -> Op:
        if isinstance(op, ReadOp | ParameterOp):
            raise GraphError(
                op.explain("the op belongs to a captured graph: give the ops it was captured from")
            )
        if isinstance(op, AfterOp):
            value: Op = execution.values[op.args[0]]
            return value
        if isinstance(op, SequentialOp):
            last = op.args[-1]
            return self._current(last, None, execution) if last.is_state else execution.values[last]
        return self._write(op, execution) if isinstance(op, AssignOp) else op

    def _current(self, state: Op, read: Op | None, execution: _Execution) -> TensorOp:
        """Return the value of a state as a reader in an execution sees it."""
        write = execution.writers.get(state) or (read and execution.version(read))
        return self._leaf(state) if write is None else self.written[write]

    def _write(self, op: AssignOp, execution: _Execution) -> Op:
        state = op.args[0]
        base = execution.writers.get(state) or execution.version(op.reads[0])
        value = op.args[1]
        # The value may be the state itself, as it was before this write.
        value = (
            self._current(value, op.reads[1], execution)
            if value.is_state
            else execution.values[value]
        )
        if execution.ordered:
            execution.writers[state] = op
            execution.pending.discard(op)
        if op in self.written:
            if execution.ordered and self.bases[op] is not base:
                self._refuse_order(state, op, self.bases[op] or base or op)
            return op
        self.bases[op] = base
        other = self.successor.setdefault((state, base), op)
        if other is not op:
            self._refuse_order(state, op, other)
        with scope.replacing(op):
            self.written[op] = broadcast(value, state.axes)
        return op

    def _refuse_order(self, state: Op, one: Op, other: Op) -> None:
        first, second = sorted((one, other), key=lambda op: op.serial)
        raise StateError(
            f"{state} is written twice from the same earlier value, so the order is open: "
            f"build both in one scope, or put them into one sequential()\n"
            f"  first write: {first.file_info}\n  second write: {second.file_info}"
        )


def _members(op: Op) -> tuple[Op, ...]:
    """Return the members of a sequence or a group; nothing for any other op."""
    return op.args if isinstance(op, SequentialOp | ParallelOp) else ()

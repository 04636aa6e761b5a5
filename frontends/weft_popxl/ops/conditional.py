"""Conditionals: calls of one of two graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import weft
from weft import TensorOp
from weft.ops.control.calls import cond_op
from weft_popxl import dtypes
from weft_popxl.arguments import several, whole
from weft_popxl.building import announced, recorded
from weft_popxl.context import get_current_graph
from weft_popxl.data import as_tensor
from weft_popxl.errors import NotProvided, PlaceError, popart_exception, refuse_value
from weft_popxl.ops.call import (
    CallSiteInfo,
    at,
    bound_inputs,
    refuse_shared,
    require_changeable,
    write_back,
)
from weft_popxl.ops.hosting import new_load
from weft_popxl.program import Graph, Record, Store, Tensor
from weft_popxl.streams import S, by_stream, offsets, totals

__all__ = ["ConditionalInfo", "conditional", "conditional_with_info"]


class ConditionalInfo:
    """A conditional: input 0 is the condition, followed by the inputs of the two graphs.

    Attributes
    ----------
    graph
        The caller.
    then_graph, else_graph
        The two branches.
    inputs, outputs
        Tensors of the caller.
    """

    def __init__(
        self,
        condition: Tensor,
        then_info: CallSiteInfo,
        else_info: CallSiteInfo,
        changed: Mapping[Tensor, TensorOp],
    ) -> None:
        self.graph = then_info.graph
        self.condition = condition
        self._branches = {True: then_info, False: else_info}
        self._changed = changed

    @property
    def then_graph(self) -> Graph:
        """The graph for a true condition."""
        return self._branches[True].called_graph

    @property
    def else_graph(self) -> Graph:
        """The graph for a false condition."""
        return self._branches[False].called_graph

    @property
    def called_graph(self) -> tuple[Graph, Graph]:
        """Both graphs."""
        return self.then_graph, self.else_graph

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The condition, the inputs of the first graph and those of the second."""
        both = (*self._branches[True].inputs, *self._branches[False].inputs)
        return (self.condition, *both)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs of the selected graph."""
        return self._branches[True]._returned

    def parent_input(self, idx: int) -> Tensor:
        """Return one of `inputs` by index; raises IndexError."""
        return at("input", self.inputs, idx)

    def parent_output(self, idx: int) -> Tensor:
        """Return one of `outputs` by index; raises IndexError."""
        return at("output", self.outputs, idx)

    def graph_to_parent(self, graph_tensor: Tensor, then_branch: bool | None = None) -> Tensor:
        """Return the caller's tensor for an input or output of a branch.

        If both branches are the same graph it is that of the first, unless `then_branch` is false.
        Raises ValueError for any other tensor.
        """
        if then_branch is None:
            then_branch = any(graph_tensor is each for each in self._branches[True]._called())
        return self._branches[then_branch].graph_to_parent(graph_tensor)

    def parent_to_graph(self, parent_tensor: Tensor, then_branch: bool | None = None) -> Tensor:
        """Return a branch's tensor for an input or output; that of the first if both have one.

        Raises ValueError for any other tensor.
        """
        if then_branch is None:
            then_branch = any(parent_tensor is each for each in self._branches[True]._calling())
        return self._branches[then_branch].parent_to_graph(parent_tensor)

    def graph_to_parent_input_index(self, idx: int, then_branch: bool = True) -> int:
        """Return the index in `inputs` of a branch's input; raises IndexError."""
        number = self._branches[then_branch].graph_to_parent_input_index(idx)
        return self._first(then_branch) + number

    def parent_to_graph_input_index(self, idx: int, then_branch: bool | None = None) -> int:
        """Return the index in its branch of one of `inputs`; raises IndexError.

        `then_branch` requires a branch; by default it is the one with the input.
        """
        own = self.is_parent_index_in_then_branch(idx)
        if then_branch not in (None, own):
            raise PlaceError(
                f"input {idx} of the conditional is not one of "
                f"{self._branches[bool(then_branch)].called_graph}"
            )
        return idx - self._first(own)

    def is_parent_index_in_then_branch(self, idx: int) -> bool:
        """Return whether one of `inputs` belongs to the first graph; raises IndexError for none."""
        number = whole("the number of an input", idx)
        count = len(self.inputs)
        if not 0 < number < count:
            there_are = f"they have 1 to {count - 1}" if count > 1 else "they have none"
            raise PlaceError(
                f"input {number} of the conditional is not one of its graphs: {there_are}"
            )
        return number < self._first(False)

    def _first(self, then_branch: bool) -> int:
        """Return the index in `inputs` of a branch's first input."""
        return 1 if then_branch else 1 + len(self._branches[True].inputs)

    def graph_to_parent_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Return the index in `outputs` of a branch's output: the same."""
        return self._branches[then_branch].graph_to_parent_output_index(idx)

    def parent_to_graph_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Return the index in a branch of one of `outputs`: the same."""
        return self._branches[then_branch].parent_to_graph_output_index(idx)

    def set_parent_input_modified(
        self, parent_tensor: Tensor, infer_modified_regions: bool = True
    ) -> None:
        """Apply the selected graph's in-place changes of an input to the caller's tensor.

        Must be called right after the conditional: raises popart_exception if the tensor was used
        since, and if a graph changes another input that shares its memory. Raises ValueError for a
        tensor that is not an input. The changed regions are always inferred.
        """
        if not any(parent_tensor is each for each in self.inputs):
            refuse_value(f"{parent_tensor!r} is not an input of this conditional")
        if parent_tensor not in self._changed:
            return
        roots = set(parent_tensor.place.roots)
        for branch in self._branches.values():
            changed = [branch.inputs[n] for n in branch.called_graph.captured().modified]
            same = [each for each in changed if not roots.isdisjoint(each.place.roots)]
            refuse_shared(same, branch.called_graph)
        record = self._branches[True]._record
        require_changeable(self.graph, record, parent_tensor)
        write_back(record, parent_tensor, self._changed[parent_tensor])

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}[graph={self.graph} called_graph={self.called_graph} "
            f"inputs={list(self.inputs)} outputs={list(self.outputs)}]"
        )


class _Branch(CallSiteInfo):
    """One branch of a conditional."""

    def __init__(
        self, called: Graph, inputs: Sequence[Tensor], record: Record, outputs: Sequence[Tensor]
    ) -> None:
        self.graph = get_current_graph()
        self.called_graph = called
        self.inputs = tuple(inputs)
        self._record = record
        self._returned = tuple(outputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self._returned

    def _called(self) -> tuple[Tensor, ...]:
        return (*self.called_graph.inputs, *self.called_graph._outputs)


def _check_branches(one: Graph, other: Graph) -> None:
    if len(one._outputs) != len(other._outputs):
        refuse_value(
            f"both graphs of a conditional have as many outputs: {one} has {len(one._outputs)}, "
            f"{other} has {len(other._outputs)}"
        )
    for left, right in zip(one._outputs, other._outputs, strict=True):
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            raise popart_exception(f"conditional: the outputs {left!r} and {right!r} differ")
    for graph in (one, other):
        if any(tensor.by_ref for tensor in graph.inputs):
            raise NotProvided(f"{graph} has inputs by reference, which a conditional cannot change")
    for what, left_, right_ in (
        ("load", totals(one._loads), totals(other._loads)),
        ("store", totals(one._stores), totals(other._stores)),
    ):
        if left_ != right_:
            raise popart_exception(
                f"both graphs of a conditional must {what} as many tensors of the same streams: "
                f"{one} and {other} do not"
            )


def _given(what: str, inputs: Sequence[Any] | None) -> list[Any]:
    return [] if inputs is None else several(what, inputs)


def _changed(called: Graph, parents: Sequence[Tensor]) -> dict[Tensor, int]:
    """Return the index of each input that a graph changes in place, by the caller's tensor."""
    return {parents[place]: place for place in called.captured().modified}


def _by_name(streams: Iterable[S]) -> list[S]:
    """Return streams in the order in which both graphs take and yield their slices."""
    return sorted(streams, key=lambda stream: stream.name)


def _side(
    called: Graph, streams: Sequence[Any], changed: Sequence[Tensor], own: Mapping[Tensor, int]
) -> Any:
    """Return a graph that loads and stores all slices of each stream at once.

    It also takes and yields the caller's tensors that either branch changes.
    """
    captured = called.captured()
    count = len(called._outputs)
    if not (called._loads or called._stores or changed):
        return captured.graph.replace(outputs=captured.graph.outputs[:count])
    inputs = [weft.placeholder(op.axes, op.dtype) for op in captured.graph.inputs]
    inputs = inputs[: len(called.inputs)]
    passed = {each: weft.placeholder(each.op.axes, each.op.dtype) for each in changed}
    sums = totals(called._loads)
    blocks = {s: weft.placeholder((sums[s], *s.shape), s.dtype.as_numpy()) for s in streams}
    loads = [
        blocks[load.stream][begin : begin + load.count] for load, begin in offsets(called._loads)
    ]
    made = weft.call(captured.graph, *inputs, *loads)
    values = [
        made[count + captured.modified.index(own[each])] if each in own else passed[each]
        for each in changed
    ]
    parts = by_stream(called._stores, made[count + len(captured.modified) :])
    return weft.capture(
        [*made[:count], *values, *(weft.concat(parts[stream]) for stream in _by_name(parts))],
        [*inputs, *passed.values(), *blocks.values()],
        f"{called.id}_branch",
    )


def _choice(
    condition: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    ones: Sequence[Tensor],
    others: Sequence[Tensor],
) -> tuple[weft.CondOp, list[Tensor]]:
    """Return the op of two branches with their inputs, and the tensors that either changes."""
    sums = totals(then_branch._loads)
    streams = _by_name(sums)
    blocks = [new_load(stream, sums[stream]).op for stream in streams]
    own, other = _changed(then_branch, ones), _changed(else_branch, others)
    changed = [*dict.fromkeys((*own, *other))]
    passed = [each.place.read() for each in changed]
    op = cond_op(
        weft.reshape(condition.place.read(), ()),
        _side(then_branch, streams, changed, own),
        _side(else_branch, streams, changed, other),
        [*(each.place.read() for each in ones), *passed, *blocks],
        [*(each.place.read() for each in others), *passed, *blocks],
    )
    return op, changed


def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[Any] | None = None,
    else_inputs: Sequence[Any] | None = None,
    then_inputs_dict: Mapping[Tensor, Any] | None = None,
    else_inputs_dict: Mapping[Tensor, Any] | None = None,
    check_inputs: bool = True,
) -> ConditionalInfo:
    """Call one graph if a bool is true, else another, and return the call site.

    Both have outputs of the same shapes and dtypes. Inputs are always checked; `check_inputs` has
    no effect. Raises ValueError for different numbers of outputs, NotImplementedError for inputs by
    reference, popart_exception if the graphs are incompatible or load or store different numbers of
    tensors, and the errors of `call`.
    """
    condition = as_tensor(cond, dtypes.bool)
    if condition.nelms != 1 or condition.dtype != dtypes.bool:
        raise popart_exception(f"the condition must be one bool, not {condition!r}")
    ones = bound_inputs(then_branch, _given("then_inputs", then_inputs), then_inputs_dict)
    others = bound_inputs(else_branch, _given("else_inputs", else_inputs), else_inputs_dict)
    _check_branches(then_branch, else_branch)
    graph = get_current_graph()
    record = recorded(
        "conditional", (condition, *ones, *others), called_graphs=(then_branch, else_branch)
    )
    op, changed = _choice(condition, then_branch, else_branch, ones, others)
    graph._effects += [op] if op.has_effect else []
    results = iter(op.results)
    names = [each.label for each in then_branch._outputs]
    outputs = [graph._add(Tensor, next(results), name, record=record) for name in names]
    modified = {each: next(results) for each in changed}
    stored = totals(then_branch._stores)
    for stream, result in zip(_by_name(stored), results, strict=True):
        graph._stores.append(Store(stream, stored[stream], result))
    announced(record, *outputs)
    return ConditionalInfo(
        condition,
        _Branch(then_branch, ones, record, outputs),
        _Branch(else_branch, others, record, outputs),
        modified,
    )


def conditional(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[Any] | None = None,
    else_inputs: Sequence[Any] | None = None,
    then_inputs_dict: Mapping[Tensor, Any] | None = None,
    else_inputs_dict: Mapping[Tensor, Any] | None = None,
) -> tuple[Tensor, ...]:
    """Call one graph if a bool is true, else another; see `conditional_with_info`."""
    return conditional_with_info(
        cond,
        then_branch,
        else_branch,
        then_inputs,
        else_inputs,
        then_inputs_dict,
        else_inputs_dict,
    ).outputs

"""A choice between two graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft import TensorOp
from weft.ops.calls import cond_op
from weft_popxl import dtypes
from weft_popxl.arguments import several, whole
from weft_popxl.building import announced, recorded
from weft_popxl.context import get_current_graph
from weft_popxl.data import as_tensor
from weft_popxl.errors import NotProvided, PlaceError, popart_exception, refuse_value
from weft_popxl.graph import Graph
from weft_popxl.ops.call import CallSiteInfo, at, bound_inputs
from weft_popxl.ops.hosting import new_load
from weft_popxl.record import Record
from weft_popxl.streams import Store, totals
from weft_popxl.tensor import Tensor

__all__ = ["ConditionalInfo", "conditional", "conditional_with_info"]


class ConditionalInfo:
    """A choice between two graphs: input 0 is the condition, then come those of the graphs.

    Attributes
    ----------
    graph
        The graph that chooses.
    then_graph, else_graph
        What it chooses between.
    inputs, outputs
        Tensors of the graph that chooses.
    """

    def __init__(self, condition: Tensor, then_info: CallSiteInfo, else_info: CallSiteInfo) -> None:
        self.graph = then_info.graph
        self.condition = condition
        self._branches = {True: then_info, False: else_info}

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
        """The condition, the inputs for the first graph and those for the second."""
        both = (*self._branches[True].inputs, *self._branches[False].inputs)
        return (self.condition, *both)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What the chosen graph yields."""
        return self._branches[True]._returned

    def parent_input(self, index: int) -> Tensor:
        """Return one of `inputs` by its number; raises IndexError."""
        return at("input", self.inputs, index)

    def parent_output(self, index: int) -> Tensor:
        """Return one of `outputs` by its number; raises IndexError."""
        return at("output", self.outputs, index)

    def graph_to_parent(self, graph_tensor: Tensor, then_branch: bool = True) -> Tensor:
        """Return what an input or output of a graph is in the caller; raises ValueError."""
        return self._branches[then_branch].graph_to_parent(graph_tensor)

    def parent_to_graph(self, parent_tensor: Tensor, then_branch: bool = True) -> Tensor:
        """Return which input or output of a graph a tensor is; raises ValueError."""
        return self._branches[then_branch].parent_to_graph(parent_tensor)

    def graph_to_parent_input_index(self, index: int, then_branch: bool = True) -> int:
        """Return the number among `inputs` of an input of a graph; raises IndexError."""
        number = self._branches[then_branch].graph_to_parent_input_index(index)
        return 1 + number + (0 if then_branch else len(self._branches[True].inputs))

    def parent_to_graph_input_index(self, index: int, then_branch: bool = True) -> int:
        """Return the number in a graph of one of `inputs`; raises IndexError."""
        branch = self._branches[then_branch]
        first = 1 + (0 if then_branch else len(self._branches[True].inputs))
        end = first + len(branch.inputs)
        index = whole("the number of an input", index)
        if not first <= index < end:
            raise PlaceError(
                f"input {index} of the conditional is none of {branch.called_graph}"
                + (f": its are {first} to {end - 1}" if first < end else ", which has none")
            )
        return index - first

    def graph_to_parent_output_index(self, index: int, then_branch: bool = True) -> int:
        """Return the number among `outputs` of an output of a graph: the same."""
        return self._branches[then_branch].graph_to_parent_output_index(index)

    def parent_to_graph_output_index(self, index: int, then_branch: bool = True) -> int:
        """Return the number in a graph of one of `outputs`: the same."""
        return self._branches[then_branch].parent_to_graph_output_index(index)


class _Branch(CallSiteInfo):
    """One side of a choice."""

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


def _side(called: Graph, streams: Sequence[Any]) -> Any:
    """Return a graph that takes all slices of each stream in one, and stores so."""
    captured = called.captured()
    own = len(called._outputs)
    if not (called._loads or called._stores):
        return captured.graph.replace(outputs=captured.graph.outputs[:own])
    inputs = [weft.placeholder(op.axes, op.dtype) for op in captured.graph.inputs]
    inputs = inputs[: len(called.inputs)]
    sums = totals(called._loads)
    blocks = {s: weft.placeholder((sums[s], *s.shape), s.dtype.as_numpy()) for s in streams}
    first = dict.fromkeys(sums, 0)
    loads = []
    for load in called._loads:
        begin = first[load.stream]
        first[load.stream] += load.count
        loads.append(blocks[load.stream][begin : begin + load.count])
    made = weft.call(captured.graph, *inputs, *loads)
    parts: dict[Any, list[TensorOp]] = {}
    results = made[own + len(captured.modified) :]
    for store, result in zip(called._stores, results, strict=True):
        parts.setdefault(store.stream, []).append(result)
    stored = sorted(parts, key=lambda stream: str(stream.name))
    return weft.capture(
        [*made[:own], *(weft.concat(parts[stream]) for stream in stored)],
        [*inputs, *blocks.values()],
        f"{called.id}_branch",
    )


def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Sequence[Any] | None = None,
    else_inputs: Sequence[Any] | None = None,
    then_inputs_dict: Mapping[Tensor, Any] | None = None,
    else_inputs_dict: Mapping[Tensor, Any] | None = None,
) -> ConditionalInfo:
    """Call one graph where a bool is true, else another, and return what is known of it.

    Both have outputs of the same shapes and dtypes. Raises ValueError for different numbers of
    outputs, NotImplementedError for inputs by reference, popart_exception where the graphs do not
    fit each other or load or store different numbers of tensors, and what `call` raises.
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
    streams = sorted(totals(then_branch._loads), key=lambda stream: str(stream.name))
    sums = totals(then_branch._loads)
    blocks = [new_load(stream, sums[stream]).op for stream in streams]
    op = cond_op(
        weft.reshape(condition.place.read(), ()),
        _side(then_branch, streams),
        _side(else_branch, streams),
        [*(each.place.read() for each in ones), *blocks],
        [*(each.place.read() for each in others), *blocks],
    )
    graph._effects += [op] if op.has_effect else []
    results = op.results
    own = len(then_branch._outputs)
    names = [each.label for each in then_branch._outputs]
    outputs = [
        graph._add(op, name, record=record) for op, name in zip(results[:own], names, strict=True)
    ]
    stored = sorted(totals(then_branch._stores).items(), key=lambda item: str(item[0].name))
    for (stream, count), result in zip(stored, results[own:], strict=True):
        graph._stores.append(Store(stream, count, result))
    announced(record, *outputs)
    return ConditionalInfo(
        condition,
        _Branch(then_branch, ones, record, outputs),
        _Branch(else_branch, others, record, outputs),
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
    """Call one graph where a bool is true, else another; see `conditional_with_info`."""
    return conditional_with_info(
        cond,
        then_branch,
        else_branch,
        then_inputs,
        else_inputs,
        then_inputs_dict,
        else_inputs_dict,
    ).outputs

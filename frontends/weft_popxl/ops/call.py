"""Calls of graphs, and the correspondence of tensors between caller and callee."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import weft
from weft.ir.tensor import TensorOp
from weft.ops.control.calls import call_op
from weft_popxl.arguments import mapping, whole
from weft_popxl.building import announced, recorded
from weft_popxl.context import get_current_graph
from weft_popxl.data import as_tensor
from weft_popxl.errors import PlaceError, popart_exception, refuse_type, refuse_value
from weft_popxl.ops.hosting import new_load
from weft_popxl.program import Constant, Graph, Record, Store, Tensor, current

__all__ = ["CallSiteInfo", "call", "call_with_info"]


def refuse_shared(changed: Sequence[Tensor], called: Graph) -> None:
    """Raise popart_exception if two inputs that the callee changes share memory."""
    roots = [set(each.place.roots) for each in changed]
    if sum(map(len, roots)) > len(set().union(*roots)):
        raise popart_exception(
            f"{called} changes two inputs that are the same memory: pass one of them by value"
        )


class CallSiteInfo:
    """A call: the correspondence of tensors of the caller and the callee.

    Attributes
    ----------
    graph
        The caller.
    called_graph
        The callee.
    inputs, outputs
        Tensors of the caller. There are more outputs after `autodiff` has added some to the callee.
    """

    op: Any = None

    def __init__(
        self, called_graph: Graph, inputs: Sequence[Tensor], record: Record, outputs: Sequence[Any]
    ) -> None:
        self.graph = get_current_graph()
        self.called_graph = called_graph
        self.inputs = tuple(inputs)
        self._record = record
        names = [each.label for each in called_graph._outputs]
        self._outputs = [
            self.graph._add(Tensor, op, name, record=record)
            for op, name in zip(outputs, names, strict=True)
        ]
        self._returned = tuple(self._outputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs, and the saved values for the callee's gradient graph."""
        own = len(self.called_graph._outputs)
        for tensor in self.called_graph._activations[len(self._outputs) - own :]:
            inner = self.called_graph.captured().op_of[tensor]
            self._outputs.append(self._inside(inner, tensor.label))
        return tuple(self._outputs)

    def _inside(self, inner: Any, name: str) -> Tensor:
        """Return the value of an op of the callee in this call."""
        op = weft.saved(self.op, inner)
        return self.graph._add(Tensor, op, name, scoped=False, record=self._record)

    def parent_input(self, idx: int) -> Tensor:
        """Return an input by index; raises IndexError."""
        return at("input", self.inputs, idx)

    def parent_output(self, idx: int) -> Tensor:
        """Return an output by index; raises IndexError."""
        return at("output", self.outputs, idx)

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """Return the caller's tensor for an input or output of the callee.

        Raises ValueError for any other tensor.
        """
        return _matching(graph_tensor, self._called(), self._calling(), str(self.called_graph))

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """Return the callee's tensor for an input or output of the call, the first if several.

        Raises ValueError for any other tensor.
        """
        return _matching(parent_tensor, self._calling(), self._called(), "this call")

    def _called(self) -> tuple[Tensor, ...]:
        return (*self.called_graph.inputs, *self.called_graph.outputs)

    def _calling(self) -> tuple[Tensor, ...]:
        return (*self.inputs, *self.outputs)

    def graph_to_parent_input_index(self, idx: int) -> int:
        """Return the index of the call's input for an input of the callee: the same."""
        return _number("input", self.inputs, idx)

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Return the index of the callee's input for an input of the call: the same."""
        return _number("input", self.inputs, idx)

    def graph_to_parent_output_index(self, idx: int) -> int:
        """Return the index of the call's output for an output of the callee: the same."""
        return _number("output", self.outputs, idx)

    def parent_to_graph_output_index(self, idx: int) -> int:
        """Return the index of the callee's output for an output of the call: the same."""
        return _number("output", self.outputs, idx)

    def set_parent_input_modified(
        self, parent_tensor: Tensor, infer_modified_regions: bool = True
    ) -> None:
        """Apply the callee's in-place changes of an input to the caller's tensor.

        Must be called right after the call: raises popart_exception if the tensor was used since.
        The changed regions are always inferred. Raises ValueError for a tensor that is not an
        input.
        """
        places = [number for number, each in enumerate(self.inputs) if each is parent_tensor]
        if not places:
            refuse_value(f"{parent_tensor!r} is not an input of the call of {self.called_graph}")
        changed = [n for n in places if n in self.called_graph.captured().modified]
        if changed:
            require_changeable(self.graph, self._record, parent_tensor)
            self._bring_back(changed)

    def _bring_back(self, places: Sequence[int]) -> None:
        """Write the values after the call back to inputs of the caller."""
        refuse_shared([self.inputs[place] for place in places], self.called_graph)
        captured = self.called_graph.captured()
        first = len(self.called_graph._outputs)
        for place in places:
            result = self.op.results[first + captured.modified.index(place)]
            write_back(self._record, self.inputs[place], result)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}[graph={self.graph} called_graph={self.called_graph} "
            f"inputs={list(self.inputs)} outputs={list(self.outputs)}]"
        )


def write_back(record: Record, tensor: Tensor, op: TensorOp) -> None:
    """Replace the value of a tensor by its value after a call."""
    if isinstance(tensor, Constant):
        raise popart_exception(f"{tensor!r} is a constant, which a call cannot change")
    record.writes.update(dict.fromkeys(tensor.place.roots))
    tensor.place.write(op)


def require_changeable(graph: Graph, record: Record, tensor: Tensor) -> None:
    """Raise popart_exception if a tensor was used after a record."""
    later = graph._records[graph._records.index(record) + 1 :]
    roots = set(tensor.place.roots)
    for other in later:
        if not roots.isdisjoint((*other.reads, *other.writes)):
            raise popart_exception(
                f"{tensor!r} was used after the call, by {other!r}: say "
                "set_parent_input_modified right after the call"
            )


def at(what: str, tensors: Sequence[Tensor], index: int) -> Tensor:
    """Return an input or output by index; raises IndexError."""
    return tensors[_number(what, tensors, index)]


def _number(what: str, tensors: Sequence[Any], index: int) -> int:
    number = whole(f"the number of an {what}", index)
    if not 0 <= number < len(tensors):
        raise PlaceError(f"there is no {what} {number}: the call has {len(tensors)}")
    return number


def _matching(
    tensor: Tensor, these: Sequence[Tensor], those: Sequence[Tensor], where: str
) -> Tensor:
    found = [other for mine, other in zip(these, those, strict=True) if mine is tensor]
    if found:
        return found[0]
    return refuse_value(f"{tensor!r} is neither an input nor an output of {where}")


# Arguments


def bound_inputs(
    called: Graph, inputs: Sequence[Any], inputs_dict: Mapping[Tensor, Any] | None
) -> list[Tensor]:
    """Return the caller's tensors for the inputs of a callee.

    Raises ValueError for too many, missing, or foreign inputs, TypeError for values that cannot
    become tensors, popart_exception for a wrong shape or dtype.
    """
    require_callable(called)
    given = list(flattened(inputs))
    expected = called.inputs
    if len(given) > len(expected):
        refuse_value(
            f"Too many inputs have been provided: {len(given)} for the {len(expected)} of {called}"
        )
    found: dict[Tensor, Any] = dict(zip(expected, given, strict=False))
    for key, value in mapping("inputs_dict", inputs_dict).items():
        _require_input(called, key)
        if key in found:
            refuse_value(f"Graph input tensor is specified twice: {key!r}")
        found[key] = value
    if len(found) < len(expected):
        refuse_value(
            "Not enough inputs have been provided:\n"
            + "\n".join(f"  {each!r}: {found.get(each, 'missing')!r}" for each in expected)
        )
    return [_fitting(each, found[each]) for each in expected]


def require_callable(called: Any) -> None:
    """Raise an error unless a graph can be called from the current one."""
    graph = get_current_graph()
    if not isinstance(called, Graph):
        refuse_type(f"what is called must be a graph, not {called!r}")
    if called.ir is not graph.ir:
        refuse_value(f"{called} belongs to another Ir than {graph}")
    if called in current.get().graphs or called.is_main:
        raise popart_exception(
            f"{called} cannot be called while it is being built: graphs are not recursive"
        )


def flattened(values: Iterable[Any]) -> Iterable[Any]:
    """Yield values, with lists and tuples flattened recursively."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flattened(value)
        else:
            yield value


def _require_input(called: Graph, key: Any) -> None:
    if not isinstance(key, Tensor):
        refuse_type(f"the keys of inputs_dict are tensors, not {key!r}")
    if key.graph is not called:
        refuse_value(f"The graph tensor {key!r} is not in the called graph {called}")
    if not any(key is each for each in called.inputs):
        refuse_value(f"The graph tensor {key!r} is not an input of the called graph {called}")


def _fitting(wanted: Tensor, value: Any) -> Tensor:
    tensor = as_tensor(value, wanted)
    if (tensor.shape, tensor.dtype) != (wanted.shape, wanted.dtype):
        raise popart_exception(f"{tensor!r} does not fit the input {wanted!r}")
    return tensor


def by_reference(called: Graph) -> list[int]:
    """Return the indices of the inputs that are changed in place and passed by reference."""
    modified = called.captured().modified
    return [place for place in modified if called.inputs[place].by_ref]


# Calls


def call_with_info(
    graph: Graph,
    *inputs: Any,
    inputs_dict: Mapping[Tensor, Any] | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """Call a graph and return the call site.

    Inputs are given by position, with lists flattened, or by the tensor of the callee. They are
    passed by value, unless the graph declares them ``by_ref``. They are always checked;
    `check_inputs` has no effect. Raises ValueError for too many, missing or foreign inputs,
    TypeError for values that cannot become tensors, and popart_exception for a wrong shape or
    dtype.
    """
    parents = bound_inputs(graph, inputs, inputs_dict)
    captured = graph.captured()
    parent = get_current_graph()
    record = recorded("call", parents, called_graphs=(graph,))
    loads = [new_load(load.stream, load.count).op for load in graph._loads]
    op = call_op(captured.graph, *(each.place.read() for each in parents), *loads)
    own = len(graph._outputs)
    info = CallSiteInfo(graph, parents, record, op.results[:own])
    info.op = op
    parent._effects += [op] if op.has_effect else []
    for store, result in zip(
        graph._stores, op.results[own + len(captured.modified) :], strict=True
    ):
        parent._stores.append(Store(store.stream, store.count, result))
    info._bring_back(by_reference(graph))
    announced(record, *info._returned)
    return info


def call(
    graph: Graph, *inputs: Any, inputs_dict: Mapping[Tensor, Any] | None = None
) -> tuple[Tensor, ...]:
    """Call a graph and return its outputs; see `call_with_info`."""
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict)._returned


# The class is also available as ``ops.call.CallSiteInfo``, although `ops.call` is the function.
vars(call).update(CallSiteInfo=CallSiteInfo, call=call, call_with_info=call_with_info)

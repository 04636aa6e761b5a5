"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, lowers
from weft_onnx.tracing import CALLED, Frame, Tracer


@lowers("SequenceConstruct")
def sequence_construct(node: Node) -> Any:
    """Return the operands as a sequence."""
    return (list(node.inputs),)


@lowers("SequenceEmpty")
def sequence_empty(node: Node) -> Any:
    """Return an empty sequence."""
    return ([],)


def _place(node: Node, index: int, default: int, length: int) -> int:
    place = int(node.array(index).reshape(-1)[0]) if node.has(index) else default
    if not -length <= place <= length:
        raise node.error(f"position {place} is not one of {length}")
    return place + length if place < 0 else place


@lowers("SequenceInsert")
def sequence_insert(node: Node) -> Any:
    """Return the sequence with a tensor at a position, by default at the end."""
    found = list(node.raw(0))
    found.insert(_place(node, 2, len(found), len(found)), node.raw(1))
    return (found,)


@lowers("SequenceErase")
def sequence_erase(node: Node) -> Any:
    """Return the sequence without a tensor, by default the last."""
    found = list(node.raw(0))
    del found[_place(node, 1, -1, len(found))]
    return (found,)


@lowers("SequenceAt")
def sequence_at(node: Node) -> Any:
    """Return a tensor of a sequence."""
    return node.raw(0)[_place(node, 1, 0, len(node.raw(0)))]


@lowers("SequenceLength")
def sequence_length(node: Node) -> Any:
    """Return the length of a sequence."""
    return np.array(len(node.raw(0)), np.int64)


@lowers("SplitToSequence")
def split_to_sequence(node: Node) -> Any:
    """Split a tensor into a sequence."""
    axis = node.axis(node.attr("axis", 0))
    length = node.shape()[axis]
    keeps = True
    if node.has(1):
        given = node.array(1)
        if given.ndim:
            lengths = [int(each) for each in given]
        else:
            each = int(given)
            lengths = [min(each, length - at) for at in range(0, length, each)]
    else:
        lengths, keeps = [1] * length, node.flag("keepdims")
    parts = weft.split(node[0], lengths, axis)
    return (parts if keeps else [weft.squeeze(part, axis) for part in parts],)


@lowers("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Any:
    """Join or stack the tensors of a sequence."""
    parts = [node.op(each) for each in node.raw(0)]
    if node.flag("new_axis"):
        axis = node.axis(node.required("axis"), parts[0].rank + 1)
        return weft.stack(parts, pos=axis)
    return weft.concat(parts, node.axis(node.required("axis"), parts[0].rank))


@lowers("SequenceMap")
def sequence_map(node: Node) -> Any:
    """Apply a graph to the tensors of sequences at each position."""
    if not node.frame.state:
        node.remember(found=[])
    return _next_of_map(node)


def _next_of_map(node: Node) -> Any:
    found, first = node.frame.state["found"], node.raw(0)
    if len(found) == len(first):
        count = node.outputs
        return tuple([each[at] for each in found] for at in range(count))
    index = len(found)
    values = [each[index] if isinstance(each, list) else each for each in node.inputs]
    return node.tracer.inner(node, node.required("body"), values, _mapped)


def _mapped(tracer: Tracer, caller: Frame, results: list[Any]) -> None:
    caller.state = {"found": [*caller.state["found"], results]}
    found = _next_of_map(tracer.node(caller))
    if found is not CALLED:
        tracer.finish(caller, found)


@lowers("Optional")
def optional(node: Node) -> Any:
    """Return the operand as an optional, or one without an element."""
    return (node.raw(0),)


@lowers("OptionalHasElement")
def optional_has_element(node: Node) -> Any:
    """Return whether an optional has an element."""
    return np.array(node.has(0), np.bool_)


@lowers("OptionalGetElement")
def optional_get_element(node: Node) -> Any:
    """Return the element of an optional."""
    if not node.has(0):
        raise node.error("the optional has no element")
    return (node.raw(0),)

"""From nodes to weft ops: views become parts of their owner, and writes in place become values.

Effects happen in the order of evaluation. The value of every owner of memory is kept as it is at
that point; a replacement makes a new one, and whatever reads the memory later, through any handle,
reads that. Buffers begin as the values of states and are written back at the end, in place: the
planner sees that nothing reads the old value any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

import weft
from weft import Op, TensorOp
from weft.ir import scope
from weft.runtime import out_of_memory
from weft_hamkaas.nodes import (
    BufferTensor,
    ComplexHadamardProductNode,
    ConstantTensor,
    HadamardProductNode,
    HamKaasNode,
    InputTensor,
    MatMulNode,
    PermuteNode,
    ReLUNode,
    ReplaceSliceNode,
    RmsNormNode,
    SiLUNode,
    SlicedSoftmaxNode,
    SliceNode,
    SumNode,
)
from weft_hamkaas.traversal import evaluation_order, named_inputs


@dataclass(frozen=True)
class Lowered:
    """A model as weft ops.

    Attributes
    ----------
    result
        The value of the root.
    inputs
        The placeholders, by name, in the order in which they are first needed.
    buffers
        The state behind each buffer; every lowering makes its own.
    updates
        The op that writes the buffers, or None if the model writes none.
    """

    result: TensorOp
    inputs: dict[str, TensorOp]
    buffers: dict[HamKaasNode, TensorOp]
    updates: Op | None

    @property
    def results(self) -> list[Op]:
        """What a computation returns: the result, and None for the updates if there are any."""
        return [self.result] if self.updates is None else [self.result, self.updates]


class Place(NamedTuple):
    """Where the value of a node lies: elements of its owner from an offset on, and their shape."""

    owner: HamKaasNode
    offset: int
    shape: tuple[int, ...]


class _Bounds(NamedTuple):
    """What must hold at a call: ``0 <= low <= limit`` and ``high - low == length``."""

    low: HamKaasNode
    high: HamKaasNode
    limit: int
    length: int


def lower(root: HamKaasNode) -> Lowered:
    """Return a node, and all it needs, as weft ops that point at the lines of the nodes."""
    with scope.saved_user_deps():
        return _Lowering(root).run()


class _Lowering:
    def __init__(self, root: HamKaasNode) -> None:
        self.root = root
        self.order = evaluation_order(root)
        self.inputs = {name: _placeholder(node) for name, node in named_inputs(self.order).items()}
        self.buffers: dict[HamKaasNode, TensorOp] = {}
        self.current: dict[HamKaasNode, TensorOp] = {}
        self.places: dict[HamKaasNode, Place] = {}
        self.views: dict[tuple[TensorOp, int, tuple[int, ...]], TensorOp] = {}
        self.written: dict[HamKaasNode, None] = {}
        self.checked: dict[HamKaasNode, TensorOp] = {}
        self.insides: dict[tuple[int, HamKaasNode], TensorOp] = {}

    def run(self) -> Lowered:
        leaves = [node for node in self.order if not node.inputs]
        self._visit_all(leaves)
        self._check_bounds()
        self._visit_all(node for node in self.order if node.inputs)
        result = self.value(self.root)
        writes = [
            weft.assign(self.buffers[owner], self.current[owner])
            for owner in self.written
            if owner in self.buffers
        ]
        return Lowered(result, self.inputs, self.buffers, weft.doall(writes) if writes else None)

    def _visit_all(self, nodes: Iterable[HamKaasNode]) -> None:
        for node in nodes:
            with scope.located(node.location):
                self.places[node] = self._visit(node)

    def _visit(self, node: HamKaasNode) -> Place:
        """Give a node its value, or say where in an older one it lies."""
        shape = tuple(node.meta.shape)
        if not node.is_transparent:
            self.current[node] = self._leaf(node) if not node.inputs else self._computed(node)
            return Place(node, 0, shape)
        base = self.places[node.inputs[0]]
        if isinstance(node, SliceNode):
            _, begin, _ = node.arguments
            return Place(base.owner, base.offset + begin * prod(base.shape[1:]), shape)
        if isinstance(node, ReplaceSliceNode):
            self._replace(node, base)
        return Place(base.owner, base.offset, shape)

    def _leaf(self, node: HamKaasNode) -> TensorOp:
        if isinstance(node, InputTensor):
            return self.inputs[node.get_name()]
        if isinstance(node, ConstantTensor):
            name = node.get_name() or "(unnamed)"
            with out_of_memory.noting_request(node.meta.nbytes, f"constant {name}"):
                constant: TensorOp = weft.constant(node.value, node.meta.shape, node.meta.dtype)
            return constant
        assert isinstance(node, BufferTensor)
        state: TensorOp = weft.persistent_tensor(
            node.meta.shape, dtype=node.meta.dtype, name=node.name
        )
        self.buffers[node] = state
        return state

    def _computed(self, node: HamKaasNode) -> TensorOp:
        if isinstance(node, SlicedSoftmaxNode):
            x, prefix = node.inputs
            return _sliced_softmax(self.value(x), self._inside(node.meta.shape[-1], prefix))
        result: TensorOp = _RULES[type(node)](node, *map(self.value, node.inputs))
        return result

    def value(self, node: HamKaasNode) -> TensorOp:
        """Return what a node is worth now."""
        owner, offset, shape = self.places[node]
        whole = self.current[owner]
        key = whole, offset, shape
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = _part(whole, offset, shape)
        return found

    def _replace(self, node: ReplaceSliceNode, base: Place) -> None:
        """Make the value of the owner that it has after a replacement."""
        whole = self.current[base.owner]
        row = prod(base.shape[1:])
        begin = self._index(node.inputs[2])
        start = begin if row == 1 else begin * row
        new = weft.dynamic_update_slice(
            weft.reshape(whole, (whole.size,)),
            weft.reshape(self.value(node.inputs[1]), (node.length * row,)),
            [start + base.offset if base.offset else start],
        )
        self.current[base.owner] = weft.reshape(new, whole.shape)
        self.written[base.owner] = None

    def _inside(self, length: int, prefix: HamKaasNode) -> TensorOp:
        """Return which of so many elements belong to a prefix.

        Nothing writes integers, so this holds for all softmaxes of a model.
        """
        found = self.insides.get((length, prefix))
        if found is None:
            places = weft.constant(np.arange(length))
            found = self.insides[length, prefix] = weft.less(places, self._index(prefix))
        return found

    def _index(self, node: HamKaasNode) -> TensorOp:
        """Return one integer, which was found to be in range if it depends on the call."""
        found = self.checked.get(node)
        if found is None:
            found = weft.reshape(self.value(node), ())
        return found

    def _check_bounds(self) -> None:
        """Let a call end before it writes anything if a bound that it was given is out of range.

        All are checked by one step, on the device, which every user of a bound then waits for.
        """
        wanted = dict.fromkeys(_bounds(self.order))
        if not wanted:
            return
        lows, highs = (self._line(each) for each in zip(*(w[:2] for w in wanted), strict=True))
        limits = weft.constant(np.array([each.limit for each in wanted]))
        lengths = weft.constant(np.array([each.length for each in wanted]))
        is_low = weft.logical_and(weft.greater_equal(lows, 0), weft.less_equal(lows, limits))
        is_right = weft.logical_and(is_low, weft.equal(highs - lows, lengths))
        wrong = weft.cast(weft.logical_not(is_right), "int64")
        # Nothing but 0 is an index into one element, and what lies there is 0.
        zeros = weft.take(weft.constant(np.zeros(1, np.int64)), wrong)
        right = lows + zeros
        for number, each in enumerate(wanted):
            self.checked.setdefault(each.low, right[number])

    def _line(self, nodes: Iterable[HamKaasNode]) -> TensorOp:
        values = [self.value(node) for node in nodes]
        return weft.concat(values) if len(values) > 1 else values[0]


def _bounds(order: Iterable[HamKaasNode]) -> Iterator[_Bounds]:
    """Yield the bounds that are known at a call only."""
    for node in order:
        if isinstance(node, ReplaceSliceNode):
            low, high = node.inputs[2:]
            found = _Bounds(low, high, node.limit, node.length)
        elif isinstance(node, SlicedSoftmaxNode):
            prefix = node.inputs[1]
            found = _Bounds(prefix, prefix, node.meta.shape[-1], 0)
        else:
            continue
        if not all(isinstance(each, ConstantTensor) for each in found[:2]):
            yield found


def _placeholder(node: InputTensor) -> TensorOp:
    with scope.located(node.location):
        placeholder: TensorOp = weft.placeholder(
            node.meta.shape, dtype=node.meta.dtype, name=node.get_name()
        )
    return placeholder


def _part(whole: TensorOp, offset: int, shape: tuple[int, ...]) -> TensorOp:
    """Return elements of a tensor from an offset on; all of these are views."""
    if whole.shape == shape:
        return whole
    size = prod(shape)
    if size != whole.size:
        whole = weft.reshape(whole, (whole.size,))[offset : offset + size]
    part: TensorOp = weft.reshape(whole, shape)
    return part


def _sliced_softmax(x: TensorOp, inside: TensorOp) -> TensorOp:
    lowest = weft.constant(-np.inf, dtype="float32")
    softmax = weft.softmax(weft.where(inside, x, lowest), normalization_axes=-1)
    result: TensorOp = weft.where(inside, softmax, x)
    return result


def _complex_product(_: HamKaasNode, lhs: TensorOp, rhs: TensorOp) -> TensorOp:
    """Add to the left numbers times the right real part, swapped ones times the imaginary part.

    So all operands are views of what is there, and it is one kernel.
    """
    signs = weft.constant(np.array([-1, 1], np.float32).reshape([1] * (lhs.rank - 1) + [2]))
    swapped = lhs[..., ::-1]
    result: TensorOp = lhs * rhs[..., :1] + swapped * (rhs[..., 1:] * signs)
    return result


_RULES: dict[type[HamKaasNode], Callable[..., TensorOp]] = {
    SumNode: lambda node, lhs, rhs: lhs + rhs,
    HadamardProductNode: lambda node, lhs, rhs: lhs * rhs,
    ReLUNode: lambda node, x: weft.relu(x),
    SiLUNode: lambda node, x: weft.silu(x),
    MatMulNode: lambda node, lhs, rhs: weft.matmul(lhs, rhs),
    PermuteNode: lambda node, x: weft.transpose(x, node.arguments[1]),
    ComplexHadamardProductNode: _complex_product,
    RmsNormNode: lambda node, x, weights: weft.rms_norm(x, weights, epsilon=1e-5),
}
"""How each node that has memory of its own is computed; SlicedSoftmax needs a checked index too."""

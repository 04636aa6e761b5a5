"""Lowering of nodes to weft ops: views become slices of their owner, in-place writes new values.

Effects happen in evaluation order. The lowering keeps the current value of each owner of memory.
A replacement makes a new value, which all later readers of this memory see. Buffers are states:
they are read at the beginning and written at the end, in place, since the old value is dead then.
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
    """The ops of a lowered model.

    Attributes
    ----------
    result
        The value of the root.
    inputs
        The placeholders by name, in the order of their first use.
    buffers
        The state of each buffer; every lowering creates its own.
    updates
        The op that writes the buffers, or None without writes.
    """

    result: TensorOp
    inputs: dict[str, TensorOp]
    buffers: dict[HamKaasNode, TensorOp]
    updates: Op | None

    @property
    def results(self) -> list[Op]:
        """The results of the computation: the result, and the updates, if any, which give None."""
        return [self.result] if self.updates is None else [self.result, self.updates]


class ValueStorage(NamedTuple):
    """The memory of a node's value: the owner, the offset in elements, and the shape."""

    owner: HamKaasNode
    offset: int
    shape: tuple[int, ...]


class _BoundsCheck(NamedTuple):
    """A check at run time: ``0 <= low <= limit`` and ``high - low == length``."""

    low: HamKaasNode
    high: HamKaasNode
    limit: int
    length: int


def lower(root: HamKaasNode) -> Lowered:
    """Return a node and its operands as weft ops, which have the source locations of the nodes."""
    with scope.saved_user_deps():
        return _Lowering(root).run()


class _Lowering:
    def __init__(self, root: HamKaasNode) -> None:
        self.root = root
        self.order = evaluation_order(root)
        self.inputs = {name: _placeholder(node) for name, node in named_inputs(self.order).items()}
        self.buffers: dict[HamKaasNode, TensorOp] = {}
        self.current: dict[HamKaasNode, TensorOp] = {}
        self.storages: dict[HamKaasNode, ValueStorage] = {}
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
                self.storages[node] = self._visit(node)

    def _visit(self, node: HamKaasNode) -> ValueStorage:
        """Compute the value of a node, or its place if it is a view."""
        shape = tuple(node.meta.shape)
        if not node.is_transparent:
            self.current[node] = self._leaf(node) if not node.inputs else self._computed(node)
            return ValueStorage(node, 0, shape)
        base = self.storages[node.inputs[0]]
        if isinstance(node, SliceNode):
            _, begin, _ = node.arguments
            return ValueStorage(base.owner, base.offset + begin * prod(base.shape[1:]), shape)
        if isinstance(node, ReplaceSliceNode):
            self._replace(node, base)
        return ValueStorage(base.owner, base.offset, shape)

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
            node.meta.shape, dtype=node.meta.dtype, initial_value=0, name=node.name
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
        """Return the current value of a node."""
        owner, offset, shape = self.storages[node]
        whole = self.current[owner]
        key = whole, offset, shape
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = _part(whole, offset, shape)
        return found

    def _replace(self, node: ReplaceSliceNode, base: ValueStorage) -> None:
        """Compute the owner's value after a replacement."""
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
        """Return the mask of a prefix: one bool for each of `length` elements.

        Integers are never written, so all softmaxes of a model share the masks.
        """
        found = self.insides.get((length, prefix))
        if found is None:
            places = weft.constant(np.arange(length))
            found = self.insides[length, prefix] = weft.less(places, self._index(prefix))
        return found

    def _index(self, node: HamKaasNode) -> TensorOp:
        """Return an index; if it is an input, it has been checked to be in range."""
        found = self.checked.get(node)
        if found is None:
            found = weft.reshape(self.value(node), ())
        return found

    def _check_bounds(self) -> None:
        """Add a check of all bounds that are inputs, so that a call fails before any write.

        One step on the device checks all of them, and all users of a bound depend on it.
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
        # The only valid index into one element is 0, and the element is 0.
        zeros = weft.take(weft.constant(np.zeros(1, np.int64)), wrong)
        right = lows + zeros
        for number, each in enumerate(wanted):
            self.checked.setdefault(each.low, right[number])

    def _line(self, nodes: Iterable[HamKaasNode]) -> TensorOp:
        values = [self.value(node) for node in nodes]
        return weft.concat(values) if len(values) > 1 else values[0]


def _bounds(order: Iterable[HamKaasNode]) -> Iterator[_BoundsCheck]:
    """Yield the bounds that are inputs."""
    for node in order:
        if isinstance(node, ReplaceSliceNode):
            low, high = node.inputs[2:]
            found = _BoundsCheck(low, high, node.limit, node.length)
        elif isinstance(node, SlicedSoftmaxNode):
            prefix = node.inputs[1]
            found = _BoundsCheck(prefix, prefix, node.meta.shape[-1], 0)
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
    """Return consecutive elements of a tensor, from an offset on; all ops are views."""
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
    """Multiply by the real part, and add the swapped numbers times the imaginary part.

    All operands are views, so this is one kernel.
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
"""The function of each kind of node with its own memory; SlicedSoftmax has a checked index too."""

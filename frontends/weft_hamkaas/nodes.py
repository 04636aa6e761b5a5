"""Nodes: what a model is built of. All checks are made when a node is built."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from weft.ir import scope
from weft.support import source
from weft.support.source import Location
from weft_hamkaas import rules
from weft_hamkaas.arguments import checked_name, whole_number, whole_numbers
from weft_hamkaas.errors import KindError, NodeError
from weft_hamkaas.tensors import (
    TensorMeta,
    as_array,
    checked_meta,
    dtype_name,
    is_tensor,
    is_torch,
    like,
)


class HamKaasNode:
    """A tensor that a model computes, or is given.

    Attributes
    ----------
    signature
        What a script writes between the parentheses, each ``name``, ``type``, ``shape``,
        ``axes``, ``number`` or ``node``.
    arguments
        The values of these.
    inputs
        The nodes among them.
    meta
        Type and shape of the tensor.
    location
        File and line where the node was built, of Python or of a script.
    number
        Its number in the script that it was read from, or None.
    owner
        The node in whose memory its value lies: itself, or that of the first input.
    is_transparent
        Whether its value lies in the memory of its first input.
    is_elementwise
        Whether each element needs only those at its own place, so that it may be written over one.
    """

    signature: ClassVar[tuple[str, ...]] = ()
    is_transparent: ClassVar[bool] = False
    is_elementwise: ClassVar[bool] = False
    __array_ufunc__ = None

    def __init__(self, meta: TensorMeta, *arguments: Any) -> None:
        self.meta = meta
        self.arguments = arguments
        self.inputs = tuple(each for each in arguments if isinstance(each, HamKaasNode))
        self.location: Location = scope.current.get().location or source.user_location()
        self.number: int | None = None
        self._owner = self.inputs[0].owner if self.is_transparent else None

    @property
    def owner(self) -> HamKaasNode:
        """The node whose memory the value lies in."""
        return self._owner or self

    def get_type(self) -> Any:
        """Return the dtype as it was given with the first tensor that this one comes from."""
        return self.meta.type

    def get_shape(self) -> list[int]:
        """Return the lengths of the axes."""
        return list(self.meta.shape)

    def __add__(self, other: Any) -> SumNode:
        return SumNode(self, _operand(other)) if _is_operand(other) else NotImplemented

    def __mul__(self, other: Any) -> HadamardProductNode:
        return HadamardProductNode(self, _operand(other)) if _is_operand(other) else NotImplemented

    def __matmul__(self, other: Any) -> MatMulNode:
        return MatMulNode(self, _operand(other)) if _is_operand(other) else NotImplemented

    def __radd__(self, other: Any) -> NoReturn:
        _refuse_reflected(other, "+")

    def __rmul__(self, other: Any) -> NoReturn:
        _refuse_reflected(other, "*")

    def __rmatmul__(self, other: Any) -> NoReturn:
        _refuse_reflected(other, "@")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise KindError(
            f"{self!r} has no elements before a model with it is evaluated: functions of NumPy do "
            "not take nodes"
        )

    def __getitem__(self, item: Any) -> SliceNode:
        """Return the elements of the first axis at an index, or in a slice; the rank is kept."""
        if isinstance(item, slice):
            if item.step not in (None, 1):
                raise NodeError(f"A slice has no step, not {item.step!r}")
            begin = 0 if item.start is None else item.start
            return SliceNode(self, begin, self.meta.shape[0] if item.stop is None else item.stop)
        begin = whole_number(item, "An index is an integer")
        return SliceNode(self, begin, begin + 1)

    __iter__ = None

    def relu(self) -> ReLUNode:
        """Return ``max(0, x)`` of each element."""
        return ReLUNode(self)

    def silu(self) -> SiLUNode:
        """Return ``x / (1 + exp(-x))`` of each element."""
        return SiLUNode(self)

    def reshape(self, shape: Sequence[int]) -> ReshapeNode:
        """Return the same elements along other axes; it takes no memory."""
        return ReshapeNode(self, shape)

    def permute(self, permutation: Sequence[int]) -> PermuteNode:
        """Return the tensor with its axes in another order."""
        return PermuteNode(self, permutation)

    def replace(self, replacement: Any, start: Any, end: Any) -> ReplaceSliceNode:
        """Return this tensor after its elements from `start` to before `end` were replaced.

        That happens in place: whatever comes later in the script sees the new elements.
        """
        return ReplaceSliceNode(self, _operand(replacement), start, end)

    def rms_norm(self, weights: Any) -> RmsNormNode:
        """Return ``weights * x / sqrt(mean(x ** 2) + 1e-5)``."""
        return RmsNormNode(self, _operand(weights))

    def complex_hadamard_product(self, other: Any) -> ComplexHadamardProductNode:
        """Return the products of complex numbers, which are two numbers along the last axis."""
        return ComplexHadamardProductNode(self, _operand(other))

    def sliced_softmax(self, prefix: Any) -> SlicedSoftmaxNode:
        """Return the tensor after softmax over its first `prefix` elements along the last axis."""
        return SlicedSoftmaxNode(self, prefix)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.meta.dtype} {self.meta.shape}>"


def _refuse_reflected(left: Any, sign: str) -> NoReturn:
    """Raise KindError for what is no node on the left of an operator."""
    if is_tensor(left):
        advice = f"write ConstantTensor(array) {sign} node"
    else:
        advice = f"there are node {sign} node and node {sign} tensor"
    found = (
        f"{dtype_name(left.dtype)} {list(left.shape)}" if is_tensor(left) else reprlib.repr(left)
    )
    raise KindError(f"The left operand of {sign} is a node, not {found}: {advice}")


def _refuse_operator(sign: str) -> Callable[[Any, Any], NoReturn]:
    def refuse(self: Any, other: Any) -> NoReturn:
        raise KindError(f"Nodes have no operator {sign}: there are +, * and @")

    return refuse


for _name, _sign in {"sub": "-", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}.items():
    setattr(HamKaasNode, f"__{_name}__", _refuse_operator(_sign))
    setattr(HamKaasNode, f"__r{_name}__", _refuse_operator(_sign))


def _is_operand(value: Any) -> bool:
    return isinstance(value, HamKaasNode) or is_tensor(value)


def _operand(value: Any) -> HamKaasNode:
    """Return a node as it is, and a tensor as a constant."""
    if not _is_operand(value):
        raise KindError(f"An operand is a node or a tensor, not {reprlib.repr(value)}")
    return value if isinstance(value, HamKaasNode) else ConstantTensor(value)


def _index(value: Any, what: str) -> HamKaasNode:
    """Return a node as it is, and an integer or a tensor as a constant."""
    if _is_operand(value):
        return _operand(value)
    number = whole_number(value, f"{what} is an integer, a node or a tensor")
    return ConstantTensor(np.array([number], np.int64))


def _known_index(node: HamKaasNode) -> Any:
    """Return the integer that a node always is, or None."""
    if isinstance(node, ConstantTensor) and node.is_known:
        return int(node.value[0])
    return None


class InputTensor(HamKaasNode):
    """A tensor that every evaluation is given under its name."""

    signature = ("name", "type", "shape")

    def __init__(self, name: str, type: Any, shape: Sequence[int]) -> None:
        meta = checked_meta(type, shape)
        super().__init__(meta, checked_name(name), meta.dtype, meta.shape)

    def get_name(self) -> str:
        """Return the name."""
        name: str = self.arguments[0]
        return name


class BufferTensor(HamKaasNode):
    """A tensor of zeros that a model keeps from one evaluation to the next."""

    signature = ("type", "shape")

    def __init__(self, type: Any, shape: Sequence[int], name: str | None = None) -> None:
        meta = checked_meta(type, shape)
        self.name = None if name is None else checked_name(name)
        super().__init__(meta, meta.dtype, meta.shape)


class ConstantTensor(HamKaasNode):
    """A tensor that never changes; it is read when a model is compiled."""

    signature = ("name", "type", "shape")

    def __init__(self, tensor: Any) -> None:
        if not is_tensor(tensor):
            found = reprlib.repr(tensor)
            raise KindError(f"A constant is made of a tensor of NumPy or torch, not of {found}")
        if 0 in tuple(tensor.shape):
            raise NodeError(f"Empty tensors are not supported: {list(tensor.shape)}")
        super().__init__(checked_meta(tensor.dtype, tensor.shape))
        # A bound is checked when a node is built, and must be the same when a model is compiled.
        is_bound = (dtype_name(self.get_type()), self.get_shape()) == ("int64", [1])
        self._tensor = like(as_array(tensor).copy(), tensor) if is_bound else tensor
        self.name: str | None = None
        self.last_name: str | None = None
        """What a traversal called it that had to find a name."""
        self.is_known = True
        """Whether the value is the right one: a script that is only planned needs none."""

    def get_name(self) -> str | None:
        """Return the name that it was given, else that of the last traversal, or None."""
        return self.name or self.last_name

    def set_name(self, name: str) -> None:
        """Give the constant a name in scripts."""
        self.name = checked_name(name)

    def get_tensor(self) -> Any:
        """Return the tensor, with its elements one after the other.

        Raises NodeError for a constant of a script that was read without values.
        """
        if not self.is_known:
            raise NodeError(f"Constant {self.name} has no value: parse_script was given none")
        tensor = self._tensor
        return tensor.contiguous() if is_torch(tensor) else as_array(tensor)

    @property
    def value(self) -> Any:
        """The tensor as an array; where it is not known, a number in place of every element."""
        return as_array(self._tensor) if self.is_known else self._tensor.item(0)


class SumNode(HamKaasNode):
    """The sum of two tensors; the right one is broadcast."""

    signature = ("node", "node")
    is_elementwise = True

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.sum_of(_meta(lhs), _meta(rhs)), lhs, rhs)


class HadamardProductNode(HamKaasNode):
    """The product of two tensors, element by element; the right one is broadcast."""

    signature = ("node", "node")
    is_elementwise = True

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.hadamard_product(_meta(lhs), _meta(rhs)), lhs, rhs)


class ReLUNode(HamKaasNode):
    """``max(0, x)`` of each element."""

    signature = ("node",)
    is_elementwise = True

    def __init__(self, input: HamKaasNode) -> None:
        super().__init__(rules.pointwise("ReLU", _meta(input)), input)


class SiLUNode(HamKaasNode):
    """``x / (1 + exp(-x))`` of each element."""

    signature = ("node",)
    is_elementwise = True

    def __init__(self, input: HamKaasNode) -> None:
        super().__init__(rules.pointwise("SiLU", _meta(input)), input)


class MatMulNode(HamKaasNode):
    """The product of matrices, of a vector and a matrix, or of as many matrices as others."""

    signature = ("node", "node")

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.mat_mul(_meta(lhs), _meta(rhs)), lhs, rhs)


class SliceNode(HamKaasNode):
    """Some elements of the first axis; it takes no memory."""

    signature = ("node", "number", "number")
    is_transparent = True

    def __init__(self, input: HamKaasNode, begin: int, end: int) -> None:
        begin, end = (whole_number(each, "An index is an integer") for each in (begin, end))
        super().__init__(rules.slice_of(_meta(input), begin, end), input, begin, end)


class ReshapeNode(HamKaasNode):
    """The same elements along other axes; it takes no memory."""

    signature = ("node", "shape")
    is_transparent = True

    def __init__(self, input: HamKaasNode, shape: Sequence[int]) -> None:
        meta = rules.reshape(_meta(input), shape)
        super().__init__(meta, input, meta.shape)


class PermuteNode(HamKaasNode):
    """The tensor with its axes in another order."""

    signature = ("node", "axes")

    def __init__(self, input: HamKaasNode, permutation: Sequence[int]) -> None:
        axes = whole_numbers(permutation, "A permutation is a list of integers, as in [1, 0]")
        super().__init__(rules.permute(_meta(input), axes), input, axes)


class ReplaceSliceNode(HamKaasNode):
    """The first input, in whose memory elements of the first axis are replaced."""

    signature = ("node", "node", "node", "node")
    is_transparent = True

    def __init__(self, input: HamKaasNode, replacement: HamKaasNode, begin: Any, end: Any) -> None:
        begin, end = _index(begin, "The begin of a slice"), _index(end, "The end of a slice")
        meta = rules.replace_slice(_meta(input), _meta(replacement), _meta(begin), _meta(end))
        super().__init__(meta, input, replacement, begin, end)
        _require_replaceable(input)
        self.limit = input.meta.shape[0] - replacement.meta.shape[0]
        self.length = replacement.meta.shape[0]
        known = [_known_index(each) for each in (begin, end)]
        if None not in known:
            self.require_bounds(*known)

    def require_bounds(self, begin: int, end: int) -> None:
        """Refuse bounds that are not those of a part as long as the replacement."""
        if not 0 <= begin <= self.limit or end - begin != self.length:
            raise NodeError(
                f"Elements {begin} to {end} of the first axis of {self.meta.shape} cannot be "
                f"replaced by {self.length}: begin is from 0 to {self.limit}, end is "
                f"begin + {self.length}"
            )


def _require_replaceable(node: HamKaasNode) -> None:
    if isinstance(node.owner, ConstantTensor):
        raise NodeError(
            "A slice of a ConstantTensor cannot be replaced, since all later evaluations would "
            "see that: add it to something, or make it a BufferTensor"
        )


class ComplexHadamardProductNode(HamKaasNode):
    """The product of two tensors of complex numbers; the right one is broadcast."""

    signature = ("node", "node")

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.complex_hadamard_product(_meta(lhs), _meta(rhs)), lhs, rhs)


class RmsNormNode(HamKaasNode):
    """``weights * x / sqrt(mean(x ** 2) + 1e-5)`` of vectors."""

    signature = ("node", "node")

    def __init__(self, input: HamKaasNode, weights: HamKaasNode) -> None:
        super().__init__(rules.rms_norm(_meta(input), _meta(weights)), input, weights)


class SlicedSoftmaxNode(HamKaasNode):
    """Softmax over the first elements of the last axis; the others stay as they are."""

    signature = ("node", "node")

    def __init__(self, input: HamKaasNode, prefix: Any) -> None:
        prefix = _index(prefix, "A prefix")
        super().__init__(rules.sliced_softmax(_meta(input), _meta(prefix)), input, prefix)
        known = _known_index(prefix)
        if known is not None:
            self.require_prefix(known)

    def require_prefix(self, prefix: int) -> None:
        """Refuse a prefix that is longer than the last axis."""
        if not 0 <= prefix <= self.meta.shape[-1]:
            raise NodeError(
                f"A prefix of {prefix} elements is none of the last axis of {self.meta.shape}"
            )


def _meta(node: Any) -> TensorMeta:
    if not isinstance(node, HamKaasNode):
        found = reprlib.repr(node)
        raise KindError(f"An operand is a node, not {found}: ConstantTensor makes one of a tensor")
    return node.meta


KINDS: dict[str, type[HamKaasNode]] = {
    kind.__name__: kind
    for kind in (
        InputTensor, ConstantTensor, BufferTensor, SumNode, HadamardProductNode, ReLUNode, SiLUNode,
        MatMulNode, SliceNode, ReshapeNode, PermuteNode, ReplaceSliceNode,
        ComplexHadamardProductNode, RmsNormNode, SlicedSoftmaxNode,
    )
}  # fmt: skip
"""Every kind of node, by its name in scripts."""

"""The nodes of models. All checks are made when a node is built."""

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
    """A tensor that a model computes or takes as an input.

    Attributes
    ----------
    signature
        The kinds of the arguments in a script, each ``name``, ``type``, ``shape``, ``axes``,
        ``number`` or ``node``.
    arguments
        The arguments.
    inputs
        The nodes among them.
    meta
        Type and shape of the tensor.
    location
        File and line of the node in Python or in a script.
    number
        Its number in the script that it was read from, or None.
    owner
        The node that owns the memory of the value: itself, or the owner of the first input.
    is_transparent
        Whether the node is a view of its first input.
    is_elementwise
        Whether each element depends only on those at the same position, so that the node may
        overwrite an input.
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
        """The node that owns the memory of the value."""
        return self._owner or self

    def get_type(self) -> Any:
        """Return the dtype in the form given by the user, for the first tensor it derives from."""
        return self.meta.type

    def get_shape(self) -> list[int]:
        """Return the shape as a list."""
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
        """Return an element or a slice along the first axis; the rank is kept."""
        if isinstance(item, slice):
            if item.step not in (None, 1):
                raise NodeError(f"A slice has no step, not {item.step!r}")
            begin = 0 if item.start is None else item.start
            return SliceNode(self, begin, self.meta.shape[0] if item.stop is None else item.stop)
        begin = whole_number(item, "An index is an integer")
        return SliceNode(self, begin, begin + 1)

    __iter__ = None

    def relu(self) -> ReLUNode:
        """Return ``max(0, x)``, elementwise."""
        return ReLUNode(self)

    def silu(self) -> SiLUNode:
        """Return ``x / (1 + exp(-x))``, elementwise."""
        return SiLUNode(self)

    def reshape(self, shape: Sequence[int]) -> ReshapeNode:
        """Return a view with another shape."""
        return ReshapeNode(self, shape)

    def permute(self, permutation: Sequence[int]) -> PermuteNode:
        """Return the tensor with permuted axes."""
        return PermuteNode(self, permutation)

    def replace(self, replacement: Any, start: Any, end: Any) -> ReplaceSliceNode:
        """Return this tensor after the elements from `start` to before `end` were replaced.

        The replacement is in place: later nodes of the script see the new elements.
        """
        return ReplaceSliceNode(self, _operand(replacement), start, end)

    def rms_norm(self, weights: Any) -> RmsNormNode:
        """Return ``weights * x / sqrt(mean(x ** 2) + 1e-5)``."""
        return RmsNormNode(self, _operand(weights))

    def complex_hadamard_product(self, other: Any) -> ComplexHadamardProductNode:
        """Return the product of complex numbers, which are pairs along the last axis."""
        return ComplexHadamardProductNode(self, _operand(other))

    def sliced_softmax(self, prefix: Any) -> SlicedSoftmaxNode:
        """Return softmax over a prefix of the last axis; the other elements are unchanged."""
        return SlicedSoftmaxNode(self, prefix)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.meta.dtype} {self.meta.shape}>"


def _refuse_reflected(left: Any, sign: str) -> NoReturn:
    """Raise KindError for a left operand that is not a node."""
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
    """Return a node unchanged, and a tensor as a constant."""
    if not _is_operand(value):
        raise KindError(f"An operand is a node or a tensor, not {reprlib.repr(value)}")
    return value if isinstance(value, HamKaasNode) else ConstantTensor(value)


def _index(value: Any, what: str) -> HamKaasNode:
    """Return a node unchanged, and an integer or a tensor as a constant."""
    if _is_operand(value):
        return _operand(value)
    number = whole_number(value, f"{what} is an integer, a node or a tensor")
    return ConstantTensor(np.array([number], np.int64))


def _known_index(node: HamKaasNode) -> Any:
    """Return the value of a constant index, or None if it is an input."""
    if isinstance(node, ConstantTensor) and node.is_known:
        return int(node.value[0])
    return None


class InputTensor(HamKaasNode):
    """A named input of every evaluation."""

    signature = ("name", "type", "shape")

    def __init__(self, name: str, type: Any, shape: Sequence[int]) -> None:
        meta = checked_meta(type, shape)
        super().__init__(meta, checked_name(name), meta.dtype, meta.shape)

    def get_name(self) -> str:
        """Return the name."""
        name: str = self.arguments[0]
        return name


class BufferTensor(HamKaasNode):
    """A tensor that keeps its value between evaluations, initially zeros."""

    signature = ("type", "shape")

    def __init__(self, type: Any, shape: Sequence[int], name: str | None = None) -> None:
        meta = checked_meta(type, shape)
        self.name = None if name is None else checked_name(name)
        super().__init__(meta, meta.dtype, meta.shape)


class ConstantTensor(HamKaasNode):
    """A constant tensor; it is read when a model is compiled."""

    signature = ("name", "type", "shape")

    def __init__(self, tensor: Any) -> None:
        if not is_tensor(tensor):
            found = reprlib.repr(tensor)
            raise KindError(f"A constant is made of a tensor of NumPy or torch, not of {found}")
        if 0 in tuple(tensor.shape):
            raise NodeError(f"Empty tensors are not supported: {list(tensor.shape)}")
        super().__init__(checked_meta(tensor.dtype, tensor.shape))
        # Bounds are checked when the node is built; a copy protects them from later changes.
        is_bound = (dtype_name(self.get_type()), self.get_shape()) == ("int64", [1])
        self._tensor = like(as_array(tensor).copy(), tensor) if is_bound else tensor
        self.name: str | None = None
        self.last_name: str | None = None
        """The name that the last traversal generated for an unnamed constant."""
        self.is_known = True
        """Whether the constant has its value, which compilation needs but planning does not."""

    def get_name(self) -> str | None:
        """Return the name, else the one generated by the last traversal, or None."""
        return self.name or self.last_name

    def set_name(self, name: str) -> None:
        """Set the name of the constant in scripts."""
        self.name = checked_name(name)

    def get_tensor(self) -> Any:
        """Return the tensor, contiguous.

        Raises NodeError for a constant of a script that was read without values.
        """
        if not self.is_known:
            raise NodeError(f"Constant {self.name} has no value: parse_script was given none")
        tensor = self._tensor
        return tensor.contiguous() if is_torch(tensor) else as_array(tensor)

    @property
    def value(self) -> Any:
        """The tensor as an array; a placeholder number if it is not known."""
        return as_array(self._tensor) if self.is_known else self._tensor.item(0)


class SumNode(HamKaasNode):
    """The sum of two tensors; the right one is broadcast."""

    signature = ("node", "node")
    is_elementwise = True

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.sum_of(_meta(lhs), _meta(rhs)), lhs, rhs)


class HadamardProductNode(HamKaasNode):
    """The elementwise product of two tensors; the right one is broadcast."""

    signature = ("node", "node")
    is_elementwise = True

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.hadamard_product(_meta(lhs), _meta(rhs)), lhs, rhs)


class ReLUNode(HamKaasNode):
    """``max(0, x)``, elementwise."""

    signature = ("node",)
    is_elementwise = True

    def __init__(self, input: HamKaasNode) -> None:
        super().__init__(rules.pointwise("ReLU", _meta(input)), input)


class SiLUNode(HamKaasNode):
    """``x / (1 + exp(-x))``, elementwise."""

    signature = ("node",)
    is_elementwise = True

    def __init__(self, input: HamKaasNode) -> None:
        super().__init__(rules.pointwise("SiLU", _meta(input)), input)


class MatMulNode(HamKaasNode):
    """The product of two matrices, of a vector and a matrix, or of two batches of matrices."""

    signature = ("node", "node")

    def __init__(self, lhs: HamKaasNode, rhs: HamKaasNode) -> None:
        super().__init__(rules.mat_mul(_meta(lhs), _meta(rhs)), lhs, rhs)


class SliceNode(HamKaasNode):
    """A slice along the first axis; a view."""

    signature = ("node", "number", "number")
    is_transparent = True

    def __init__(self, input: HamKaasNode, begin: int, end: int) -> None:
        begin, end = (whole_number(each, "An index is an integer") for each in (begin, end))
        super().__init__(rules.slice_of(_meta(input), begin, end), input, begin, end)


class ReshapeNode(HamKaasNode):
    """A view with another shape."""

    signature = ("node", "shape")
    is_transparent = True

    def __init__(self, input: HamKaasNode, shape: Sequence[int]) -> None:
        meta = rules.reshape(_meta(input), shape)
        super().__init__(meta, input, meta.shape)


class PermuteNode(HamKaasNode):
    """The tensor with permuted axes."""

    signature = ("node", "axes")

    def __init__(self, input: HamKaasNode, permutation: Sequence[int]) -> None:
        axes = whole_numbers(permutation, "A permutation is a list of integers, as in [1, 0]")
        super().__init__(rules.permute(_meta(input), axes), input, axes)


class ReplaceSliceNode(HamKaasNode):
    """The first input after an in-place replacement of elements along the first axis."""

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
        """Raise NodeError unless the bounds select a range with the length of the replacement."""
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
    """Softmax over a prefix of the last axis; the other elements are unchanged."""

    signature = ("node", "node")

    def __init__(self, input: HamKaasNode, prefix: Any) -> None:
        prefix = _index(prefix, "A prefix")
        super().__init__(rules.sliced_softmax(_meta(input), _meta(prefix)), input, prefix)
        known = _known_index(prefix)
        if known is not None:
            self.require_prefix(known)

    def require_prefix(self, prefix: int) -> None:
        """Raise NodeError for a prefix longer than the last axis."""
        if not 0 <= prefix <= self.meta.shape[-1]:
            raise NodeError(
                f"{prefix} elements are not a prefix of the last axis of {self.meta.shape}"
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

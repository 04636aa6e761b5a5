"""Type and shape inference of each node, with checks of its operands.

The Python API and the parser share them. All raise NodeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft_hamkaas.errors import NodeError
from weft_hamkaas.tensors import FLOAT, INTEGER, TensorMeta, checked_shape


def _require_float(meta: TensorMeta, what: str) -> None:
    if meta.dtype != FLOAT:
        raise NodeError(f"{what}, not {meta.dtype}")


def _require_same_type(lhs: TensorMeta, rhs: TensorMeta) -> None:
    if lhs.dtype != rhs.dtype:
        raise NodeError(f"Mixed-precision operations are not supported: {lhs.dtype}, {rhs.dtype}")


def _require_floats(lhs: TensorMeta, rhs: TensorMeta, what: str) -> None:
    _require_same_type(lhs, rhs)
    _require_float(lhs, f"{what} is supported for float32 tensors only")


def _require_spread(lhs: TensorMeta, rhs: TensorMeta, what: str) -> None:
    """Refuse a right shape that differs from the left one other than by lengths of 1."""
    same = len(lhs.shape) == len(rhs.shape)
    if not same or any(r not in (1, x) for x, r in zip(lhs.shape, rhs.shape, strict=True)):
        raise NodeError(
            f"Shapes do not match for {what}: {lhs.shape} vs {rhs.shape} (the right one has the "
            "lengths of the left one, or 1)"
        )


def sum_of(lhs: TensorMeta, rhs: TensorMeta) -> TensorMeta:
    """Infer a sum of floats; axes of length 1 of the right operand are broadcast."""
    _require_floats(lhs, rhs, "Sum")
    _require_spread(lhs, rhs, "addition")
    return lhs


def hadamard_product(lhs: TensorMeta, rhs: TensorMeta) -> TensorMeta:
    """Infer a product of floats; axes of length 1 of the right operand are broadcast."""
    _require_floats(lhs, rhs, "Hadamard product")
    _require_spread(lhs, rhs, "Hadamard product")
    return lhs


def complex_hadamard_product(lhs: TensorMeta, rhs: TensorMeta) -> TensorMeta:
    """Infer a product of complex numbers, which are pairs of floats along the last axis."""
    _require_floats(lhs, rhs, "Complex Hadamard product")
    if lhs.shape[-1] != 2 or rhs.shape[-1] != 2:
        raise NodeError(
            f"The last axis holds two numbers, real and imaginary part: {lhs.shape} vs {rhs.shape}"
        )
    _require_spread(lhs, rhs, "complex Hadamard product")
    return lhs


def pointwise(name: str, input: TensorMeta) -> TensorMeta:
    """Infer an elementwise function of floats."""
    _require_float(input, f"Only float32 tensors are supported for {name}")
    return input


def mat_mul(lhs: TensorMeta, rhs: TensorMeta) -> TensorMeta:
    """Infer a product of two matrices, of a vector and a matrix, or of two batches of matrices."""
    _require_floats(lhs, rhs, "Matrix multiplication")
    left, right = lhs.shape, rhs.shape
    if (len(left), len(right)) not in ((2, 2), (1, 2), (3, 3)):
        raise NodeError(
            f"Only matrices are supported for multiplication: {left} vs {right} (a vector may be "
            "on the left, and three axes on both sides)"
        )
    if len(left) == 3 and left[0] != right[0]:
        raise NodeError(f"Incompatible shapes for batched multiplication: {left} vs {right}")
    if left[-1] != right[-2]:
        raise NodeError(f"Shapes do not match for multiplication: {left} vs {right}")
    return TensorMeta(lhs.type, [*left[:-1], right[-1]])


def slice_of(input: TensorMeta, begin: int, end: int) -> TensorMeta:
    """Infer a slice along the first axis, from `begin` to before `end`."""
    _require_float(input, "Only float32 tensors are supported for slice")
    length = input.shape[0]
    if not 0 <= begin < length:
        raise NodeError(f"Start index {begin} is out of bounds of the first axis of {input.shape}")
    if not 0 <= end <= length:
        raise NodeError(f"End index {end} is out of bounds of the first axis of {input.shape}")
    if begin >= end:
        raise NodeError(f"Start index {begin} is greater or equal to end index {end}")
    return TensorMeta(input.type, [end - begin, *input.shape[1:]])


def reshape(input: TensorMeta, shape: Sequence[int]) -> TensorMeta:
    """Infer a reshape."""
    _require_float(input, "Only float32 tensors are supported for reshape")
    lengths = checked_shape(shape)
    old, new = prod(input.shape), prod(lengths)
    if old != new:
        raise NodeError(f"Reshape tensor size mismatch: {old} vs {new}")
    return TensorMeta(input.type, lengths)


def permute(input: TensorMeta, permutation: Sequence[int]) -> TensorMeta:
    """Infer a transposition: axis i of the result is axis ``permutation[i]`` of the operand."""
    _require_float(input, "Only float32 tensors are supported for permute")
    if len(permutation) != len(input.shape):
        raise NodeError(
            f"Permutation must have the same length as the input shape {input.shape}, not "
            f"{len(permutation)}"
        )
    if sorted(permutation) != list(range(len(permutation))):
        raise NodeError(
            f"Permutation must be a permutation of {list(range(len(permutation)))}, not "
            f"{list(permutation)}"
        )
    return TensorMeta(input.type, [input.shape[axis] for axis in permutation])


def replace_slice(
    input: TensorMeta, replacement: TensorMeta, begin: TensorMeta, end: TensorMeta
) -> TensorMeta:
    """Infer an in-place replacement along the first axis, from `begin` to before `end`."""
    _require_same_type(input, replacement)
    _require_float(input, "Only float32 tensors are supported for replace")
    for bound in (begin, end):
        require_index(bound, "Start and end indices")
    here, new = input.shape, replacement.shape
    if len(here) != len(new) or here[1:] != new[1:] or new[0] > here[0]:
        raise NodeError(f"Shapes do not match for replace: {new} is not part of {here}")
    return input


def require_index(meta: TensorMeta, what: str) -> None:
    """Raise NodeError unless the operand is one int64 number."""
    if meta.dtype != INTEGER:
        raise NodeError(f"{what} must be of type int64, not {meta.dtype}")
    if meta.shape != [1]:
        raise NodeError(f"{what} must be scalars, tensors of shape [1], not {meta.shape}")


def rms_norm(input: TensorMeta, weights: TensorMeta) -> TensorMeta:
    """Infer ``weights * input / sqrt(mean(input ** 2) + 1e-5)`` of vectors."""
    _require_floats(input, weights, "RMS norm")
    if len(input.shape) != 1 or input.shape != weights.shape:
        raise NodeError(
            f"RMS norm takes two vectors of one length: {input.shape} vs {weights.shape}"
        )
    return input


def sliced_softmax(input: TensorMeta, prefix: TensorMeta) -> TensorMeta:
    """Infer a softmax over the first `prefix` elements of the last axis."""
    _require_float(input, "Only float32 tensors are supported for sliced softmax")
    require_index(prefix, "The length of the prefix")
    return input

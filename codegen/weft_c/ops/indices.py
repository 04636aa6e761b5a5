"""Indices that are tensors: counted from 0, and reported where they are out of range."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.ir.description import TensorDescription
from weft.ops.gathering import IndexedOp
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Array, KernelBuilder, Lowering
from weft_c.ops.views import collapse_dims

OUT_OF_RANGE = 1
"""What a kernel reports for an index out of range."""


BEFORE, INDEXED, AFTER = range(3)
"""What a dimension of elements is: one before the axis, one of the indices, one after the axis."""


@dataclass(frozen=True)
class Indexing:
    """Elements beside the tensor that indices find them in; all have the same dimensions.

    Attributes
    ----------
    elements, indices
        What is taken or put, and the index for each of its points.
    tensor
        What it is taken from or put into, with the indexed axis at the end; it does not vary along
        the dimensions of the indices.
    roles
        What each dimension of the elements is.
    """

    elements: TensorDescription
    indices: TensorDescription
    tensor: TensorDescription
    roles: tuple[int, ...]

    def shape(self, role: int) -> tuple[int, ...]:
        """Return the lengths of the dimensions of one role."""
        pairs = zip(self.elements.shape, self.roles, strict=True)
        return tuple(length for length, mine in pairs if mine == role)


def indexing(
    tensor: TensorDescription,
    position: int,
    indices: TensorDescription,
    elements: TensorDescription,
) -> Indexing:
    """Return elements beside a tensor whose axis at a position is indexed."""
    rank, last = len(indices.shape), len(tensor.shape) - position - 1
    spread = indices.broadcast(elements.shape, range(position, position + rank))
    steps = (*tensor.strides[:position], *(0,) * rank, *tensor.strides[position + 1 :])
    seen = replace(tensor, shape=elements.shape, strides=steps)
    roles = [BEFORE] * position + [INDEXED] * rank + [AFTER] * last
    (elements, seen, spread), groups = collapse_dims(elements, seen, spread, roles=roles)
    with_axis = replace(
        seen,
        shape=(*seen.shape, tensor.shape[position]),
        strides=(*seen.strides, tensor.strides[position]),
    )
    return Indexing(elements, spread, with_axis, tuple(roles[group[0]] for group in groups))


def report_out_of_range(lowering: Lowering, title: str) -> None:
    """Report indices into an axis that has no elements."""
    builder = lowering.kernel(title)
    parallel_for(builder, (1,), lambda at, emitter: builder.code.line(builder.report(OUT_OF_RANGE)))


def checked_index(
    op: IndexedOp, builder: KernelBuilder, indices: Array, at: tuple[str, ...], kind: str
) -> str:
    """Write an index of an axis, counted from 0; returns its name.

    One that is out of range is reported, and becomes -1.
    """
    code, length = builder.code, op.args[0].axes[op.position].length
    name = code.define("i64", "at", f"(i64){indices.get(*at)}")
    if indices.dtype.kind == "i":
        code.line(f"if ({name} < 0) {name} += {length};")
    if not op.args[1].is_constant:
        with code.block(f"if ({name} < 0 || {name} >= {length})"):
            code.line(builder.report(OUT_OF_RANGE))
            code.line(f"{name} = -1;")
    return code.define(f"const {kind}", "place", f"({kind}){name}")

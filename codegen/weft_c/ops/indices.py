"""Index tensors: negative indices are normalized, indices out of range are reported."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.ir.description import TensorDescription
from weft.ops.indexing.gathering import IndexedOp
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Array, KernelBuilder, Lowering
from weft_c.ops.views import collapse_dims

OUT_OF_RANGE = 1
"""The error code of an index out of range."""


BEFORE, INDEXED, AFTER = range(3)
"""The role of a dimension: before the indexed axis, of the indices, or after the axis."""


@dataclass(frozen=True)
class Indexing:
    """Elements of a gather or scatter, and the tensor that they index, in common dimensions.

    Attributes
    ----------
    elements, indices
        The gathered or scattered elements, and the index of each.
    tensor
        The indexed tensor, with the indexed axis moved to the end; its strides along the dimensions
        of the indices are 0.
    roles
        The role of each dimension of the elements.
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
    """Return the elements and a tensor whose axis `position` is indexed, in common dimensions."""
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
    """Report an index out of range: the indexed axis is empty."""
    builder = lowering.kernel(title)
    parallel_for(builder, (1,), lambda at, emitter: builder.code.line(builder.report(OUT_OF_RANGE)))


def checked_index(
    op: IndexedOp, builder: KernelBuilder, indices: Array, at: tuple[str, ...], kind: str
) -> str:
    """Write the normalized index into the axis; returns its name.

    An index out of range is reported, and becomes -1.
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

"""The lowering rule of transforms by stages."""

from __future__ import annotations

from weft.ir.description import TensorDescription
from weft.kernels.collapse import collapse
from weft_c.fourier.mixed_radix import MixedRadixOp
from weft_c.fourier.serial import SerialTransform, scratch_elements
from weft_c.fourier.work_groups import GroupTransform
from weft_c.lowering import Lowering, needs_scratch, rules
from weft_c.processor import Processor
from weft_tiling.lines import merge_dims


@needs_scratch(MixedRadixOp)
def transform_scratch(op: MixedRadixOp, processor: Processor) -> int:
    """Return the bytes of scratch memory, of each work item of a serial device."""
    if not processor.is_serial:
        return 0
    return processor.units * scratch_elements(op, processor) * op.dtype.itemsize


@rules.on_type(MixedRadixOp)
def transform_rule(op: MixedRadixOp, lowering: Lowering) -> None:
    """Transform the rows, as many at a time as a vector has lanes or one after the other."""
    x, out = lowering.args[0], lowering.out
    if not out.size:
        return
    rank = len(out.shape)
    place = rank - 2 - op.trailing
    out = out.transpose([*(k for k in range(rank - 1) if k != place), place, rank - 1])
    kind = SerialTransform if lowering.processor.is_serial else GroupTransform
    kind(op, lowering, *_with_merged_rows(op, x, out)).write()


def _with_merged_rows(
    op: MixedRadixOp, x: TensorDescription, out: TensorDescription
) -> list[TensorDescription]:
    """Return layouts of pairs [..., rows, n, 2] with as many rows as possible.

    Numbers for each row keep the rows apart.
    """
    rank = len(x.shape)
    keeps_rows = any(numbers.axes.shape[1] > 1 for numbers in op.args[2:])
    roles = ["outer"] * (rank - 3) + ["rows" if keeps_rows else "outer"]
    groups = list(collapse(x.shape[:-2], roles, [each.strides[:-2] for each in (x, out)]))
    if not groups or (keeps_rows and groups[-1] != (rank - 3,)):
        groups.append((rank - 3,))
    return [merge_dims(each, [*groups, (rank - 2,), (rank - 1,)]) for each in (x, out)]

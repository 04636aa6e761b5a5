"""Packed panels: matrices and filters in the order in which tiles of sums read them.

For each term of a sum, a panel has the numbers of several columns side by side, a few vectors of
them. Constants are packed once, at compile time.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.ir import folded_constants
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType, float32, int32, uint32
from weft.ir.op import Op
from weft.ir.storage import owning_constant
from weft.ir.tensor import TensorOp
from weft.nn.spatial.geometry import Numbers
from weft.ops.products.linalg import ContractionOp, MatmulOp
from weft.ops.shape.movement import BroadcastOp
from weft.support.backports import override
from weft_c.loops.parallel import parallel_for, unravel_index
from weft_c.lowering import Lowering, rules
from weft_c.matmul.accumulators import accumulator
from weft_c.matmul.words import numbers_in, numbers_of
from weft_c.processor import Processor
from weft_c.source.values import ValueEmitter
from weft_tiling.counters import needs_wide_counter

MIN_WORK = 16384
"""The fewest multiplications of a product that is worth panels."""


class PackPanelsOp(TensorOp):
    """Filters, or a matrix, in panels: (groups, panels, terms, width), padded with zeros.

    The operand has the axes (filters, channels, spatial), and a term is a channel of a tap. A
    matrix [k, n] has those of a transposed convolution: k filters of n channels.

    Attributes
    ----------
    groups
        The number of groups of channels.
    width
        The filters of a panel.
    is_transposed
        Whether the filters are those of a transposed convolution, whose results are the channels.
    """

    groups: int
    width: int
    is_transposed: bool

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the panels."""
        (w,) = self.args
        groups, results, terms = matrices_of(w.axes.shape, self.groups, self.is_transposed)
        return make_axes((groups, -(-results // self.width), terms, self.width)), w.dtype

    @override
    def reference(self, w: Any) -> Any:
        groups, results, terms = matrices_of(w.shape, self.groups, self.is_transposed)
        channels, taps = terms // prod(w.shape[2:]), prod(w.shape[2:])
        if self.is_transposed:
            rows = w.reshape(groups, channels, results, taps).transpose(0, 2, 1, 3)
        else:
            rows = w.reshape(groups, results, channels, taps)
        rows = rows.reshape(groups, results, terms)
        panels = np.zeros(self.axes.shape, w.dtype)
        width, (whole, rest) = self.width, divmod(results, self.width)
        filled = rows[:, : whole * width].reshape(groups, whole, width, terms)
        panels[:, :whole] = filled.transpose(0, 1, 3, 2)
        panels[:, whole:, :, :rest] = rows[:, None, whole * width :].transpose(0, 1, 3, 2)
        return panels


class PackedMatmulOp(ContractionOp):
    """The product of matrices [..., k] with one packed matrix [k, n].

    If both are words of numbers of 8 bits, the sums of these numbers' products are int32.

    Attributes
    ----------
    columns
        The columns of the packed matrix.
    """

    columns: int

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the first operand, with the columns in the place of the last."""
        x, _ = self.args
        return Axes((*x.axes[:-1], *make_axes((self.columns,)))), dtype_of_sums(x.dtype)

    @override
    def reference(self, x: Any, panels: Any) -> Any:
        _, count, terms, width = panels.shape
        matrix = panels[0].transpose(1, 0, 2).reshape(terms, count * width)
        if self.dtype == int32:
            x, matrix = numbers_of(x, -1, np.uint8), numbers_of(matrix, 0, np.int8)
        return np.matmul(x, matrix[:, : self.columns])

    @property
    def flops(self) -> int:
        """Two for each product."""
        x = self.args[0]
        return 2 * int(self.axes.size) * int(x.axes.shape[-1]) * numbers_in(x)

    def operand_map(self, index: int, places: Any) -> tuple[int | None, ...]:
        """Return that of the rows, and none for panels."""
        return (*places[:-1], None) if index == 0 else (None,) * 4


def dtype_of_sums(dtype: DType) -> DType:
    """Return the dtype of sums of products: int32 for words."""
    return int32 if dtype == uint32 else dtype


def matrices_of(shape: Numbers, groups: int, is_transposed: bool) -> tuple[int, int, int]:
    """Return the groups of filters, the results of each, and the terms of a result."""
    count, channels, *kernel = shape
    first, second = count // groups, channels
    results, summed = (second, first) if is_transposed else (first, second)
    return groups, results, summed * prod(kernel)


def packed(matrix: TensorOp, groups: int, width: int, is_transposed: bool) -> TensorOp:
    """Return a matrix, or filters, in panels: a constant if they are one, packed once for all."""
    op = PackPanelsOp(matrix, groups=groups, width=width, is_transposed=is_transposed)
    if not matrix.is_constant:
        return op
    panels = matrix.memo(
        (PackPanelsOp, op.attribute_key),
        lambda: owning_constant(op.reference(matrix.const), op.axes),
    )
    folded_constants.remember(panels, op)
    return panels


def legalized_product(op: MatmulOp, processor: Processor) -> Op | None:
    """Return the product with a packed constant in the place of a matrix product of rows."""
    if op.dtype != float32 or not op.axes.is_static:
        return None
    acc = accumulator(op.dtype, processor)
    x, y = op.args
    matrix = y.args[0] if isinstance(y, BroadcastOp) else y
    if acc.lanes == 1 or not matrix.is_constant or matrix.rank != 2 or y.axes[-2:] != matrix.axes:
        return None
    k, n = matrix.axes.shape
    rows = op.axes.size // n if n else 0
    if rows < 2 or n < acc.lanes // 2 or rows * n * k < MIN_WORK or needs_wide_counter(2 * k * n):
        return None
    width = min(2, -(-n // acc.lanes)) * acc.lanes
    return PackedMatmulOp(x, packed(matrix, 1, width, True), columns=n)


@rules.on_type(PackPanelsOp)
def pack_panels(op: PackPanelsOp, lowering: Lowering) -> None:
    """Lower the packing of panels."""
    (w,) = lowering.args
    builder = lowering.kernel("pack_panels")
    code, source = builder.code, builder.array("w", w)
    out = builder.array("out", lowering.out, written=True)
    _, results, terms = matrices_of(w.shape, op.groups, op.is_transposed)
    kernel = w.shape[2:]
    summed = terms // prod(kernel)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        group, panel, term, lane = at
        tap = code.define("const i32", "tap", f"{term} % {prod(kernel)}")
        channel = code.define("const i32", "channel", f"{term} / {prod(kernel)}")
        tap_indices = unravel_index(code, kernel, tap, "i32")
        result = code.define("const i32", "result", f"{panel} * {op.width} + {lane}")
        if op.is_transposed:
            value = source.get(f"({group} * {summed} + {channel})", result, *tap_indices)
        else:
            value = source.get(f"({group} * {results} + {result})", channel, *tap_indices)
        if results % op.width:
            value = f"{result} < {results} ? {value} : 0"
        code.line(out.set(value, *at))

    parallel_for(builder, lowering.out.shape, body)

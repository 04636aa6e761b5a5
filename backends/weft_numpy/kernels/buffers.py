"""The arrays of a kernel's loop body: arrays of the plan, or tiles of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.loop_body import LoopBody, ScratchArray
from weft_numpy.kernels.tile_emitter import TileEmitter, TileViews


def workspace_array(
    workspace: TensorDescription | None, offset: int, shape: tuple[int, ...], dtype: DType
) -> TensorDescription:
    """Return an array at an offset in the workspace of a step."""
    assert workspace is not None, "a kernel with scratch arrays has asked for memory"
    return replace(contiguous(shape, dtype, workspace.base), offset=workspace.offset + offset)


def offsets(sizes: Sequence[int], start: int = 0) -> list[int]:
    """Return the offsets of consecutive blocks of memory, in bytes."""
    return list(accumulate(sizes, initial=start))[:-1]


class UntiledBuffers:
    """Buffers for a body with a single tile, the whole domain.

    Parameters
    ----------
    start
        The offset of the body's scratch memory in the workspace, in bytes.
    known
        The layouts of values that are neither operands nor computed by the body.
    """

    def __init__(
        self,
        values: KernelValues,
        body: LoopBody,
        workspace: TensorDescription | None,
        start: int = 0,
        known: Mapping[int, TensorDescription] | None = None,
    ) -> None:
        self.values = values
        self.tiling = body.tiling
        self.workspace = workspace
        self.offsets = offsets(body.scratch_sizes, start)
        self.known = known or {}

    def value(self, number: int) -> TensorDescription:
        """Return an operand, or another value computed before."""
        tensor = self.known.get(number)
        return self.values.operands[number] if tensor is None else tensor

    def result(self, index: int) -> TensorDescription:
        """Return a result."""
        return self.values.results[index]

    def scratch(self, array: ScratchArray) -> TensorDescription:
        """Return scratch memory."""
        shape = self.tiling.shape(array.varying)
        return workspace_array(self.workspace, self.offsets[array.number], shape, array.dtype)


class TileBuffers:
    """Tiles of operands, results and values computed before, and scratch memory."""

    def __init__(
        self,
        values: KernelValues,
        emit: TileEmitter,
        views: TileViews,
        known: Mapping[int, TensorDescription],
    ) -> None:
        self.values = values
        self.emit = emit
        self.views = views
        self.known = known

    def value(self, number: int) -> TensorDescription:
        """Return the tile of an operand, or of another value computed before."""
        array = self.known.get(number)
        if array is None:
            array = self.values.operands[number]
        return self.views.view(f"x{number}", array, self.values.varying[number])

    def result(self, index: int) -> TensorDescription:
        """Return the tile of a result."""
        array = self.values.results[index]
        varying = [axis for axis, length in enumerate(array.shape) if length != 1]
        return self.views.view(f"out{index}", array, varying)

    def scratch(self, array: ScratchArray) -> TensorDescription:
        """Return scratch memory."""
        return self.emit.scratch(array)

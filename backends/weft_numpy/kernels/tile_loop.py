"""TileLoop and TiledKernel: a function with a loop over tiles, and a kernel of one such loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from weft.ir.description import TensorDescription
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.buffers import TileBuffers, offsets, workspace_array
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.loop_body import LoopBody, ScratchArray
from weft_numpy.kernels.tile_emitter import (
    TileEmitter,
    TileViews,
    scratch_expression,
    scratch_line,
    tile_index_lines,
)
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.thread_pool import parallel_for

INDENT = "    "


class TileLoop:
    """A function that runs a body on all tiles, and its call.

    Parameters
    ----------
    threads
        The number of threads that share the tiles.
    known
        The layouts of values that are neither operands nor computed by the body.
    """

    def __init__(
        self,
        emit: Emitter,
        body: LoopBody,
        threads: int,
        known: Mapping[int, TensorDescription] | None = None,
    ) -> None:
        self.outer = emit
        self.body = body
        self.tiling = body.tiling
        self.threads = threads
        self.emit = TileEmitter(emit, body.tiling)
        self.views = TileViews(body.tiling)
        self.memory = TileBuffers(body.values, self.emit, self.views, known or {})

    def write(self, workspace: TensorDescription | None, start: int = 0) -> None:
        """Write function and call; the threads' scratch memory begins at byte `start`."""
        self.body.write(self.emit, self.memory)
        self.finish(workspace, start, ["for tile in tiles:"], 1, self.tiling.count)

    def finish(
        self,
        workspace: TensorDescription | None,
        start: int,
        heads: Sequence[str],
        depth: int,
        count: int,
    ) -> None:
        """Write function and call, with the body inside nested loops with the given heads."""
        entries = list(self.emit.lane)
        lane = [scratch_line(entries, self.tiling)] if entries else []
        each = lane if self.tiling.remainder else []
        first = [*tile_index_lines(self.tiling), *each, *self.views.lines]
        indent = INDENT * (1 + depth)
        lines = [f"(tiles, lane, {', '.join(self.views.parameters)}):"]
        lines += [f"{INDENT}{line}" for line in (*([] if each else lane), *heads)]
        lines += [f"{indent}{line}" for line in first]
        origins = [-1, *[self.outer.origin] * (len(lines) - 1), *self.emit.origins]
        lines += [f"{indent}{line}" for line in self.emit.lines]
        title = self.body.kernel.title or "copy"
        name = self.outer.defined(f"each_{title}", lines, origins)
        self._write_call(name, count, self._thread_scratch(workspace, start))

    def _thread_scratch(self, workspace: TensorDescription | None, start: int) -> list[str]:
        size = sum(self.body.scratch_sizes)
        return [
            scratch_expression(
                self.outer,
                self.emit.lane,
                self.tiling,
                partial(_scratch, workspace, offsets(self.body.scratch_sizes, start + lane * size)),
            )
            for lane in range(self.threads)
        ]

    def _write_call(self, name: str, count: int, lanes: list[str]) -> None:
        arrays = [self.outer.name(array) for array in self.views.parameters.values()]
        if self.threads == 1:
            lane = self.outer.prepared(lanes[0], "lane")
            self.outer.line(f"{name}(range({count}), {', '.join([lane, *arrays])})")
            return
        run = self.outer.bind(parallel_for, "parallel_for")
        together = self.outer.prepared(f"[{', '.join(lanes)}]", "lanes")
        self.outer.line(f"{run}({', '.join([name, str(count), together, *arrays])})")


def _scratch(
    workspace: TensorDescription | None,
    offsets: list[int],
    array: ScratchArray,
    shape: tuple[int, ...],
) -> TensorDescription:
    return workspace_array(workspace, offsets[array.number], shape, array.dtype)


class TiledKernel:
    """A kernel that is one loop over tiles.

    Attributes
    ----------
    workspace
        The bytes of scratch memory that it needs.
    """

    def __init__(self, values: KernelValues, tiling: Tiling, threads: int) -> None:
        self.values = values
        self.body = LoopBody(values, tiling, values.computed, range(len(values.results)))
        self.threads = min(threads, tiling.count)
        self.workspace = self.threads * sum(self.body.scratch_sizes)

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""
        TileLoop(emit, self.body, self.threads).write(workspace)

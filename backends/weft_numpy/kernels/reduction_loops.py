"""Reduction loops: kernels whose rows exceed a cache, with a loop over tiles for each stage.

In a reduction loop each tile updates the accumulators of one split. The splits are combined after
the loop, so results do not depend on the scheduling of threads. Row-invariant values are then
computed at once. Values that vary along the rows are recomputed in every loop that needs them,
unless they are a result that was stored already.
"""

from __future__ import annotations

from math import prod
from typing import Any

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.kernels import VIEWS
from weft.ops.reductions import reduction
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.buffers import UntiledBuffers, workspace_array
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.loop_body import LINE, LoopBody
from weft_numpy.kernels.reductions import MAX_WIDE_TOTAL, total_dtype
from weft_numpy.kernels.tile_loop import INDENT, TileLoop
from weft_numpy.kernels.tiling import Tiling, untiled
from weft_numpy.pairwise_sum import BLOCK, needs_pairwise, pairwise_sum_into
from weft_numpy.rules.elementwise import OUT_BY_NAME
from weft_numpy.rules.reduction import REDUCTIONS

MAX_SPLITS = 32
"""The most splits of a reduction loop: enough for many threads."""


class ReductionLoops:
    """A kernel with several reduction loops.

    Attributes
    ----------
    workspace
        The bytes of scratch memory that it needs.
    """

    def __init__(self, values: KernelValues, tiling: Tiling, threads: int) -> None:
        self.values = values
        self.kernel = values.kernel
        self.tiling = tiling
        self.tiles = -(-tiling.count // min(tiling.count, self._max_splits()))
        self.parts = -(-tiling.count // self.tiles)
        self.threads = min(threads, self.parts)
        self.stored: dict[int, int] = {}
        self.between: list[LoopBody] = []
        self.sweeps: list[LoopBody] = []
        for stage in range(self.kernel.stages + 1):
            self.between.append(self._body_between(stage))
            self.sweeps.append(self._loop_body(stage))
        self._place()

    def _max_splits(self) -> int:
        """Return the number of splits, such that accumulators are few relative to the domain.

        There are more where one accumulator would take the contributions of many tiles.
        """
        values, tiling = self.values, self.tiling
        unreduced = prod(n for axis, n in enumerate(values.lengths) if axis not in values.reduced)
        reduced = prod(values.lengths[axis] for axis in values.reduced.intersection(tiling.indexed))
        if tiling.blocked in values.reduced:
            reduced *= tiling.blocks
        usual = max(min(MAX_SPLITS, prod(values.lengths) // (16 * max(unreduced, 1))), 1)
        return usual if unreduced <= MAX_WIDE_TOTAL else max(usual, -(-reduced // BLOCK))

    def _is_kept(self, number: int) -> bool:
        """Whether a value is invariant along the reduced dimensions."""
        return self.values.varying[number].isdisjoint(self.values.reduced)

    def _results(self, stage: int, is_kept: bool) -> list[int]:
        """Return the results of a stage that are written between loops, or within one."""
        results = []
        for index, number in enumerate(self.kernel.outputs):
            layout = self.values.results[index]
            fits = all(layout.shape[axis] == 1 for axis in self.values.reduced)
            instruction = self.kernel.instruction(number)
            # The value of a reduction is known only after the sweep of its stage.
            ready = instruction.stage + instruction.is_reduction
            if fits == is_kept and ready == stage:
                results.append(index)
        return results

    def _body_between(self, stage: int) -> LoopBody:
        """Return the body between two loops, computed from the reductions of earlier ones."""
        numbers = [
            number
            for number, each in enumerate(self.kernel.body, len(self.kernel.operands))
            if each.stage == stage
            and not (each.is_reduction or isinstance(each.op, VIEWS))
            and self._is_kept(number)
        ]
        results = self._results(stage, is_kept=True)
        return LoopBody(self.values, untiled(self.values.lengths), numbers, results, kept=numbers)

    def _loop_body(self, stage: int) -> LoopBody:
        """Return the body of a reduction loop."""
        totals = self.kernel.reductions_of(stage)
        results = self._results(stage, is_kept=False)
        sources = [self.values.sources[self.kernel.outputs[index]] for index in results]
        numbers = self._needed_instructions({*totals, *sources}, set(totals))
        for source, index in zip(sources, results, strict=True):
            if not self._is_kept(source):
                self.stored[source] = index
        return LoopBody(self.values, self.tiling, numbers, results, partial=totals, kept=totals)

    def _needed_instructions(self, wanted: set[int], totals: set[int]) -> list[int]:
        """Return the instructions for some values, without those computed before."""
        first = len(self.kernel.operands)
        kept = {n for n in range(first, len(self.kernel.values)) if self._is_kept(n)}
        needed = self.kernel.required_values(wanted, {*self.stored, *(kept - totals)})
        return [number for number in needed if first <= number == self.values.sources[number]]

    # Buffers

    def _place(self) -> None:
        """Assign offsets in the workspace."""
        self.at: dict[Any, int] = {}
        end = 0
        for stage, body in enumerate(self.between):
            self.at["between", stage] = end
            end += sum(body.scratch_sizes)
        for body in self.sweeps:
            for number in body.partial:
                size = prod(self._kept_shape(number)) * self._total_dtype(number).itemsize
                size = -(-size // LINE) * LINE
                for what, count in (("parts", self.parts), ("total", 1), ("value", 1)):
                    self.at[what, number] = end
                    end += size * count
        self.at["lanes"] = end
        lane = max(sum(body.scratch_sizes) for body in self.sweeps)
        self.workspace = end + self.threads * lane

    def _kept_shape(self, number: int) -> tuple[int, ...]:
        varying = self.values.varying[number]
        return tuple(n if axis in varying else 1 for axis, n in enumerate(self.values.lengths))

    def _total_dtype(self, number: int) -> DType:
        elements = prod(self.tiling.shape(self.values.varying[number]))
        return total_dtype(self.kernel.instruction(number).op, elements)

    # Code

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""
        known: dict[int, TensorDescription] = {}
        for stage, (between, sweep) in enumerate(zip(self.between, self.sweeps, strict=True)):
            start = self.at["between", stage]
            memory = UntiledBuffers(self.values, between, workspace, start, known)
            between.write(emit, memory)
            known |= {number: between.home(memory, number) for number in between.numbers}
            known |= {
                source: self.values.results[index]
                for source, index in self.stored.items()
                if self.kernel.instruction(source).stage < stage
            }
            if sweep.numbers or sweep.results:
                self._write_loop(emit, sweep, workspace, known)
            for number in sorted(sweep.partial):
                known[number] = self._write_combination(emit, number, workspace)

    def _write_loop(
        self,
        emit: Emitter,
        body: LoopBody,
        workspace: TensorDescription | None,
        known: dict[int, TensorDescription],
    ) -> None:
        loop = TileLoop(emit, body, self.threads, known)
        body.write(loop.emit, loop.memory)
        inner = []
        for number in sorted(body.partial):
            inner += self._write_update(loop, number, workspace)
        start, last = f"part * {self.tiles}", f"(part + 1) * {self.tiles}"
        inner.append(f"for tile in range({start}, min({last}, {self.tiling.count})):")
        heads = ["for part in tiles:", *(f"{INDENT}{line}" for line in inner)]
        loop.finish(workspace, self.at["lanes"], heads, 2, self.parts)

    def _write_update(
        self, loop: TileLoop, number: int, workspace: TensorDescription | None
    ) -> list[str]:
        """Write the update of a split's accumulator by a tile; returns lines that reset it."""
        op = self.kernel.instruction(number).op
        varying = self.values.varying[number]
        shape, dtype = self._kept_shape(number), self._total_dtype(number)
        one = workspace_array(workspace, 0, shape, dtype)
        name = f"sum{number}"
        total = loop.emit.name(loop.views.view(name, one, varying))
        all_parts = workspace_array(
            workspace, self.at["parts", number], (self.parts, *shape), dtype
        )
        parameter = f"all_{name}" if f"all_{name}" in loop.views.parameters else name
        given = loop.views.parameters.pop(parameter)
        loop.views.parameters[f"parts_{name}"] = TensorDescription(
            (self.parts, *given.shape),
            dtype,
            (all_parts.strides[0], *given.strides),
            all_parts.offset,
            all_parts.base,
        )
        loop.emit.at(op)
        ufunc = REDUCTIONS[type(op)]
        share = loop.emit.name(loop.body.home(loop.memory, number))
        out = f"out={total}" if ufunc in OUT_BY_NAME else total
        loop.emit.line(f"{loop.emit.bind(ufunc, ufunc.__name__)}({total}, {share}, {out})")
        nothing = loop.outer.number(_identity_element(op, dtype), dtype)
        return [f"{parameter} = parts_{name}[part]", f"{parameter}.fill({nothing})"]

    def _write_combination(
        self, emit: Emitter, number: int, workspace: TensorDescription | None
    ) -> TensorDescription:
        """Write the combination of all splits, and return the layout of the value."""
        op = self.kernel.instruction(number).op
        emit.at(op)
        shape, dtype = self._kept_shape(number), self._total_dtype(number)
        parts = workspace_array(workspace, self.at["parts", number], (self.parts, *shape), dtype)
        total = workspace_array(workspace, self.at["total", number], shape, dtype)
        if needs_pairwise(op, parts, (0,)):
            add = emit.bind(pairwise_sum_into, "pairwise_sum_into")
            what = f"{emit.name(parts)}, (0,), {emit.bind(dtype, 'dtype')}"
            emit.line(f"{add}({what}, {emit.name(total)})")
        else:
            ufunc = REDUCTIONS[type(op)]
            reduce = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
            emit.line(f"{reduce}({emit.name(parts)}, 0, None, {emit.name(total)})")
        if dtype == op.dtype:
            return total
        value = workspace_array(workspace, self.at["value", number], shape, op.dtype)
        emit.line(f"copyto({emit.name(value)}, {emit.name(total)}, 'unsafe')")
        return value


def _identity_element(op: Any, dtype: DType) -> Any:
    """Return the identity element of a reduction."""
    known = {
        reduction.SumOp: 0,
        reduction.ProdOp: 1,
        reduction.AnyOp: False,
        reduction.AllOp: True,
        reduction.MaxOp: dtypes.least(dtype),
        reduction.MinOp: dtypes.greatest(dtype),
    }
    return known[type(op)]

"""Rules: the launches and host calls that compute each op."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from weft import ops, ranks
from weft.ir.op import Op
from weft.ir.rules import RuleTable
from weft.kernels import VIEWS, FusedOp, PiecewiseOp
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.nn.spatial.pooling import AvgPoolOp, MaxPoolIndexOp, MaxPoolInputOp, MaxPoolOp
from weft.nn.spatial.windows import WindowsOp
from weft.ops.indexing.dynamic_slices import DynamicSliceOp, DynamicUpdateSliceOp
from weft.ops.random.philox import RandomBitsOp
from weft.ops.reductions.cumulative import RunningOp
from weft.ops.reductions.reduction import ArgExtremumOp
from weft.ops.reductions.sorting import SearchSortedOp, SortingOp, SortOp, TopKIndicesOp
from weft.plan.plan import Step
from weft_c.processor import Processor
from weft_c.source.functions import GPUKernel, HostCall
from weft_tiling.lines import scan_bytes
from weft_tiling.scatters import scatter_bytes
from weft_tiling.spatial import share_bytes
from weft_webgpu import lines, movement, products, random, scattering, spatial, wgsl
from weft_webgpu.shader import Lowering
from weft_webgpu.sweeps import REDUCTIONS, Sweep, Writer, has_sweep, scratch_of_parts

rules = RuleTable("webgpu")
"""Functions of an op and the `Lowering` of its step."""


def elementwise_rule(op: Op, lowering: Lowering) -> None:
    """Lower an elementwise op, a reduction or a joining of pieces by itself."""
    Writer(
        lowering, Sweep.of_op(op, [each.shape for each in lowering.step.args]), type(op).__name__
    ).write()


def fused_rule(op: Any, lowering: Lowering) -> None:
    """Lower a fused kernel, or a product with what comes before and after it."""
    if op.kernel.product is not None:
        products.fused_product(op.kernel, lowering)
        return
    Writer(lowering, Sweep.of_kernel(op.kernel), op.kernel.title).write()


def reference_rule(op: Op, lowering: Lowering) -> None:
    """Compute an op by its NumPy reference, on the host: linear systems."""
    _call(lowering, partial(_compute, op.reference))


def effect_rule(op: Any, lowering: Lowering) -> None:
    """Call an effect with the operands."""
    step = lowering.step
    lowering.work.append(HostCall(op.perform, tuple(step.args), (), op))


def communication_rule(op: Any, lowering: Lowering) -> None:
    """Call an exchange, which writes the result."""
    _call(lowering, op.write)


def view_rule(op: Op, lowering: Lowering) -> None:
    """Do nothing: the plan describes the result as a view of an operand."""


def _call(lowering: Lowering, work: Any) -> None:
    args = (*lowering.step.args, lowering.step.out)
    lowering.work.append(HostCall(work, args, (len(args) - 1,), lowering.step.op))


def _compute(reference: Any, *arrays: Any) -> None:
    *args, out = arrays
    np.copyto(out, reference(*args))


_RULES: dict[Any, tuple[type[Op], ...]] = {
    elementwise_rule: (*wgsl.EXPRESSIONS, *REDUCTIONS, PiecewiseOp),
    view_rule: (
        ops.BitcastOp, ops.BroadcastOp, ops.IdentityOp, ops.SliceOp, ops.TransposeOp, WindowsOp,
    ),
    reference_rule: (ops.CholeskyOp, ops.DeterminantOp, ops.SolveOp),
    communication_rule: (ranks.CommunicationOp,),
    effect_rule: (ops.EffectOp,),
    fused_rule: (FusedOp,),
    lines.scan_rule: (RunningOp,),
    lines.search_rule: (SearchSortedOp,),
    lines.sorting_rule: (ops.ArgsortOp, SortOp, TopKIndicesOp),
    movement.concat_rule: (ops.ConcatOp,),
    movement.copy_rule: (ops.ContiguousOp,),
    movement.dynamic_slice_rule: (DynamicSliceOp,),
    movement.dynamic_update_slice_rule: (DynamicUpdateSliceOp,),
    movement.iota_rule: (ops.IotaOp,),
    movement.pad_rule: (ops.PadOp,),
    movement.reshape_rule: (ops.ReshapeOp,),
    movement.take_rule: (ops.TakeOp,),
    movement.take_along_axis_rule: (ops.TakeAlongAxisOp,),
    movement.update_slice_rule: (ops.UpdateSliceOp,),
    products.product_rule: (ops.MatmulOp,),
    scattering.scatter_rule: (ops.ScatterOp,),
    spatial.convolution_rule: (ConvolutionOp, ConvolutionInputOp, ConvolutionFilterOp),
    spatial.max_pool_index_rule: (MaxPoolIndexOp,),
    spatial.max_pool_input_rule: (MaxPoolInputOp,),
    spatial.max_pool_rule: (MaxPoolOp,),
    spatial.mean_pool_rule: (AvgPoolOp,),
    random.random_bits_rule: (RandomBitsOp,),
}  # fmt: skip

for _rule, _kinds in _RULES.items():
    for _kind in _kinds:
        rules.add(_kind, _rule)


_SCRATCH: tuple[tuple[type[Op], Callable[[Any, Processor], int]], ...] = (
    (BilinearConvolutionOp, spatial.convolution_bytes),
    (ops.ScatterOp, scatter_bytes),
    (RunningOp, scan_bytes),
    (SortingOp, lines.sorting_bytes),
    (MaxPoolInputOp, share_bytes),
)
"""The scratch memory of other ops."""


def fusible(op: Op) -> bool:
    """Whether an op can be an instruction of a fused kernel."""
    if isinstance(op, ops.MatmulOp):
        return products.has_product(op)
    return isinstance(op, VIEWS) or (has_sweep(op) and not isinstance(op, ArgExtremumOp))


def scratch_bytes(op: Op, processor: Processor) -> int:
    """Return the bytes of scratch memory that the rule of an op needs."""
    if isinstance(op, FusedOp):
        product = op.kernel.product
        if product is not None:
            return products.scratch_of_product(product.op, processor)
        return scratch_of_parts(Sweep.of_kernel(op.kernel), processor)
    if isinstance(op, ops.MatmulOp):
        return products.scratch_of_product(op, processor)
    if isinstance(op, REDUCTIONS):
        return scratch_of_parts(Sweep.of_op(op, [op.args[0].axes.shape]), processor)
    return next((find(op, processor) for kind, find in _SCRATCH if isinstance(op, kind)), 0)


def lower(step: Step, processor: Processor) -> list[GPUKernel | HostCall]:
    """Return the launches and host calls of a step in order; KeyError for an op without a rule."""
    lowering = Lowering(step, processor)
    rules[type(step.op)](step.op, lowering)
    return lowering.work

"""Lowering of steps: the rules of fused kernels, and of single elementwise ops and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.kernels.fused_op import FusedOp
from weft.kernels.fusion import Group
from weft.kernels.indexing_maps import VIEWS
from weft.kernels.kernel import Kernel
from weft.kernels.piecewise import PiecewiseOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.joining import ConcatOp, PadOp
from weft.plan.plan import Step
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.loop_nest import make_loop_nest, make_pointwise_nest
from weft_c.loops.pointwise import write_map
from weft_c.lowering import Lowering, needs_scratch, rules, scratch_bytes
from weft_c.matmul.accumulators import accumulator_of
from weft_c.matmul.epilogues import FusedEpilogue
from weft_c.matmul.grouped import GroupedMatmulOp, write_grouped
from weft_c.matmul.packed_panels import PackedMatmulOp
from weft_c.matmul.products import is_own_kernel, scratch_of_product, write_product
from weft_c.processor import Processor
from weft_c.reductions.combiners import REDUCTIONS
from weft_c.reductions.split import (
    choose_reduction_loops,
    split_count,
    split_scratch,
    write_split_reduction,
)
from weft_c.source.expressions import Expression
from weft_c.source.functions import GPUKernel, HostCall, LibraryCall
from weft_c.spatial.packed_convolution import write_packed_convolution
from weft_c.spatial.packed_filters import PackedConvolutionOp

_WRITERS: dict[type[Op], Callable[..., None]] = {
    GroupedMatmulOp: write_grouped, PackedConvolutionOp: write_packed_convolution,
}  # fmt: skip
"""Functions of op, lowering, operands and epilogue, which write the kernels of contractions."""


def fusible(op: Op, processor: Processor) -> bool:
    """Whether an op can be an instruction of a fused kernel for a processor."""
    if isinstance(op, VIEWS):
        return True
    if isinstance(op, MatmulOp):
        return op.dtype.kind != "c" and is_own_kernel(op, processor)
    if isinstance(op, PackedMatmulOp) or type(op) in _WRITERS:
        return True
    if isinstance(op, PadOp | ConcatOp):
        return op.dtype.kind != "c"
    if isinstance(op, ReductionOp):
        return type(op) in REDUCTIONS and op.dtype.kind != "c"
    return isinstance(op, ElementwiseOp) and rules.expression(op) is not None


def lower(step: Step, processor: Processor) -> list[GPUKernel | LibraryCall | HostCall]:
    """Return the launches and host calls of a step in order; KeyError for an op without a rule."""
    lowering = Lowering(step, processor)
    rule = rules[type(step.op)]
    if isinstance(rule, Expression):
        rule = single_op_rule
    try:
        rule(step.op, lowering)
        if not (rules.is_own(step.op) or step.op.has_effect):
            lowering.require_written()
    except Exception as error:
        if not rules.is_own(step.op):
            where = rules.registration(type(step.op))
            error.add_note(f"in the rule of {type(step.op).__name__}, {where}: {step.op.file_info}")
        raise
    return lowering.work


def single_op_kernel(op: Op) -> tuple[Kernel, tuple[Op, ...]]:
    """Return the kernel of a single op, and its operands."""
    if isinstance(op, ReductionOp):
        domain, places = op.args[0].axes.shape, op.kept()
    else:
        domain, places = op.axes.shape, tuple(range(len(op.axes)))
    return Group(domain, {op: places}).kernel([op])


def write_kernel(
    kernel: Kernel,
    args: Sequence[TensorDescription],
    outs: Sequence[TensorDescription],
    lowering: Lowering,
) -> None:
    """Lower a fused kernel: to a product, an elementwise kernel, or reduction loops."""
    product = kernel.product
    writer = None if product is None else _WRITERS.get(type(product.op))
    if product is not None and writer is not None:
        acc = accumulator_of(product.op, lowering.processor)
        epilogue = FusedEpilogue(make_pointwise_nest(kernel, args, outs), acc)
        writer(product.op, lowering, *(args[number] for number in product.args), epilogue)
        return
    if product is not None:
        write_product(kernel, args, outs, lowering)
        return
    nest = make_loop_nest(kernel, args, outs)
    if not kernel.reduced:
        write_map(ElementWiseKernel(lowering, nest), range(len(outs)))
        return
    splits = split_count(nest, lowering.processor) if prod(nest.reduced) else 1
    if splits > 1:
        write_split_reduction(lowering, nest, splits)
        return
    kind = choose_reduction_loops(nest, lowering.processor)
    kind(ElementWiseKernel(lowering, nest), range(len(outs))).write()


@rules.on_type(FusedOp)
def fused_rule(op: FusedOp, lowering: Lowering) -> None:
    """Lower a fused kernel."""
    write_kernel(op.kernel, lowering.args, lowering.step.outs, lowering)


@rules.on_type(*REDUCTIONS, PiecewiseOp)
def single_op_rule(op: Op, lowering: Lowering) -> None:
    """Lower an op as a kernel of one instruction."""
    kernel, operands = single_op_kernel(op)
    layout = dict(zip(op.args, lowering.args, strict=True))
    write_kernel(kernel, [layout[each] for each in operands], lowering.step.outs, lowering)


@needs_scratch(FusedOp)
def fused_scratch(op: FusedOp, processor: Processor) -> int:
    """Return the bytes for the accumulators of splits, or the scratch memory of a product."""
    product = op.kernel.product
    if product is not None and type(product.op) in _WRITERS:
        return scratch_bytes(product.op, processor)
    if product is not None:
        has_prologue = bool(op.kernel.prologue)
        return scratch_of_product(product.op, processor, is_stored=False, has_prologue=has_prologue)
    return split_scratch(op.kernel, processor)


@needs_scratch(ReductionOp)
def reduction_scratch(op: TensorOp, processor: Processor) -> int:
    """Return the bytes for the accumulators of splits."""
    return split_scratch(single_op_kernel(op)[0], processor) if prod(op.args[0].axes.shape) else 0

"""Kernels of a program: which ops can be fused, and which large ops are kernels by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.ir.storage import ParameterOp
from weft.ir.views import planned_layout
from weft.kernels import VIEWS, FusedOp, Group, Kernel
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.pointwise.math import PowerOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.movement import ContiguousOp
from weft_numpy.costs import (
    BLAS_THREADING_LIMIT,
    MIN_BLAS_THREADED,
    MIN_ELEMENTS,
    may_need_tiles,
)
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.lowering import LoweredKernel, UntiledKernel, lower
from weft_numpy.kernels.thread_policy import prefers_blas_threads, product_time
from weft_numpy.kernels.tiling import MATMUL_CACHE, MIN_MATMUL_ROWS
from weft_numpy.machine import Machine
from weft_numpy.rules.reduction import REDUCTIONS
from weft_numpy.rules.sliding import workspace
from weft_numpy.rules.table import rules

MAX_PROLOGUE_COLUMNS = 256
"""The most columns of a product with a prologue."""


def fusible(op: Op) -> bool:
    """Whether an op can be an instruction of a fused kernel."""
    if isinstance(op, VIEWS):
        return True
    if isinstance(op, MatmulOp):
        return op.dtype.name in ("float32", "float64")
    if isinstance(op, ReductionOp):
        return type(op) in REDUCTIONS
    if not isinstance(op, ElementwiseOp) or rules.find(type(op)) is None:
        return False
    return not (isinstance(op, PowerOp) and dtypes.is_integer(op.dtype))


class Kernels:
    """The kernels of the programs that a transformer compiles.

    A kernel is lowered when the plan needs the size of its scratch memory, and written when all
    addresses are known.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.single_threaded: set[Op] = set()
        """The ops of programs whose products BLAS's threads share, and that run in one thread."""
        self.lowered_by_op: dict[Op, tuple[LoweredKernel, tuple[Op, ...]] | None] = {}

    def takes_prologue(self, product: Op) -> bool:
        """Whether a product is narrow enough for a prologue.

        BLAS packs the second operand for each block of rows, which must fit a cache.
        """
        *_, terms = product.args[0].axes.shape
        rows_bytes = MIN_MATMUL_ROWS * terms * product.dtype.itemsize * self.machine.threads
        is_narrow = product.axes.shape[-1] <= MAX_PROLOGUE_COLUMNS and rows_bytes <= MATMUL_CACHE
        return is_narrow and fusible(product)

    def choose_threads(self, ops: Sequence[Op]) -> None:
        """Choose between weft's threads and BLAS's threads for a program."""
        if prefers_blas_threads(ops, self.machine):
            kernels = [op.kernel for op in ops if isinstance(op, FusedOp)]
            self.single_threaded.update(
                ops, (each.op for kernel in kernels for each in kernel.body)
            )

    def needs_single_thread(self, product: Op) -> bool:
        """Whether a matrix product must run in one BLAS thread."""
        time = product_time(product)
        return (
            BLAS_THREADING_LIMIT < time < MIN_BLAS_THREADED and self._machine(product).threads > 1
        )

    def has(self, op: Op) -> bool:
        """Whether an op is computed by a kernel rather than by its rule."""
        return self._find(op) is not None

    def workspace(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op needs."""
        lowered = self._find(op)
        return workspace(op, self.machine) if lowered is None else lowered[0].workspace

    def write(self, op: Op, emit: Emitter) -> None:
        """Write an op that is computed by a kernel."""
        found = self._find(op)
        assert found is not None, f"{op} is computed by its rule"
        lowered, operands = found
        layout = dict(zip(op.args, emit.step.args, strict=True))
        lowered.values.set_layouts([layout[operand] for operand in operands], emit.step.outs)
        lowered.write(emit, emit.step.workspace)

    def forget(self) -> None:
        """Drop all kernels after they have been written."""
        self.lowered_by_op.clear()
        self.single_threaded.clear()

    def _machine(self, op: Op) -> Machine:
        """Return the machine for an op, or for a copy that a plan has added."""
        source = op.args[0] if isinstance(op, ContiguousOp) else op
        is_single = op in self.single_threaded or source in self.single_threaded
        return replace(self.machine, threads=1) if is_single else self.machine

    def _find(self, op: Op) -> tuple[LoweredKernel, tuple[Op, ...]] | None:
        if op not in self.lowered_by_op:
            self.lowered_by_op[op] = self._lowered(op)
        return self.lowered_by_op[op]

    def _lowered(self, op: Op) -> tuple[LoweredKernel, tuple[Op, ...]] | None:
        kernel_and_args = (op.kernel, op.args) if isinstance(op, FusedOp) else _single_op_kernel(op)
        if kernel_and_args is None:
            return None
        kernel, operands = kernel_and_args
        args = [planned_layout(arg) for arg in operands]
        preserved = [number for number, arg in enumerate(args) if not _is_overwritable(arg)]
        lowered = lower(kernel, args, preserved, self._machine(op))
        if isinstance(op, FusedOp) or _is_faster_as_kernel(op, lowered):
            return lowered, operands
        return None


def _is_overwritable(layout: TensorDescription) -> bool:
    """Whether a result may reuse an operand's memory: it is no view, constant or argument."""
    is_lasting = layout.base.is_constant or isinstance(layout.base, ParameterOp)
    return not is_lasting and layout.is_contiguous and not layout.offset


def _is_faster_as_kernel(op: Op, lowered: LoweredKernel) -> bool:
    """Whether an op is faster as a kernel than by its rule: sums, and ops on several threads."""
    return not isinstance(lowered, UntiledKernel) and (
        lowered.threads > 1 or isinstance(op, ReductionOp)
    )


def _single_op_kernel(op: Op) -> tuple[Kernel, tuple[Op, ...]] | None:
    """Return the kernel of a single op and its operands; None if it cannot pay off."""
    if isinstance(op, VIEWS) or not fusible(op):
        return None
    if isinstance(op, ReductionOp):
        domain, places = op.args[0].axes.shape, op.kept()
        if not op.positions:
            return None
    else:
        domain = op.axes.shape
        places = tuple(range(len(domain)))
    if prod(domain) < MIN_ELEMENTS and not isinstance(op, MatmulOp):
        return None
    kernel, operands = Group(domain, {op: places}).kernel([op])
    return (kernel, operands) if may_need_tiles(kernel) else None

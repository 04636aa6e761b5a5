"""What can be in a kernel, and which ops are kernels by themselves because they are large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from weft.ir import dtypes
from weft.ir.description import TensorDescription, contiguous
from weft.ir.op import Op
from weft.ir.storage import ParameterOp
from weft.kernels import VIEWS, FusedOp, Group, Kernel
from weft.ops.elementwise import ElementwiseOp
from weft.ops.linalg import MatmulOp
from weft.ops.math import PowerOp
from weft.ops.movement import ContiguousOp
from weft.ops.reduction import ReductionOp
from weft_numpy.codegen import Emitter
from weft_numpy.kernels import frames
from weft_numpy.kernels.costs import SMALLEST, worth_a_look
from weft_numpy.kernels.lowering import Lowered, Whole, lower
from weft_numpy.kernels.sharing import LEAST_FOR_BLAS, SMALL_PRODUCT, is_for_blas, product_time
from weft_numpy.machine import Machine
from weft_numpy.rules.blocked import workspace
from weft_numpy.rules.reduction import REDUCTIONS
from weft_numpy.rules.table import rules

NARROW = 256
"""The most columns of a product whose first operand is computed in its tiles."""


def fusible(op: Op) -> bool:
    """Whether an op can be an instruction of a kernel."""
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

    A kernel is lowered when the plan asks for its scratch memory, and written later, when all
    addresses are known.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.for_blas: set[Op] = set()
        """The ops of programs whose products BLAS's threads share, and that run in one thread."""
        self.found: dict[Op, tuple[Lowered, tuple[Op, ...]] | None] = {}

    def takes_prologue(self, product: Op) -> bool:
        """Whether a product is so narrow that rows of its first operand are better made for it.

        Each block of rows makes BLAS copy the second operand, and must fit into a cache.
        """
        *_, terms = product.args[0].axes.shape
        rows_bytes = frames.ROWS * terms * product.dtype.itemsize * self.machine.threads
        is_narrow = product.axes.shape[-1] <= NARROW and rows_bytes <= frames.NEAR_PRODUCT
        return is_narrow and fusible(product)

    def survey(self, ops: Sequence[Op]) -> None:
        """Decide for all ops of a program which threads share its work."""
        if is_for_blas(ops, self.machine):
            kernels = [op.kernel for op in ops if isinstance(op, FusedOp)]
            self.for_blas.update(ops, (each.op for kernel in kernels for each in kernel.body))

    def needs_single_thread(self, product: Op) -> bool:
        """Whether BLAS's threads should keep out of a matrix product that they may share."""
        time = product_time(product)
        return LEAST_FOR_BLAS < time < SMALL_PRODUCT and self._machine(product).threads > 1

    def has(self, op: Op) -> bool:
        """Whether an op is computed by a kernel; else its rule computes it."""
        return self._find(op) is not None

    def workspace(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op needs."""
        found = self._find(op)
        return workspace(op, self.machine) if found is None else found[0].workspace

    def write(self, op: Op, emit: Emitter) -> None:
        """Write an op that is computed by a kernel, as its rule."""
        found = self._find(op)
        assert found is not None, f"{op} is computed by its rule"
        lowered, operands = found
        lies = dict(zip(op.args, emit.step.args, strict=True))
        lowered.values.place([lies[operand] for operand in operands], emit.step.outs)
        lowered.write(emit, emit.step.workspace)

    def forget(self) -> None:
        """Let go of all kernels, which have been written."""
        self.found.clear()
        self.for_blas.clear()

    def _machine(self, op: Op) -> Machine:
        """Return the machine for an op, or for a copy of an op that a plan has added."""
        source = op.args[0] if isinstance(op, ContiguousOp) else op
        is_single = op in self.for_blas or source in self.for_blas
        return replace(self.machine, threads=1) if is_single else self.machine

    def _find(self, op: Op) -> tuple[Lowered, tuple[Op, ...]] | None:
        if op not in self.found:
            self.found[op] = self._lowered(op)
        return self.found[op]

    def _lowered(self, op: Op) -> tuple[Lowered, tuple[Op, ...]] | None:
        made = (op.kernel, op.args) if isinstance(op, FusedOp) else _alone(op)
        if made is None:
            return None
        kernel, operands = made
        args = [described(arg) for arg in operands]
        lasting = [number for number, arg in enumerate(args) if not _may_be_overwritten(arg)]
        found = lower(kernel, args, lasting, self._machine(op))
        if isinstance(op, FusedOp) or _gains(op, found):
            return found, operands
        return None


def _may_be_overwritten(lies: TensorDescription) -> bool:
    """Whether a plan may put a result where an operand lies: no view, constant or argument."""
    is_lasting = lies.base.is_constant or isinstance(lies.base, ParameterOp)
    return not is_lasting and lies.is_contiguous and not lies.offset


def _gains(op: Op, lowered: Lowered) -> bool:
    """Whether an op is faster as a kernel than by its rule: sums are, and what threads share."""
    return not isinstance(lowered, Whole) and (lowered.threads > 1 or isinstance(op, ReductionOp))


def _alone(op: Op) -> tuple[Kernel, tuple[Op, ...]] | None:
    """Return an op as a kernel of its own, and its operands, if it may be worth that."""
    if isinstance(op, VIEWS) or not fusible(op):
        return None
    if isinstance(op, ReductionOp):
        domain, places = op.args[0].axes.shape, op.kept()
        if not op.positions:
            return None
    else:
        domain = op.axes.shape
        places = tuple(range(len(domain)))
    if prod(domain) < SMALLEST and not isinstance(op, MatmulOp):
        return None
    kernel, operands = Group(domain, {op: places}).kernel([op])
    return (kernel, operands) if worth_a_look(kernel) else None


def described(op: Op) -> TensorDescription:
    """Return how a value lies in memory, with the op that the memory is made for as its base.

    Every op that is no view has contiguous memory of its own, as in a plan.
    """
    views = []
    while type(op).view is not Op.view:
        views.append(op)
        op = op.args[0]
    found = contiguous(op.axes.shape, op.dtype, op)
    for view in reversed(views):
        found = view.view(found) or contiguous(view.axes.shape, view.dtype, view)
    return found

"""The kernel verifier: checks the invariants of kernels that passes build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from weft.ir.axes import Axes
from weft.ir.dtypes import DType
from weft.kernels.indexing_maps import VIEWS, IndexingMap, operand_indexing_map
from weft.kernels.kernel import Instruction, Kernel, Operand
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import ContractionOp, MatmulOp
from weft.ops.reductions.reduction import ReductionOp

Types = list[tuple[Axes, DType]]


def problem(kernel: Kernel) -> str | None:
    """Return the problem of a kernel, or None.

    Every axis has the length of its dimension, every instruction comes after its operands and has
    the types that its op was made for, all reductions run over the same dimensions, a matrix
    product runs over all of them, what comes before it makes its first operand, and what is stored
    was computed. A body that is repeated is elementwise, and carries values of the whole domain.
    """
    made = range(len(kernel.operands) + len(kernel.prologue), len(kernel.values))
    for number in kernel.outputs:
        if number not in made:
            return f"result {number} is not an instruction, or one before a matrix product"
    return next(chain(_problems(kernel), _problems_of_repetition(kernel)), None)


def _problems(kernel: Kernel) -> Iterator[str]:
    whole = tuple(range(len(kernel.domain)))
    types: Types = []
    for number, value in enumerate(kernel.values):
        if isinstance(value, Operand):
            types.append((value.axes, value.dtype))
        else:
            yield from _problems_of_operands(kernel, number, value, types)
            types.append((value.op.axes, value.op.dtype))
        lengths = types[-1][0].lengths
        if value.places != whole or lengths != kernel.domain:
            yield from _problems_of_places(kernel, number, value.places, lengths)
        if isinstance(value, Instruction) and isinstance(value.op, ElementwiseOp):
            found = {kernel.values[arg].places for arg in value.args if types[arg][0]}
            if not found <= {value.places}:
                yield f"value {number}, at {value.places}, takes values at {found}"


def _problems_of_repetition(kernel: Kernel) -> Iterator[str]:
    if kernel.count == 1:
        return
    for number, each in enumerate(kernel.body, len(kernel.operands)):
        if not isinstance(each.op, (ElementwiseOp, *VIEWS)):
            yield f"value {number}, a {type(each.op).__name__}, is repeated {kernel.count} times"
    whole = tuple(range(len(kernel.domain)))
    for operand, number in kernel.carried:
        old, new = kernel.operands[operand], kernel.values[number]
        if old.places != whole or new.places != whole or old.dtype != new.dtype:
            yield f"value {number} cannot be carried to operand {operand}"


def _problems_of_places(
    kernel: Kernel, number: int, places: IndexingMap, lengths: Sequence[int]
) -> Iterator[str]:
    if len(places) != len(lengths):
        yield f"value {number} has {len(lengths)} axes and {len(places)} places"
    for length, dim in zip(lengths, places, strict=False):
        is_known = dim is None or (
            dim in range(len(kernel.domain)) and kernel.domain[dim] == length
        )
        if not is_known:
            yield f"value {number} has length {length} in dimension {dim} of {kernel.domain}"


def _problems_of_operands(
    kernel: Kernel, number: int, value: Instruction, types: Types
) -> Iterator[str]:
    op = value.op
    if len(value.args) != len(op.args) or max(value.args, default=-1) >= number:
        yield f"value {number} is computed before one of its operands"
        return
    for arg, meant in zip(value.args, op.args, strict=True):
        axes, dtype = types[arg]
        if dtype != meant.dtype or (axes is not meant.axes and axes != meant.axes):
            yield f"value {number} takes {meant.dtype} {meant.axes}, not value {arg}"
    if isinstance(op, ReductionOp):
        read = kernel.values[value.args[0]].places
        along = {read[place] for place in op.positions}
        if along != set(kernel.reduced):
            yield f"value {number} is reduced over {along}, not over {kernel.reduced}"
    elif isinstance(op, ContractionOp):
        yield from _problems_of_product(kernel, number, value)


def _problems_of_product(kernel: Kernel, number: int, value: Instruction) -> Iterator[str]:
    rank = len(kernel.domain)
    if value is not kernel.product:
        yield f"value {number} is a second contraction"
    if value.places != tuple(range(rank)):
        yield f"value {number}, a contraction, has the places {value.places} of {kernel.domain}"
        return
    *outer, rows, _ = value.places
    for each in kernel.prologue:
        is_like_operand = each.places == (*outer, rows, None) and each.axes == value.op.args[0].axes
        if not isinstance(each.op, ElementwiseOp) or not is_like_operand:
            yield f"a {type(each.op).__name__} comes before value {number}, a matrix product"
    if kernel.prologue and value.args[0] != number - 1:
        yield f"value {number}, a matrix product, takes value {value.args[0]} and not the last"
    after = {arg for each in kernel.body[len(kernel.prologue) + 1 :] for arg in each.args}
    for each in kernel.prologue:
        if any(arg in after and kernel.values[arg].places for arg in each.args):
            yield f"an operand of a {type(each.op).__name__} before the product is read after it"
    for index, arg in enumerate(value.args):
        wanted = operand_indexing_map(value.op, index, value.places)
        found = kernel.values[arg].places
        if found != wanted:
            yield f"value {number}, a contraction, takes value {arg} at {found}, not at {wanted}"
    if kernel.reduced and not isinstance(value.op, MatmulOp):
        yield f"value {number}, a {type(value.op).__name__}, is beside reductions"
    elif kernel.reduced not in ((), (rank - 1,)):
        yield f"the rows of a matrix product are reduced over {kernel.reduced}, not along the last"

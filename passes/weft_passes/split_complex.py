"""SplitComplex: computes with real and imaginary parts where a backend has no complex numbers.

A complex value becomes a `ComplexOp` of two real ones, which its users take apart again. So complex
numbers are in memory only where a graph takes, returns or stores them, or calls another graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.graph import Graph
from weft.ir.storage import AssignableTensorOp, constant
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp, TensorOp
from weft.nn.spatial.convolutions import BilinearConvolutionOp
from weft.nn.spatial.windows import FoldOp, WindowsOp
from weft.ops.control.effects import EffectOp
from weft.ops.indexing.gathering import ScatterOp, TakeAlongAxisOp, TakeOp
from weft.ops.indexing.slicing import SliceOp, UpdateSliceOp
from weft.ops.pointwise.comparison import EqualOp, WhereOp, equal, less, maximum, minimum, where
from weft.ops.pointwise.complex_parts import (
    ComplexOp,
    ImagOp,
    PartOp,
    RealOp,
    ViewAsComplexOp,
    ViewAsRealOp,
)
from weft.ops.pointwise.elementwise import (
    AbsoluteOp,
    AddOp,
    CastOp,
    DivideOp,
    MultiplyOp,
    SubtractOp,
    absolute,
    cast,
    real_dtype,
    square,
)
from weft.ops.pointwise.math import (
    AtanOp,
    CosOp,
    ExpOp,
    LogOp,
    PowerOp,
    SinOp,
    SqrtOp,
    TanhOp,
    cos,
    exp,
    hypot,
    log,
    log1p,
    sin,
    sqrt,
    tanh,
)
from weft.ops.pointwise.rounding import CopysignOp, isfinite
from weft.ops.pointwise.trigonometry import AcosOp, AsinOp, CoshOp, SinhOp, asinh, atan2, cosh, sinh
from weft.ops.products.decompositions import CholeskyOp, DeterminantOp, SolveOp
from weft.ops.products.factorizations import LUOp, as_matrix, permutation_of
from weft.ops.products.linalg import MatmulOp, diagonal, matrix_transpose
from weft.ops.reductions.cumulative import CumsumOp
from weft.ops.reductions.reduction import ProdOp, SumOp, prod, sum
from weft.ops.shape.arrangement import tril
from weft.ops.shape.joining import ConcatOp, PadOp, stack
from weft.ops.shape.movement import (
    BroadcastOp,
    IdentityOp,
    ReshapeOp,
    TransposeOp,
    broadcast,
    cast_axes,
    expand_dims,
)
from weft.passes.interface import PeepholeGraphPass
from weft.passes.visitors import visit
from weft.plugins import hookimpl
from weft.support.dispatch import ClassTable

Rule = Callable[[Any], TensorOp]


class Parts(NamedTuple):
    """The real and the imaginary part of a value."""

    real: TensorOp
    imag: TensorOp


class SplitComplex(PeepholeGraphPass):
    """Compute real and imaginary parts of each complex value of a dtype that the target lacks."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Return the graph as it is if the target computes with all of its complex dtypes."""
        if any(op.is_tensor and is_split(op.dtype, target) for op in graph.ops):
            return super().do_pass(graph, target)
        return graph

    @visit.on_type(TensorOp)
    def split(self, op: TensorOp) -> None:
        """Apply the rule of an op with a complex operand or result; without one it stays."""
        if any(is_split(each.dtype, self.target) for each in (op, *op.args) if each.is_tensor):
            rule = RULES.nearest(type(op))
            if rule is not None:
                self.replace_op(op, rule(op))


def is_split(dtype: dtypes.DType, target: Target) -> bool:
    """Whether values of a dtype are computed as two real ones."""
    return dtype.kind == "c" and not target.has_dtype(dtype)


def parts(z: TensorOp) -> Parts:
    """Return the parts of a complex value: what it was made of, or views of what is in memory."""
    if isinstance(z, ComplexOp):
        return Parts(*(broadcast(part, z.axes) if z.axes else part for part in z.args))
    if isinstance(z, AssignableTensorOp):
        value = np.asarray(z.const)
        return Parts(constant(value.real, z.axes), constant(value.imag, z.axes))
    if isinstance(z, ViewAsComplexOp):
        return Parts(z.args[0][..., 0], z.args[0][..., 1])
    return Parts(RealOp(z), ImagOp(z))


def taken_part(op: PartOp) -> TensorOp:
    """Take the part that a complex number was made of; others are views of it."""
    (z,) = op.args
    is_made = isinstance(z, (ComplexOp, ViewAsComplexOp)) or z.is_constant
    return parts(z)[op.number] if is_made else op


def taken_pairs(op: ViewAsRealOp) -> TensorOp:
    """Stack the parts that a complex number was made of; others are in memory."""
    z: TensorOp = op.args[0]
    if isinstance(z, ViewAsComplexOp):
        pairs: TensorOp = z.args[0]
        return pairs
    is_made = isinstance(z, ComplexOp) or z.is_constant
    return stack(parts(z), op.axes[-1:], z.rank) if is_made else op


def by_parts(op: TensorOp) -> TensorOp:
    """Apply an op that is linear in its complex operands to the parts of these."""
    pairs = [parts(arg) if arg.dtype.kind == "c" else (arg, arg) for arg in op.args]
    fields = op.attributes()
    return ComplexOp(*(type(op)(*args, **fields) for args in zip(*pairs, strict=True)))


def moved(op: TransposeOp | ReshapeOp) -> TensorOp:
    """Move pairs that are in memory, which they are a view of; else move each part."""
    z: TensorOp = op.args[0]
    if isinstance(z, ComplexOp) or z.is_constant:
        return by_parts(op)
    pairs = z.args[0] if isinstance(z, ViewAsComplexOp) else ViewAsRealOp(z)
    if isinstance(op, TransposeOp):
        return ViewAsComplexOp(TransposeOp(pairs, permutation=(*op.permutation, z.rank)))
    part = Axis(2, "part" if op.axes.is_named else None)
    return ViewAsComplexOp(ReshapeOp(pairs, target_axes=Axes((*op.axes, part))))


def padded(op: PadOp) -> TensorOp:
    """Pad each part with that of the number."""
    number = complex(op.fill)
    fields = op.attributes()
    pairs = zip(parts(op.args[0]), (number.real, number.imag), strict=True)
    return ComplexOp(*(PadOp(part, **{**fields, "fill": fill}) for part, fill in pairs))


def bilinear(op: TensorOp) -> TensorOp:
    """Multiply each part of one operand by each of the other."""
    (a, b), (c, d) = map(parts, op.args)
    multiply = partial(type(op), **op.attributes())
    return ComplexOp(multiply(a, c) - multiply(b, d), multiply(a, d) + multiply(b, c))


def scattered(op: ScatterOp) -> TensorOp:
    """Set or add each part; other ways to combine are decomposed."""
    return by_parts(op) if op.reduction in ("set", "add") else op.decompose(*op.args)


def solution(op: SolveOp) -> TensorOp:
    """Solve a real system of twice the size, with the parts one below the other."""
    (a, b), (c, d) = map(parts, op.args)
    rows, columns = a.rank - 2, a.rank - 1
    above, below = (ConcatOp(*row, position=columns) for row in ((a, -b), (b, a)))
    x = SolveOp(ConcatOp(above, below, position=rows), ConcatOp(c, d, position=rows))
    length = a.axes[rows].length
    return ComplexOp(x[..., :length, :], x[..., length:, :])


def interleaved_factor(op: CholeskyOp) -> TensorOp:
    """Factorize a real matrix of a block [[a, -b], [b, a]] for each number a + i b.

    Its factor is unique, and so has the blocks of the complex factor.
    """
    re, im = parts(op.args[0])
    im = tril(im, -1)
    above, below = (stack(row, pos=re.rank) for row in ((re, -im), (im, re)))
    head, n = re.axes[:-2], re.axes[-1].length
    whole = stack([above, below], pos=re.rank - 1)
    real_factor = CholeskyOp(cast_axes(whole, (*head, 2 * n, 2 * n)))
    blocks = cast_axes(real_factor, (*head, n, 2, n, 2))
    return ComplexOp(blocks[..., 0, :, 0], blocks[..., 1, :, 0])


def determinant(op: DeterminantOp) -> TensorOp:
    """Multiply the signs of pivots, and that of their order; add the logarithms."""
    x = op.args[0]
    n = x.axes.lengths[-1]
    packed = as_matrix(LUOp, ViewAsRealOp(x), is_complex=True)
    pivots, order = diagonal(packed[..., :n]), permutation_of(packed)
    size = absolute(pivots)
    is_zero = equal(size, 0)
    signs = where(is_zero, pivots, pivots / cast(where(is_zero, 1, size), x.dtype))
    rows = broadcast(expand_dims(order, dim=order.rank), Axes((*order.axes, order.axes[-1])))
    is_swapped = less(rows, matrix_transpose(rows)) & tril(less(rows, n), -1)
    swaps = sum(is_swapped, (-2, -1))
    sign = prod(signs, -1) * cast(1 - 2 * (swaps % 2), x.dtype)
    total = cast(sum(log(size), -1), x.dtype)
    return stack([sign, total], pos=sign.rank)


def cast_parts(op: CastOp) -> TensorOp:
    """Convert the parts; those of a real number are itself and 0."""
    (x,) = op.args
    target = real_dtype(op.target_dtype)
    re, im = parts(x) if x.dtype.kind == "c" else (x, constant(0, dtype=target))
    return ComplexOp(cast(re, target), cast(im, target))


def compared(op: EqualOp) -> TensorOp:
    """Compare both parts."""
    (a, b), (c, d) = map(parts, op.args)
    return equal(a, c) & equal(b, d)


def reduced_product(op: ProdOp) -> TensorOp:
    """Multiply halves by each other until one element is left, along axes of known length."""
    x: TensorOp = op.args[0]
    for place in sorted(op.positions, reverse=True):
        x = halved(x, place)
    return x


def of_parts(function: Callable[..., Parts]) -> Rule:
    """Return the rule of a function of complex numbers that is computed from their parts."""
    return lambda op: ComplexOp(*function(*map(parts, op.args)))


def halved(x: TensorOp, place: int) -> TensorOp:
    """Return the products along an axis of known length, which is dropped."""
    before = (slice(None),) * place
    while (length := x.axes[place].length) > 1:
        half = length // 2
        product = x[(*before, slice(half))] * x[(*before, slice(half, 2 * half))]
        rest = [x[(*before, slice(2 * half, length))]] if length % 2 else []
        x = ConcatOp(product, *rest, position=place)
    left = Axes(axis for number, axis in enumerate(x.axes) if number != place)
    one = constant(1, dtype=x.dtype)
    return ReshapeOp(x, target_axes=left) if length else broadcast(one, left)


def quotient(x: Parts, y: Parts) -> Parts:
    """Divide by the longer part of the divisor first (R. L. Smith, 1962), as NumPy does."""
    is_real = absolute(y.imag) <= absolute(y.real)
    longer, shorter = where(is_real, y.real, y.imag), where(is_real, y.imag, y.real)
    is_zero = equal(longer, 0)
    ratio = where(is_zero, 0, shorter) / where(is_zero, 1, longer)
    divisor = longer + shorter * ratio
    first, second = where(is_real, x.real, x.imag), where(is_real, x.imag, x.real)
    imag = second - first * ratio
    return Parts((first + second * ratio) / divisor, where(is_real, imag, -imag) / divisor)


def exponential(z: Parts) -> Parts:
    """Return exp(a) (cos b + i sin b); a real number has a real exponential, infinity too."""
    is_large = z.real > largest_exponent(z)
    size = exp(where(is_large, z.real * 0.5, z.real))
    rest, is_zero = where(is_large, size, 1), equal(size, 0)
    angle = where(is_zero & ~isfinite(z.imag), 0, z.imag)
    return Parts(
        where(equal(z.imag, 0), size, size * cos(angle)) * rest,
        where(equal(z.imag, 0), z.imag, size * sin(angle) * rest),
    )


def largest_exponent(z: Parts) -> float:
    """Return the largest number of the dtype that has a finite exponential."""
    return math.log(np.finfo(z.real.dtype).max)


def logarithm(z: Parts) -> Parts:
    """Return the logarithm of the absolute value, precise near 1, and the angle."""
    a, b = absolute(z.real), absolute(z.imag)
    longer, shorter = maximum(a, b), minimum(a, b)
    is_near = (longer > 0.5) & (longer < 2) & (shorter < 2)
    near = where(is_near, longer, 1)
    excess = (near - 1) * (near + 1) + square(where(is_near, shorter, 0))
    size = where(is_near, log1p(excess) * 0.5, log(hypot(a, b)))
    return Parts(size, atan2(z.imag, z.real))


def root(z: Parts) -> Parts:
    """Return the root in the right half plane; the longer part has no cancellation."""
    a, b = absolute(z.real), absolute(z.imag)
    longer = sqrt(a * 0.5 + hypot(a * 0.5, b * 0.5))
    is_zero = equal(longer, 0) | equal(longer, math.inf)
    shorter = where(is_zero, where(equal(b, math.inf), b, 0), b * 0.5 / where(is_zero, 1, longer))
    is_right = z.real >= 0
    real, imag = where(is_right, longer, shorter), where(is_right, shorter, longer)
    return Parts(real, CopysignOp(imag, z.imag))


def sine(z: Parts) -> Parts:
    """Return sin a cosh b + i cos a sinh b; that of an imaginary number is imaginary."""
    even, odd, rest = hyperbolic_functions(z)
    real = where(equal(z.real, 0), z.real, sin(z.real) * even * rest)
    return Parts(real, where(equal(z.imag, 0), z.imag, cos(z.real) * odd * rest))


def cosine(z: Parts) -> Parts:
    """Return cos a cosh b - i sin a sinh b; that of an imaginary number is real."""
    even, odd, rest = hyperbolic_functions(z)
    # The sine and the hyperbolic sine of 0 are 0, and the other one's sign remains.
    a = where(equal(z.imag, 0), where(isfinite(z.real), z.real, 0), z.real)
    b = CopysignOp(constant(1, dtype=odd.dtype), odd)
    imag = where(equal(z.real, 0), z.real * b, sin(a) * odd * rest)
    return Parts(cos(z.real) * even * rest, -imag)


def hyperbolic_sine(z: Parts) -> Parts:
    """Return -i sin iz."""
    real, imag = sine(Parts(-z.imag, z.real))
    return Parts(imag, -real)


def hyperbolic_cosine(z: Parts) -> Parts:
    """Return cos iz."""
    return cosine(Parts(-z.imag, z.real))


def hyperbolic_functions(z: Parts) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return cosh b and sinh b divided by a factor, which keeps them finite, and the factor."""
    length = absolute(z.imag)
    is_large = length > largest_exponent(z)
    root = exp(where(is_large, length, 0) * 0.5)
    near = where(is_large, 0, z.imag)
    odd = where(is_large, CopysignOp(root * 0.5, z.imag), sinh(near))
    return where(is_large, root * 0.5, cosh(near)), odd, root


def hyperbolic_tangent(z: Parts) -> Parts:
    """Return the tangent by W. Kahan (1987), and by its limit where squares would overflow."""
    # From here on the tangent differs from 1 by less than a rounding error.
    is_large = absolute(z.real) > 2 - math.log(np.finfo(z.real.dtype).eps) / 2
    a = where(is_large, 0, z.real)
    slope, size = sin(z.imag) / cos(z.imag), sinh(a)
    beta = square(slope) + 1
    divisor = beta * square(size) + 1
    limit = sin(z.imag) * cos(z.imag) * 4 * exp(absolute(z.real) * -2)
    return Parts(
        where(is_large, tanh(z.real), beta * sqrt(square(size) + 1) * size / divisor),
        where(is_large, limit, slope / divisor),
    )


def power(x: Parts, y: Parts) -> Parts:
    """Return exp(y log x); 1 for the power 0, and 0 for other powers of 0 on the right."""
    is_zero = equal(x.real, 0) & equal(x.imag, 0)
    size, angle = logarithm(Parts(where(is_zero, 1, x.real), x.imag))
    found = exponential(Parts(y.real * size - y.imag * angle, y.real * angle + y.imag * size))
    of_zero = where(y.real > 0, 0, math.nan)
    is_one = equal(y.real, 0) & equal(y.imag, 0)
    real, imag = (where(is_zero, of_zero, part) for part in found)
    return Parts(where(is_one, 1, real), where(is_one, 0, imag))


def inverse_tangent(z: Parts) -> Parts:
    """Return the angle, and half of the inverse hyperbolic tangent that is odd in b."""
    a, b = z.real, absolute(z.imag)
    real = atan2(a * 2, (1 - b) * (1 + b) - square(a)) * 0.5
    distance = square(1 - b) + square(a)
    imag = log1p(where(equal(distance, math.inf), 0, b * 4 / distance)) * 0.25
    return Parts(real, CopysignOp(imag, z.imag))


def roots_beside_one(z: Parts) -> tuple[Parts, Parts]:
    """Return the roots of 1 - z and 1 + z."""
    return root(Parts(1 - z.real, -z.imag)), root(Parts(z.real + 1, z.imag))


def arcsine(z: Parts) -> Parts:
    """Return the arcsine by W. Kahan (1987), which divides by nothing."""
    (a, b), (c, d) = roots_beside_one(z)
    return Parts(atan2(z.real, a * c - b * d), asinh(a * d - b * c))


def arccosine(z: Parts) -> Parts:
    """Return the arccosine by W. Kahan (1987)."""
    (a, b), (c, d) = roots_beside_one(z)
    return Parts(atan2(a, c) * 2, asinh(b * c - a * d))


BY_PARTS = (
    AddOp, SubtractOp, SumOp, CumsumOp, IdentityOp, BroadcastOp, SliceOp, UpdateSliceOp, ConcatOp,
    TakeOp, TakeAlongAxisOp, WindowsOp, FoldOp, WhereOp,
)  # fmt: skip

RULES = ClassTable[Rule](
    {
        AbsoluteOp: lambda op: hypot(*parts(op.args[0])),
        AcosOp: of_parts(arccosine),
        AsinOp: of_parts(arcsine),
        AtanOp: of_parts(inverse_tangent),
        CastOp: cast_parts,
        CholeskyOp: interleaved_factor,
        CompositeOp: lambda op: op.decompose(*op.args),
        CosOp: of_parts(cosine),
        CoshOp: of_parts(hyperbolic_cosine),
        DeterminantOp: determinant,
        DivideOp: of_parts(quotient),
        EffectOp: lambda op: op,
        EqualOp: compared,
        ExpOp: of_parts(exponential),
        LogOp: of_parts(logarithm),
        PartOp: taken_part,
        PadOp: padded,
        PowerOp: of_parts(power),
        ProdOp: reduced_product,
        ReshapeOp: moved,
        ScatterOp: scattered,
        SinOp: of_parts(sine),
        SinhOp: of_parts(hyperbolic_sine),
        SolveOp: solution,
        SqrtOp: of_parts(root),
        TanhOp: of_parts(hyperbolic_tangent),
        TransposeOp: moved,
        ViewAsComplexOp: lambda op: op,
        ViewAsRealOp: taken_pairs,
    }
)
RULES.update(dict.fromkeys(BY_PARTS, by_parts))
RULES.update(dict.fromkeys((MultiplyOp, MatmulOp, BilinearConvolutionOp), bilinear))


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("split-complex", SplitComplex)

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

import weft
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.graph import Graph
from weft.ir.storage import AssignableTensorOp, constant
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.pointwise.complex_parts import PartOp
from weft.ops.pointwise.elementwise import real_dtype
from weft.ops.products.factorizations import LUOp, as_matrix, permutation_of
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
    if isinstance(z, weft.ComplexOp):
        return Parts(*(weft.broadcast(part, z.axes) if z.axes else part for part in z.args))
    if isinstance(z, AssignableTensorOp):
        value = np.asarray(z.const)
        return Parts(constant(value.real, z.axes), constant(value.imag, z.axes))
    if isinstance(z, weft.ViewAsComplexOp):
        return Parts(z.args[0][..., 0], z.args[0][..., 1])
    return Parts(weft.RealOp(z), weft.ImagOp(z))


def taken_part(op: PartOp) -> TensorOp:
    """Take the part that a complex number was made of; others are views of it."""
    (z,) = op.args
    is_made = isinstance(z, (weft.ComplexOp, weft.ViewAsComplexOp)) or z.is_constant
    return parts(z)[op.number] if is_made else op


def taken_pairs(op: weft.ViewAsRealOp) -> TensorOp:
    """Stack the parts that a complex number was made of; others are in memory."""
    z: TensorOp = op.args[0]
    if isinstance(z, weft.ViewAsComplexOp):
        pairs: TensorOp = z.args[0]
        return pairs
    is_made = isinstance(z, weft.ComplexOp) or z.is_constant
    return weft.stack(parts(z), op.axes[-1:], z.rank) if is_made else op


def by_parts(op: TensorOp) -> TensorOp:
    """Apply an op that is linear in its complex operands to the parts of these."""
    pairs = [parts(arg) if arg.dtype.kind == "c" else (arg, arg) for arg in op.args]
    fields = op.attributes()
    return weft.ComplexOp(*(type(op)(*args, **fields) for args in zip(*pairs, strict=True)))


def moved(op: weft.TransposeOp | weft.ReshapeOp) -> TensorOp:
    """Move pairs that are in memory, which they are a view of; else move each part."""
    z: TensorOp = op.args[0]
    if isinstance(z, weft.ComplexOp) or z.is_constant:
        return by_parts(op)
    pairs = z.args[0] if isinstance(z, weft.ViewAsComplexOp) else weft.ViewAsRealOp(z)
    if isinstance(op, weft.TransposeOp):
        return weft.ViewAsComplexOp(weft.TransposeOp(pairs, permutation=(*op.permutation, z.rank)))
    part = Axis(2, "part" if op.axes.is_named else None)
    return weft.ViewAsComplexOp(weft.ReshapeOp(pairs, target_axes=Axes((*op.axes, part))))


def padded(op: weft.PadOp) -> TensorOp:
    """Pad each part with that of the number."""
    number = complex(op.fill)
    fields = op.attributes()
    pairs = zip(parts(op.args[0]), (number.real, number.imag), strict=True)
    return weft.ComplexOp(*(weft.PadOp(part, **{**fields, "fill": fill}) for part, fill in pairs))


def bilinear(op: TensorOp) -> TensorOp:
    """Multiply each part of one operand by each of the other."""
    (a, b), (c, d) = map(parts, op.args)
    multiply = partial(type(op), **op.attributes())
    return weft.ComplexOp(multiply(a, c) - multiply(b, d), multiply(a, d) + multiply(b, c))


def scattered(op: weft.ScatterOp) -> TensorOp:
    """Set or add each part; other ways to combine are decomposed."""
    return by_parts(op) if op.reduction in ("set", "add") else op.decompose(*op.args)


def solution(op: weft.SolveOp) -> TensorOp:
    """Solve a real system of twice the size, with the parts one below the other."""
    (a, b), (c, d) = map(parts, op.args)
    rows, columns = a.rank - 2, a.rank - 1
    above, below = (weft.ConcatOp(*row, position=columns) for row in ((a, -b), (b, a)))
    x = weft.SolveOp(weft.ConcatOp(above, below, position=rows), weft.ConcatOp(c, d, position=rows))
    length = a.axes[rows].length
    return weft.ComplexOp(x[..., :length, :], x[..., length:, :])


def interleaved_factor(op: weft.CholeskyOp) -> TensorOp:
    """Factorize a real matrix of a block [[a, -b], [b, a]] for each number a + i b.

    Its factor is unique, and so has the blocks of the complex factor.
    """
    re, im = parts(op.args[0])
    im = weft.tril(im, -1)
    above, below = (weft.stack(row, pos=re.rank) for row in ((re, -im), (im, re)))
    head, n = re.axes[:-2], re.axes[-1].length
    whole = weft.stack([above, below], pos=re.rank - 1)
    real_factor = weft.CholeskyOp(weft.cast_axes(whole, (*head, 2 * n, 2 * n)))
    blocks = weft.cast_axes(real_factor, (*head, n, 2, n, 2))
    return weft.ComplexOp(blocks[..., 0, :, 0], blocks[..., 1, :, 0])


def determinant(op: weft.DeterminantOp) -> TensorOp:
    """Multiply the signs of pivots, and that of their order; add the logarithms."""
    x = op.args[0]
    n = x.axes.lengths[-1]
    packed = as_matrix(LUOp, weft.ViewAsRealOp(x), is_complex=True)
    pivots, order = weft.diagonal(packed[..., :n]), permutation_of(packed)
    size = weft.absolute(pivots)
    is_zero = weft.equal(size, 0)
    signs = weft.where(is_zero, pivots, pivots / weft.cast(weft.where(is_zero, 1, size), x.dtype))
    rows = weft.broadcast(
        weft.expand_dims(order, dim=order.rank), Axes((*order.axes, order.axes[-1]))
    )
    is_swapped = weft.less(rows, weft.matrix_transpose(rows)) & weft.tril(weft.less(rows, n), -1)
    swaps = weft.sum(is_swapped, (-2, -1))
    sign = weft.prod(signs, -1) * weft.cast(1 - 2 * (swaps % 2), x.dtype)
    total = weft.cast(weft.sum(weft.log(size), -1), x.dtype)
    return weft.stack([sign, total], pos=sign.rank)


def cast_parts(op: weft.CastOp) -> TensorOp:
    """Convert the parts; those of a real number are itself and 0."""
    (x,) = op.args
    target = real_dtype(op.target_dtype)
    re, im = parts(x) if x.dtype.kind == "c" else (x, constant(0, dtype=target))
    return weft.ComplexOp(weft.cast(re, target), weft.cast(im, target))


def compared(op: weft.EqualOp) -> TensorOp:
    """Compare both parts."""
    (a, b), (c, d) = map(parts, op.args)
    return weft.equal(a, c) & weft.equal(b, d)


def reduced_product(op: weft.ProdOp) -> TensorOp:
    """Multiply halves by each other until one element is left, along axes of known length."""
    x: TensorOp = op.args[0]
    for place in sorted(op.positions, reverse=True):
        x = halved(x, place)
    return x


def of_parts(function: Callable[..., Parts]) -> Rule:
    """Return the rule of a function of complex numbers that is computed from their parts."""
    return lambda op: weft.ComplexOp(*function(*map(parts, op.args)))


def halved(x: TensorOp, place: int) -> TensorOp:
    """Return the products along an axis of known length, which is dropped."""
    before = (slice(None),) * place
    while (length := x.axes[place].length) > 1:
        half = length // 2
        product = x[(*before, slice(half))] * x[(*before, slice(half, 2 * half))]
        rest = [x[(*before, slice(2 * half, length))]] if length % 2 else []
        x = weft.ConcatOp(product, *rest, position=place)
    left = Axes(axis for number, axis in enumerate(x.axes) if number != place)
    one = constant(1, dtype=x.dtype)
    return weft.ReshapeOp(x, target_axes=left) if length else weft.broadcast(one, left)


def quotient(x: Parts, y: Parts) -> Parts:
    """Divide by the longer part of the divisor first (R. L. Smith, 1962), as NumPy does."""
    is_real = weft.absolute(y.imag) <= weft.absolute(y.real)
    longer, shorter = weft.where(is_real, y.real, y.imag), weft.where(is_real, y.imag, y.real)
    is_zero = weft.equal(longer, 0)
    ratio = weft.where(is_zero, 0, shorter) / weft.where(is_zero, 1, longer)
    divisor = longer + shorter * ratio
    first, second = weft.where(is_real, x.real, x.imag), weft.where(is_real, x.imag, x.real)
    imag = second - first * ratio
    return Parts((first + second * ratio) / divisor, weft.where(is_real, imag, -imag) / divisor)


def exponential(z: Parts) -> Parts:
    """Return exp(a) (cos b + i sin b); a real number has a real exponential, infinity too."""
    is_large = z.real > largest_exponent(z)
    size = weft.exp(weft.where(is_large, z.real * 0.5, z.real))
    rest, is_zero = weft.where(is_large, size, 1), weft.equal(size, 0)
    angle = weft.where(is_zero & ~weft.isfinite(z.imag), 0, z.imag)
    return Parts(
        weft.where(weft.equal(z.imag, 0), size, size * weft.cos(angle)) * rest,
        weft.where(weft.equal(z.imag, 0), z.imag, size * weft.sin(angle) * rest),
    )


def largest_exponent(z: Parts) -> float:
    """Return the largest number of the dtype that has a finite exponential."""
    return math.log(np.finfo(z.real.dtype).max)


def logarithm(z: Parts) -> Parts:
    """Return the logarithm of the absolute value, precise near 1, and the angle."""
    a, b = weft.absolute(z.real), weft.absolute(z.imag)
    longer, shorter = weft.maximum(a, b), weft.minimum(a, b)
    is_near = (longer > 0.5) & (longer < 2) & (shorter < 2)
    near = weft.where(is_near, longer, 1)
    excess = (near - 1) * (near + 1) + weft.square(weft.where(is_near, shorter, 0))
    size = weft.where(is_near, weft.log1p(excess) * 0.5, weft.log(weft.hypot(a, b)))
    return Parts(size, weft.atan2(z.imag, z.real))


def root(z: Parts) -> Parts:
    """Return the root in the right half plane; the longer part has no cancellation."""
    a, b = weft.absolute(z.real), weft.absolute(z.imag)
    longer = weft.sqrt(a * 0.5 + weft.hypot(a * 0.5, b * 0.5))
    is_zero = weft.equal(longer, 0) | weft.equal(longer, math.inf)
    shorter = weft.where(
        is_zero, weft.where(weft.equal(b, math.inf), b, 0), b * 0.5 / weft.where(is_zero, 1, longer)
    )
    is_right = z.real >= 0
    real, imag = weft.where(is_right, longer, shorter), weft.where(is_right, shorter, longer)
    return Parts(real, weft.CopysignOp(imag, z.imag))


def sine(z: Parts) -> Parts:
    """Return sin a cosh b + i cos a sinh b; that of an imaginary number is imaginary."""
    even, odd, rest = hyperbolic_functions(z)
    real = weft.where(weft.equal(z.real, 0), z.real, weft.sin(z.real) * even * rest)
    return Parts(real, weft.where(weft.equal(z.imag, 0), z.imag, weft.cos(z.real) * odd * rest))


def cosine(z: Parts) -> Parts:
    """Return cos a cosh b - i sin a sinh b; that of an imaginary number is real."""
    even, odd, rest = hyperbolic_functions(z)
    # The sine and the hyperbolic sine of 0 are 0, and the other one's sign remains.
    a = weft.where(weft.equal(z.imag, 0), weft.where(weft.isfinite(z.real), z.real, 0), z.real)
    b = weft.CopysignOp(constant(1, dtype=odd.dtype), odd)
    imag = weft.where(weft.equal(z.real, 0), z.real * b, weft.sin(a) * odd * rest)
    return Parts(weft.cos(z.real) * even * rest, -imag)


def hyperbolic_sine(z: Parts) -> Parts:
    """Return -i sin iz."""
    real, imag = sine(Parts(-z.imag, z.real))
    return Parts(imag, -real)


def hyperbolic_cosine(z: Parts) -> Parts:
    """Return cos iz."""
    return cosine(Parts(-z.imag, z.real))


def hyperbolic_functions(z: Parts) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return cosh b and sinh b divided by a factor, which keeps them finite, and the factor."""
    length = weft.absolute(z.imag)
    is_large = length > largest_exponent(z)
    root = weft.exp(weft.where(is_large, length, 0) * 0.5)
    near = weft.where(is_large, 0, z.imag)
    odd = weft.where(is_large, weft.CopysignOp(root * 0.5, z.imag), weft.sinh(near))
    return weft.where(is_large, root * 0.5, weft.cosh(near)), odd, root


def hyperbolic_tangent(z: Parts) -> Parts:
    """Return the tangent by W. Kahan (1987), and by its limit where squares would overflow."""
    # From here on the tangent differs from 1 by less than a rounding error.
    is_large = weft.absolute(z.real) > 2 - math.log(np.finfo(z.real.dtype).eps) / 2
    a = weft.where(is_large, 0, z.real)
    slope, size = weft.sin(z.imag) / weft.cos(z.imag), weft.sinh(a)
    beta = weft.square(slope) + 1
    divisor = beta * weft.square(size) + 1
    limit = weft.sin(z.imag) * weft.cos(z.imag) * 4 * weft.exp(weft.absolute(z.real) * -2)
    return Parts(
        weft.where(
            is_large, weft.tanh(z.real), beta * weft.sqrt(weft.square(size) + 1) * size / divisor
        ),
        weft.where(is_large, limit, slope / divisor),
    )


def power(x: Parts, y: Parts) -> Parts:
    """Return exp(y log x); 1 for the power 0, and 0 for other powers of 0 on the right."""
    is_zero = weft.equal(x.real, 0) & weft.equal(x.imag, 0)
    size, angle = logarithm(Parts(weft.where(is_zero, 1, x.real), x.imag))
    found = exponential(Parts(y.real * size - y.imag * angle, y.real * angle + y.imag * size))
    of_zero = weft.where(y.real > 0, 0, math.nan)
    is_one = weft.equal(y.real, 0) & weft.equal(y.imag, 0)
    real, imag = (weft.where(is_zero, of_zero, part) for part in found)
    return Parts(weft.where(is_one, 1, real), weft.where(is_one, 0, imag))


def inverse_tangent(z: Parts) -> Parts:
    """Return the angle, and half of the inverse hyperbolic tangent that is odd in b."""
    a, b = z.real, weft.absolute(z.imag)
    real = weft.atan2(a * 2, (1 - b) * (1 + b) - weft.square(a)) * 0.5
    distance = weft.square(1 - b) + weft.square(a)
    imag = weft.log1p(weft.where(weft.equal(distance, math.inf), 0, b * 4 / distance)) * 0.25
    return Parts(real, weft.CopysignOp(imag, z.imag))


def roots_beside_one(z: Parts) -> tuple[Parts, Parts]:
    """Return the roots of 1 - z and 1 + z."""
    return root(Parts(1 - z.real, -z.imag)), root(Parts(z.real + 1, z.imag))


def arcsine(z: Parts) -> Parts:
    """Return the arcsine by W. Kahan (1987), which divides by nothing."""
    (a, b), (c, d) = roots_beside_one(z)
    return Parts(weft.atan2(z.real, a * c - b * d), weft.asinh(a * d - b * c))


def arccosine(z: Parts) -> Parts:
    """Return the arccosine by W. Kahan (1987)."""
    (a, b), (c, d) = roots_beside_one(z)
    return Parts(weft.atan2(a, c) * 2, weft.asinh(b * c - a * d))


BY_PARTS = (
    weft.AddOp, weft.SubtractOp, weft.SumOp, weft.CumsumOp, weft.IdentityOp, weft.BroadcastOp,
    weft.SliceOp, weft.UpdateSliceOp, weft.ConcatOp, weft.TakeOp, weft.TakeAlongAxisOp,
    weft.WindowsOp, weft.FoldOp, weft.WhereOp,
)  # fmt: skip

RULES = ClassTable[Rule](
    {
        weft.AbsoluteOp: lambda op: weft.hypot(*parts(op.args[0])),
        weft.AcosOp: of_parts(arccosine),
        weft.AsinOp: of_parts(arcsine),
        weft.AtanOp: of_parts(inverse_tangent),
        weft.CastOp: cast_parts,
        weft.CholeskyOp: interleaved_factor,
        CompositeOp: lambda op: op.decompose(*op.args),
        weft.CosOp: of_parts(cosine),
        weft.CoshOp: of_parts(hyperbolic_cosine),
        weft.DeterminantOp: determinant,
        weft.DivideOp: of_parts(quotient),
        weft.EffectOp: lambda op: op,
        weft.EqualOp: compared,
        weft.ExpOp: of_parts(exponential),
        weft.LogOp: of_parts(logarithm),
        PartOp: taken_part,
        weft.PadOp: padded,
        weft.PowerOp: of_parts(power),
        weft.ProdOp: reduced_product,
        weft.ReshapeOp: moved,
        weft.ScatterOp: scattered,
        weft.SinOp: of_parts(sine),
        weft.SinhOp: of_parts(hyperbolic_sine),
        weft.SolveOp: solution,
        weft.SqrtOp: of_parts(root),
        weft.TanhOp: of_parts(hyperbolic_tangent),
        weft.TransposeOp: moved,
        weft.ViewAsComplexOp: lambda op: op,
        weft.ViewAsRealOp: taken_pairs,
    }
)
RULES.update(dict.fromkeys(BY_PARTS, by_parts))
RULES.update(dict.fromkeys((weft.MultiplyOp, weft.MatmulOp, weft.BilinearConvolutionOp), bilinear))


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("split-complex", SplitComplex)

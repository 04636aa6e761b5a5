"""Tensor contractions: einsum and the products defined by it.

All are functions, not ops. An equation becomes views, sums, elementwise products and, for each pair
of operands with shared summed axes, a `DotOp`, which reaches backends as a matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axes, Axis, AxisKey, AxisKeys, broadcast_axes
from weft.ir.lengths import Length, substitute
from weft.ir.op import explain, explained
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.pointwise.complex_parts import conj
from weft.ops.pointwise.elementwise import multiply
from weft.ops.products.equation import ELLIPSIS, LETTERS, Equation, Subscript
from weft.ops.products.linalg import DotOp, as_factors, axis_last, diagonal, dot, require_positional
from weft.ops.reductions.reduction import SumOp
from weft.ops.shape.movement import BroadcastOp, broadcast, cast_axes, transpose

__all__ = [
    "einsum",
    "inner",
    "kron",
    "multi_dot",
    "outer",
    "tensordot",
    "vecdot",
]

UNKNOWN_SIZE = 128
"""The assumed size of an unknown length in the search for the order of contractions."""


class Term(NamedTuple):
    """A factor with a distinct label for each axis."""

    op: TensorOp
    labels: tuple[str, ...]

    def ordered(self, labels: Sequence[str]) -> TensorOp:
        """Return the op with its axes in the order of labels."""
        return transpose(self.op, tuple(self.labels.index(label) for label in labels))

    def summed(self, kept: set[str]) -> Term:
        """Return the term summed over the axes whose labels are not in `kept`."""
        gone = tuple(i for i, label in enumerate(self.labels) if label not in kept)
        if not gone:
            return self
        return Term(SumOp(self.op, positions=gone), tuple(x for x in self.labels if x in kept))


def einsum(equation: str, *operands: Any) -> TensorOp:
    """Return the contraction of tensors by an equation in Einstein's notation.

    Three or more operands are contracted in pairs, in the order that opt_einsum (Smith and Gray,
    2018) finds cheapest, with 128 for unknown lengths. Bool counts as int32. Each contraction of
    16-bit floats accumulates in float32 and yields 16 bits.

    Parameters
    ----------
    equation
        A term for each operand, with a letter for each axis; ``...`` stands for the remaining axes,
        which broadcast. The term after the arrow gives the axes of the result; letters missing
        there are summed over. Without an arrow the result has the axes of the ellipsis, then the
        letters that occur once, in alphabetical order. A letter repeated in a term takes the
        diagonal.
    operands
        The tensors. Axes of length 1 broadcast. If all letters of a term are axis names of its
        operand, they select axes by name, in any order; otherwise by position.

    Returns
    -------
    TensorOp
        A tensor in the promoted dtype of the operands. It has named axes if they have; a letter
        stands for one name.

    Raises
    ------
    ArgumentError
        If the equation is malformed or has the wrong number of terms.
    AxesError
        If ranks or lengths do not fit.

    Examples
    --------
    >>> x, y = np.array([[1, 2], [3, 4]]), np.array([10, 20])
    >>> weft.jit(lambda x, y: weft.einsum("ij,j->i", x, y))(x, y)
    array([ 50, 110])
    >>> weft.jit(lambda x: weft.einsum("ii", x))(x)
    array(5)
    """
    if not isinstance(equation, str):
        problem = f"takes an equation such as 'ij,jk->ik' first, not {equation!r}"
        raise ArgumentError(explain("einsum", problem, operands))
    if not operands:
        raise ArgumentError(explain("einsum", f"got no operands for {equation!r}", ()))
    factors = as_factors("einsum", *operands)
    written = Equation(equation, factors).terms
    if len(written) == len(factors):
        factors = tuple(map(_by_letter, factors, written))
    parsed = Equation(equation, factors)
    inputs, result = parsed.labels()
    axes = parsed.axes(inputs)
    named = parsed.names(inputs, result)
    bare = (cast_axes(x, x.axes.lengths) for x in factors)
    terms = [_reduced(x, labels, axes) for x, labels in zip(bare, inputs, strict=True)]
    value = _contracted(terms, result, axes)
    return cast_axes(value, Axes(named)) if named else value


def _by_letter(x: TensorOp, term: list[Subscript]) -> TensorOp:
    """Return an operand transposed to its term, if all letters are names of its axes."""
    if not x.axes.is_named:
        return x
    letters = [subscript.text for subscript in term if subscript.text != ELLIPSIS]
    rest = [name for name in map(str, x.axes.names) if name not in letters]
    order = [
        name
        for subscript in term
        for name in (rest if subscript.text == ELLIPSIS else [subscript.text])
    ]
    return transpose(x, order) if set(order) == set(x.axes.names) else x


def _contracted(terms: list[Term], result: tuple[str, ...], axes: dict[str, Axis]) -> TensorOp:
    """Return the contraction of positional factors, with the axes of the result in order."""
    terms = [
        term.summed({*result, *_labels_of(terms[:number] + terms[number + 1 :])})
        for number, term in enumerate(terms)
    ]
    for pair in _path(terms, result, axes):
        left, right = (terms[place] for place in pair)
        terms = [term for place, term in enumerate(terms) if place not in pair]
        terms.append(_joined(left, right, (*result, *_labels_of(terms)), result))
    return terms[0].ordered(result)


def _labels_of(terms: Sequence[Term]) -> list[str]:
    return [label for term in terms for label in term.labels]


def _reduced(x: TensorOp, labels: tuple[str, ...], axes: dict[str, Axis]) -> Term:
    """Return an operand with diagonals taken, without the axes of length 1 that broadcast."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [place for place in range(x.rank) if place not in (first, second)]
            x = diagonal(transpose(x, (*rest, first, second)))
            labels = (*(labels[place] for place in rest), label)
    kept = [i for i, label in enumerate(labels) if x.axes[i].length == axes[label].length]
    return Term(
        cast_axes(x, Axes(x.axes[place] for place in kept)), tuple(labels[place] for place in kept)
    )


def _path(
    terms: Sequence[Term], result: tuple[str, ...], axes: dict[str, Axis]
) -> Sequence[tuple[int, int]]:
    """Return the pair of terms to contract at each step; the result becomes the last term."""
    if len(terms) < 3:
        return [(0, 1)][: len(terms) - 1]
    from opt_einsum.paths import auto

    sizes = {label: _stand_in(axis.length) for label, axis in axes.items()}
    found: Sequence[tuple[int, int]] = auto(
        [frozenset(term.labels) for term in terms], frozenset(result), sizes
    )
    return found


def _stand_in(length: Any) -> int:
    if isinstance(length, Length):
        length = substitute(length, dict.fromkeys(length.symbols(), UNKNOWN_SIZE))
    return max(1, int(length))


def _joined(x: Term, y: Term, kept: Sequence[str], result: tuple[str, ...]) -> Term:
    """Return the contraction of two terms over the labels that are not in `kept`."""
    shared = [label for label in x.labels if label in y.labels]
    summed = [label for label in shared if label not in kept]
    if not summed:
        return _product(x, y, result)
    batch = [label for label in shared if label in kept]

    def order(left: Term, right: Term) -> tuple[str, ...]:
        mine = (label for label in left.labels if label not in shared)
        return (*batch, *mine, *(label for label in right.labels if label not in shared))

    if order(y, x) == result:
        x, y = y, x

    def places(labels: list[str]) -> Any:
        return tuple(tuple(map(term.labels.index, labels)) for term in (x, y))

    return Term(DotOp(x.op, y.op, contracted=places(summed), batched=places(batch)), order(x, y))


def _product(x: Term, y: Term, result: tuple[str, ...]) -> Term:
    """Return the elementwise product of two terms, broadcast to the axes of both."""
    labels = (*x.labels, *(label for label in y.labels if label not in x.labels))
    if set(labels) == set(result):
        labels = result
    axes = dict(zip((*x.labels, *y.labels), (*x.op.axes, *y.op.axes), strict=True))
    target = Axes(axes[label] for label in labels)
    return Term(multiply(_spread(x, labels, target), _spread(y, labels, target)), labels)


def _spread(x: Term, labels: tuple[str, ...], target: Axes) -> TensorOp:
    if not x.labels:
        return x.op
    own = [label for label in labels if label in x.labels]
    turned = x.ordered(own)
    if len(own) == len(labels):
        return turned
    return BroadcastOp(turned, target_axes=target, dims=tuple(map(labels.index, own)))


def multi_dot(operands: Sequence[Any]) -> TensorOp:
    """Return the product of two or more matrices, multiplied in the cheapest order.

    Parameters
    ----------
    operands
        A list of matrices. The first may be a row vector and the last a column vector, each with
        one axis.

    Returns
    -------
    TensorOp
        The product, in the promoted dtype of the operands. Bool gives int32.

    Raises
    ------
    ArgumentError
        If there are fewer than two operands.
    AxesError
        If an operand is not a matrix, has named axes, or does not fit the next one.

    Examples
    --------
    >>> x, y, z = np.ones((2, 100)), np.ones((100, 2)), np.ones(2)
    >>> weft.jit(lambda *factors: weft.multi_dot(factors))(x, y, z)
    array([200., 200.])
    """
    if not isinstance(operands, list | tuple) or not 2 <= len(operands) <= len(LETTERS) - 1:
        problem = f"takes a list of 2 to {len(LETTERS) - 1} matrices, not {operands!r}"
        raise ArgumentError(explain("multi_dot", problem, ()))
    factors = as_factors("multi_dot", *operands)
    require_positional("multi_dot", *factors)
    last = len(factors) - 1
    terms = []
    for number, x in enumerate(factors):
        if x.rank != 2 and not (x.rank == 1 and number in (0, last)):
            problem = f"operand {number} must be a matrix, not {x.axes}"
            raise AxesError(explain("multi_dot", problem, factors))
        start = number + 1 if x.rank == 1 and number == 0 else number
        terms.append(LETTERS[start : start + x.rank])
    result = LETTERS[: factors[0].rank - 1] + LETTERS[last + 1 : last + factors[last].rank]
    return einsum(f"{','.join(terms)}->{result}", *factors)


def tensordot(x: TensorLike, y: TensorLike, axes: int | Sequence[AxisKeys] = 2) -> TensorOp:
    """Return the contraction over pairs of axes.

    Parameters
    ----------
    x, y
        The operands. Named axes may have different names.
    axes
        A number n, for the last n axes of x and the first n of y; or a pair of lists with the axes
        of x and the corresponding ones of y: positions, axes or names.

    Returns
    -------
    TensorOp
        A tensor with the other axes of x, then of y, in the promoted dtype of the operands. Bool
        gives int32.

    Raises
    ------
    AxesError
        If there is no such axis, or paired axes differ in length.
    ArgumentError
        If the axes are neither a number nor two lists.

    Examples
    --------
    >>> x, y = np.ones((2, 3, 4)), np.ones((3, 4, 5))
    >>> weft.jit(weft.tensordot)(x, y).shape
    (2, 5)
    >>> weft.jit(lambda x, y: weft.tensordot(x, y, ([2], [1])))(x, y).shape
    (2, 3, 3, 5)
    """
    x, y = as_factors("tensordot", x, y)
    places = _paired_places(x, y, axes)
    if places[0]:
        return DotOp(x, y, contracted=places, batched=((), ()))
    return _outer("tensordot", x, y)


def _paired_places(x: TensorOp, y: TensorOp, axes: int | Sequence[AxisKeys]) -> Any:
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.rank, y.rank):
            problem = f"cannot sum over {axes} axes of {x.axes} and {y.axes}"
            raise AxesError(explain("tensordot", problem, (x, y)))
        return tuple(range(x.rank - axes, x.rank)), tuple(range(axes))
    if not isinstance(axes, list | tuple) or len(axes) != 2:
        problem = f"axes must be a number or two lists of axes, not {axes!r}"
        raise ArgumentError(explain("tensordot", problem, (x, y)))
    places = [
        explained("tensordot", (x, y), each.axes.positions, chosen)
        for each, chosen in zip((x, y), axes, strict=True)
    ]
    if len(places[0]) != len(places[1]):
        problem = f"axes {axes!r} are not pairs"
        raise AxesError(explain("tensordot", problem, (x, y)))
    return tuple(places)


def _outer(kind: str, x: TensorOp, y: TensorOp) -> TensorOp:
    """Return the outer product: the axes of x, then those of y."""
    axes = explained(kind, (x, y), Axes, (*x.axes, *y.axes))
    spread = (
        each if not each.axes else BroadcastOp(each, target_axes=axes, dims=tuple(dims))
        for each, dims in ((x, range(x.rank)), (y, range(x.rank, len(axes))))
    )
    return multiply(*spread)


def outer(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the outer product of two vectors; `tensordot(x, y, 0)` takes tensors of any rank.

    Parameters
    ----------
    x, y
        The vectors, which may have names.

    Returns
    -------
    TensorOp
        A matrix with the axes of x and y, in the promoted dtype of the operands. Bool gives int32.

    Raises
    ------
    AxesError
        If an operand is not a vector.

    Examples
    --------
    >>> weft.jit(weft.outer)(np.array([1, 2]), np.array([10, 20, 30]))
    array([[10, 20, 30],
           [20, 40, 60]])
    """
    x, y = as_factors("outer", x, y)
    if x.rank != 1 or y.rank != 1:
        problem = f"takes vectors, not {x.axes} and {y.axes}: tensordot(x, y, 0) takes any rank"
        raise AxesError(explain("outer", problem, (x, y)))
    return _outer("outer", x, y)


def inner(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the contraction over the last axis of both operands.

    Parameters
    ----------
    x, y
        The operands, without named axes. A scalar multiplies. Complex numbers are not conjugated,
        unlike in `vecdot`.

    Returns
    -------
    TensorOp
        A tensor with the other axes of x, then of y, as in NumPy, in the promoted dtype of the
        operands. Bool gives int32.

    Raises
    ------
    AxesError
        If the last axes differ in length, or axes have names.

    Examples
    --------
    >>> weft.jit(weft.inner)(np.array([1, 2, 3]), np.array([1, 0, 2]))
    array(7)
    """
    x, y = as_factors("inner", x, y)
    require_positional("inner", x, y)
    if not x.axes or not y.axes:
        return multiply(x, y)
    return DotOp(x, y, contracted=((x.rank - 1,), (y.rank - 1,)), batched=((), ()))


def vecdot(x: TensorLike, y: TensorLike, axis: AxisKey = -1) -> TensorOp:
    """Return the dot product along one axis of both operands.

    Parameters
    ----------
    x
        The first operand, whose complex numbers are conjugated.
    y
        The second operand, whose other axes broadcast against those of x.
    axis
        The axis: a position in each operand, or a name in both; by default the last.

    Returns
    -------
    TensorOp
        A tensor of the other axes, in the promoted dtype of the operands. Bool gives int32.

    Raises
    ------
    AxesError
        If there is no such axis, its lengths differ, or the others do not broadcast.

    Examples
    --------
    >>> x, y = np.array([[1, 2], [3, 4]]), np.array([1, 10])
    >>> weft.jit(weft.vecdot)(x, y)
    array([21, 43])
    """
    x, y = as_factors("vecdot", x, y)
    x = conj(x)
    if x.axes.is_named:
        return dot(x, y, reduction_axes=axis)
    x, y = (
        axis_last(each, explained("vecdot", (x, y), each.axes.position, axis)) for each in (x, y)
    )
    head = explained("vecdot", (x, y), broadcast_axes, x.axes[:-1], y.axes[:-1])
    x, y = (broadcast(each, Axes((*head, each.axes[-1]))) for each in (x, y))
    contracted = ((len(head),), (len(head),))
    batch = tuple(range(len(head)))
    return DotOp(x, y, contracted=contracted, batched=(batch, batch))


def kron(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the Kronecker product: a block of y for each element of x, scaled by it.

    Parameters
    ----------
    x, y
        The operands, without named axes. That of the smaller rank gets leading axes of length 1, as
        in NumPy.

    Returns
    -------
    TensorOp
        A tensor whose lengths are the products of theirs, in the promoted dtype of the operands.
        Bool gives int32.

    Raises
    ------
    AxesError
        If an operand has named axes.

    Examples
    --------
    >>> weft.jit(weft.kron)(np.array([1, 10]), np.array([[1, 2]]))
    array([[ 1,  2, 10, 20]])
    """
    x, y = as_factors("kron", x, y)
    require_positional("kron", x, y)
    rank = max(x.rank, y.rank)
    rows, columns = ((1,) * (rank - each.rank) + each.axes.lengths for each in (x, y))
    blocks = cast_axes(x, [length for m in rows for length in (m, 1)])
    inside = cast_axes(y, [length for n in columns for length in (1, n)])
    return cast_axes(multiply(blocks, inside), [m * n for m, n in zip(rows, columns, strict=True)])

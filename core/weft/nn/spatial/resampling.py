"""Image resizing, and sampling at arbitrary positions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from weft import ops
from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKeys, make_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.lengths import floor_divide, product
from weft.ir.op import explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.nn.spatial.geometry import SPATIAL, Numbers, PerAxis, Use
from weft.ops.arguments import checked_number
from weft.ops.indexing.gathering import with_length
from weft.ops.indexing.slicing import with_lengths
from weft.ops.pointwise.elementwise import align, common_dtype
from weft.ops.products.roles import ImageRoles, RoleSignature, by_roles

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "GridSampleOp",
    "affine_grid",
    "grid_sample",
    "pixel_shuffle",
    "pixel_unshuffle",
    "resize",
]


def _fraction(numerator: float, denominator: int = 1) -> Fraction:
    """Return an exact fraction."""
    from fractions import Fraction  # a twelfth of the function calls of `import weft`

    return Fraction(numerator) / denominator


Coordinate = Callable[[int, int, int, "Fraction"], "Fraction"]

COORDINATES: dict[str, Coordinate] = {
    "half_pixel": lambda i, n, m, scale: ((2 * i + 1) / scale - 1) / 2,
    "pytorch_half_pixel": lambda i, n, m, scale: (
        ((2 * i + 1) / scale - 1) / 2 if m > 1 else _fraction(0)
    ),
    "align_corners": lambda i, n, m, scale: _fraction(i * (n - 1), max(m - 1, 1)),
    "asymmetric": lambda i, n, m, scale: i / scale,
}
"""By name, the coordinate among n elements of element i of m, for a scale; an exact fraction, so
that ties between neighbors are exact, and linear in i."""


class _Places(NamedTuple):
    """Coordinates as exact fractions.

    Attributes
    ----------
    numerators
        An array of Python's integers.
    denominator
        The denominator of all of them, positive.
    """

    numerators: Any
    denominator: int


ROUNDINGS: dict[str, Callable[[Any, int], Any]] = {
    "half_up": lambda numerators, d: (2 * numerators + d) // (2 * d),
    "half_down": lambda numerators, d: -((d - 2 * numerators) // (2 * d)),
    "floor": lambda numerators, d: numerators // d,
    "ceil": lambda numerators, d: -(-numerators // d),
}
"""By name, the rounding of fractions to the nearest element."""


def _triangle(distance: Any, a: float) -> Any:
    return np.maximum(1 - np.abs(distance), 0)


def _near_cubic(t: Any, a: float) -> Any:
    """Return the weight in cubic convolution (Keys, 1981) of an element at most 1 away."""
    return ((a + 2) * t - (a + 3)) * t * t + 1


def _far_cubic(t: Any, a: float) -> Any:
    """Return the weight of an element 1 to 2 away."""
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a


def _cubic(distance: Any, a: float) -> Any:
    t = np.abs(distance)
    return np.where(t <= 1, _near_cubic(t, a), np.where(t < 2, _far_cubic(t, a), 0))


def _lanczos(radius: int) -> Callable[[Any, float], Any]:
    """Return the windowed sinc function (Duchon, 1979)."""

    def weights(distance: Any, a: float) -> Any:
        window = np.sinc(distance / radius)
        return np.where(np.abs(distance) < radius, np.sinc(distance) * window, 0)

    return weights


KERNELS: dict[str, tuple[Callable[[Any, float], Any], int]] = {
    "linear": (_triangle, 1),
    "cubic": (_cubic, 2),
    "lanczos3": (_lanczos(3), 3),
    "lanczos5": (_lanczos(5), 5),
}
"""By mode, the interpolation kernel, a function of the distance, and its support."""


def _places(coordinate: Coordinate, n: int, m: int, scale: Fraction) -> _Places:
    """Return the coordinates of m elements."""
    first, second = (coordinate(i, n, m, scale) for i in range(2))
    denominator = math.lcm(first.denominator, second.denominator)
    start, step = int(first * denominator), int((second - first) * denominator)
    return _Places(start + step * np.arange(m, dtype=object), denominator)


def _matrix(places: _Places, n: int, mode: str, a: float, stretch: float | None) -> Any:
    """Return the interpolation matrix: the weights of n elements at each coordinate.

    Elements past the ends are clamped to the edge. With a `stretch`, what the kernel is widened by,
    it is cut off at the ends instead.
    """
    kernel, reach = KERNELS[mode]
    numerators = places.numerators[:, None]
    # A quotient of Python's integers is rounded once.
    centers = (numerators / places.denominator).astype(np.float64)
    if stretch is not None:
        weights = kernel((np.arange(n) - centers) / stretch, a)
        return weights / weights.sum(axis=1, keepdims=True)
    elements = (numerators // places.denominator).astype(np.int64)
    elements = elements + np.arange(1 - reach, 1 + reach)
    weights = kernel(elements - centers, a)
    result = np.zeros((len(elements), n))
    rows = np.arange(len(elements))[:, None]
    weights = weights / weights.sum(axis=1, keepdims=True)
    np.add.at(result, (rows, np.clip(elements, 0, n - 1)), weights)
    return result


def blended(x: TensorOp, matrix: Array, place: int) -> TensorOp:
    """Return the tensor multiplied by a matrix along one axis, 16-bit floats in float32."""
    dtype, x = x.dtype, ops.cast(x, accumulator_dtype(x.dtype))
    weights = constant(matrix, dtype=x.dtype)
    head, tail = make_axes(x.axes.lengths[:place]), make_axes(x.axes.lengths[place + 1 :])
    count, n = weights.axes.lengths
    if not tail:
        product = ops.MatmulOp(ops.cast_axes(x, (head.size, n)), ops.matrix_transpose(weights))
    else:
        block = ops.cast_axes(x, (head.size, n, tail.size))
        product = ops.MatmulOp(ops.broadcast(weights, (head.size, count, n)), block)
    return ops.cast(ops.cast_axes(product, with_length(x.axes, place, count)), dtype)


def resize(
    x: TensorLike,
    lengths: PerAxis | None = None,
    scales: float | Sequence[float] | None = None,
    mode: str = "linear",
    coordinates: str = "half_pixel",
    axes: AxisKeys | None = None,
    rounding: str = "half_up",
    antialias: bool = False,
    cubic_coefficient: float = -0.75,
) -> TensorOp:
    """Return images resized to lengths, or by scales.

    Parameters
    ----------
    x
        Images; by default (N, C, spatial axes), of which the spatial ones are resized.
    lengths
        The new lengths: an integer for all axes, or a list with one for each.
    scales
        Instead of lengths the factors, a number or a list. The new length is ``floor(length *
        scale)``, and coordinates use the scale itself.
    mode
        ``"nearest"``, ``"linear"``, ``"cubic"`` (Keys, 1981), or ``"lanczos3"`` and ``"lanczos5"``,
        windowed sinc functions (Duchon, 1979); separable by axis: bilinear and bicubic in two
        dimensions. The edge element is repeated past the ends.
    coordinates
        Where among n elements the element i of m is: ``"half_pixel"`` at (i + 0.5) / scale - 0.5;
        ``"pytorch_half_pixel"`` likewise, but a single element at 0; ``"align_corners"`` at i (n -
        1) / (m - 1), so that ends come from ends; ``"asymmetric"`` at i / scale.
    axes
        The axes to resize, by position or name; by default those after the first two, or those
        named ``D``, ``H`` and ``W``. Their lengths are known.
    rounding
        What ``"nearest"`` selects: ``"half_up"`` or ``"half_down"`` for ties, or always ``"floor"``
        or ``"ceil"``.
    antialias
        Whether downsampling widens the kernel in proportion, so that no element is skipped. The
        kernel is then cut off at the ends, as in Pillow, PyTorch and JAX.
    cubic_coefficient
        The coefficient of the cubic kernel; -0.5 in Pillow, in JAX, and in PyTorch with
        antialiasing.

    Returns
    -------
    TensorOp
        The images, with the new lengths. ``"nearest"`` keeps the dtype; otherwise integers give
        float32.

    Raises
    ------
    AxesError
        If there is nothing to resize, a length is unknown or 0, or a scale leaves nothing.
    ArgumentError
        If not just one of lengths and scales is given, an option is another word, or `antialias`
        comes with ``"nearest"``.

    Examples
    --------
    >>> x = np.array([[[0.0, 4.0]]])
    >>> weft.jit(lambda x: weft.resize(x, 4))(x)
    array([[[0., 1., 3., 4.]]])
    >>> weft.jit(lambda x: weft.resize(x, 4, coordinates="align_corners"))(x)
    array([[[0.    , 1.3333, 2.6667, 4.    ]]])
    >>> weft.jit(lambda x: weft.resize(x, scales=2.0, mode="nearest"))(x)
    array([[[0., 0., 4., 4.]]])
    """
    (x,) = (as_op(x),) if mode == "nearest" else align(ops.InexactOp, x)
    use = Use("resize", (x,))
    _require_choice(use, "mode", mode, ("nearest", *KERNELS))
    _require_choice(use, "coordinates", coordinates, COORDINATES)
    _require_choice(use, "rounding", rounding, ROUNDINGS)
    if antialias and mode == "nearest":
        raise use.refusal("antialias is not available for mode 'nearest': use 'linear' or 'cubic'")
    a = checked_number("resize", "cubic_coefficient", cubic_coefficient, -math.inf)
    positions = _resized_axes(use, axes)
    have = [x.axes.lengths[position] for position in positions]
    wanted = _wanted(use, have, lengths, scales)
    target = list(x.axes.lengths)
    result = ops.cast_axes(x, x.axes.lengths)
    for position, n, (m, scale) in zip(positions, have, wanted, strict=True):
        target[position] = m
        coordinate = COORDINATES[coordinates]
        places = _places(coordinate, n, m, scale)
        if m == n and np.array_equal(
            places.numerators, places.denominator * np.arange(n, dtype=np.int64)
        ):
            continue
        if mode == "nearest":
            nearest = np.clip(ROUNDINGS[rounding](*places), 0, n - 1).astype(np.int64)
            result = ops.take(result, constant(nearest), position)
        else:
            first, second = (coordinate(i, n, m, scale) for i in range(2))
            gap = second - first if m > 1 else 1 / scale
            stretch = max(float(gap), 1.0) if antialias else None
            matrix = _matrix(places, n, mode, a, stretch)
            result = blended(result, matrix, position)
    return ops.cast_axes(result, with_lengths(x.axes, target))


def _require_choice(use: Use, what: str, value: object, choices: Iterable[str]) -> None:
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        raise use.refusal(f"{what} must be one of {', '.join(known)}, not {value!r}")


def _resized_axes(use: Use, axes: AxisKeys | None) -> Numbers:
    own = use.operands[0].axes
    if axes is not None:
        found = explained(use.function, use.operands, own.positions, axes)
    elif own.is_named:
        found = own.positions(own.spatial_axes())
    else:
        found = tuple(range(2, len(own)))
    if not found:
        raise use.refusal(f"{own} has no spatial axes to resize: give axes=", AxesError)
    for position in found:
        if not isinstance(own[position].length, int) or not own[position].length:
            problem = f"the length of {own[position]!r} in {own} must be known and not 0"
            raise use.refusal(problem, AxesError)
    return found


def _wanted(
    use: Use, have: Sequence[int], lengths: PerAxis | None, scales: float | Sequence[float] | None
) -> Sequence[tuple[int, Fraction]]:
    """Return the new length and the coordinate scale of each axis."""
    if (lengths is None) == (scales is None):
        raise use.refusal("give either lengths or scales")
    if scales is None:
        wanted = use.numbers("lengths", lengths, len(have))
        return [(m, _fraction(m, n)) for n, m in zip(have, wanted, strict=True)]
    several: Sequence[Any] = scales if isinstance(scales, list | tuple) else [scales] * len(have)
    if len(several) != len(have):
        raise use.refusal(f"{len(several)} scales for {len(have)} axes")
    factors = [checked_number("resize", "a scale", scale) for scale in several]
    found = [(math.floor(n * factor), factor) for n, factor in zip(have, factors, strict=True)]
    if not all(m for m, _ in found):
        raise use.refusal(f"scales {scales} leave nothing of the lengths {tuple(have)}", AxesError)
    return [(m, _fraction(factor)) for m, factor in found]


class GridSampleOp(CompositeOp):
    """The first operand sampled at coordinates in the second, between -1 and 1.

    Attributes
    ----------
    mode
        The interpolation, ``bilinear``, ``bicubic`` or ``nearest``.
    padding
        The values outside: ``zeros``, ``border`` (the nearest element) or ``reflection``.
    align_corners
        Whether -1 and 1 are the centers of the first and last element, or their outer edges.
    """

    mode: str
    padding: str
    align_corners: bool

    def infer(self) -> tuple[Axes, DType]:
        """Return the batch and channel axes of the images, and the spatial axes of the grid."""
        x, grid = self.args
        if x.axes.is_named or grid.axes.is_named or x.rank != grid.rank or x.rank < 3:
            raise AxesError(
                f"takes positional axes (N, C, spatial) and as many (N, spatial, coordinates), not "
                f"{x.axes} and {grid.axes}"
            )
        if x.axes[0] != grid.axes[0] or grid.axes[-1].length != x.rank - 2:
            raise AxesError(
                f"{x.axes} needs {x.rank - 2} coordinates for each point, and as many images, not "
                f"{grid.axes}"
            )
        if not all(isinstance(axis.length, int) and axis.length for axis in x.axes[2:]):
            raise AxesError(f"the spatial lengths of {x.axes} must be known and not 0")
        if x.dtype != grid.dtype or not dtypes.is_float(x.dtype):
            raise DTypeError(f"takes floats of one dtype, not {x.dtype} and {grid.dtype}")
        return make_axes((*x.axes[:2], *grid.axes[1:-1])), x.dtype

    def reference(self, x: Array, grid: Array) -> Any:
        """Sum the weighted neighbors of each point."""
        lengths = x.shape[2:]
        wide = np.asarray(grid, accumulator_dtype(self.dtype))
        taps = [self._taps(wide[..., -1 - d], n, np) for d, n in enumerate(lengths)]
        images = np.arange(x.shape[0]).reshape(-1, *([1] * len(lengths)))
        total = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]), wide.dtype)
        for neighbor in itertools.product(*taps):
            weight: Any = np.ones(grid.shape[:-1], wide.dtype)
            is_inside: Any = np.ones(grid.shape[:-1], bool)
            at = []
            for tap, n in zip(neighbor, lengths, strict=True):
                weight = weight * tap.weight
                inside = (tap.index >= 0) & (tap.index < n)
                is_inside = is_inside & inside
                at.append(np.where(inside, tap.index, 0).astype(np.intp))
            values = np.moveaxis(x, 1, -1)[(images, *at)]
            total += np.where(is_inside[..., None], values, 0) * weight[..., None]
        return np.moveaxis(total, -1, 1).astype(self.dtype)

    def decompose(self, x: TensorOp, grid: TensorOp) -> TensorOp:
        """Sum the weighted neighbors of each point."""
        batch, channels, *lengths = x.axes.lengths
        wide = accumulator_dtype(self.dtype)
        line = (batch, 1, product(grid.axes.lengths[1:-1]))
        taps = []
        for d, n in enumerate(lengths):
            part = ops.cast_axes(ops.slice_along_axis(grid, -1, len(lengths) - 1 - d), line)
            taps.append(self._taps(ops.cast(part, wide), n, _FUNCTIONS))
        flat = ops.cast_axes(x, (batch, channels, math.prod(lengths)))
        parts = []
        for neighbor in itertools.product(*taps):
            weight: Any = 1
            is_inside: Any = None
            index: Any = 0
            for tap, n in zip(neighbor, lengths, strict=True):
                weight = tap.weight * weight
                inside = ops.logical_and(ops.greater_equal(tap.index, 0), ops.less(tap.index, n))
                is_inside = inside if is_inside is None else ops.logical_and(is_inside, inside)
                index = index * n + ops.cast(ops.where(inside, tap.index, 0), dtypes.int64)
            values = ops.cast(ops.take_along_axis(flat, index), wide)
            parts.append(ops.where(is_inside, values, 0) * weight)
        return ops.cast(ops.cast_axes(functools.reduce(ops.add, parts), self.axes), self.dtype)

    def _taps(self, g: Any, n: int, functions: Any) -> Sequence[_Tap]:
        """Return the neighbors along an axis of coordinates from -1 to 1, and their weights."""
        place = (g + 1) * ((n - 1) / 2) if self.align_corners else ((g + 1) * n - 1) * 0.5
        if self.mode == "bicubic":
            return self._cubic_taps(place, n, functions)
        if self.padding == "reflection":
            place = self._reflected(place, n, functions)
        # Outside by enough for no neighbor inside, but within the range of integers.
        ends = (-2, n + 1) if self.padding == "zeros" else (0, n - 1)
        place = functions.clip(place, *ends)
        if self.mode == "nearest":
            return [_Tap(functions.round(place), 1)]
        low = functions.floor(place)
        return [_Tap(low, 1 - (place - low)), _Tap(low + 1, place - low)]

    def _cubic_taps(self, place: Any, n: int, functions: Any) -> Sequence[_Tap]:
        """Return four neighbors; those outside are themselves padded."""
        is_reflected = self.padding == "reflection"
        if is_reflected:
            place = self._reflected(place, n, functions)
        low = functions.floor(functions.clip(place, -3, n + 2))
        t = functions.clip(place, -3, n + 2) - low
        weights = (
            _far_cubic(t + 1, _COEFFICIENT), _near_cubic(t, _COEFFICIENT),
            _near_cubic(1 - t, _COEFFICIENT), _far_cubic(2 - t, _COEFFICIENT),
        )  # fmt: skip
        taps = [_Tap(low + step, weight) for step, weight in enumerate(weights, -1)]
        if is_reflected:
            taps = [_Tap(self._reflected(i, n, functions), weight) for i, weight in taps]
        if self.padding == "zeros":
            return taps
        return [_Tap(functions.clip(i, 0, n - 1), weight) for i, weight in taps]

    def _reflected(self, place: Any, n: int, functions: Any) -> Any:
        """Return coordinates reflected at the ends until they are between them."""
        low, span = (0, n - 1) if self.align_corners else (-0.5, n)
        if not span:
            return place * 0
        beyond = functions.mod(place - low, 2 * span) - span
        return low + span - functions.absolute(beyond)


class _Tap(NamedTuple):
    """The index of a neighbor along an axis, as a float, and its weight."""

    index: Any
    weight: Any


_COEFFICIENT = -0.75
"""The coefficient of the cubic kernel of grid samples, that of PyTorch and ONNX."""

_FUNCTIONS = SimpleNamespace(
    absolute=ops.absolute, clip=ops.clip, floor=ops.floor, mod=ops.mod, round=ops.round
)
"""What NumPy has by the same names."""


def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    mode: str = "bilinear",
    padding: str = "zeros",
    align_corners: bool = False,
) -> TensorOp:
    """Return images sampled at the points of a grid.

    The gradient of the grid is one-sided at elements, and 0 for ``"nearest"`` and outside.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes of known lengths; integers count
        as float32.
    grid
        Points (N, spatial axes of the result, coordinates). The last axis has as many coordinates,
        from -1 to 1, as x has spatial axes, in reverse order: (x, y) for images (N, C, H, W).
    mode
        ``"bilinear"``; ``"bicubic"``, by cubic convolution (Keys, 1981) with the coefficient -0.75;
        or ``"nearest"``, with ties to even.
    padding
        The value of what is outside of the image: ``"zeros"``; ``"border"`` for the nearest
        element; or ``"reflection"`` for the reflected image.
    align_corners
        Whether -1 and 1 are the centers of the first and the last element; otherwise their outer
        edges.

    Returns
    -------
    TensorOp
        (N, C, spatial axes of the grid), in the promoted dtype. 16-bit floats are computed in
        float32.

    Raises
    ------
    AxesError
        If axes do not fit, have names, or have unknown lengths.
    ArgumentError
        If an option is another word.

    Examples
    --------
    >>> x, grid = np.array([[[[1.0, 2.0], [3.0, 4.0]]]]), np.array([[[[0.0, 0.0], [0.5, -0.5]]]])
    >>> weft.jit(weft.grid_sample)(x, grid)
    array([[[[2.5, 2. ]]]])
    """
    dtype = ops.FloatOp.operand_dtype(common_dtype((x, grid)))
    x, grid = ops.cast(as_op(x), dtype), ops.cast(as_op(grid), dtype)
    use = Use("grid_sample", (x, grid))
    use.spatial_lengths()
    _require_choice(use, "mode", mode, ("bilinear", "bicubic", "nearest"))
    _require_choice(use, "padding", padding, ("zeros", "border", "reflection"))
    return GridSampleOp(x, grid, mode=mode, padding=padding, align_corners=bool(align_corners))


def affine_grid(theta: TensorLike, lengths: PerAxis, align_corners: bool = False) -> TensorOp:
    """Return the grid of an affine transform for each image, for `grid_sample`.

    Parameters
    ----------
    theta
        Matrices (N, n, n + 1) for n spatial axes, one to three; the last column is the translation.
        The order of rows and columns is that of coordinates, x first. Integers count as float32.
    lengths
        The n spatial lengths of the grid: a list, or an integer for one.
    align_corners
        Whether -1 and 1 are the centers of the first and the last element; otherwise their outer
        edges.

    Returns
    -------
    TensorOp
        (N, lengths, n). 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If `theta` does not fit the lengths.
    ArgumentError
        If the lengths have another form.

    Examples
    --------
    >>> theta = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> weft.jit(lambda theta: weft.affine_grid(theta, [2, 2]))(theta).tolist()
    [[[[-0.5, -0.5], [0.5, -0.5]], [[-0.5, 0.5], [0.5, 0.5]]]]
    """
    (theta,) = align(ops.FloatOp, theta)
    use = Use("affine_grid", (theta,))
    count = len(lengths) if isinstance(lengths, list | tuple) else 1
    sizes = use.numbers("lengths", lengths, count)
    if theta.axes.is_named or theta.axes.lengths[1:] != (count, count + 1) or count not in SPATIAL:
        problem = f"for lengths {sizes}, theta must have the axes (N, {count}, {count + 1})"
        raise use.refusal(f"{problem}, not {theta.axes}", AxesError)
    lines = []
    for n in sizes:
        edge = (n - 1) / n if not align_corners else 1.0
        lines.append(np.linspace(-edge, edge, n) if n > 1 else np.zeros(1))
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sizes)], axis=-1)
    wide = ops.cast(theta, accumulator_dtype(theta.dtype))
    base = constant(places.reshape(-1, count + 1), dtype=wide.dtype)
    batch = theta.axes.lengths[0]
    several = ops.broadcast(base, (batch, *base.axes.lengths))
    product = ops.MatmulOp(several, ops.matrix_transpose(wide))
    return ops.cast(ops.cast_axes(product, (batch, *sizes, count)), theta.dtype)


_BLOCKS = RoleSignature("batch? channels spatial*", results=["batch? channels spatial*"])


def pixel_shuffle(x: TensorLike, factor: int, **axes: Unpack[ImageRoles]) -> TensorOp:
    """Return images enlarged by a factor along each spatial axis, from groups of channels.

    The channels of a group form a block of pixels, in row-major order (Shi et al., 2016).

    Parameters
    ----------
    x
        Images (N, C * factor ** n, n spatial axes), with n from one to three.
    factor
        The length of a block along each spatial axis.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, n spatial axes), each `factor` times as long, in the dtype of x.

    Raises
    ------
    AxesError
        If the blocks do not divide the channels, or x has other axes.
    ArgumentError
        If the factor is not an integer of at least 1, or a role does not exist.

    Examples
    --------
    >>> x = np.array([[[[1, 5]], [[2, 6]], [[3, 7]], [[4, 8]]]])
    >>> weft.jit(lambda x: weft.pixel_shuffle(x, 2))(x)
    array([[[[1, 2, 5, 6],
             [3, 4, 7, 8]]]])
    """
    return by_roles("pixel_shuffle", _BLOCKS, (x,), axes, lambda x: _in_blocks(as_op(x), factor))


def _in_blocks(x: TensorOp, factor: int) -> TensorOp:
    use = Use("pixel_shuffle", (x,))
    lengths = use.spatial_lengths()
    count, factor = len(lengths), use.numbers("factor", factor, 1)[0]
    batch, channels = x.axes.lengths[:2]
    if not isinstance(channels, int) or channels % factor**count:
        problem = f"blocks of {factor**count} do not divide {channels} channels of {x.axes}"
        raise use.refusal(problem, AxesError)
    split = ops.cast_axes(x, (batch, channels // factor**count, *[factor] * count, *lengths))
    pairs = (place for i in range(count) for place in (2 + count + i, 2 + i))
    longer = (n * factor for n in lengths)
    return ops.cast_axes(ops.transpose(split, (0, 1, *pairs)), (batch, split.axes[1], *longer))


def pixel_unshuffle(x: TensorLike, factor: int, **axes: Unpack[ImageRoles]) -> TensorOp:
    """Return images reduced by a factor along each spatial axis, with blocks of pixels as channels.

    It is the inverse of `pixel_shuffle`.

    Parameters
    ----------
    x
        Images (N, C, n spatial axes), with n from one to three.
    factor
        The length of a block along each spatial axis; it divides their lengths.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C * factor ** n, n spatial axes), each `factor` times shorter, in the dtype of x.

    Raises
    ------
    AxesError
        If the blocks do not divide the lengths, or x has other axes.
    ArgumentError
        If the factor is not an integer of at least 1, or a role does not exist.

    Examples
    --------
    >>> x = np.array([[[[1, 2, 5, 6], [3, 4, 7, 8]]]])
    >>> weft.jit(lambda x: weft.pixel_unshuffle(x, 2))(x).tolist()
    [[[[1, 5]], [[2, 6]], [[3, 7]], [[4, 8]]]]
    """
    return by_roles(
        "pixel_unshuffle", _BLOCKS, (x,), axes, lambda x: _as_channels(as_op(x), factor)
    )


def _as_channels(x: TensorOp, factor: int) -> TensorOp:
    use = Use("pixel_unshuffle", (x,))
    lengths = use.spatial_lengths()
    count, factor = len(lengths), use.numbers("factor", factor, 1)[0]
    shorter = [floor_divide(n, factor) for n in lengths]
    if any(m * factor != n for m, n in zip(shorter, lengths, strict=True)):
        problem = f"blocks of {factor} do not divide the lengths of {x.axes}, or they are unknown"
        raise use.refusal(problem, AxesError)
    batch, channels = x.axes.lengths[:2]
    split = ops.cast_axes(x, (batch, channels, *(each for n in shorter for each in (n, factor))))
    inside, outside = range(3, 3 + 2 * count, 2), range(2, 2 + 2 * count, 2)
    turned = ops.transpose(split, (0, 1, *inside, *outside))
    return ops.cast_axes(turned, (batch, product((channels, factor**count)), *shorter))

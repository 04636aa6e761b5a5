"""Axes: the named or positional dimensions of a tensor, and the one rule that aligns them.

A dimension with a name aligns with the dimension of that name; dimensions without names follow
NumPy's broadcasting. One tensor's axes are all named or all positional.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Self, SupportsIndex, overload

from weft.errors import AxesError, HostMemoryError, ImmutableError, WeftError
from weft.ir.guards import is_traced
from weft.ir.lengths import Length, Symbol, product, substitute, symbol, symbols_of
from weft.support.locks import cached_property

BATCH = "N"
RECURRENT = "REC"
CHANNEL = "C"

_auto_names = itertools.count()

LONGEST = 2**63 - 1
"""The largest length of an axis."""

AUTOMATIC_NAME = re.compile(r"Axis_\d+")
"""The names that `make_axis` gives."""


class Axis:
    """One dimension: a length, which may be unknown until a call, and an optional name.

    Parameters
    ----------
    length
        The number of elements along the axis; ``None`` for a length solved at a call, or a
        `Length` made by `symbol`.
    name
        Names align operands; ``None`` makes the axis positional.

    An unknown length and a name that nobody gave may be set until the axis is first used.

    Two axes are equal if their names and lengths are. Axes of unknown length are equal only if
    they share their symbol, so the same axis object (or symbol) must be used throughout.

    >>> Axis(3, "C")
    C=3
    >>> Axis(3, "C") == Axis(3, "C")
    True
    >>> Axis(None, "N") == Axis(None, "N")
    False
    """

    __slots__ = ("__weakref__", "_frozen", "_length", "_name")

    def __init__(self, length: int | Length | None = None, name: str | None = None) -> None:
        self._name = _checked_name(name)
        self._length = symbol(name or "?") if length is None else _checked(length, name)
        self._frozen = False

    @property
    def name(self) -> str | None:
        """The name; None for a positional axis."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if name == self._name:
            return
        if self._frozen or not (self._name is None or AUTOMATIC_NAME.fullmatch(self._name)):
            raise AxesError(
                f"the name of axis {self!r} is fixed: name an axis when it is made, as in "
                f"make_axis(length, {name!r}) or with axis.named({name!r}) before it is used; "
                "map_roles renames the axes of a tensor"
            )
        self._name = _checked_name(name)

    def named(self, name: str) -> Self:
        """Set the name and return the axis itself; raises AxesError after the axis is used."""
        self.name = name
        return self

    @property
    def length(self) -> Any:
        """The length: an int, or a `Length` while it is unknown."""
        return self._length

    @length.setter
    def length(self, length: int) -> None:
        if length is self._length or (isinstance(self._length, int) and length == self._length):
            return
        if self._frozen or isinstance(self._length, int):
            raise AxesError(
                f"the length of axis {self!r} is fixed: set it before the axis is first used, "
                "or make another axis"
            )
        self._length = _checked(length, self.name)

    @property
    def is_batch(self) -> bool:
        """Whether this is the batch axis, by its name ``N``."""
        return self.name == BATCH

    @property
    def is_recurrent(self) -> bool:
        """Whether this is the recurrent axis, by its name ``REC``."""
        return self.name == RECURRENT

    @property
    def is_channel(self) -> bool:
        """Whether this is the channel axis, by its name ``C``."""
        return self.name == CHANNEL

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Axis) and self.name == other.name and self._length == other._length
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        if self.name is None:
            return str(self._length)
        unknown = isinstance(self._length, Length) and repr(self._length) == self.name
        return self.name if unknown else f"{self.name}={self._length}"


class FlattenedAxis(Axis):
    """One axis that stands for several, in row-major order; `unflatten` gives them back."""

    __slots__ = ("_axes",)

    def __init__(self, axes: Axes) -> None:
        joined = f"({','.join(map(str, axes.names))})" if axes.is_named else None
        super().__init__(product(axes.lengths), joined)
        self._axes = axes

    @property
    def axes(self) -> Axes:
        """The axes that it stands for."""
        return self._axes


class ShardAxis(Axis):
    """The axis of one of several equal parts of a tensor, each of which one rank has.

    The elements of the tensor, in row-major order and padded with zeros to a multiple of the number
    of ranks, are divided among these in their order. It aligns with itself alone.

    Parameters
    ----------
    axes
        The axes of the whole tensor, of known lengths.
    ranks
        The number of parts.
    communicator
        The name of the communicator of the ranks.

    >>> ShardAxis(make_axes((2, 3)), 4, "mpi")
    1/4 of (2, 3) on mpi=2
    """

    __slots__ = ("_axes", "_communicator", "_ranks")

    def __init__(self, axes: Axes, ranks: int, communicator: str) -> None:
        super().__init__(-(-axes.size // ranks), f"1/{ranks} of {_listed(axes)} on {communicator}")
        self._axes, self._ranks, self._communicator = axes, ranks, communicator

    @property
    def axes(self) -> Axes:
        """The axes of the whole tensor."""
        return self._axes

    @property
    def ranks(self) -> int:
        """The number of parts."""
        return self._ranks

    @property
    def communicator(self) -> str:
        """The name of the communicator of the ranks."""
        return self._communicator


def _checked_name(name: object) -> str | None:
    if name is not None and not isinstance(name, str):
        raise AxesError(f"the name of an axis must be text, not {name!r}")
    return name


def _checked(length: int | Length, name: str | None) -> int | Length:
    if isinstance(length, Length) or is_traced(length):
        return length
    label = "a positional axis" if name is None else f"axis {name!r}"
    try:
        if isinstance(length, bool):
            raise TypeError
        size = int(length.__index__())
    except WeftError:
        raise
    except (AttributeError, TypeError):
        problem = f"the length of {label} must be an integer, not {length!r}"
        raise AxesError(problem + _unknown_hint(length)) from None
    if size < 0:
        problem = f"the length of {label} must not be negative, got {size}"
        raise AxesError(problem + _unknown_hint(size))
    if size > LONGEST:
        raise AxesError(f"the length of {label} must be below 2**63, got {size}")
    return size


def _unknown_hint(length: object) -> str:
    if length is None or (isinstance(length, int) and length == -1):
        return ": for an unknown length take weft.symbol('n') or a named axis such as weft.ax.N"
    return ""


AxesLike = Axis | Length | SupportsIndex | Iterable["AxesLike"]
"""An axis, a size, or several: what `make_axes` makes `Axes` of."""

AxisKey = Axis | str | SupportsIndex
"""One of the axes of a tensor: the axis, its name or its position."""

AxisKeys = AxisKey | Iterable[AxisKey]
"""One or several of the axes of a tensor."""


class Axes(tuple[Axis, ...]):
    """An ordered tuple of axes, all named (each name once) or all positional.

    It is made from an axis, a size, or several, as by `make_axes`. Equality respects the order;
    `is_equal_set` does not. ``+`` appends, ``-``, ``|`` and ``&`` are ordered set operations; the
    other side of each, and of the comparisons of sets, is again an axis, a size or several.

    >>> axes = make_axes([Axis(2, "C"), Axis(3, "N")])
    >>> axes
    Axes(C=2, N=3)
    >>> axes.lengths, axes.size, axes.batch_axis
    ((2, 3), 6, N=3)
    """

    def __new__(cls, axes: AxesLike = ()) -> Axes:  # noqa: D102
        self = super().__new__(cls, axes if isinstance(axes, tuple) else _several(axes))
        if not _AXIS_TYPES.issuperset(map(type, self)):
            self = super().__new__(cls, [_as_axis(axis) for axis in self])
        names = [axis._name for axis in self if axis._name is not None]
        if names and len(names) != len(self):
            raise AxesError(
                f"axes {_listed(self)} mix named and positional dimensions: name all or none"
            )
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise AxesError(f"axes {_listed(self)} name {', '.join(twice)} more than once")
        for axis in self:
            axis._frozen = True
        return self

    @cached_property
    def lengths(self) -> tuple[Any, ...]:
        """The lengths in order; ints, or `Length` where unknown."""
        return tuple(axis.length for axis in self)

    @cached_property
    def is_static(self) -> bool:
        """Whether every length is known."""
        return all(isinstance(length, int) for length in self.lengths)

    @property
    def is_named(self) -> bool:
        """Whether the axes have names; axes of rank 0 count as unnamed."""
        return bool(self) and self[0].name is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths as a NumPy shape; raises AxesError if one is unknown."""
        if not self.is_static:
            raise AxesError(f"{self} has lengths that are unknown until a call")
        return self.lengths

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names in order; None for positional axes."""
        return tuple(axis.name for axis in self)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @cached_property
    def size(self) -> Any:
        """The number of elements; 1 for no axes."""
        return product(self.lengths)

    def position(self, axis: AxisKey) -> int:
        """Return the place of an axis, given as the axis, its name or a number.

        Raises AxesError if there is none such, and lists what there is.
        """
        if hasattr(axis, "__index__") and not isinstance(axis, bool):
            try:
                place = operator.index(axis)
            except TypeError:
                raise AxesError(f"{axis!r} is not a place among {self}") from None
            if not -len(self) <= place < len(self):
                raise AxesError(f"dimension {place} is out of range for {self} of rank {len(self)}")
            return place % len(self)
        name = axis.name if isinstance(axis, Axis) else axis
        for place, mine in enumerate(self):
            if mine is axis or (name is not None and mine.name == name):
                if isinstance(axis, Axis) and mine.length != axis.length:
                    raise AxesError(f"axis {axis!r} has another length than {mine!r} of {self}")
                return place
        raise AxesError(f"unknown axis {axis!r}: these axes are {self}")

    def positions(self, axes: AxisKeys) -> tuple[int, ...]:
        """Return the places of one axis or of several; raises AxesError for repeats."""
        several = (
            (axes,) if isinstance(axes, str) or not isinstance(axes, Iterable) else tuple(axes)
        )
        places = tuple(self.position(axis) for axis in several)
        if len(set(places)) != len(places):
            raise AxesError(f"axes {_listed(several)} name a dimension of {self} twice")
        return places

    def find_by_name(self, name: str) -> Axes:
        """Return the axes of that name: one or none."""
        return Axes(axis for axis in self if axis.name == name)

    def batch_axes(self) -> Axes:
        """Return the batch axis, if there is one, as Axes."""
        return Axes(axis for axis in self if axis.is_batch)

    @property
    def batch_axis(self) -> Axis | None:
        """The batch axis, or None."""
        return next((axis for axis in self if axis.is_batch), None)

    @property
    def channel_axis(self) -> Axis | None:
        """The channel axis, or None."""
        return next((axis for axis in self if axis.is_channel), None)

    @property
    def recurrent_axis(self) -> Axis | None:
        """The recurrent axis, or None."""
        return next((axis for axis in self if axis.is_recurrent), None)

    def sample_axes(self) -> Axes:
        """Return all axes but the batch axis."""
        return Axes(axis for axis in self if not axis.is_batch)

    def feature_axes(self) -> Axes:
        """Return all axes but the batch and the recurrent axis."""
        return Axes(axis for axis in self if not (axis.is_batch or axis.is_recurrent))

    def spatial_axes(self) -> Axes:
        """Return the axes named D, H and W."""
        return Axes(axis for axis in self if axis.name in ("D", "H", "W"))

    def flatten(self) -> Axis:
        """Return one axis that stands for all of these; a single axis stands for itself."""
        return self[0] if len(self) == 1 else FlattenedAxis(self)

    def unflattened(self) -> tuple[Axis, ...]:
        """Return the axes, with those that each flattened one stands for in its place."""
        found: list[Axis] = []
        rest = list(reversed(self))
        while rest:
            axis = rest.pop()
            if isinstance(axis, FlattenedAxis):
                rest.extend(reversed(axis.axes))
            else:
                found.append(axis)
        return tuple(found)

    def is_sub_set(self, other: AxesLike) -> bool:
        """Whether the other axes hold each of these."""
        return set(self) <= _set_of(other)

    def is_super_set(self, other: AxesLike) -> bool:
        """Whether these axes hold each of the others."""
        return set(self) >= _set_of(other)

    def is_equal_set(self, other: AxesLike) -> bool:
        """Whether both hold the same axes in any order."""
        return set(self) == _set_of(other)

    def agrees_with(self, other: Axes) -> bool:
        """Whether both have the same axes, in any order if these have names."""
        return self.is_equal_set(other) if self.is_named else self == other

    def is_not_equal_set(self, other: AxesLike) -> bool:
        """Whether one holds an axis that the other lacks."""
        return not self.is_equal_set(other)

    def substitute(self, solution: Mapping[Symbol, int]) -> Axes:
        """Return the axes with solved symbols replaced by their sizes."""
        if self.is_static:
            return self
        return Axes(_substituted(axis, solution) for axis in self)

    def symbols(self) -> Iterator[Symbol]:
        """Yield the unknown symbols, repeats included."""
        return symbols_of(self.lengths)

    def __add__(self, other: Any) -> Axes:
        return Axes((*self, *make_axes(other)))

    def __radd__(self, other: AxesLike) -> Axes:
        return make_axes(other) + self

    def __sub__(self, other: AxesLike) -> Axes:
        gone = _set_of(other)
        return Axes(axis for axis in self if axis not in gone)

    def __rsub__(self, other: AxesLike) -> Axes:
        return make_axes(other) - self

    def __or__(self, other: AxesLike) -> Axes:
        return Axes((*self, *(axis for axis in make_axes(other) if axis not in self)))

    def __ror__(self, other: AxesLike) -> Axes:
        return make_axes(other) | self

    def __and__(self, other: AxesLike) -> Axes:
        kept = _set_of(other)
        return Axes(axis for axis in self if axis in kept)

    def __rand__(self, other: AxesLike) -> Axes:
        return make_axes(other) & self

    def __setattr__(self, name: str, value: object) -> None:
        raise ImmutableError(f"{self} never change: {name!r} cannot be set, make other axes")

    def __delattr__(self, name: str) -> None:
        raise ImmutableError(f"{self} never change: {name!r} cannot be deleted")

    @overload
    def __getitem__(self, key: SupportsIndex) -> Axis: ...
    @overload
    def __getitem__(self, key: slice) -> Axes: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Axis | Axes:
        found = super().__getitem__(key)
        return Axes(found) if isinstance(key, slice) else found  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"Axes{_listed(self)}"


def _substituted(axis: Axis, solution: Mapping[Symbol, int]) -> Axis:
    if isinstance(axis, FlattenedAxis):
        return FlattenedAxis(axis.axes.substitute(solution))
    return Axis(substitute(axis.length, solution), axis.name)


_AXIS_TYPES = frozenset({Axis, FlattenedAxis, ShardAxis})


def _several(axes: AxesLike) -> Iterable[Any]:
    """Return axes or sizes, of which one may be given by itself, as an iterable."""
    if isinstance(axes, Axis | int | Length) or hasattr(axes, "__index__"):
        return (axes,)
    if isinstance(axes, str) or not isinstance(axes, Iterable):
        what = "the text " if isinstance(axes, str) else ""
        raise AxesError(f"axes cannot be made from {what}{axes!r}: give Axis objects or sizes")
    return axes


def _set_of(axes: AxesLike) -> set[Axis]:
    return set(axes if isinstance(axes, Axes) else map(_as_axis, _several(axes)))


def _listed(axes: Iterable[Any]) -> str:
    return "(" + ", ".join(map(repr, axes)) + ")"


def require_addressable(axes: Axes, itemsize: int) -> int:
    """Return the bytes of elements along axes; raises HostMemoryError for 2**63 and more."""
    nbytes: int = axes.size * itemsize
    if nbytes > LONGEST:
        problem = f"a tensor of {axes} takes {nbytes:,} bytes, more than can be addressed"
        raise HostMemoryError(f"{problem}: take smaller axes")
    return nbytes


@lru_cache(maxsize=4096)
def positional_axes(shape: tuple[int, ...]) -> Axes:
    """Return positional axes of a known shape."""
    return Axes(Axis(length) for length in shape)


def make_axis(
    length: int | Length | None = None,
    name: str | None = None,
    *,
    batch: bool = False,
    recurrent: bool = False,
) -> Axis:
    """Return a named axis.

    Parameters
    ----------
    length
        An integer, a length from `symbol`, or None for one that is unknown until a call.
    name
        The name; by default a new one, ``Axis_0`` and so on.
    batch, recurrent
        Whether it is the batch axis, which is named ``N``, or the recurrent one, ``REC``.

    Returns
    -------
    Axis
        The axis; axes are equal if their names and lengths are.

    Raises
    ------
    AxesError
        For another name beside `batch` or `recurrent`.

    Examples
    --------
    >>> weft.make_axis(3, "C"), weft.make_axis(32, batch=True)
    (C=3, N=32)
    """
    if isinstance(length, str):
        raise AxesError(f"make_axis takes the length first: make_axis({name!r}, {length!r})")
    for role, wanted in ((BATCH, batch), (RECURRENT, recurrent)):
        if wanted and name not in (None, role):
            raise AxesError(
                f"the axis of this role is the one named {role!r}, not {name!r}: "
                f"make_axis({length!r}, {role!r})"
            )
        name = role if wanted else name
    return Axis(length, f"Axis_{next(_auto_names)}" if name is None else name)


def make_axes(axes: AxesLike = ()) -> Axes:
    """Return Axes from an axis, a size, or an iterable of axes, sizes and nested tuples.

    An int or a `Length` makes a positional axis, a nested tuple of several one `FlattenedAxis`.

    Examples
    --------
    >>> weft.make_axes((2, 3))
    Axes(2, 3)
    >>> weft.make_axes([weft.make_axis(2, "N"), weft.make_axis(3, "C")])
    Axes(N=2, C=3)
    """
    if isinstance(axes, Axes):
        return axes
    several = tuple(_several(axes))
    if all(type(axis) is int and axis >= 0 for axis in several):
        return positional_axes(several)
    return Axes(several)


def _as_axis(axis: Any) -> Axis:
    if isinstance(axis, Axis):
        return axis
    if isinstance(axis, tuple | list):
        return make_axes(axis).flatten()
    return Axis(_checked(axis, None))


def broadcast_axes(left: Axes, right: Axes) -> Axes:
    """Return the axes of an elementwise result.

    A scalar takes the other's axes. Named: the same set of axes gives the left order, a superset
    gives its own order, else the left axes followed by what only the right has. Positional:
    NumPy's rule. Raises AxesError if lengths differ or named meet positional axes.

    >>> H, W = Axis(2, "H"), Axis(3, "W")
    >>> broadcast_axes(make_axes((H, W)), make_axes((W, H)))
    Axes(H=2, W=3)
    >>> broadcast_axes(make_axes((4, 1)), make_axes((3,)))
    Axes(4, 3)
    """
    if left == right or not right:
        return left
    if not left:
        return right
    shard = next((axis for axis in (*left, *right) if isinstance(axis, ShardAxis)), None)
    if shard is not None:
        raise AxesError(
            f"{left} and {right} cannot be aligned: the shard {shard!r} is what one rank has of a "
            "tensor, so it goes with scalars and other shards of such axes only"
        )
    if left.is_named != right.is_named:
        raise AxesError(
            f"named axes {left if left.is_named else right} cannot be aligned with positional "
            f"axes {right if left.is_named else left}: cast_axes gives names to dimensions"
        )
    return _broadcast_named(left, right) if left.is_named else _broadcast_shapes(left, right)


def _broadcast_named(left: Axes, right: Axes) -> Axes:
    by_name = {axis.name: axis for axis in left}
    extra = [axis for axis in right if axis.name not in by_name]
    for axis in right:
        mine = by_name.get(axis.name, axis)
        if mine != axis:
            raise AxesError(
                f"axis {axis.name} has length {mine.length} in {left} and {axis.length} in {right}"
                + _same_symbol_hint(mine, axis)
            )
    if len(right) > len(left) and len(extra) == len(right) - len(left):
        return right
    return Axes((*left, *extra))


def _same_symbol_hint(left: Axis, right: Axis) -> str:
    if isinstance(left.length, Length) or isinstance(right.length, Length):
        return ": an unknown length equals only itself, use one Axis object in both places"
    return ""


def _broadcast_shapes(left: Axes, right: Axes) -> Axes:
    short, long = sorted((left, right), key=len)
    head = len(long) - len(short)
    result = list(long[:head])
    for mine, theirs in zip(long[head:], short, strict=True):
        if mine.length == theirs.length or theirs.length == 1:
            result.append(mine)
        elif mine.length == 1:
            result.append(theirs)
        else:
            raise AxesError(
                f"shapes {left} and {right} do not broadcast: {mine.length} against "
                f"{theirs.length}" + _same_symbol_hint(mine, theirs)
            )
    return Axes(result)

"""Maps named axes to the positional axes of operations.

An operation such as a convolution is written once, for positional axes. A `RoleSignature` gives the
role of each axis of its operands and results. `by_roles` finds the named axes of each role,
transposes the operands to positional ones, calls the operation, and names its result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.axes import Axes, Axis, AxisKeys
from weft.ir.lengths import product
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorOp
from weft.ops.shape.movement import cast_axes, transpose

NAMES: Mapping[str, tuple[str, ...]] = {
    "batch": ("N",),
    "channels": ("C",),
    "spatial": ("D", "H", "W"),
    "filters": ("K",),
    "time": ("REC",),
    "classes": ("Y", "C"),
}
"""The default names of the axes of a role, those of `weft.ax`."""

KERNEL: Mapping[Any, str] = {"D": "T", "H": "R", "W": "S"}
"""The name of a filter's axis for each spatial axis, as in Nervana Graph."""

_MANY = ("*", "+", "...")

Result = TypeVar("Result")
Found = dict[str, Axes]
"""The axes of an operand by their role."""


class ImageRoles(TypedDict, total=False):
    """The axes of images; each is an axis, its name, or a list of them."""

    batch: Any
    channels: Any
    spatial: Any


class FilterRoles(ImageRoles, total=False):
    """The axes of images and of filters."""

    filters: Any


class SequenceRoles(TypedDict, total=False):
    """The axes of sequences and of the weights of recurrent layers."""

    time: Any
    batch: Any
    features: Any
    units: Any
    gates: Any
    layers: Any


class AttentionRoles(TypedDict, total=False):
    """The axes of queries, keys and values."""

    batch: Any
    heads: Any
    time: Any
    keys: Any
    features: Any
    depth: Any


class ProjectionRoles(TypedDict, total=False):
    """The axes of queries, keys and values, and of their projection matrices."""

    batch: Any
    time: Any
    keys: Any
    features: Any
    projected: Any


class LabelRoles(TypedDict, total=False):
    """The axes of sequences of class probabilities and of their labels."""

    time: Any
    batch: Any
    classes: Any
    places: Any


class MatrixRoles(TypedDict, total=False):
    """The contracted axis of a matrix product, and the columns of its second operand."""

    contracted: Any
    columns: Any


class SignatureEntry(NamedTuple):
    """An entry of a signature: a role, and the number of its axes.

    Attributes
    ----------
    role
        The name of the role, and of the keyword argument.
    kind
        Empty for a required axis; ``?`` for an optional one, with length 1 if it is missing; ``+``
        for one that flattens all axes without another role; ``*`` for several axes; and ``...`` for
        several batch axes that operands align by name.
    """

    role: str
    kind: str

    @property
    def is_optional(self) -> bool:
        """Whether an operand may lack its axes."""
        return self.kind in ("?", "...")


class RoleSignature:
    """The roles of the positional axes of operands and results.

    Parameters
    ----------
    operands
        For each operand its roles in order, as in ``"batch? channels spatial*"``.
    results
        The same for each result, or for all of them.
    same
        For a role another role, whose axes are its default.
    """

    def __init__(
        self, *operands: str, results: Sequence[str], same: Mapping[str, str] | None = None
    ) -> None:
        self.operands = [_entries(text) for text in operands]
        self.results = [_entries(text) for text in results]
        self.same = same or {}
        several = [entry.role for entries in (*self.operands, *self.results) for entry in entries]
        self.roles = tuple(dict.fromkeys(several))


def _entries(text: str) -> tuple[SignatureEntry, ...]:
    entries = []
    for word in text.split():
        role = word.rstrip("?*+.")
        entries.append(SignatureEntry(role, word[len(role) :]))
    return tuple(entries)


_IMAGES = "batch? channels? spatial*"
IMAGES = RoleSignature(_IMAGES, results=[_IMAGES])
"""The signature of an operation from images to images."""


def is_named(value: object) -> bool:
    """Whether a value is a tensor with named axes."""
    return isinstance(value, TensorOp) and value.axes.is_named


def by_roles(
    function: str,
    signature: RoleSignature,
    operands: Sequence[Any],
    given: Mapping[str, Any],
    apply: Callable[..., Result],
) -> Result:
    """Call a function of positional operands with named ones, and name its result.

    Positional operands are passed unchanged. Otherwise each named operand is transposed to the
    order of its entries, and several axes of one role are flattened. The result has the axis order
    of the first operand, with axes replaced by those of the result. A positional operand among
    named ones, such as an array of weights, must have the order of its entries.

    Raises AxesError for an axis without a role or a role without an axis, and ArgumentError for
    unknown roles, or for roles without named operands.
    """
    given = {role: axes for role, axes in given.items() if axes is not None}
    unknown = [role for role in given if role not in signature.roles]
    if unknown:
        known = ", ".join(f"{role}=" for role in signature.roles)
        problem = f"has no argument {unknown[0]!r}; the roles of named axes are {known}"
        raise ArgumentError(explain(function, problem, _tensors(operands)))
    if not any(map(is_named, operands)):
        if given:
            problem = (
                f"{next(iter(given))}= selects named axes, but no operand has names: transpose "
                "positional axes, or name them with cast_axes"
            )
            raise ArgumentError(explain(function, problem, _tensors(operands)))
        return apply(*operands)
    return _Arrangement(function, signature, operands, given).run(apply)


def role_names(
    function: str, role: str, axes: AxisKeys, operands: Iterable[Any] = ()
) -> tuple[str, ...]:
    """Return the names of the axes given for a role; raises ArgumentError for other values."""
    is_one = isinstance(axes, str | Axis) or not isinstance(axes, Iterable)
    given: Any = (axes,) if is_one else axes
    several = [getattr(axis, "name", axis) for axis in given]
    if not several or not all(isinstance(name, str) for name in several):
        problem = f"{role}= takes an axis, its name or a list of them, not {axes!r}"
        raise ArgumentError(explain(function, problem, operands))
    return tuple(several)


def _tensors(operands: Iterable[Any]) -> list[Any]:
    return [x for x in operands if isinstance(x, TensorOp)]


class _Arrangement:
    """A call of `by_roles` with named operands."""

    def __init__(
        self,
        function: str,
        signature: RoleSignature,
        operands: Sequence[Any],
        given: Mapping[str, Any],
    ) -> None:
        self.function, self.signature = function, signature
        self.operands = [None if x is None else as_op(x) for x in operands]
        self.named = [x for x in self.operands if x is not None]
        self.given = {
            role: role_names(function, role, axes, self.named) for role, axes in given.items()
        }
        self.axes: Found = {}
        self.found = [
            self._roles(x, entries) if x is not None and x.axes.is_named else None
            for x, entries in zip(self.operands, signature.operands, strict=True)
        ]
        self._check_given()

    def run(self, apply: Callable[..., Result]) -> Result:
        """Arrange the operands, call the function and name its results."""
        left = self.operands[0]
        if left is None or self.found[0] is None:
            problem = "the first operand is positional, but others are named"
            raise self._refusal(f"{problem}: name its axes with cast_axes, or drop all names")
        parts = zip(self.operands, self.signature.operands, self.found, strict=True)
        arranged = [
            x if x is None or found is None else self._arranged(x, entries, found)
            for x, entries, found in parts
        ]
        try:
            result: Any = apply(*arranged)
        except WeftError as error:
            problem = error.problem.partition("\n")[0].removeprefix(f"{self.function}: ")
            raise type(error)(
                explain(self.function, f"{problem}\n  with {self._described()}", self.named)
            ) from None
        if isinstance(result, TensorOp):
            return self._as_left(result, self.signature.results[0])  # type: ignore[return-value]
        signatures = self.signature.results * (
            len(result) if len(self.signature.results) == 1 else 1
        )
        named = [self._as_left(*each) for each in zip(result, signatures, strict=True)]
        return type(result)(*named) if hasattr(result, "_fields") else tuple(named)  # type: ignore[return-value]

    def _check_given(self) -> None:
        """Raise AxesError for given axes that no operand has, or that are given for two roles."""
        parts = list(zip(self.operands, self.signature.operands, self.found, strict=True))
        same = self.signature.same
        for entries in self.signature.operands:
            for one, other in itertools.combinations([entry.role for entry in entries], 2):
                twice = set(self.given.get(one, ())) & set(self.given.get(other, ()))
                if twice and other != same.get(one) and one != same.get(other):
                    problem = f"axis {min(twice)!r} is given for two roles, {one}= and {other}="
                    raise self._refusal(problem)
        for role, names in self.given.items():
            sought = [
                set(x.axes.names)
                for x, entries, found in parts
                if x is not None and found is not None and role in {entry.role for entry in entries}
            ]
            if sought and not any(have.issuperset(names) for have in sought):
                raise self._refusal(f"no operand has the axes {', '.join(names)}, given by {role}=")

    def _refusal(self, problem: str) -> AxesError:
        return AxesError(explain(self.function, problem, self.named))

    def _described(self) -> str:
        """Return a description of the axes of each role."""
        return ", ".join(
            f"{role} {' '.join(map(str, axes.names)) or 'none'}" for role, axes in self.axes.items()
        )

    def _roles(self, x: TensorOp, entries: tuple[SignatureEntry, ...]) -> Found:
        """Return the axes of an operand by role, and record them for later operands."""
        free = list(x.axes)
        found: Found = {}
        for entry in sorted(entries, key=self._rank):
            axes = self._wanted(x, entry, {axis.name: axis for axis in free})
            if axes:
                found[entry.role] = axes
                free = [axis for axis in free if axis not in axes]
        self._eliminate(x, entries, found, free)
        for entry in entries:
            known, mine = self.axes.get(entry.role, Axes()), found.get(entry.role, Axes())
            if entry.kind == "...":
                more = (axis for axis in mine if axis.name not in known.names)
                self.axes[entry.role] = Axes((*known, *more))
            elif mine and not known:
                self.axes[entry.role] = mine
        return found

    def _rank(self, entry: SignatureEntry) -> tuple[int, bool]:
        """Return the priority of an entry: known roles come before assumed ones."""
        is_known = entry.role in self.given or entry.role in self.axes
        is_like = self.signature.same.get(entry.role) in self.axes
        return 0 if is_known else 1 if is_like else 2, entry.is_optional

    def _wanted(self, x: TensorOp, entry: SignatureEntry, free: Mapping[str | None, Axis]) -> Axes:
        """Return the axes of a role chosen by the user, an earlier operand, or default names."""
        role, is_aligned = entry.role, entry.kind == "..."
        known = self.axes.get(role, Axes()).names
        asked = self.given.get(role, known)
        if asked and not is_aligned:
            for names in (asked, [KERNEL.get(name) for name in asked]):
                if all(name in free for name in names):
                    return Axes(free[name] for name in names)
            absent = [name for name in asked if name not in x.axes.names]
            if absent and not known and not entry.is_optional:
                raise self._refusal(f"{x} {x.axes} has no axis {absent[0]!r}, given by {role}=")
            return Axes()
        like = self.axes.get(self.signature.same.get(role, role), Axes()).names
        if like and not is_aligned and all(name in free for name in like):
            return Axes(free[name] for name in like)
        several = [free[name] for name in (*asked, *NAMES.get(role, ())) if name in free]
        return Axes(dict.fromkeys(several if entry.kind in _MANY else several[:1]))

    def _eliminate(
        self, x: TensorOp, entries: tuple[SignatureEntry, ...], found: Found, free: list[Axis]
    ) -> None:
        """Assign the remaining axes to the only remaining role; raises AxesError otherwise."""
        unfilled = [entry for entry in entries if entry.role not in found]
        needed = [entry for entry in unfilled if not entry.is_optional]
        if not free and not needed:
            return
        candidates = needed or unfilled
        fits = len(free) == 1 or (free and candidates and candidates[0].kind in ("*", "+"))
        if len(candidates) == 1 and fits:
            found[candidates[0].role] = Axes(free)
            return
        place = f"{x} {x.axes}"
        hint = " or ".join(f"{entry.role}=" for entry in unfilled or entries)
        if not free:
            missing = " and ".join(entry.role for entry in needed)
            raise self._refusal(f"{place} has no axis left for {missing}: pass {hint}")
        listed = ", ".join(str(axis.name) for axis in free)
        have = "axis {} has" if len(free) == 1 else "axes {} have"
        raise self._refusal(f"{have.format(listed)} no role in {place}: pass {hint}")

    def _arranged(self, x: TensorOp, entries: tuple[SignatureEntry, ...], found: Found) -> TensorOp:
        """Return an operand with the positional axes of its signature."""
        order: list[Axis] = []
        lengths: list[Any] = []
        for entry in entries:
            axes = found.get(entry.role, Axes())
            if entry.kind == "...":
                mine = {axis.name: axis for axis in axes}
                aligned = [mine.get(axis.name) for axis in self.axes[entry.role]]
                order += [axis for axis in aligned if axis is not None]
                lengths += [1 if axis is None else axis.length for axis in aligned]
            else:
                order += axes
                lengths += axes.lengths if entry.kind == "*" else [product(axes.lengths)]
        return cast_axes(transpose(x, order), lengths)

    def _as_left(self, result: TensorOp, entries: tuple[SignatureEntry, ...]) -> TensorOp:
        """Return a result with names, in the order of the first operand."""
        if not result.axes:
            return result
        left = self.signature.operands[0]
        lengths = iter(result.axes.lengths)
        mine: dict[str, list[Axis]] = {}
        for entry in entries:
            count = len(self.axes[entry.role]) if entry.kind in ("*", "...") else 1
            mine[entry.role] = self._renamed(entry, [next(lengths) for _ in range(count)])
        several = [axis for axes in mine.values() for axis in axes]
        named = explained(self.function, self.named, Axes, several)
        pairs = zip(left, entries, strict=True) if len(left) == len(entries) else ()
        replaced = {old.role: new.role for old, new in pairs if old.role not in mine}
        return transpose(cast_axes(result, named), self._order(mine, replaced))

    def _renamed(self, entry: SignatureEntry, lengths: list[Any]) -> list[Axis]:
        """Return the named axes of a result for a role, with these lengths."""
        axes = self.axes.get(entry.role, Axes())
        if entry.kind in ("*", "..."):
            return [
                axis if axis.length == length else Axis(length, axis.name)
                for axis, length in zip(axes, lengths, strict=True)
            ]
        (length,) = lengths
        asked = self.given.get(entry.role, axes.names)
        if axes and asked == axes.names and product(axes.lengths) == length:
            return list(axes)
        if entry.kind == "?" and not axes and not self._is_without_names(entry.role):
            return []
        like = self.axes.get(self.signature.same.get(entry.role, ""), Axes())
        names = asked or like.names
        return [Axis(length, names[0] if len(names) == 1 else entry.role)]

    def _is_without_names(self, role: str) -> bool:
        """Whether a role that the first operand lacks belongs to a positional operand."""
        first, *others = zip(self.operands, self.signature.operands, self.found, strict=True)
        return role not in {entry.role for entry in first[1]} and any(
            x is not None and found is None and role in {entry.role for entry in entries}
            for x, entries, found in others
        )

    def _order(self, mine: dict[str, list[Axis]], replaced: Mapping[str, str]) -> list[str]:
        """Return the axis names of a result in the order of the first operand."""
        left, found = self.operands[0], self.found[0]
        assert left is not None
        assert found is not None
        role_of = {axis.name: role for role, axes in found.items() for axis in axes}
        order: list[str] = []
        for axis in left.axes:
            role = role_of[axis.name]
            names = [str(each.name) for each in mine.get(replaced.get(role, role), [])]
            order += [str(axis.name)] if role in mine and axis.name in names else names
        order += [str(axis.name) for axes in mine.values() for axis in axes]
        return list(dict.fromkeys(order))

"""Symbolic lengths: sizes that are unknown while a graph is built and known at a call.

A length is an ``int``, or a `Length`: a polynomial with integer coefficients over symbols and
floor divisions. Equal polynomials are equal lengths, so ``n + 2 - 2`` is ``n``, and
``(n - 2) // 2 + 1`` is ``n // 2``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from weft.errors import AxesError, DTypeError

Size = Annotated[Any, int]
"""An integer, or a `Length` in its place."""


class Symbol:
    """An unknown size; two symbols are equal only if they are the same object.

    Attributes
    ----------
    maximum
        The largest size that it may have; None for any.
    """

    __slots__ = ("__weakref__", "maximum", "name")

    def __init__(self, name: str, maximum: int | None = None) -> None:
        if not isinstance(name, str):
            raise AxesError(f"the name of a symbol must be text, not {name!r}")
        self.name = name
        self.maximum = None if maximum is None else self._checked(maximum)

    def _checked(self, maximum: Any) -> int:
        try:
            found = 0 if isinstance(maximum, bool) else operator.index(maximum)
        except TypeError:
            found = 0
        if found < 1:
            problem = f"must be an integer above 0, not {maximum!r}"
            raise AxesError(f"max= of the symbol {self.name} {problem}")
        return found

    def problem_with(self, size: int) -> str:
        """Return the problem with a size, for an error; empty if the symbol may have it."""
        if self.maximum is None or size <= self.maximum:
            return ""
        return f"length {self} is {size}, and was declared with max={self.maximum}"

    def __copy__(self) -> Symbol:
        return self

    def __deepcopy__(self, memo: object) -> Symbol:
        return self

    def __repr__(self) -> str:
        return self.name


class FloorDivision:
    """The quotient of a length by an integer, rounded down: an atom inside a `Length`."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Length, denominator: int | Length) -> None:
        self.numerator = numerator
        self.denominator = denominator

    def __repr__(self) -> str:
        return f"({self.numerator})//({self.denominator})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FloorDivision)
            and self.numerator == other.numerator
            and self.denominator == other.denominator
        )

    def __hash__(self) -> int:
        return hash((FloorDivision, self.numerator, self.denominator))


Atom = Symbol | FloorDivision
Monomial = tuple[Atom, ...]


class Length:
    """A polynomial over symbols with integer coefficients; immutable.

    >>> n = symbol("n")
    >>> (n + 1) * 2 - n
    n + 2
    >>> evaluate(n * n + 1, {n: 3})
    10
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = dict(terms)
        self._hash = hash(frozenset(self.terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __index__(self) -> int:
        raise DTypeError(
            f"the length {self} is unknown until a call: scan() and vmap() go over rows of unknown "
            "number, x.shape[0] calculates with it, and a trace for each length knows it"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Length) and self.terms == other.terms

    def __repr__(self) -> str:
        parts = []
        for atoms, factor in self.terms.items():
            names = "*".join(map(repr, atoms))
            parts.append(
                str(factor) if not atoms else names if factor == 1 else f"{factor}*{names}"
            )
        return " + ".join(parts).replace("+ -", "- ")

    def __add__(self, other: int | Length) -> int | Length:
        if not _is_size(other):
            return self._with(other)  # type: ignore[no-any-return]
        terms = dict(self.terms)
        for atoms, factor in _terms(other).items():
            terms[atoms] = terms.get(atoms, 0) + factor
        return _simplified(terms)

    __radd__ = __add__

    def __mul__(self, other: int | Length) -> int | Length:
        if not _is_size(other):
            return self._with(other)  # type: ignore[no-any-return]
        terms: dict[Monomial, int] = {}
        for mine, factor in self.terms.items():
            for theirs, times in _terms(other).items():
                atoms = tuple(sorted(mine + theirs, key=_atom_key))
                terms[atoms] = terms.get(atoms, 0) + factor * times
        return _simplified(terms)

    __rmul__ = __mul__

    def __neg__(self) -> int | Length:
        return self * -1

    def __sub__(self, other: int | Length) -> int | Length:
        return self + -other

    def __rsub__(self, other: int | Length) -> int | Length:
        return -self + other

    def __floordiv__(self, other: int | Length) -> int | Length:
        return floor_divide(self, other) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> int | Length:
        return floor_divide(other, self)

    def __mod__(self, other: int | Length) -> int | Length:
        return self - self // other * other if _is_size(other) else NotImplemented

    def __rmod__(self, other: int) -> int | Length:
        return other - other // self * self

    def __truediv__(self, other: object) -> Any:
        return self._with(other)

    __rtruediv__ = __truediv__

    def _with(self, other: object) -> Any:
        """Leave arithmetic with a tensor to the tensor, and refuse that with a fraction."""
        if not isinstance(other, int | float | Length):
            return NotImplemented
        raise AxesError(
            f"the length {self} and {other} do not make a length: use // for lengths, or the value "
            "of a length as a tensor, as in weft.as_op(x.shape[0])"
        )

    def symbols(self) -> Iterator[Symbol]:
        """Yield every symbol that the length depends on, repeats included."""
        for atoms in self.terms:
            for atom in atoms:
                if isinstance(atom, Symbol):
                    yield atom
                else:
                    yield from symbols_of((atom.numerator, atom.denominator))

    def as_symbol(self) -> Symbol | None:
        """Return the symbol if the length is nothing but one symbol, else None."""
        if len(self.terms) == 1:
            ((atoms, factor),) = self.terms.items()
            if factor == 1 and len(atoms) == 1 and isinstance(atoms[0], Symbol):
                return atoms[0]
        return None


def _is_size(value: object) -> bool:
    """Whether lengths compute with a value; a tensor computes with the length instead."""
    return isinstance(value, Length) or is_index(value)


def is_index(value: object) -> bool:
    """Whether a value is an integer of any class, and no tensor or unknown length."""
    stands_for_one = isinstance(value, Length) or hasattr(value, "axes")
    return hasattr(type(value), "__index__") and not stands_for_one


def _atom_key(atom: Atom) -> tuple[str, int]:
    return (repr(atom), id(atom) if isinstance(atom, Symbol) else 0)


def _monomial_key(atoms: Monomial) -> tuple[bool, list[tuple[str, int]]]:
    is_quotient = _quotient_by_integer(atoms) is not None
    return is_quotient, [_atom_key(atom) for atom in atoms]


def _terms(length: int | Length) -> Mapping[Monomial, int]:
    return length.terms if isinstance(length, Length) else {(): int(length)}


def _simplified(terms: dict[Monomial, int]) -> int | Length:
    kept = {atoms: factor for atoms, factor in terms.items() if factor}
    if not kept:
        return 0
    if list(kept) == [()]:
        return kept[()]
    return Length(kept)


def symbol(name: str, max: int | None = None) -> Length:
    """Return a new unknown length; it equals only itself, whatever its name.

    Parameters
    ----------
    name
        The name in messages and listings.
    max
        The largest length that calls may bring. Backends that share code between lengths then plan
        memory once, for the largest ones. By default there is none.

    Returns
    -------
    Length
        A length for axes; sums, products and quotients of lengths are lengths.

    Raises
    ------
    AxesError
        For a name that is not text, and for a `max` that is not an integer above 0.

    Examples
    --------
    >>> n = weft.symbol("n")
    >>> x = weft.placeholder((n, 2), "float64")
    >>> total = weft.make_transformer().computation(weft.sum(x, axis=0), x)
    >>> total(np.ones((3, 2))), total(np.ones((5, 2)))
    (array([3., 3.]), array([5., 5.]))
    """
    return Length({(Symbol(name, max),): 1})


def floor_divide(numerator: int | Length, denominator: int | Length) -> int | Length:
    """Return the quotient rounded down; terms that divide come out of the floor.

    Quotients by integers have a normal form, so that equal lengths of a network are found equal:
    no factor is common to numerator and denominator, coefficients are from 0 to below the
    denominator, and a quotient of a quotient is one quotient.
    """
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    if numerator == denominator:
        return 1
    if isinstance(denominator, Length):
        whole, rest = _divided(_terms(numerator), denominator)
        return whole + _floor(rest, denominator) if rest else whole
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    return _quotient(_terms(numerator), int(denominator))


def _quotient(terms: Mapping[Monomial, int], divisor: int) -> int | Length:
    """Return the normal form of a polynomial divided by an integer above 0, rounded down."""
    common = math.gcd(divisor, *(factor for atoms, factor in terms.items() if atoms))
    terms, divisor = {atoms: factor // common for atoms, factor in terms.items()}, divisor // common
    whole, rest = _divided(terms, divisor)
    first = max(filter(None, rest), key=_monomial_key, default=())
    if not first:
        return whole
    if rest[first] * 2 >= divisor + (terms[first] > 0):  # n // d is -((d - 1 - n) // d)
        terms = {atoms: -factor for atoms, factor in terms.items()}
        return -_quotient({**terms, (): terms.get((), 0) + divisor - 1}, divisor)
    for atoms in rest:
        if rest[atoms] == 1 and (inner := _quotient_by_integer(atoms)):
            del rest[atoms]
            numerator = inner.numerator + _simplified(rest) * inner.denominator
            return whole + floor_divide(numerator, inner.denominator * divisor)
    return whole + _floor(rest, divisor)


def _divided(
    terms: Mapping[Monomial, int], denominator: int | Length
) -> tuple[int | Length, dict[Monomial, int]]:
    """Divide each term by a single monomial; return the quotient, and the terms that remain.

    Nothing is divided by a sum.
    """
    whole: dict[Monomial, int] = {}
    remaining = dict(terms)
    if len(_terms(denominator)) == 1:
        ((divisor, factor),) = _terms(denominator).items()
        for atoms, times in terms.items():
            quotient = _without(atoms, divisor)
            if quotient is not None:
                whole[quotient], remaining[atoms] = divmod(times, factor)
    return _simplified(whole), {atoms: factor for atoms, factor in remaining.items() if factor}


def _without(atoms: Monomial, divisor: Monomial) -> Monomial | None:
    """Return the atoms but for those of a divisor; None if it has others."""
    rest = list(atoms)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _quotient_by_integer(atoms: Monomial) -> FloorDivision | None:
    """Return the only atom of a monomial, if that is a quotient by an integer."""
    atom = atoms[0] if len(atoms) == 1 else None
    return atom if isinstance(atom, FloorDivision) and isinstance(atom.denominator, int) else None


def _floor(numerator: dict[Monomial, int], denominator: int | Length) -> Length:
    return Length({(FloorDivision(Length(numerator), denominator),): 1})


def product(lengths: Iterable[int | Length]) -> Any:
    """Return the product of lengths; 1 for none."""
    result: int | Length = 1
    for length in lengths:
        result = result * length
    return result


def symbols_of(lengths: Iterable[int | Length]) -> Iterator[Symbol]:
    """Yield the symbols of several lengths, repeats included."""
    for length in lengths:
        if isinstance(length, Length):
            yield from length.symbols()


def substitute(length: int | Length, solution: Mapping[Symbol, int]) -> int | Length:
    """Return the length with the solved symbols replaced by their sizes."""
    if isinstance(length, int):
        return length
    total: int | Length = 0
    for atoms, factor in length.terms.items():
        value: int | Length = factor
        for atom in atoms:
            value = value * _substitute_atom(atom, solution)
        total = total + value
    return total


def _substitute_atom(atom: Atom, solution: Mapping[Symbol, int]) -> int | Length:
    if isinstance(atom, FloorDivision):
        return floor_divide(
            substitute(atom.numerator, solution), substitute(atom.denominator, solution)
        )
    known = solution.get(atom)
    return Length({(atom,): 1}) if known is None else known


def evaluate(length: int | Length, sizes: Mapping[Length, int]) -> int | Length:
    """Return the length with symbols, given as one-symbol lengths, replaced by sizes."""
    solution = {found: size for key, size in sizes.items() if (found := key.as_symbol())}
    return substitute(length, solution)

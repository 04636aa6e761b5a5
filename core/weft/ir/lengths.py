"""Symbolic lengths: sizes that are unknown while a graph is built and known at a call.

A length is an ``int``, or a `Length`: a polynomial with integer coefficients over symbols and
floor divisions. Equal polynomials are equal lengths, so ``n + 2 - 2`` is ``n``.
"""

from __future__ import annotations

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
    """Return the quotient rounded down, exact where every coefficient divides."""
    if isinstance(numerator, int):
        if isinstance(denominator, int):
            return numerator // denominator
        if not numerator:
            return 0
        numerator = Length({(): numerator})
    if numerator == denominator:
        return 1
    if isinstance(denominator, int):
        if all(factor % denominator == 0 for factor in numerator.terms.values()):
            return _simplified({a: f // denominator for a, f in numerator.terms.items()})
    elif (exact := _exact_quotient(numerator, denominator)) is not None:
        return exact
    return Length({(FloorDivision(numerator, denominator),): 1})


def _exact_quotient(numerator: Length, denominator: Length) -> int | Length | None:
    """Divide by a single monomial when that leaves no remainder, else return None."""
    if len(denominator.terms) != 1:
        return None
    ((divisor, factor),) = denominator.terms.items()
    quotient: dict[Monomial, int] = {}
    for atoms, times in numerator.terms.items():
        rest = list(atoms)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if times % factor:
            return None
        quotient[tuple(rest)] = times // factor
    return _simplified(quotient)


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

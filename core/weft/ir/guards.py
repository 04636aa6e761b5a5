"""Guards: what a compilation for known lengths takes for granted about them.

A program that is to serve other lengths too is compiled with a `TracedLength` in place of each
length: an integer that knows of which unknown lengths it was computed, and how. Decisions compare
integers, and `Guards` record how each comparison came out. For other lengths with the same outcomes
the compilation would make the same program but for its numbers, and these are polynomials of the
lengths. Compilers of traces call such conditions guards.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.ir.lengths import Length, Symbol, is_index, substitute

LARGEST_I32 = 2**31 - 1

NUMBER = "given"
"""What stands for a traced length in text begins with this; its number and ``_`` follow."""

NUMBER_IN_TEXT = re.compile(rf"\b{NUMBER}(\d+)_L*")
"""The name of a traced length, whose group is its number."""


class UnknownLengthError(Exception):
    """A program cannot serve other lengths, because it depends on the values of these."""


@dataclass
class Range:
    """The integers from `low` to `high`, both included, but for some; None for no bound."""

    low: int | None = None
    high: int | None = None
    excluded: set[int] = field(default_factory=set)

    def __contains__(self, value: int) -> bool:
        return (
            (self.low is None or self.low <= value)
            and (self.high is None or value <= self.high)
            and value not in self.excluded
        )

    def split(self, most: int, value: int) -> None:
        """Keep only the integers up to `most`, or only those above, whichever has a value."""
        if value <= most:
            self.high = most if self.high is None else min(self.high, most)
        else:
            self.low = most + 1 if self.low is None else max(self.low, most + 1)


class Call(NamedTuple):
    """A call of a function of integers: its arguments, nested in tuples, and its results."""

    function: Callable[..., tuple[int, ...]]
    args: Any
    results: tuple[Symbol, ...]


class Guards:
    """The outcomes of the comparisons of traced lengths, and the polynomials of the numbers.

    Attributes
    ----------
    symbols
        The unknown lengths.
    ranges
        The values that each compared polynomial, which has no constant term, may have.
    calls
        The functions that computed further numbers, see `recomputed`.
    numbers
        The polynomials of the numbers of the program, each with its index.
    is_bounded
        Whether functions that allow it are called once, for the largest lengths.
    limits
        Of the arguments of such calls the polynomials, and their values for the largest lengths,
        which other lengths may not exceed.
    """

    def __init__(self, is_bounded: bool = False) -> None:
        self.is_bounded = is_bounded
        self.limits: dict[Length, int] = {}
        self.symbols: list[Symbol] = []
        self.ranges: dict[Length, Range] = {}
        self.calls: list[Call] = []
        self.numbers: dict[Length, int] = {}
        self._results: dict[Any, Any] = {}
        self._lengths: dict[Length, TracedLength] = {}
        self._maxima: dict[Symbol, int] = {}

    def trace(self, solution: Mapping[Symbol, int]) -> dict[Symbol, Any]:
        """Return the traced length of each symbol."""
        self.symbols = list(solution)
        self._maxima = {each: each.maximum for each in solution if each.maximum is not None}
        return {each: self._traced(_length_of(each), value) for each, value in solution.items()}

    def _traced(self, length: Length, value: int) -> TracedLength:
        found = self._lengths.get(length)
        if found is None:
            found = self._lengths[length] = TracedLength(self, length, value)
        return found

    def number(self, length: Length) -> int:
        """Return the index of a number of the program, which it becomes."""
        return self.numbers.setdefault(length, len(self.numbers))

    def call(
        self, function: Callable[..., tuple[int, ...]], args: Any, for_largest: bool
    ) -> tuple[Any, ...]:
        """Return the results of a function of integers as traced lengths."""
        lengths = _mapped(_length, args)
        if self.is_bounded and function is not _largest:
            if not for_largest:
                raise UnknownLengthError(f"{function.__qualname__} is called for each length")
            return function(*_mapped(self._limit, lengths))
        key = function, lengths
        found = self._results.get(key)
        if found is None:
            values = function(*_mapped(untraced, args))
            results = tuple(Symbol(f"result{len(self.calls)}_{n}") for n in range(len(values)))
            self.calls.append(Call(function, lengths, results))
            with suppress(UnknownLengthError, ZeroDivisionError):
                most = function(*_mapped(self.at_maximum, lengths))
                self._maxima.update(zip(results, most, strict=True))
            found = tuple(map(self._traced, map(_length_of, results), values))
            self._results[key] = found
        return found

    def applied(self, compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """Return the result of an operation on integers, one of them traced.

        Equal polynomials are one object, so operands are found by their addresses.
        """
        key: Any
        if type(left) is not TracedLength:
            key = compute, left, id(right)
        elif type(right) is not TracedLength:
            key = compute, id(left), right, None
        else:
            if left.guards is not right.guards:
                raise UnknownLengthError("a length of another compilation is used")
            key = compute, id(left), None, id(right)
        found = self._results.get(key)
        if found is None:
            found = compute(_length(left), _length(right))
            if isinstance(found, Length):
                found = self._traced(found, compute(untraced(left), untraced(right)))
            self._results[key] = found
        return found

    def is_less(self, left: Any, right: Any) -> bool:
        """Whether an integer is less than another."""
        difference = self.applied(operator.sub, left, right)
        if type(difference) is not TracedLength:
            return bool(difference < 0)
        if not difference.has_sign_guard:
            difference.has_sign_guard = True
            part, factor, constant = _split(difference.length)
            # factor * part + constant < 0
            bound = (-constant - 1) // factor if factor > 0 else constant // -factor
            self._range(part).split(bound, (difference.value - constant) // factor)
        return difference.value < 0

    def is_equal(self, left: Any, right: Any) -> bool:
        """Whether two integers are equal."""
        difference = self.applied(operator.sub, left, right)
        if type(difference) is not TracedLength:
            return bool(difference == 0)
        if not difference.has_zero_guard:
            difference.has_zero_guard = True
            part, factor, constant = _split(difference.length)
            if constant % factor:
                return False
            known, root = self._range(part), -constant // factor
            if difference.value == 0:
                known.split(root, root)
                known.split(root - 1, root)
            elif root in known:
                known.excluded.add(root)
        return difference.value == 0

    def at_maximum(self, length: int | Length) -> int:
        """Return the value of a polynomial for the largest lengths.

        Raises UnknownLengthError if one of them has no maximum.
        """
        found = substitute(length, self._maxima)
        if isinstance(found, Length):
            raise UnknownLengthError(f"{found} has no maximum")
        return found

    def _limit(self, length: int | Length) -> int:
        most = self.at_maximum(length)
        if isinstance(length, Length):
            self.limits[length] = most
        return most

    def _range(self, part: Length) -> Range:
        return self.ranges.setdefault(part, Range())


def _split(length: Length) -> tuple[Length, int, int]:
    """Return a polynomial without constant and common factor, that factor, and the constant."""
    constant = length.terms.get((), 0)
    rest = {atoms: factor for atoms, factor in length.terms.items() if atoms}
    divisor = math.gcd(*rest.values())
    if rest[max(rest, key=repr)] < 0:  # the same polynomial for both signs
        divisor = -divisor
    part = Length({atoms: factor // divisor for atoms, factor in rest.items()})
    return part, divisor, constant


class TracedLength:
    """An integer that knows how it was computed from unknown lengths, and records comparisons.

    It passes for an ``int`` where Python asks for its class. C functions ask for its value instead,
    which becomes a guard: the program then serves this length only.
    """

    __slots__ = ("guards", "has_sign_guard", "has_zero_guard", "length", "value")

    def __init__(self, guards: Guards, length: Length, value: int) -> None:
        self.guards = guards
        self.length = length
        self.value = value
        self.has_sign_guard = self.has_zero_guard = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def pinned(self) -> int:
        """Return the value, which becomes a guard."""
        self.guards.is_equal(self, self.value)
        return self.value

    __index__ = __int__ = pinned

    def __float__(self) -> float:
        return float(self.pinned())

    def __bool__(self) -> bool:
        return not self.guards.is_equal(self, 0)

    def __hash__(self) -> int:
        return hash(self.length)  # numbers that are equal by chance are different keys

    def __str__(self) -> str:
        is_short = self >= 0 and self <= LARGEST_I32
        return f"{NUMBER}{self.guards.number(self.length)}_{'' if is_short else 'L'}"

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return format(self.pinned(), form) if form else str(self)

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return int, (self.pinned(),)

    # Arithmetic

    def __add__(self, other: Any) -> Any:
        return self._applied(operator.add, self, other, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._applied(operator.sub, self, other, other)

    def __rsub__(self, other: Any) -> Any:
        return self._applied(operator.sub, other, self, other)

    def __mul__(self, other: Any) -> Any:
        return self._applied(operator.mul, self, other, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._applied(operator.floordiv, self, other, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._applied(operator.floordiv, other, self, other)

    def __mod__(self, other: Any) -> Any:
        return self._applied(operator.mod, self, other, other)

    def __rmod__(self, other: Any) -> Any:
        return self._applied(operator.mod, other, self, other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pow__(self, exponent: int) -> Any:
        return math.prod([self] * exponent)

    def __lshift__(self, bits: int) -> Any:
        return self * (1 << bits)

    def __rshift__(self, bits: int) -> Any:
        return self // (1 << bits)

    def __and__(self, other: int) -> int:
        return self.pinned() & other

    __rand__ = __and__

    def __truediv__(self, other: Any) -> Any:
        return self.pinned() / untraced(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.pinned()

    def bit_length(self) -> int:
        """Return the number of bits; the range of such integers becomes a guard."""
        bits = self.value.bit_length()
        if self.value > 0:
            self.guards.is_less(self, 1 << bits)
            self.guards.is_less(self, 1 << bits - 1)
        else:
            self.pinned()
        return bits

    def _applied(
        self, compute: Callable[[Any, Any], Any], left: Any, right: Any, other: Any
    ) -> Any:
        """Return the result of an operation on this length and another number."""
        if type(other) not in _INTEGERS:
            if isinstance(other, float):
                known = self.pinned()
                return compute(known, other) if left is self else compute(other, known)
            if not is_index(other):
                return NotImplemented
            other = operator.index(other)
            left, right = (left, other) if left is self else (other, right)
        return self.guards.applied(compute, left, right)

    # Comparison

    def __lt__(self, other: Any) -> bool:
        if type(other) in _INTEGERS:
            return self.guards.is_less(self, other)
        return self._compared(operator.lt, other)

    def __gt__(self, other: Any) -> bool:
        if type(other) in _INTEGERS:
            return self.guards.is_less(other, self)
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        if type(other) in _INTEGERS:
            return not self.guards.is_less(self, other)
        return self._compared(operator.ge, other)

    def __le__(self, other: Any) -> bool:
        if type(other) in _INTEGERS:
            return not self.guards.is_less(other, self)
        return self._compared(operator.le, other)

    def __eq__(self, other: object) -> bool:
        if type(other) is TracedLength and other.guards is not self.guards:
            return False  # of another compilation, which a cache still holds
        if type(other) in _INTEGERS:
            return self.guards.is_equal(self, other)
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def _compared(self, compare: Callable[[Any, Any], bool], other: Any) -> bool:
        """Compare this length with something else than an integer."""
        if isinstance(other, float):
            return compare(self.pinned(), other)
        if is_index(other):
            return compare(self, operator.index(other))
        return NotImplemented  # type: ignore[no-any-return]


_INTEGERS = frozenset((int, TracedLength))


def as_integer(number: Any) -> int:
    """Return a number as an integer, which may be traced; raises TypeError for anything else."""
    return number if is_traced(number) else operator.index(number)


def _length_of(symbol: Symbol) -> Length:
    return Length({(symbol,): 1})


def _length(number: Any) -> Any:
    """Return the polynomial of an integer."""
    return number.length if type(number) is TracedLength else number


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return nested tuples with their leaves changed."""
    if isinstance(value, tuple):
        return tuple([_mapped(change, each) for each in value])
    return change(value)


def _guards_of(value: Any) -> Guards | None:
    """Return the guards of a traced length in nested tuples; None if there is none."""
    if isinstance(value, tuple):
        return next((found for each in value if (found := _guards_of(each)) is not None), None)
    return value.guards if type(value) is TracedLength else None


# What compilers ask of integers that may be traced


def is_traced(*numbers: Any) -> bool:
    """Whether any of some integers is a traced length."""
    return TracedLength in map(type, numbers)


def untraced(number: Any) -> int:
    """Return an integer without a guard, for a decision of which every outcome is right."""
    return number.value if type(number) is TracedLength else number


def is_multiple(length: int, step: int) -> bool:
    """Whether a length is a multiple of a step, for all lengths that it may stand for."""
    return not is_traced(length) and length % step == 0


def is_one(length: int) -> bool:
    """Whether a length is 1, for all lengths that it may stand for."""
    return not is_traced(length) and length == 1


def recomputed(
    function: Callable[..., tuple[int, ...]], *args: Any, for_largest: bool = False
) -> tuple[Any, ...]:
    """Return the results of a function of integers, which is called again for other lengths.

    It decides freely: what its comparisons show becomes no guard. Its arguments are integers, which
    may be nested in tuples. It is a function of a module, so that who restores the program finds it
    by name. If its results are right for smaller arguments too, as a number of work items or an
    offset in the arena is, say so with `for_largest`: exported C then has those for the largest
    lengths.
    """
    guards = _guards_of(args)
    return function(*args) if guards is None else guards.call(function, args, for_largest)


def largest(*numbers: int) -> int:
    """Return the largest of some integers, without a guard that tells which one that is."""
    (found,) = recomputed(_largest, *numbers)
    return found  # type: ignore[no-any-return]


def _largest(*numbers: int) -> tuple[int]:
    return (max(numbers),)


def at_maximum(number: Any) -> int | None:
    """Return an integer for the largest lengths that a call may bring; None if one has no maximum.

    Other lengths may lead to a larger integer.
    """
    if type(number) is not TracedLength:
        return operator.index(number)
    with suppress(UnknownLengthError, ZeroDivisionError):
        return number.guards.at_maximum(number.length)
    return None


def smallest(*numbers: int) -> int:
    """Return the smallest of some integers, as `largest` does."""
    return -largest(*[-number for number in numbers])


def with_numbers(text: str, numbers: Sequence[int]) -> str:
    """Return text with numbers in place of traced lengths."""
    return NUMBER_IN_TEXT.sub(lambda found: str(numbers[int(found[1])]), text)

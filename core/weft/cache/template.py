"""Templates: cache entries of programs for many lengths, whose numbers follow from the lengths."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from weft.cache.entry import CacheEntry
from weft.cache.structure import NotCanonical, address, found_by_name, packages_of
from weft.ir.guards import Guards, TracedLength
from weft.ir.lengths import FloorDivision, Length, Symbol

INDEX = "number"
"""The key of a JSON object that stands for one of the numbers."""


class Template:
    """A cache entry with numbers that are polynomials of unknown lengths.

    Attributes
    ----------
    entry
        The document and the arrays: the document has the conditions on the lengths, the numbers,
        and the document of the program.
    """

    def __init__(self, entry: CacheEntry, modules: Iterable[str] = ()) -> None:
        """Compile the conditions; functions may be named from the packages of `modules`."""
        self.entry = entry
        self._numbers = _compiled(entry.document, packages_of(("weft", *modules)))

    @staticmethod
    def of(program: CacheEntry, guards: Guards, modules: Iterable[str] = ()) -> Template:
        """Return the template of a program that was compiled with traced lengths.

        Raises NotCanonical for a number that a function computes which another process would not
        find.
        """
        described = _described(program.document, guards)
        results = [symbol for call in guards.calls for symbol in call.results]
        index = {symbol: n for n, symbol in enumerate([*guards.symbols, *results])}
        ranges = [
            [_polynomial(each, index), known.low, known.high, sorted(known.excluded)]
            for each, known in guards.ranges.items()
        ]
        document = {
            "symbols": len(guards.symbols),
            "ranges": ranges,
            "calls": [
                [address(call.function), _arguments(call.args, index), len(call.results)]
                for call in guards.calls
            ],
            "numbers": [_polynomial(each, index) for each in guards.numbers],
            "program": described,
        }
        return Template(CacheEntry(document, program.arrays), modules)

    def numbers(self, lengths: Sequence[int]) -> tuple[int, ...] | None:
        """Return the numbers for some lengths; None for lengths that it does not serve."""
        try:
            return self._numbers(*lengths)
        except ZeroDivisionError:
            return None

    def filled(self, numbers: Sequence[int]) -> CacheEntry:
        """Return the cache entry of the program for lengths with these numbers."""
        return CacheEntry(_filled(self.entry.document["program"], numbers), self.entry.arrays)


def _described(value: Any, guards: Guards) -> Any:
    """Return a document with numbers in place of traced lengths."""
    if type(value) is TracedLength:
        return {INDEX: guards.number(value.length)}
    if isinstance(value, dict):
        return {key: _described(each, guards) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_described(each, guards) for each in value]
    return value


def _filled(value: Any, numbers: Sequence[int]) -> Any:
    if isinstance(value, list):
        return [each if type(each) in _LEAVES else _filled(each, numbers) for each in value]
    if isinstance(value, dict):
        number = value.get(INDEX)
        if number is not None:
            return numbers[number]
        return {key: _filled(each, numbers) for key, each in value.items()}
    return value


_LEAVES = frozenset((int, str, type(None), float, bool))


def _polynomial(length: int | Length, index: Mapping[Symbol, int]) -> Any:
    """Return a polynomial as JSON: terms of a factor and atoms; quotients are pairs."""
    if not isinstance(length, Length):
        return length
    return [[factor, [_atom(a, index) for a in atoms]] for atoms, factor in length.terms.items()]


def _atom(atom: Symbol | FloorDivision, index: Mapping[Symbol, int]) -> Any:
    if isinstance(atom, FloorDivision):
        return [_polynomial(atom.numerator, index), _polynomial(atom.denominator, index)]
    return index[atom]


def _arguments(value: Any, index: Mapping[Symbol, int]) -> Any:
    if isinstance(value, tuple):
        return {"tuple": [_arguments(each, index) for each in value]}
    if isinstance(value, int | Length):
        return _polynomial(value, index)
    raise NotCanonical(f"{value!r} is not an integer")


def _source(polynomial: Any) -> str:
    """Return a polynomial as Python source; raises TypeError or ValueError for malformed JSON."""
    if isinstance(polynomial, dict):
        return f"({''.join(f'{_source(each)},' for each in polynomial['tuple'])})"
    if isinstance(polynomial, list):
        terms = ["*".join([f"({int(f)})", *map(_factor, atoms)]) for f, atoms in polynomial]
        return "+".join(terms) or "0"
    return f"({int(polynomial)})"


def _factor(atom: Any) -> str:
    if isinstance(atom, list):
        numerator, denominator = atom
        return f"(({_source(numerator)})//({_source(denominator)}))"
    return f"s{int(atom)}"


def _compiled(document: Any, packages: Container[str]) -> Callable[..., tuple[int, ...] | None]:
    """Return a function of the lengths that returns the numbers, or None outside of the ranges."""
    count = document["symbols"]
    lines = [f"def numbers({','.join(f's{n}' for n in range(count))}):"]
    functions: dict[str, Any] = {}
    late: list[str] = []
    for polynomial, low, high, excluded in document["ranges"]:
        lines_of = late if _newest(polynomial) >= count else lines
        lines_of.append(f"    v = {_source(polynomial)}")
        if low is not None:
            lines_of.append(f"    if v < {int(low)}: return None")
        if high is not None:
            lines_of.append(f"    if v > {int(high)}: return None")
        if excluded:
            lines_of.append(f"    if v in {tuple(map(int, excluded))}: return None")
    for number, (name, args, results) in enumerate(document["calls"]):
        functions[f"f{number}"] = found_by_name(name, packages)
        made = ",".join(f"s{count + n}" for n in range(results))
        count += results
        lines.append(f"    {made}, = f{number}(*{_source(args)})")
    lines += [*late, f"    return ({''.join(f'{_source(each)},' for each in document['numbers'])})"]
    exec(compile("\n".join(lines), "<numbers of a template>", "exec"), functions)
    found: Callable[..., tuple[int, ...] | None] = functions["numbers"]
    return found


def _newest(polynomial: Any) -> int:
    """Return the largest index of a symbol in a polynomial."""
    if not isinstance(polynomial, list):
        return -1
    return max(
        (
            max(map(_newest, atom)) if isinstance(atom, list) else atom
            for _, atoms in polynomial
            for atom in atoms
        ),
        default=-1,
    )

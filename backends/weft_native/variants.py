"""Programs for all lengths up to their maxima, for one C function that takes the lengths.

Like templates of the compile cache they serve all lengths that lead to the same code; memory and
the division of work are those for the largest lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from weft.cache.entry import CacheEntry
from weft.cache.template import Template
from weft.errors import ArgumentError, WeftError
from weft.ir.graph import Graph
from weft.ir.guards import Guards
from weft.runtime.given_lengths import HOW_TO_GIVE
from weft.runtime.program import Program
from weft.runtime.template_cache import MANY, lower

if TYPE_CHECKING:
    from weft_native.transformer import NativeTransformer

CHOICES = 65_536
"""The most combinations of lengths that an exported function serves."""

REFUSED = 255
"""The number of no variant: that of lengths which the computation does not take."""


class Variant:
    """The text of a program, and the lengths that it serves.

    Attributes
    ----------
    text
        What `write` made of the program.
    document
        The polynomials of the numbers in the text and of its limits, and the calls before them, as
        `Template` has them.
    reason
        Why it serves one combination of lengths only; None for no error.
    """

    def __init__(
        self,
        program: Program,
        guards: Guards | None,
        lengths: Sequence[int],
        write: Callable[[Program], Any],
        reason: Exception | None = None,
    ) -> None:
        self.text = write(program)
        self.reason = reason
        self.document: Any = {"numbers": [], "calls": []}
        self._lengths = tuple(lengths)
        self._template: Template | None = None
        self._limits: dict[int, int] = {}
        if guards is not None:
            self._limits = {guards.number(each): most for each, most in guards.limits.items()}
            self._template = Template.of(CacheEntry({}, []), guards)
            self.document = self._template.entry.document

    def serves(self, lengths: Sequence[int]) -> bool:
        """Whether the code is right for some lengths, and their values fit into its memory."""
        if self._template is None:
            return tuple(lengths) == self._lengths
        numbers = self._template.numbers(lengths)
        if numbers is None:
            return False
        return all(numbers[number] <= size for number, size in self._limits.items())


def variants(
    transformer: NativeTransformer, graph: Graph, name: str, write: Callable[[Program], Any]
) -> tuple[list[Variant], list[int]]:
    """Return programs for all lengths of a graph, and for each combination the one that serves it.

    Combinations are in the order of `itertools.product`, each length from 0 to its maximum; those
    that the graph refuses have `REFUSED`. Raises ArgumentError for lengths without a maximum, for
    states of unknown lengths, for too many combinations or variants, and for a graph that refuses
    all lengths.
    """
    maxima = _maxima(transformer, graph, name)
    found: list[Variant] = []
    choices: dict[tuple[int, ...], int] = {}
    refusal: WeftError | None = None
    # The largest lengths come first: most others are served by their code.
    for lengths in product(*(range(most, -1, -1) for most in maxima)):
        number = next((n for n, each in enumerate(found) if each.serves(lengths)), len(found))
        if number == len(found):
            try:
                known = graph.specialize(dict(zip(graph.symbols, lengths, strict=True)))
            except WeftError as error:
                choices[lengths] = REFUSED
                refusal = error
                continue
            if number == MANY:
                reason = next((each.reason for each in found if each.reason is not None), None)
                raise ArgumentError(
                    f"{name} needs other code for more than {MANY} of its lengths: choose a "
                    f"smaller max=, or {HOW_TO_GIVE}"
                ) from reason
            found.append(_variant(transformer, graph, known, name, lengths, write))
        choices[lengths] = number
    if not found:
        problem = f"{name} takes none of the lengths up to their maxima: choose a larger max="
        raise ArgumentError(problem) from refusal
    return found, [choices[each] for each in sorted(choices)]


def _maxima(transformer: NativeTransformer, graph: Graph, name: str) -> list[int]:
    """Return the largest value of each length; raises ArgumentError where there is no function."""
    unbounded = [symbol for symbol in graph.symbols if symbol.maximum is None]
    if unbounded:
        names = ", ".join(map(repr, unbounded))
        how = f"bound them, as in weft.symbol({unbounded[0].name!r}, max=64), or {HOW_TO_GIVE}"
        raise ArgumentError(f"{name} has unknown lengths, {names}: {how}")
    maxima = [symbol.maximum or 0 for symbol in graph.symbols]
    if prod(most + 1 for most in maxima) > CHOICES:
        raise ArgumentError(
            f"{name} has more than {CHOICES} combinations of lengths up to their maxima: choose "
            f"smaller max=, or {HOW_TO_GIVE}"
        )
    unknown = [state for state in graph.states if not state.axes.is_static]
    if unknown:
        problem = f"the state {unknown[0].name} has an unknown length ({unknown[0].file_info})"
        raise ArgumentError(
            f"{name}: {problem}, and memory of the function is fixed: {HOW_TO_GIVE}"
        )
    if transformer.memory_limit is not None:
        raise ArgumentError(f"{name} has unknown lengths and a limit on memory: {HOW_TO_GIVE}")
    return maxima


def _variant(
    transformer: NativeTransformer,
    graph: Graph,
    known: Graph,
    name: str,
    lengths: Sequence[int],
    write: Callable[[Program], Any],
) -> Variant:
    """Return a program for some lengths, and others if its code allows that.

    `known` is the graph for these lengths.
    """
    solution = dict(zip(graph.symbols, lengths, strict=True))
    guards = Guards(is_bounded=True)
    reason: Exception | None = None
    try:
        program = Program(name, graph.specialize(guards.trace(solution)), solution)
        lower(program, transformer)
        found = Variant(program, guards, lengths, write)
        if found.serves(lengths):
            return found
    except Exception as error:
        # The code depends on the values of lengths, or a plugin does not take traced integers. Any
        # other error comes again, where the program is lowered for these lengths alone.
        reason = error
    program = Program(name, known, solution)
    lower(program, transformer)
    return Variant(program, None, lengths, write, reason)

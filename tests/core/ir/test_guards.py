"""Traced lengths compute as integers do; where their guards hold, so do decisions and numbers."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.cache.entry import CacheEntry
from weft.cache.template import Template
from weft.ir.guards import (
    Guards,
    at_maximum,
    is_multiple,
    is_one,
    is_traced,
    largest,
    recomputed,
    untraced,
    with_numbers,
)
from weft.ir.lengths import Symbol

N, M = Symbol("n", 300), Symbol("m", 40)


def traced(n: int, m: int = 1) -> tuple[Guards, Any, Any]:
    """Return guards, and two traced lengths."""
    guards = Guards()
    return guards, *guards.trace({N: n, M: m}).values()


def template_of(guards: Guards, numbers: list[Any]) -> Template:
    return Template.of(CacheEntry({"numbers": numbers}, []), guards, [__name__])


ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    lambda a, b: divmod(a, b)[1],
    lambda a, b: -a + abs(b),
    lambda a, b: min(a, b),
    lambda a, b: max(a, b, 3),
    lambda a, b: largest(a, b),
    lambda a, b: sum([a, b, a]),
    lambda a, b: (a << 2) - (b >> 1),
    lambda a, b: a**2 - b,
    lambda a, b: recomputed(_halves, a, (b, 4))[1],
    lambda a, b: a.bit_length() + b,
    lambda a, b: len(range(abs(a) % 9)) + b,
]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def _halves(a: int, rest: tuple[int, int]) -> tuple[int, int]:
    return a // 2, rest[0] // 2 if a > rest[1] else 7


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Return steps, each an operation on two earlier values; some decide by a comparison."""
    count = draw(st.integers(1, 9))
    return [
        (
            draw(st.integers(0, len(ARITHMETIC) + len(COMPARISONS) - 1)),
            draw(st.integers(0, 4 + place)),
            draw(st.integers(0, 4 + place)),
        )
        for place in range(count)
    ]


def run(program: list[tuple[int, int, int]], n: Any, m: Any) -> tuple[list[Any], list[bool]]:
    """Return the numbers and the decisions of a program."""
    values, decisions = [n, m, 1, 6, 64], []
    for which, left, right in program:
        a, b = values[left], values[right]
        if which < len(ARITHMETIC):
            try:
                values.append(ARITHMETIC[which](a, b))
            except ZeroDivisionError:
                values.append(5)
        else:
            decisions.append(COMPARISONS[which - len(ARITHMETIC)](a, b))
            values.append(a if decisions[-1] else b)
        if abs(untraced(values[-1])) > 2**40:
            values[-1] = 2
    return values, decisions


@given(programs(), st.integers(1, 300), st.integers(1, 40), st.data())
def test_what_guards_allow_decides_and_computes_the_same(
    program: list[tuple[int, int, int]], n: int, m: int, data: st.DataObject
) -> None:
    guards, x, y = traced(n, m)
    values, decisions = run(program, x, y)
    plain, wanted = run(program, n, m)
    assert list(map(untraced, values)) == plain
    assert decisions == wanted
    template = template_of(guards, values)
    assert template.numbers((n, m)) is not None
    most = template.numbers((300, 40))
    if most is not None:
        wanted_most = template.filled(most).document["numbers"]
        assert [at_maximum(value) for value in values] == wanted_most
    for _ in range(8):
        other = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 40)))
        numbers = template.numbers(other)
        if numbers is not None:
            plain, wanted = run(program, *other)
            assert template.filled(numbers).document == {"numbers": plain}
            assert wanted == decisions


def test_numbers_for_the_largest_lengths() -> None:
    _, n, m = traced(6, 4)
    assert at_maximum(7) == 7
    assert at_maximum(2 * n * m - m + 3) == 2 * 300 * 40 - 40 + 3
    assert at_maximum((n + 7) // 8 * 8) == 307 // 8 * 8
    assert at_maximum(largest(n, 3 * m, 7)) == 300
    assert at_maximum(recomputed(_halves, recomputed(_halves, n, (m, 4))[0], (m, 4))[0]) == 75
    assert at_maximum(n // (m - 40)) is None
    unbounded, bounded = Guards().trace({Symbol("k"): 6, Symbol("l", 6): 3}).values()
    assert at_maximum(bounded + 1) == 7
    for number in (unbounded + 1, bounded * unbounded, largest(bounded, unbounded)):
        assert at_maximum(number) is None


def test_equal_polynomials_need_no_guard() -> None:
    guards, n, m = traced(6, 4)
    assert (n + 1) * m - m == n * m
    assert n * 64 % 64 == 0
    assert (n * 6) // n == 6
    assert len({n + 1, 1 + n, n}) == 2
    assert not guards.ranges


def test_guards_of_one_polynomial_are_one_range() -> None:
    guards, n, _ = traced(40)
    assert n * 64 < 4096 * 64
    assert n >= 8
    assert 3 - n < 0
    assert 2 * n != 100
    assert 2 * n != 101
    (known,) = guards.ranges.values()
    assert (known.low, known.high, known.excluded) == (8, 4095, {50})


@pytest.mark.parametrize(
    "use",
    [
        *(range, int, operator.index, float, lambda n: [1] * n, lambda n: n / 2, lambda n: 1.5 * n),
        *(lambda n: n & 7, lambda n: f"{n:>4}", lambda n: n == 40.0),
        lambda n: slice(n).indices(50),
        copy.deepcopy,
    ],
)
def test_a_value_that_is_asked_for_is_a_guard(use: Callable[[Any], Any]) -> None:
    guards, n, _ = traced(40)
    assert use(n) == use(40)
    template = template_of(guards, [n])
    assert template.numbers((40, 1)) is not None
    assert template.numbers((41, 1)) is None


def test_computed_numbers_are_computed_again() -> None:
    guards, n, _ = traced(40)
    low, high = recomputed(_halves, n, (6, 4))
    assert recomputed(_halves, n, (6, 4))[0] is low, "equal calls are one"
    assert (untraced(low), untraced(high)) == (20, 3)
    template = template_of(guards, [low + 1, high])
    assert template.numbers((3, 1)) == (2, 7)
    assert not guards.ranges
    assert recomputed(_halves, 40, (6, 4)) == (20, 3)


def test_a_function_that_nobody_finds_by_name_makes_no_template() -> None:
    guards, n, _ = traced(40)
    (found,) = recomputed(lambda n: (n + 1,), n)
    with pytest.raises(Exception, match="not to be found under its name"):
        template_of(guards, [found])


def test_a_template_calls_no_function_of_another_package() -> None:
    guards, n, _ = traced(40)
    (found,) = recomputed(_halves, n, (6, 4))[:1]
    document = template_of(guards, [found]).entry.document
    document["calls"][0][0] = ["os", "system"]
    with pytest.raises(ValueError, match="'os' has no part"):
        Template(CacheEntry(document, []))


def test_lengths_of_two_compilations_are_different_keys() -> None:
    (_, n, _), (_, other, _) = traced(40), traced(41)
    assert n != other
    assert {n: "n"}.get(other) is None


def test_text_has_names_in_place_of_numbers() -> None:
    guards, n, _ = traced(40)
    text = f"x[{n * 4}] + {n} + {n * 2**40} + {n * 4}"
    assert text == "x[given0_] + given1_ + given2_L + given0_"
    template = template_of(guards, [])
    numbers = template.numbers((40, 1))
    assert numbers == (160, 40, 40 * 2**40)
    assert with_numbers(text, numbers) == f"x[160] + 40 + {40 * 2**40} + 160"
    assert template.numbers((2**31, 1)) is None, "an i32 holds what text has without a suffix"


def test_a_traced_length_passes_for_an_integer() -> None:
    _, n, _ = traced(40)
    assert isinstance(n, int)
    assert is_traced(n)
    assert (is_traced(3, n), is_traced(3)) == (True, False)
    assert (is_multiple(n, 8), is_multiple(40, 8), is_one(n), is_one(1)) == (
        False,
        True,
        False,
        True,
    )
    assert type(pickle.loads(pickle.dumps(n))) is int
    assert type(copy.copy(n)) is int
    assert f"{(n, n * -1)}" == "(given0_, given1_L)"

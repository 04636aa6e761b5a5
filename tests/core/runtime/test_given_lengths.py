"""Lengths that are given when a computation is made: what keys stand for, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import ArgumentError, AxesError

N, M, OTHER = weft.Axis(name="N"), weft.Axis(name="M"), weft.Axis(name="N")
LENGTH = weft.symbol("length")
FEATURES = weft.Axis(4, "C")


def total(*axes: Any) -> Any:
    """Return a sum of ones over axes."""
    return weft.sum(weft.ones(axes), out_axes=())


def initialized() -> Any:
    """Return a state whose initial value alone depends on a length."""
    return weft.variable((), initial_value=total(N))


FOUND: dict[str, tuple[Callable[[], Any], Any, float]] = {
    "an axis": (lambda: total(N), {N: 3}, 3),
    "its length": (lambda: total(N), {N.length: 3}, 3),
    "its name": (lambda: total(N), {"N": 3}, 3),
    "a symbol": (lambda: total(LENGTH), {LENGTH: 3}, 3),
    "the name of a symbol": (lambda: total(LENGTH), {"length": 3}, 3),
    "the name of an axis of a symbol": (lambda: total(weft.Axis(LENGTH, "H")), {"H": 3}, 3),
    "two ways that agree": (lambda: total(N), {N: 3, "N": 3}, 3),
    "several": (lambda: total(N, M, FEATURES), {N: 3, "M": 2}, 24),
    "two of a name by axis": (lambda: total(N) + total(OTHER), {N: 3, OTHER: 4}, 7),
    "nothing": (lambda: total(N), {N: 0}, 0),
    "an initial value's": (lambda: initialized() + 1, {N: 3}, 4),
    "an initial value's by name": (lambda: initialized() + 1, {"N": 3}, 4),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_key_stands_for_an_unknown_length(transformer: Any, name: str) -> None:
    make, axes, expected = FOUND[name]
    assert transformer.computation(make(), axes=axes)() == expected


def test_a_parameter_that_no_result_uses_has_lengths_as_well(transformer: Any) -> None:
    x = weft.placeholder((N,))
    made = transformer.computation(total(M), x, axes={"M": 2, N: 3})
    assert made([1, 2, 3]) == 2
    with pytest.raises(AxesError, match="does not fit"):
        made([1, 2])


REFUSED: dict[str, tuple[Callable[[], Any], Any, type[Exception], str]] = {
    "another axis of the name": (lambda: total(N), {OTHER: 3}, ArgumentError, "not the one of"),
    "another symbol": (lambda: total(N), {LENGTH: 3}, ArgumentError, "does not have: f .* N$"),
    "another name": (lambda: total(N, M), {"n": 3}, ArgumentError, "a name that no .* N, M$"),
    "a name of two": (
        lambda: total(N) + total(OTHER), {"N": 3}, ArgumentError, "name of several: .*axis itself"
    ),
    "a known axis": (lambda: total(N, FEATURES), {FEATURES: 4}, ArgumentError, "not unknown.* N$"),
    "a known name": (lambda: total(N, FEATURES), {"C": 4}, ArgumentError, "a name that no.* N$"),
    "none is unknown": (lambda: total(FEATURES), {N: 4}, ArgumentError, "none is unknown"),
    "one that is computed": (
        lambda: total(LENGTH + 1), {LENGTH + 1: 4}, ArgumentError, "from others: .* length$"
    ),
    "a number": (lambda: total(N), {3: 4}, ArgumentError, "3, which is not unknown"),
    "None": (lambda: total(N), {None: 4}, ArgumentError, "None, which is not unknown"),
    "two ways that differ": (lambda: total(N), {N: 3, "N": 4}, AxesError, "two lengths to N"),
    "a fraction by name": (lambda: total(N), {"N": 2.5}, AxesError, "'N' the length 2.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_stands_for_none_is_refused(transformer: Any, name: str) -> None:
    make, axes, error, message = REFUSED[name]
    with pytest.raises(error) as caught:
        transformer.computation(make(), name="f", axes=axes)
    assert re.search(message, caught.value.problem)
    if error is ArgumentError:
        assert "transformer.computation(..., axes=...)" in caught.value.problem
    assert len(transformer.computations) == 0


def test_errors_about_unknown_lengths_say_where_they_are_given(
    transformer: Any, tmp_path: Path
) -> None:
    x = weft.placeholder((N,))
    made = transformer.computation(x * 2, x)
    alone = transformer.computation(total(N))
    state = weft.variable((N,), initial_value=3.0)
    stored = transformer.computation(x + state, x)
    for attempt in (lambda: made.program, alone, lambda: stored.save(tmp_path / "a.weft")):
        with pytest.raises(weft.WeftError, match=r"transformer\.computation\(\.\.\., axes=\{axis"):
            attempt()


def test_a_saved_computation_keeps_the_lengths_of_its_parts(tmp_path: Path) -> None:
    x, state = weft.placeholder((M,)), initialized()
    made = weft.make_transformer("numpy").computation(x + state, x, axes={"N": 3, M: 2})
    made.save(tmp_path / "a.weft")
    assert weft.load(tmp_path / "a.weft", "numpy")([1, 2]).tolist() == [4, 5]

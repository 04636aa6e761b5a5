"""Transformations of functions by their names, and what each of them is judged by.

`jit` must change nothing, `vmap` is a loop over examples, `grad` and `jvp` are central differences.
Of a composition the outermost is judged, by calls of what it transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft.functional import trees
from weft.ir import dtypes
from weft.testing.cases import seeded
from weft.testing.numeric import ACCURACY, STEP, numeric_derivative
from weft.testing.reference import evaluate

Function = Callable[..., Any]
Words = tuple[str, ...]

DERIVATIVES = ("grad", "jvp")
TRANSFORMATIONS = ("vmap", *DERIVATIVES)
COMPOSITIONS: list[Words] = [
    (outer, *inner)
    for outer in ("jit", *TRANSFORMATIONS)
    for inner in ((), *((word,) for word in TRANSFORMATIONS))
]
"""Each transformation by itself, and around each other one: ``("jit", "grad")`` is jit(grad(f))."""


def named(words: Words) -> str:
    """Return a composition as it is written: ``jit(grad)``."""
    return "(".join(words) + ")" * (len(words) - 1)


def composed(words: Words, function: Function, numbers: Sequence[int]) -> Function:
    """Return a function transformed; `numbers` are the arguments to differentiate by."""
    for word in reversed(words):
        function = _transformed(word, function, tuple(numbers))
    return function


def _transformed(word: str, function: Function, numbers: tuple[int, ...]) -> Function:
    if word == "jvp":
        return lambda *args: weft.jvp(
            _of(function, args, numbers),
            [args[number] for number in numbers],
            [_weights(args[number].shape, args[number].dtype) for number in numbers],
        )[1]
    return {
        "jit": weft.jit,
        "vmap": weft.vmap,
        "grad": lambda function: weft.grad(total(function), numbers),
    }[word](function)


def wanted(
    words: Words, function: Function, numbers: Sequence[int], arrays: Sequence[Any]
) -> list[Any]:
    """Return what the leaves of a composition must be for arrays."""
    outer, inner = words[0], composed(words[1:], function, numbers)
    if outer == "grad":
        compiled = weft.jit(total(inner))
        return [numeric_derivative(compiled, arrays, number) for number in numbers]
    compiled = weft.jit(inner)
    if outer == "jit":
        return leaves_of(compiled(*arrays) if words[1:] else _interpreted(function, arrays))
    if outer == "vmap":
        rows = [leaves_of(compiled(*row)) for row in zip(*arrays, strict=True)]
        return [np.stack(each) for each in zip(*rows, strict=True)]
    ends = []
    for step in (STEP, -STEP):
        moved = list(arrays)
        for number in numbers:
            x = arrays[number]
            moved[number] = x + step * _weights(x.shape, x.dtype)
        ends.append(leaves_of(compiled(*moved)))
    return [
        (above - below) / (2 * STEP) if dtypes.is_inexact(above.dtype) else np.zeros_like(above)
        for above, below in zip(*ends, strict=True)
    ]


def require(
    words: Words, function: Function, numbers: Sequence[int], arrays: Sequence[Any]
) -> None:
    """Compare a composition on arrays with what judges it."""
    got = leaves_of(composed(words, function, numbers)(*arrays))
    for one, want in zip(got, wanted(words, function, numbers, arrays), strict=True):
        name = f"{named(words)} of {function.__name__}"
        assert (one.shape, one.dtype) == (want.shape, want.dtype), name
        scale = float(np.max(np.abs(want[np.isfinite(want)]), initial=1))
        accuracy = ACCURACY if words[0] in DERIVATIVES else 100 * _epsilon(want.dtype)
        np.testing.assert_allclose(one, want, accuracy, accuracy * scale, err_msg=name)


def total(function: Function) -> Function:
    """Return a function for the sum of what another one returns, with random weights.

    Real and imaginary parts are summed apart.
    """

    def run(*args: Any) -> Any:
        leaves, _ = trees.flatten(function(*args))
        parts = [
            part
            for leaf in leaves
            for part in ((weft.real(leaf), weft.imag(leaf)) if leaf.dtype.kind == "c" else (leaf,))
        ]
        weighted = [
            weft.sum(
                part * weft.constant(_weights(part.shape, part.dtype), part.axes),
                reduction_axes=range(part.rank),
            )
            for part in parts
        ]
        return sum(weighted[1:], start=weighted[0])

    return run


def leaves_of(tree: Any) -> list[Any]:
    """Return the leaves of a tree as arrays."""
    return [np.asarray(leaf) for leaf in trees.flatten(tree)[0]]


def _of(function: Function, args: Sequence[Any], numbers: Sequence[int]) -> Function:
    """Return a function of some of its arguments; the others are those given."""

    def run(*some: Any) -> Any:
        chosen = dict(zip(numbers, some, strict=True))
        return function(*(chosen.get(number, arg) for number, arg in enumerate(args)))

    return run


def _interpreted(function: Function, arrays: Sequence[Any]) -> Any:
    placeholders = [weft.placeholder(array.shape, array.dtype) for array in arrays]
    leaves, _ = trees.flatten(function(*placeholders))
    return evaluate(weft.capture(leaves, placeholders), arrays)[0]


def _weights(shape: tuple[int, ...], dtype: Any) -> Any:
    return seeded("weights", str(shape)).uniform(0.5, 1.5, shape).astype(dtype)


def _epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps) if dtypes.is_inexact(dtype) else 0.0

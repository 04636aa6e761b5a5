"""Every row of the op table under `jit`, `vmap`, `grad`, `jvp` and their pairs.

On NumPy in float64 by loops over examples and central differences; on each backend in the dtype of
the row, by the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from transformed import COMPOSITIONS, DERIVATIVES, Words, composed, leaves_of, named, require, total

import weft
from weft.errors import ArgumentError, GradientError, StateError
from weft.functional import trees
from weft.ir import dtypes
from weft.ir.axes import make_axes
from weft.testing.cases import Case, run_cases, seeded
from weft.testing.samples import sample
from weft.testing.table import TABLE
from weft.testing.table.rows import Row

SIZES = (2, 3)
"""The number of examples of the outer batch, and of the inner one."""

DRAWING = {
    *("bernoulli", "categorical", "dropout", "exponential", "glorot_normal", "glorot_uniform"),
    *("gumbel", "he_normal", "he_uniform", "laplace", "lecun_normal", "lecun_uniform", "normal"),
    *("orthogonal", "permutation", "randint", "random_bits", "shuffle", "truncated_normal"),
    *("uniform", "variance_scaling"),
}
"""Functions that draw other numbers at each call, which a state counts, and so are refused."""
STATEFUL = {
    *("SetItem", "accumulate", "adadelta", "adagrad", "adam", "adamw", "assign"),
    *("attention_with_cache", "batch_norm-states", "batch_norm-running", "doall", "fill", "lamb"),
    *("lion", "moving_average", "persistent_tensor", "placeholder", "rmsprop", "scaled_add"),
    *("sequential", "set_item", "sgd", "update_cache", "value_of", "variable"),
}
"""Functions, or rows of them, of states, which belong to a transformer."""
STATELESS = {
    *("dropout-everything", "dropout-not-training", "dropout-nothing", "sequential-value"),
}
"""Rows of these functions that have no state."""
WITHOUT_GRADIENT = {"while_loop", "linalg.qr-complete", "linalg.svd-whole"}
"""Rows of floats, with floats as results, that have no gradient."""
COARSE = {"cast-float32"}
"""Rows whose result is rounded too much for central differences."""
OVERFLOWING = {"sigmoid_focal_loss-certain"}
"""Rows with derivatives of derivatives that overflow on the way."""
SECOND = {(outer, inner) for outer in DERIVATIVES for inner in DERIVATIVES}


class Subject:
    """A row as a function of tensors of its first shapes.

    Attributes
    ----------
    floats, numbers
        The operands that are floats, and those of them that have a gradient.
    """

    def __init__(self, row: Row, dtype: str) -> None:
        self.row = row
        self.__name__ = row.name
        self.axes = [make_axes(axes) for axes in row.shapes[0]]
        self.dtypes = [dtypes.as_dtype(operand.dtype or dtype) for operand in row.operands]
        self.floats = [n for n, each in enumerate(self.dtypes) if dtypes.is_inexact(each)]
        self.numbers = [] if row.name in COARSE else [n for n in row.gradients if n in self.floats]

    def __call__(self, *args: Any) -> Any:
        named = zip(args, self.axes, strict=True)
        return self.row.build(*(weft.cast_axes(x, a) if a.is_named else x for x, a in named))

    @property
    def compositions(self) -> list[Words]:
        """Those that are compared: none maps or differentiates what has no such argument."""
        return [
            words
            for words in COMPOSITIONS
            if (self.numbers or set(words).isdisjoint(DERIVATIVES))
            and (self.axes or "vmap" not in words)
            and (words not in SECOND or self.row.name not in OVERFLOWING)
        ]

    def arrays(self, words: Words) -> list[Any]:
        """Return samples of the operands, for a batch or a batch of batches."""
        sizes = SIZES[: words.count("vmap")]
        random = seeded(self.row.name, str(sizes))
        operands = zip(self.row.operands, self.axes, self.dtypes, strict=True)
        return [
            np.reshape(
                [
                    sample(operand.domain, axes.shape, dtype, random, number)
                    for _ in range(prod(sizes))
                ],
                (*sizes, *axes.shape),
            )
            for number, (operand, axes, dtype) in enumerate(operands)
        ]


def in_float64(row: Row) -> Subject:
    return Subject(row, "float64" if row.gradients or "float64" in row.dtypes else row.dtypes[0])


def is_refused(row: Row) -> bool:
    functions = {row.function, row.name}
    return bool(functions & (DRAWING | STATEFUL)) and row.name not in STATELESS


ROWS = [row for row in TABLE if not is_refused(row)]
REFUSED = [row for row in TABLE if is_refused(row)]


@pytest.mark.share(20)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_transformations_are_loops_and_central_differences(row: Row) -> None:
    subject = in_float64(row)
    with weft.backend("numpy"):
        for words in subject.compositions:
            require(words, subject, subject.numbers, subject.arrays(words))


@pytest.mark.parametrize("row", [pytest.param(r, id=r.name) for r in ROWS if r.name in OVERFLOWING])
def test_rows_overflow_that_are_said_to(row: Row) -> None:
    subject = in_float64(row)
    for words in SECOND:
        arrays = subject.arrays(words)
        found = weft.jit(composed(words, subject, subject.numbers), backend="numpy")(*arrays)
        assert not all(np.all(np.isfinite(each)) for each in leaves_of(found))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in REFUSED])
def test_functions_of_states_are_refused_without_a_transformer(row: Row) -> None:
    subject = in_float64(row)
    words = "draws random numbers" if row.function in DRAWING else "the state|a placeholder"
    with weft.backend("numpy"):
        with pytest.raises(ArgumentError, match=words):
            weft.jit(subject)(*subject.arrays(("jit",)))
        if subject.axes:
            with pytest.raises((ArgumentError, StateError), match=f"{words}|a state has no batch"):
                weft.vmap(subject)(*subject.arrays(("vmap",)))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name)
        for row in ROWS
        if in_float64(row).floats and not row.gradients
    ],
)
def test_only_floats_with_a_gradient_are_differentiated(row: Row) -> None:
    """What has kinks or no slope is differentiated all the same."""
    subject = Subject(row, row.dtypes[0])
    args = [
        weft.placeholder(axes, each)
        for axes, each in zip(subject.axes, subject.dtypes, strict=True)
    ]
    gradient = weft.grad(total(subject), subject.floats)
    if dtypes.is_inexact(subject(*args).dtype) and row.name not in WITHOUT_GRADIENT:
        assert len(gradient(*args)) == len(subject.floats)
        return
    with pytest.raises(GradientError, match=r"needs a scalar float|ha(s|ve) no gradient"):
        gradient(*args)


class Transformed(Case):
    """The compositions of a row on arguments of the same batches, as a case of the kit."""

    def __init__(self, subject: Subject, several: list[Words]) -> None:
        arrays = subject.arrays(several[0])
        placeholders = tuple(weft.placeholder(array.shape, array.dtype) for array in arrays)
        self.made = {
            (named(words), place): op
            for words in several
            for place, op in enumerate(
                trees.flatten(composed(words, subject, subject.numbers)(*placeholders))[0]
            )
        }
        label = f"{subject.row.name} {subject.row.dtypes[0]}"
        super().__init__(label, placeholders, tuple(arrays), self.results[0], {}, None)

    @property
    def results(self) -> list[Any]:
        return [*self.made.values()]

    @property
    def names(self) -> list[str]:
        return [f"{words}, result {place}" for words, place in self.made]


def transformed(row: Row) -> Iterator[Case]:
    subject = Subject(row, row.dtypes[0])
    several = [words for words in subject.compositions if words[0] != "jit"]
    for count in range(len(SIZES) + 1):
        alike = [words for words in several if words.count("vmap") == count]
        if alike:
            yield Transformed(subject, alike)


PARTS = 400
"""The number of tests of a backend, of four rows each."""


@pytest.mark.share(PARTS)
@pytest.mark.parametrize(
    "backend",
    ["numpy", "array", *(pytest.param(b, marks=pytest.mark.long) for b in ("native", "opencl"))],
)
@pytest.mark.parametrize("part", range(PARTS))
def test_backends_compute_transformed_rows(
    transformer_of: Callable[[str], Any], backend: str, part: int
) -> None:
    """Backends give what the reference gives, for the rows of a part in one program."""
    cases = [case for row in ROWS[part::PARTS] for case in transformed(row)]
    problems = run_cases(transformer_of(backend), cases)
    assert not problems, "\n".join(problems)

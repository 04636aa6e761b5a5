"""Functions of NaN, infinities, zeros and extremes, wherever these stand in a graph.

Compilers of C fold a function of a constant; a conversion to an integer that is undefined for it
may take the whole kernel with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import WeftError
from weft.ir import dtypes
from weft.testing.cases import Expectation, difference
from weft.testing.reference import evaluate
from weft.testing.table import TABLE
from weft.transforms.capture import capture

NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e10, -1e10)
UNFOLDED = ("decompose", "fusion")
"""The passes that leave constants in kernels."""

ROWS = [row for row in TABLE if row.is_special and "float32" in row.dtypes and row.is_generic]
PARTS = 8
CONVERTING = (
    "exp", "exp2", "expm1", "floor", "ceil", "trunc", "round", "sinh", "sin", "cos", "tan",
    "tanh", "sigmoid", "elu", "power", "floordivide", "mod", "prod-special",
)  # fmt: skip
"""Rows of functions that devices compute by conversions to integers, or that failed here once."""


def special(dtype: str) -> Any:
    """Return the special values of a dtype: its limits and its smallest numbers are among them."""
    import ml_dtypes

    limits = ml_dtypes.finfo(dtypes.as_dtype(dtype))
    extremes = (limits.max, -limits.max, limits.smallest_subnormal, -limits.smallest_normal)
    return dtypes.converted(np.array([*NUMBERS, *map(float, extremes)]), dtypes.as_dtype(dtype))


def placed(row: Any, operands: Any, mask: Any, values: Any) -> dict[str, Any]:
    """Return a function of operands, of constants, and of values that a condition chooses."""
    found = {"operands": row.build(*operands)}
    for place, x in enumerate(operands):
        for value in values:
            number = weft.constant(value)
            forms = {
                "constant": weft.broadcast(number, x.axes),
                "chosen": weft.where(mask, number, x),
                "sum": x + number,
            }
            for form, given in forms.items():
                args = [*operands[:place], given, *operands[place + 1 :]]
                found[f"{form} {place} {value}"] = row.build(*args)
    return found


def problems(backend: str, dtype: str, rows: Any, few: int) -> list[str]:
    """Return what a backend computes otherwise than NumPy; `few` values stand as constants."""
    values = special(dtype)
    found = []
    with weft.make_transformer(backend, passes=UNFOLDED) as transformer:
        for row in rows:
            grids = np.meshgrid(*[values] * len(row.operands), indexing="ij")
            arrays = [np.ascontiguousarray(grid).reshape(-1) for grid in grids]
            operands = [weft.placeholder(array.shape, array.dtype) for array in arrays]
            mask = weft.placeholder(arrays[0].shape, "bool")
            given = [*arrays, np.arange(arrays[0].size) % 3 == 0]
            ops = placed(row, operands, mask, values[:few])
            results = list(ops.values())
            try:
                got = transformer.computation(results, *operands, mask)(*given)
            except WeftError as error:
                if "cannot run these ops" in str(error) or "dtype" in str(error):
                    continue
                raise
            with np.errstate(all="ignore"):
                want, _ = evaluate(capture(results, (*operands, mask)), given)
            for (label, op), mine, its in zip(ops.items(), got, want, strict=True):
                expected = Expectation(its, 1.0, op.dtype)
                if problem := difference(mine, op, expected, transformer.target):
                    found.append(f"{row.name} of {label}: {problem}")
    return found


def test_what_devices_convert_is_right_for_special_values(backend: str) -> None:
    rows = [row for row in TABLE if row.name in CONVERTING]
    assert len(rows) == len(CONVERTING)
    assert not problems(backend, "float32", rows, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_out_of_range_disturb_no_other_integer(backend: str, dtype: str) -> None:
    values = [np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**63, -(2.0**31) - 1]
    x = np.where(np.arange(75) % 3 == 0, np.resize(values, 75), np.arange(75) + 0.75).astype(dtype)
    parameter, number = weft.placeholder(x.shape, dtype), weft.placeholder((), dtype)
    mask = weft.placeholder(x.shape, "bool")
    targets = [each.name for each in dtypes.INTEGERS]
    results: list[Any] = []
    for target in targets:
        chosen = [weft.where(mask, weft.constant(value, dtype=dtype), number) for value in values]
        folded = [weft.cast(parameter * np.nan, target), *(weft.cast(x, target) for x in chosen)]
        results += [weft.cast(parameter, target), *folded]
    given = np.arange(75) % 3 == 0
    with weft.make_transformer(backend, passes=UNFOLDED) as transformer:
        call = transformer.computation(results, parameter, number, mask)
        found = call(x, np.asarray(7.75, dtype), given)
    for place, target in enumerate(targets):
        direct, alike, *chosen = found[place * (len(values) + 2) :][: len(values) + 2]
        np.testing.assert_array_equal(direct[~given], np.arange(75)[~given].astype(target))
        # What processors give; anything else would be what the memory held before.
        limits = np.iinfo(target)
        possible = {0, limits.min, limits.max, limits.max // 2 + 1}
        assert set(alike.tolist()) <= possible
        for one in chosen:
            assert set(one[~given].tolist()) == {7}


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_functions_of_special_values_are_those_of_numpy(
    backend: str, dtype: str, part: int
) -> None:
    assert not problems(backend, dtype, ROWS[part::PARTS], 7)

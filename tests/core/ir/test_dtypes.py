"""The promotion table, written out by hand, and the conversion of host values."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.errors import DTypeError
from weft.ir import dtypes

REFUSED = "."

# Rows and columns in the order of ORDER: the array API's rules, an integer with a float gives the
# float, uint64 with a signed integer and float16 with bfloat16 are refused.
SHORT = {
    "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
    "f2": "float16", "bf": "bfloat16", "f4": "float32", "f8": "float64",
    "c8": "complex64", "cx": "complex128",
}  # fmt: skip
ORDER = list(SHORT)
TABLE = """
    b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 bf f4 f8 c8 cx
b1  b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 bf f4 f8 c8 cx
i1  i1 i1 i2 i4 i8 i2 i4 i8 .  f2 bf f4 f8 c8 cx
i2  i2 i2 i2 i4 i8 i2 i4 i8 .  f2 bf f4 f8 c8 cx
i4  i4 i4 i4 i4 i8 i4 i4 i8 .  f2 bf f4 f8 c8 cx
i8  i8 i8 i8 i8 i8 i8 i8 i8 .  f2 bf f4 f8 c8 cx
u1  u1 i2 i2 i4 i8 u1 u2 u4 u8 f2 bf f4 f8 c8 cx
u2  u2 i4 i4 i4 i8 u2 u2 u4 u8 f2 bf f4 f8 c8 cx
u4  u4 i8 i8 i8 i8 u4 u4 u4 u8 f2 bf f4 f8 c8 cx
u8  u8 .  .  .  .  u8 u8 u8 u8 f2 bf f4 f8 c8 cx
f2  f2 f2 f2 f2 f2 f2 f2 f2 f2 f2 .  f4 f8 c8 cx
bf  bf bf bf bf bf bf bf bf bf .  bf f4 f8 c8 cx
f4  f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f8 c8 cx
f8  f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 cx cx
c8  c8 c8 c8 c8 c8 c8 c8 c8 c8 c8 c8 c8 cx c8 cx
cx  cx cx cx cx cx cx cx cx cx cx cx cx cx cx cx
"""


def table():
    header, *rows = [line.split() for line in TABLE.strip().splitlines()]
    assert header == ORDER
    assert [row[0] for row in rows] == ORDER
    return {
        (left, right): result
        for left, *results in rows
        for right, result in zip(header, results, strict=True)
    }


def named(short: str):
    return dtypes.as_dtype(SHORT[short])


@pytest.mark.parametrize(("pair", "result"), list(table().items()), ids=lambda value: str(value))
def test_promotion(pair: tuple[str, ...], result: str):
    left, right = map(named, pair)
    x, y = weft.placeholder((2,), dtype=left), weft.placeholder((2,), dtype=right)
    condition = weft.placeholder((2,), dtype="bool")
    if result == REFUSED:
        with pytest.raises(DTypeError, match="no common"):
            dtypes.promote(left, right)
        with pytest.raises(TypeError, match="cast one of them") as caught:
            weft.where(condition, x, y)
        assert str(caught.value).count(f'File "{__file__}", line') == 3
    else:
        assert dtypes.promote(left, right) == named(result)
        assert weft.where(condition, x, y).dtype == named(result)


# The dtype of `x + scalar` for a Python bool, int, float and complex; bool counts as int32 in sums.
WEAK = {
    "b1": ("i4", "i4", "f4", "c8"),
    "i1": ("i1", "i1", "f4", "c8"),
    "i2": ("i2", "i2", "f4", "c8"),
    "i4": ("i4", "i4", "f4", "c8"),
    "i8": ("i8", "i8", "f4", "c8"),
    "u1": ("u1", "u1", "f4", "c8"),
    "u2": ("u2", "u2", "f4", "c8"),
    "u4": ("u4", "u4", "f4", "c8"),
    "u8": ("u8", "u8", "f4", "c8"),
    "f2": ("f2", "f2", "f2", "c8"),
    "bf": ("bf", "bf", "bf", "c8"),
    "f4": ("f4", "f4", "f4", "c8"),
    "f8": ("f8", "f8", "f8", "cx"),
    "c8": ("c8", "c8", "c8", "c8"),
    "cx": ("cx", "cx", "cx", "cx"),
}


@pytest.mark.parametrize("short", ORDER)
@pytest.mark.parametrize(("place", "scalar"), list(enumerate([True, 2, 2.5, 2j])))
def test_python_scalars_are_weak(short: str, place: int, scalar: Any):
    x = weft.placeholder((2,), dtype=named(short))
    expected = named(WEAK[short][place])
    assert (x + scalar).dtype == expected
    assert (scalar + x).dtype == expected


def test_numpy_scalars_are_not_weak():
    x = weft.placeholder((2,), dtype="float32")
    assert (x + np.float64(1)).dtype == weft.float64
    assert (x + 1.0).dtype == weft.float32


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "float32"),
        (1.5, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        ([1, 2], "float32"),
        ([True, False], "bool"),
        (np.float64(1), "float64"),
        (np.arange(3), "int64"),
        (np.arange(3, dtype=">i4"), "int32"),
        (np.zeros(2, ml_dtypes.bfloat16), "bfloat16"),
    ],
    ids=str,
)
def test_the_dtype_of_a_constant(value: Any, dtype: str):
    op = weft.constant(value)
    assert op.dtype == dtypes.as_dtype(dtype)
    assert op.const.dtype == op.dtype
    np.testing.assert_array_equal(op.const.astype(complex), np.asarray(value).astype(complex))


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (float("nan"), "int32", "NaN or infinity"),
        (float("inf"), "uint8", "NaN or infinity"),
        ([1.0, float("nan")], "int64", "NaN or infinity"),
        (1.5, "int32", "fractions"),
        (300, "uint8", "does not fit uint8"),
        (-1, "uint64", "does not fit uint64"),
        (2.0**63, "int64", "does not fit int64"),
        (2**63, "int64", "does not fit int64"),
        (1j, "float32", "complex"),
        ("text", None, "not made of numbers"),
        ("text", "float32", "not a number"),
        (None, None, "not made of numbers"),
        (object, "float32", "not a number"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused(value: Any, dtype: str | None, message: str):
    with pytest.raises(TypeError, match=message):
        weft.constant(value, dtype=dtype)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(255, "uint8"), (-128, "int8"), (2**64 - 1, "uint64"), (-(2**63), "int64"), (3.0, "int32")],
    ids=str,
)
def test_the_limits_of_integers_fit(value: float, dtype: str):
    assert weft.constant(value, dtype=dtype).const.item() == value


def test_a_constant_shares_no_memory_with_its_value():
    value = np.array([1, 2], np.float32)
    op = weft.constant(value)
    value[0] = 100
    assert op.const.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        op.const[0] = 3


@pytest.mark.parametrize("wrong", ["float33", "U3", object, "datetime64[s]", "float128", 3, [1]])
def test_what_is_no_dtype_is_refused(wrong: Any):
    with pytest.raises(DTypeError, match="dtype"):
        dtypes.as_dtype(wrong)


@pytest.mark.parametrize("short", ORDER)
def test_dtypes_are_found_by_name_type_and_byte_order(short: str):
    dtype = named(short)
    assert dtypes.as_dtype(dtype) is dtype
    assert dtypes.as_dtype(dtype.type) == dtype
    if short != "bf":
        assert dtypes.as_dtype(dtype.newbyteorder(">")) == dtype
    kind = "f" if short == "bf" else short[0]
    assert dtypes.is_bool(dtype) == (kind == "b")
    assert dtypes.is_integer(dtype) == (kind in "iu")
    assert dtypes.is_float(dtype) == (kind == "f")
    assert dtypes.is_inexact(dtype) == (kind in "fc")


def test_the_table_is_symmetric_and_every_result_absorbs_its_operands():
    results = table()
    for left, right in itertools.product(ORDER, repeat=2):
        assert results[left, right] == results[right, left]
        if (result := results[left, right]) != REFUSED:
            assert results[left, result] == results[right, result] == result


def test_values_are_promoted_as_dtypes_are(transformer: weft.Transformer):
    x = weft.placeholder((3,), dtype="uint8")
    y = weft.placeholder((3,), dtype="int8")
    got = transformer.computation(x + y, x, y)([250, 1, 0], [-100, 1, 2])
    assert got.dtype == np.int16
    assert got.tolist() == [150, 2, 2]


def test_promotion_takes_tensors_and_names():
    x, n = weft.placeholder((), "float16"), weft.variable((), dtype="int32")
    assert weft.promote(x, x) == dtypes.promote("float16", "float16") == dtypes.float16
    assert weft.promote(x, n) == weft.promote(n, "float16") == dtypes.float16
    for wrong in (None, 3, [1], "float33", object()):
        with pytest.raises(weft.errors.DTypeError, match="dtype"):
            weft.promote(x, wrong)
        with pytest.raises(weft.errors.DTypeError, match="dtype"):
            weft.cast(x, wrong)

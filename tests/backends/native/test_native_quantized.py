"""Products and convolutions of integers of 8 bits, against NumPy in 64 bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.kernels import FusedOp
from weft.ops.products.linalg import MatmulOp
from weft.testing.reference import evaluate
from weft.transforms.capture import capture
from weft_c import legalized
from weft_c.matmul.packed_panels import PackedMatmulOp
from weft_c.matmul.words import numbers_of, words_of
from weft_c.spatial.packed_filters import PackedConvolutionOp
from weft_native.transformer import NativeTransformer

pytestmark = pytest.mark.needs("compiler")

WORDS = (PackedMatmulOp, PackedConvolutionOp)

ZEROS = [
    ("uint8", 0), ("uint8", 77), ("uint8", 255), ("int8", -128), ("int8", 0), ("int8", 127),
]  # fmt: skip

PRODUCTS = {
    "whole tiles": ((28, 64), 64),
    "odd": ((33, 70), 50),
    "one row": ((1, 128), 200),
    "one column": ((2000, 64), 1),
    "one term": ((300, 1), 64),
    "fewer terms than a word has": ((90, 3), 64),
    "blocks of terms": ((5, 8202), 33),
    "rows that share sets of a cache": ((30, 4096), 40),
    "a batch": ((2, 3, 20, 50), 48),
}

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((2, 3, 17, 19), (10, 3, 3, 3), {"padding": 1}),
    "of one element": ((1, 16, 9, 33), (40, 16, 1, 1), {}),
    "unevenly padded": ((1, 6, 9, 9), (4, 6, 2, 3), {"padding": ((0, 2), (3, 1))}),
    "groups": ((1, 8, 20, 20), (16, 4, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
    "lines": ((2, 5, 40), (7, 5, 5), {"padding": 2, "dilation": 2}),
    "strided": ((1, 3, 37, 37), (20, 3, 7, 7), {"padding": 3, "stride": 2}),
    "of the whole image": ((3, 6, 8, 8), (33, 6, 8, 8), {}),
}


def extreme(seed: int, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return random numbers of a dtype, a quarter of which are its least and a quarter its most."""
    limits, random = np.iinfo(dtype), np.random.default_rng(seed)
    numbers = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    chosen = random.integers(0, 4, shape)
    numbers[chosen == 0], numbers[chosen == 1] = limits.min, limits.max
    return numbers


def centered(x: Any, zero: int) -> Any:
    return weft.cast(x, "int32") - weft.constant(np.int32(zero))


def products_of_words(computation: Any) -> int:
    """Return how many steps of a program multiply words."""
    steps = computation.program.plan.steps
    return sum(isinstance(contraction(each.op), WORDS) for each in steps)


def contraction(op: Any) -> Any:
    return op.kernel.product.op if isinstance(op, FusedOp) and op.kernel.product else op


def product(x: Any, w: Any, zero: int, more: int, transformer: NativeTransformer) -> Any:
    """Return a product, after a check that words were multiplied."""
    given = weft.placeholder(x.shape, dtype=x.dtype)
    y = weft.matmul(centered(given, zero), centered(weft.constant(w), more))
    computation = transformer.computation(y, given)
    found = computation(x)
    assert products_of_words(computation) == 1
    return found


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_exact(name: str, transformer: NativeTransformer):
    shape, columns = PRODUCTS[name]
    w = extreme(1, "int8", (shape[-1], columns))
    results, given, arrays = [], [], []
    for dtype, zero in ZEROS:
        arrays.append(extreme(0, dtype, shape))
        given.append(weft.placeholder(shape, dtype=dtype))
        results.append(weft.matmul(centered(given[-1], zero), centered(weft.constant(w), 0)))
    computation = transformer.computation(results, *given)
    for found, x, (_, zero) in zip(computation(*arrays), arrays, ZEROS, strict=True):
        wanted = (x.astype(np.int64) - zero) @ w.astype(np.int64)
        np.testing.assert_array_equal(found, wanted)
    assert products_of_words(computation) == len(ZEROS)


def test_a_matrix_of_uint8_less_its_zero_point_is_one_of_int8(transformer: NativeTransformer):
    x, w = extreme(0, "uint8", (20, 90)), extreme(1, "uint8", (90, 40))
    found = product(x, w, 3, 128, transformer)
    np.testing.assert_array_equal(found, (x.astype(int) - 3) @ (w.astype(int) - 128))


def test_zero_points_may_be_operands(transformer: NativeTransformer):
    x, w = extreme(0, "int8", (20, 90)), extreme(1, "int8", (90, 40))
    given, zero = weft.placeholder(x.shape, dtype="int8"), weft.placeholder((), dtype="int8")
    y = weft.matmul(weft.cast(given, "int32") - weft.cast(zero, "int32"), centered(w, 0))
    computation = transformer.computation(y, given, zero)
    for number in (-128, 5, 127):
        found = computation(x, np.int8(number))
        np.testing.assert_array_equal(found, (x.astype(int) - number) @ w.astype(int))
    assert products_of_words(computation) == 1


def test_sums_wrap_around(transformer: NativeTransformer):
    x, w = np.full((2, 140_000), 255, "uint8"), np.full((140_000, 3), -128, "int8")
    found = product(x, w, -1000, 0, transformer)
    wanted = (x.astype(np.int64) + 1000) @ w.astype(np.int64)
    np.testing.assert_array_equal(found, wanted.astype(np.int32))
    assert wanted.min() < -(2**31)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_exact(name: str, transformer: NativeTransformer):
    shape, filters, options = CONVOLUTIONS[name]
    w = extreme(1, "int8", filters)
    results, given, arrays = [], [], []
    for dtype, zero in ZEROS:
        arrays.append(extreme(0, dtype, shape))
        given.append(weft.placeholder(shape, dtype=dtype))
        results.append(weft.conv(centered(given[-1], zero), centered(w, 0), **options))
    computation = transformer.computation(results, *given)
    wanted, _ = evaluate(capture(results, given), arrays)
    for one, other in zip(computation(*arrays), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert products_of_words(computation) == len(ZEROS)


@pytest.fixture(scope="module")
def processor() -> Any:
    return NativeTransformer(cache=False).processor


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 300), st.integers(1, 70), st.sampled_from(ZEROS),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_the_ops_say_what_kernels_compute(
    processor: Any, rows: int, terms: int, columns: int, kind: tuple[str, int], seed: int
):
    dtype, zero = kind
    x, w = extreme(seed, dtype, (rows, terms)), extreme(seed + 1, "int8", (terms, columns))
    given = weft.placeholder(x.shape, dtype=dtype)
    op = MatmulOp(centered(given, zero), weft.constant(w.astype(np.int32)))
    found = legalized(op, processor)
    small = rows * terms * columns < 16384
    assert (found is None) == small
    ((result,), _) = evaluate(capture([op if small else found], [given]), [x])
    np.testing.assert_array_equal(result, (x.astype(np.int64) - zero) @ w.astype(np.int64))


def test_words_are_four_numbers_in_order():
    x = extreme(0, "int8", (3, 7, 2))
    words = words_of(x, 1)
    assert (words.shape, words.dtype) == ((3, 2, 2), np.dtype("uint32"))
    assert words[0, 0, 0] & 255 == int(x[0, 0, 0]) & 255
    np.testing.assert_array_equal(numbers_of(words, 1, np.int8)[:, :7], x)
    assert not numbers_of(words, 1, np.int8)[:, 7:].any()


FLOATS = np.concatenate([
    np.arange(-300, 300, 0.5), [np.nan, np.inf, -np.inf, 1e10, -1e10, 0.49999997, -0.0],
    [8388607.5, 8388608.0, -8388609.0, 2.0**31, -(2.0**31)],
]).astype(np.float32)  # fmt: skip

POINTWISE = {
    "quantize": lambda x, a, b: weft.cast(weft.clip(weft.round(x / 0.5) + 3.0, 0, 255), "uint8"),
    "quantize signed": lambda x, a, b: weft.cast(weft.clip(weft.round(x), -128, 127), "int8"),
    "wrap around": lambda x, a, b: weft.cast(weft.cast(weft.clip(x, -1e9, 1e9), "int32"), "int8"),
    "dequantize": lambda x, a, b: (weft.cast(b, "float32") - 3.0) * 0.125 + weft.cast(a, "float32"),
    "widen": lambda x, a, b: weft.cast(a, "uint32"),
    "from bool": lambda x, a, b: weft.cast(x > 0.0, "int8"),
    "to bool": lambda x, a, b: weft.cast(a, "bool"),
    "reinterpret": lambda x, a, b: (
        weft.cast(weft.cast(a, "uint8"), "float32") - weft.cast(b, "int8")
    ),
    "extrema": lambda x, a, b: weft.maximum(weft.minimum(a, weft.cast(b, "int8")), np.int8(-100)),
    "select": lambda x, a, b: weft.where(x > 0.0, a, weft.relu(a)),
    "round": lambda x, a, b: weft.round(x),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_ops_take_vectors_of_eight_bits(name: str, transformer: NativeTransformer):
    operands = FLOATS, extreme(0, "int8", FLOATS.shape), extreme(1, "uint8", FLOATS.shape)
    given = [weft.placeholder(each.shape, dtype=each.dtype) for each in operands]
    y = POINTWISE[name](*given)
    computation = transformer.computation(y, *given)
    found = computation(*operands)
    with np.errstate(all="ignore"):
        ((wanted,), _) = evaluate(capture([y], given), list(operands))
    np.testing.assert_array_equal(found, wanted)
    lanes = transformer.processor.lanes
    assert f"+= {lanes}) {{" in computation.source


OTHERS = ["-mno-avx512vnni", "-mno-avx512f", "-mno-avx512f -mno-avxvnni", "-mno-avx2 -mno-avx512f"]


@pytest.mark.long
@pytest.mark.needs("x86-64")
@pytest.mark.parametrize("options", OTHERS)
def test_processors_with_fewer_instructions_compute_the_same(options: str, tmp_path: Path):
    environment = {
        **os.environ, "WEFT_CC": f"gcc {options}", "WEFT_CACHE_DIR": str(tmp_path),
    }  # fmt: skip
    tests = ["exact", "pointwise"]
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier=test", __file__,
        "-k", " or ".join(tests),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:]

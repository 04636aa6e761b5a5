"""Products with matrices of few bits, against the matrices in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.kernels import FusedOp
from weft.nn.quantization import DequantizeOp, matrix_of, words_of
from weft_c.matmul.grouped import GroupedMatmulOp
from weft_native.transformer import NativeTransformer

pytestmark = pytest.mark.needs("compiler")

PRODUCTS = {
    "a row": ((1,), 512, 200, 128, 4),
    "a vector": ((), 256, 64, 32, 4),
    "a row of the least group": ((1,), 64, 33, 8, 4),
    "a row of three words a group": ((1, 1), 72, 20, 24, 4),
    "a row of 8 bits": ((1,), 128, 70, 64, 8),
    "a row of 2 bits": ((1,), 128, 31, 16, 2),
    "several ranges of columns": ((1,), 32, 16500, 32, 4),
    "whole tiles": ((24,), 512, 64, 64, 4),
    "odd tiles": ((2, 7), 528, 37, 16, 4),
    "tiles of 8 bits": ((5,), 300, 40, 20, 8),
    "tiles of 2 bits": ((3,), 320, 50, 32, 2),
    "many rows": ((300,), 64, 48, 64, 4),
}  # fmt: skip
"""The leading axes, the terms, the columns, the terms of a group and the bits."""


class Operands:
    """A row or rows of floats, and a matrix of few bits."""

    def __init__(
        self,
        leading: tuple[int, ...],
        terms: int,
        columns: int,
        group: int,
        bits: int,
        seed: int = 0,
    ) -> None:
        random = np.random.default_rng(seed)
        codes, groups = random.integers(0, 2**bits, (terms, columns)), (terms // group, columns)
        self.bits = bits
        self.x = random.normal(size=(*leading, terms)).astype("f4")
        self.words = words_of(codes, bits)
        self.scales = random.uniform(-0.1, 0.1, groups).astype("f4")
        self.zeros = random.integers(0, 2**bits, groups, dtype="u1")

    @property
    def arrays(self) -> list[Any]:
        return [self.x, self.words, self.scales, self.zeros]

    def placeholders(self) -> list[Any]:
        return [weft.placeholder(each.shape, dtype=each.dtype) for each in self.arrays]

    def check(self, found: Any, zeros: Any = None) -> None:
        """Compare a product with that in float64, to within what rounding in float32 explains."""
        zeros = self.zeros if zeros is None else zeros
        matrix = matrix_of(self.words, self.scales.astype("f8"), zeros, self.bits)
        # A code is at most twice as far from 0 as from its zero point, on average.
        widest = np.abs(self.x) @ (np.abs(matrix) + np.abs(self.scales).max() * 2**self.bits)
        assert found.dtype == np.float32
        assert np.all(np.abs(found - self.x.astype("f8") @ matrix) <= 2e-6 * widest)


def unpacked_products(computation: Any) -> int:
    """Return how many steps of a program multiply codes; no step computes a matrix of them."""
    ops = [each.op for each in computation.program.plan.steps]
    products = [op.kernel.product.op if isinstance(op, FusedOp) and op.kernel.product else op
                for op in ops]  # fmt: skip
    assert not any(isinstance(op, DequantizeOp) for op in ops)
    return sum(isinstance(op, GroupedMatmulOp) for op in products)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_unpack_codes(name: str, transformer: NativeTransformer) -> None:
    given = Operands(*PRODUCTS[name])
    x, words, scales, zeros = given.placeholders()
    plain = weft.matmul(x, weft.dequantize(words, scales, zeros, given.bits))
    middle = weft.matmul(x, weft.dequantize(words, scales, None, given.bits))
    numbers = weft.dequantize(words, scales, weft.cast(zeros, "float32"), given.bits)
    fused = weft.relu(weft.matmul(x, numbers)) + 1.0
    computation = transformer.computation([plain, middle, fused], x, words, scales, zeros)
    first, second, third = computation(*given.arrays)
    assert unpacked_products(computation) == 3
    given.check(first)
    given.check(second, np.full(given.zeros.shape, 2 ** (given.bits - 1)))
    np.testing.assert_array_equal(third, np.maximum(first, 0) + 1)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 40), st.sampled_from([2, 4, 8]), st.integers(1, 3), st.integers(1, 12),
    st.integers(1, 70), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_sizes(rows: int, bits: int, words: int, groups: int, columns: int, seed: int) -> None:
    size = words * 32 // bits
    given = Operands((rows,), size * groups, columns, size, bits, seed)
    operands = given.placeholders()
    y = weft.matmul(operands[0], weft.dequantize(*operands[1:], bits=bits))
    with weft.make_transformer("native", cache=False) as transformer:
        computation = transformer.computation(y, *operands)
        given.check(computation(*given.arrays))
        assert unpacked_products(computation) == 1


def test_a_row_of_any_magnitude_has_digits(transformer: NativeTransformer) -> None:
    """Each group has an exponent of its own; what is not a number makes none."""
    given = Operands((1,), 256, 20, 64, 4)
    operands = given.placeholders()
    y = weft.matmul(operands[0], weft.dequantize(*operands[1:]))
    computation = transformer.computation(y, *operands)
    normal = given.x
    for size in (1e-27, 1e30, 0.0):
        given.x = normal * np.float32(size)
        given.x[0, 128:192] = normal[0, 128:192] * np.float32(1e-3 * size)
        given.check(computation(*given.arrays))
    given.x = np.zeros_like(normal)
    given.x[0, 77] = 1
    given.check(exact := computation(*given.arrays))
    matrix = matrix_of(given.words, given.scales, given.zeros, 4)
    np.testing.assert_array_equal(exact[0], matrix[77])
    for size in (np.nan, np.inf, -np.inf):
        given.x[0, 13] = size
        assert np.isnan(computation(*given.arrays)).all()


def test_words_may_have_any_strides(transformer: NativeTransformer) -> None:
    """Words along columns are not vectors, and every second column neither."""
    given = Operands((3,), 64, 40, 32, 4)
    x, _, _, zeros = given.placeholders()
    turned, wide = weft.placeholder((40, 8), dtype="uint32"), weft.placeholder((2, 80))
    y = weft.matmul(x, weft.dequantize(weft.transpose(turned), wide[:, ::2], zeros))
    row = weft.matmul(x[:1], weft.dequantize(weft.transpose(turned), wide[:, ::2], zeros))
    computation = transformer.computation([y, row], x, turned, wide, zeros)
    arrays = given.words.T, np.repeat(given.scales, 2, axis=1), given.zeros
    found, first = computation(given.x, *arrays)
    given.check(found)
    np.testing.assert_allclose(first, found[:1], rtol=1e-4, atol=1e-4)


def test_weights_are_constants_or_states(transformer: NativeTransformer) -> None:
    given = Operands((1,), 128, 40, 32, 4)
    x = weft.placeholder(given.x.shape)
    states = [
        weft.persistent_tensor(each.shape, dtype=each.dtype, initial_value=each)
        for each in given.arrays[1:]
    ]
    both = [
        weft.matmul(x, weft.dequantize(*weights))
        for weights in (states, map(weft.constant, given.arrays[1:]))
    ]
    computation = transformer.computation(both, x)
    for found in computation(given.x):
        given.check(found)
    assert unpacked_products(computation) == 2


def test_a_matrix_may_be_needed_itself(transformer: NativeTransformer) -> None:
    """The gradient of the product multiplies by the transposed matrix."""
    given = Operands((4,), 64, 24, 32, 4)
    x, *rest = given.placeholders()
    y = weft.matmul(x, weft.dequantize(*rest))
    computation = transformer.computation(weft.deriv(weft.sum(y * y), x), x, *rest)
    matrix = matrix_of(given.words, given.scales.astype("f8"), given.zeros, 4)
    wanted = 2 * given.x.astype("f8") @ matrix @ matrix.T
    found = computation(*given.arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_float64_is_not_multiplied_in_float32(transformer: NativeTransformer) -> None:
    given = Operands((2,), 64, 24, 32, 4)
    x, *rest = given.placeholders()
    words, scales, zeros = rest
    wide = weft.dequantize(words, weft.cast(scales, "float64"), zeros)
    computation = transformer.computation(weft.matmul(weft.cast(x, "float64"), wide), x, *rest)
    matrix = matrix_of(given.words, given.scales.astype("f8"), given.zeros, 4)
    np.testing.assert_allclose(computation(*given.arrays), given.x.astype("f8") @ matrix, 1e-12)


def test_quantized_weights_are_half_a_step_off(transformer: NativeTransformer) -> None:
    w = np.random.default_rng(0).normal(size=(256, 24)).astype("f4")
    for bits in (2, 4, 8):
        given = weft.placeholder(w.shape)
        codes, scales, zeros = weft.quantize(given, bits, 32)
        restored = weft.dequantize(codes, scales, zeros, bits)
        found, steps = transformer.computation([restored, scales], given)(w)
        assert np.all(np.abs(found - w) <= np.repeat(steps, 32, axis=0) * 0.5001)

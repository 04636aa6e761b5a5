"""Epilogues of matrix products, which a backend may fuse into the product."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.runtime.transformer import Transformer
from weft.testing.levels import BEHAVIOR, level
from weft.testing.reference import evaluate

pytestmark = level(BEHAVIOR)

PRODUCTS = {
    "matrices": ((33, 40), (40, 50)),
    "long sums": ((5, 700), (700, 35)),
    "a row": ((300,), (300, 70)),
    "a column": ((70, 300), (300,)),
    "a batch of rows": ((3, 1, 40), (3, 40, 20)),
    "nothing to add up": ((4, 0), (0, 6)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_follows_a_product(transformer: Transformer, name: str) -> None:
    """Bias, activation, residual and cast have the right values, fused into the product or not."""
    x, y = map(weft.placeholder, PRODUCTS[name])
    product = weft.matmul(x, y)
    shapes = product.axes.shape[-1:], product.axes.shape
    bias, residual = map(weft.placeholder, shapes)
    hidden = weft.relu(product + bias) * 0.5 + residual
    results = [weft.tanh(hidden), weft.cast(hidden * 4, "int32"), weft.max(hidden, axis=-1)]
    parameters = [x, y, bias, residual]
    random = np.random.default_rng(5)
    arrays = [random.integers(-2, 3, each.axes.shape).astype(np.float32) for each in parameters]
    expected, _ = evaluate(weft.capture(results, parameters), arrays)
    found = transformer.computation(results, *parameters)(*arrays)
    for got, want in zip(found, expected, strict=True):
        relative, absolute = transformer.target.tolerance(np.asarray(got).dtype)
        np.testing.assert_allclose(got, want, rtol=relative, atol=absolute)

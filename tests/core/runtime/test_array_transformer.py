"""ArrayTransformer on NumPy itself; the conformance tests run it on array-api-strict."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft_array_api


def test_any_namespace_will_do():
    with weft_array_api.ArrayTransformer(np) as transformer:
        x = weft.placeholder((2, 3))
        step = transformer.computation(weft.softmax(x), x)
        np.testing.assert_allclose(step(np.zeros((2, 3))), np.full((2, 3), 1 / 3), rtol=1e-6)
        assert "ExpOp" in step.source


def test_a_namespace_is_needed():
    with pytest.raises(TypeError, match="names no array namespace"):
        weft_array_api.ArrayTransformer()


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_a_namespace_need_not_sort_in_descending_order(dtype: str, descending: bool):
    values = np.array([[1, 0, 3, 1, 2], [0, 0, 2, 2, 1]]).astype(dtype)
    sizes = values.astype(int)
    with weft_array_api.ArrayTransformer(np) as transformer:
        x = weft.placeholder((2, 5), dtype)
        found = transformer.computation(weft.argsort(x, descending=descending), x)(values)
    wanted = np.argsort(-sizes if descending else sizes, axis=-1, kind="stable")
    assert (found == wanted).all()


def test_powers_of_the_least_integer():
    with weft_array_api.ArrayTransformer(np) as transformer:
        x = weft.placeholder((3,), "int8")
        step = transformer.computation(weft.power(x, -128), x)
        assert step(np.array([-128, -1, 1], np.int8)).tolist() == [0, 1, 1]

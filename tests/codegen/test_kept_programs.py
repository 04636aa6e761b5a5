"""Programs of devices that are programmed in C, kept in the cache with packed constants."""

from __future__ import annotations

import numpy as np
import pytest

import weft


@pytest.mark.parametrize("backend", ["native", "opencl"])
def test_a_program_with_packed_constants_is_found_again(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    random = np.random.default_rng(0)
    filters, matrix = (
        random.standard_normal(shape).astype("float32") for shape in ((32, 8, 3, 3), (32, 40))
    )
    given = random.standard_normal((2, 8, 14, 14)).astype("float32")
    found = []
    for is_restored in (False, True):
        x = weft.placeholder((2, 8, 14, 14))
        y = weft.relu(weft.conv(x, weft.constant(filters), padding=1))
        z = weft.global_avg_pool(y, keepdims=False) @ weft.constant(matrix)
        with weft.make_transformer(backend) as transformer:
            computation = transformer.computation(z, x)
            found.append(computation(given))
            assert computation.program.is_restored is is_restored
            assert "convolution" in computation.source
    np.testing.assert_array_equal(found[0], found[1])

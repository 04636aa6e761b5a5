"""Checks of generated C: results against the ops' references, and compilation as CUDA C."""

from __future__ import annotations

from typing import Any

import numpy as np
import nvrtc
import pytest
from running import CUDA_PARALLEL, PROCESSORS, plan_of, run, work_of

import weft
from weft.ir import dtypes
from weft.testing.reference import evaluate
from weft.transforms.capture import capture
from weft_c.processor import Processor


def numbers(dtype: str, *shape: Any):
    """Return small numbers of a dtype, with ties, of both signs where the dtype has them."""
    dtype = dtypes.as_dtype(dtype)
    values = np.random.default_rng([7, *shape]).integers(-4, 5, shape)
    if dtypes.is_float(dtype):
        return (values / 2).astype(dtype)
    return (abs(values) if dtype.kind == "u" else values).astype(dtype)


def check(
    build: Any,
    *arrays: Any,
    processor: Processor | str,
    exact: bool = True,
    passes: tuple[str, ...] = (),
):
    """Compare the results of generated code with the reference; with "cuda" only compile it.

    `processor` is one, or the name of one of `PROCESSORS`.
    """
    given = [np.asarray(array) for array in arrays]
    parameters = [weft.placeholder(each.shape, dtype=each.dtype) for each in given]
    results = build(*parameters)
    results = list(results) if isinstance(results, tuple | list) else [results]
    if processor == "cuda":
        plan = plan_of(results, *parameters, processor=CUDA_PARALLEL, passes=passes)
        _, source = work_of(plan, CUDA_PARALLEL)
        assert nvrtc.log_of(source, options=nvrtc.QUICKLY) == ""
        return
    expected, _ = evaluate(capture(results, parameters), given)
    chosen = PROCESSORS.get(processor, processor)
    found, error = run(results, *parameters, arrays=given, processor=chosen, passes=passes)
    assert not error
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.dtype == wanted.dtype
        tolerance = 0 if exact else 2e-2 if mine.dtype.itemsize == 2 else 1e-5
        if dtypes.is_float(mine.dtype):
            mine, wanted = mine.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(mine, wanted, tolerance, tolerance)


cuda = pytest.param("cuda", marks=pytest.mark.needs("nvrtc"))
both = pytest.mark.parametrize("processor", ["serial", "parallel"])
everywhere = pytest.mark.parametrize("processor", ["serial", "parallel", cuda])
with_vectors = pytest.mark.parametrize("processor", [*PROCESSORS, cuda])
EVERY = ["bool", "int8", "uint16", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
         "float64"]  # fmt: skip


def awkward(dtype: str, *shape: Any):
    """Return numbers with NaN, infinities and signed zeros, where the dtype has them."""
    values = numbers(dtype, *shape)
    if dtypes.is_float(dtypes.as_dtype(dtype)):
        flat = values.reshape(-1)
        flat[::17], flat[3::19], flat[5::23], flat[7::11] = np.nan, np.inf, -np.inf, -0.0
        flat[1::29] = -np.nan
    return values

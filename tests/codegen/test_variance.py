"""One-pass variance: long rows are read once, in blocks that fit a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

pytest.importorskip("pyopencl")
from checking import both, check
from hypothesis import given, settings
from hypothesis import strategies as st
from running import FUSING, SERIAL, plan_of, run, work_of

from weft.kernels.fused_op import FusedOp
from weft_c.reductions.variance import BLOCK, count_blocks, find_variances, points_in_block

pytestmark = [pytest.mark.slow, pytest.mark.share(5)]

LONG = 2 * BLOCK + 77


def both_moments(x: Any):
    return weft.mean(x), weft.variance(x), weft.max(x)


VARIANCES = {
    "a row": ((LONG,), weft.variance, "float32"),
    "whole blocks": ((3 * BLOCK,), weft.variance, "float32"),
    "of another function": ((LONG,), lambda x: weft.std(weft.exp(x)), "float32"),
    "with others": ((LONG,), both_moments, "float32"),
    "and what varies": ((LONG,), weft.layer_norm, "float32"),
    "a gradient": ((LONG,), lambda x: weft.deriv(weft.variance(x), x), "float32"),
    "rows": ((3, LONG), lambda x: weft.variance(x, 1, correction=1), "float32"),
    "rows that are not one loop": ((40, 3, 701), lambda x: weft.variance(x, (0, 2)), "float32"),
    "long inner loops": ((3, 2, LONG), lambda x: weft.variance(x, (0, 2)), "float32"),
    "backwards": ((LONG,), lambda x: weft.variance(x[::-1]), "float32"),
    "float64": ((LONG,), weft.variance, "float64"),
    "float16": ((LONG,), weft.variance, "float16"),
    "int32": ((LONG,), weft.variance, "int32"),
    "one after the other": (
        (LONG,), lambda x: weft.variance(x / weft.sqrt(weft.variance(x) + 1)), "float32",
    ),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", VARIANCES)
def test_variances(name: str, processor: str):
    shape, build, dtype = VARIANCES[name]
    values = (np.random.default_rng(2).standard_normal(shape) * 2 + 1).astype(dtype)
    check(build, values, processor=processor, exact=False, passes=FUSING)


@settings(max_examples=10, deadline=None)
@given(st.integers(8192, 5 * BLOCK), st.sampled_from([0, 3, 1000]))
def test_any_length_around_any_mean(length: Any, mean: Any):
    values = (np.random.default_rng(length).standard_normal(length) + mean).astype("f4")
    x = weft.placeholder((length,))
    (found,), _ = run([weft.variance(x)], x, arrays=[values], processor=SERIAL, passes=FUSING)
    np.testing.assert_allclose(found, values.astype("f8").var(), 1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_variance(value: float):
    x = weft.placeholder((LONG,))
    values = np.ones(LONG, "f4")
    values[LONG // 2] = value
    (found,), _ = run([weft.variance(x)], x, arrays=[values], processor=SERIAL, passes=FUSING)
    assert np.isnan(found)


def planned(build: Callable[..., Any], count: int):
    """Return the plan of a function of some long rows, and its kernels."""
    parameters = [weft.placeholder((LONG,)) for _ in range(count)]
    plan = plan_of([build(*parameters)], *parameters, processor=SERIAL, passes=FUSING)
    return plan, [step.op.kernel for step in plan.steps if isinstance(step.op, FusedOp)]


def test_a_variance_is_one_launch_for_blocks_and_one_for_all():
    plan, (kernel,) = planned(weft.variance, 1)
    assert len(find_variances(kernel)) == 1
    assert len(work_of(plan, SERIAL)[0]) == 2


OTHERS = {
    "the mean of another": lambda x, y: weft.sum(weft.square(x - weft.mean(y))),
    "another multiple of the sum": lambda x, y: weft.sum(weft.square(x - weft.sum(x) * 0.25)),
    "no square": lambda x, y: weft.sum(weft.abs(x - weft.mean(x))),
    "no distance": lambda x, y: weft.sum(weft.square(x * weft.mean(x))),
    "of two": lambda x, y: weft.sum(weft.square(x + y - weft.mean(x))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_are_no_variances(name: str):
    _, kernels = planned(OTHERS[name], 2)
    assert kernels
    assert not any(map(find_variances, kernels))


class Loops:
    """The attributes of a loop nest that its division into blocks needs."""

    def __init__(self, *reduced: Any):
        self.reduced = reduced


@given(st.integers(1, 10**6), st.integers(1, 2 * BLOCK), st.integers(1, 24))
def test_blocks_cover_a_row_and_none_is_empty(first: Any, inner: Any, parts: Any):
    nest = Loops(first, inner)
    blocks = count_blocks(nest, parts)
    chunk = -(-first // blocks)
    assert (blocks - 1) * chunk < first <= blocks * chunk
    assert chunk * inner <= max(BLOCK, inner)
    assert str(chunk * inner) in points_in_block(nest, "block", blocks)

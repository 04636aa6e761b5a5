"""Rounding errors of long reductions in generated code; see the kit's module of long sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.target import Target
from weft.testing import test_reductions as kit

pytest.importorskip("pyopencl")
from running import FUSING, PROCESSORS, plan_of, run, work_of

from weft_c.reductions.combiners import BLOCK

pytestmark = [pytest.mark.slow, pytest.mark.share(6)]

FORMS = pytest.mark.parametrize("form", ["parallel", "shuffling"])
"""The serial form is that of the backend, which the kit tests."""

GROUPS = {
    "sums": (kit.SUMS[::2], kit.even),
    "products": (kit.PRODUCTS, kit.near_one),
    "variances": (kit.FAR[::2], kit.far_from_zero),
}


@FORMS
@pytest.mark.parametrize("group", GROUPS)
def test_errors_do_not_grow_with_the_number_of_elements(form: Any, group: Any):
    cases, draw = GROUPS[group]
    arrays = [draw(case.shape).astype("f4") for case in cases]
    parameters = [weft.placeholder(case.shape) for case in cases]
    results = [case.build(x) for case, x in zip(cases, parameters, strict=True)]
    processor = PROCESSORS[form]
    found, _ = run(results, *parameters, arrays=arrays, processor=processor, passes=FUSING)
    assert kit.problems(found, cases, arrays, Target("any", supports=bool)) == []


@FORMS
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("shape", [(3, 20_011), (20_011, 3)])
def test_what_is_not_finite_stays(form: str, value: float, shape: tuple[int, ...]):
    values = np.ones(shape, "f4")
    long = int(np.argmax(shape))
    values[tuple(slice(777, 779) if axis == long else 1 for axis in range(2))] = value
    x = weft.placeholder(shape)
    results = [weft.sum(x, axis=long), weft.prod(x, axis=long)]
    found, _ = run(results, x, arrays=[values], processor=PROCESSORS[form], passes=FUSING)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found[0], values.sum(long))
        np.testing.assert_array_equal(found[1], values.prod(long))


@pytest.mark.parametrize(("length", "is_cut"), [(BLOCK, False), (8 * BLOCK, True)])
@FORMS
def test_only_long_sums_are_compensated(form: str, length: int, is_cut: bool):
    x = weft.placeholder((length, 2, 100_000))
    plan = plan_of([weft.sum(x, axis=0)], x, processor=PROCESSORS[form], passes=FUSING)
    assert ("compensated" in work_of(plan, PROCESSORS[form])[1]) is is_cut

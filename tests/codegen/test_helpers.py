"""Functions list the helpers that they call; here the lists are compared with their text."""

from __future__ import annotations

import re

import pytest
from running import CUDA_PARALLEL, FUSING, PROCESSORS, plan_of

from weft import errors
from weft.testing.cases import Case, make_cases
from weft.testing.test_ops import ROWS
from weft_c import lower
from weft_c.processor import Processor
from weft_c.source.functions import GPUKernel
from weft_c.source.helpers import HELPERS

CALL = re.compile(r"\bweft_\w+(?=\()")
TARGETS = {**PROCESSORS, "cuda": CUDA_PARALLEL}
FEWER = 16
"""The stride of the rows that are checked with each processor and dtype."""


def functions_of(case: Case, processor: Processor):
    """Return the functions of a case; none if it has unsupported ops."""
    try:
        plan = plan_of(case.results, *case.placeholders, processor=processor, passes=FUSING)
        work = [
            each for step in plan.steps if not step.op.graphs for each in lower(step, processor)
        ]
    except (KeyError, errors.WeftError):
        return []
    return [each.function for each in work if isinstance(each, GPUKernel)]


@pytest.mark.share(5)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32", "float64"])
@pytest.mark.parametrize("target", TARGETS)
def test_functions_name_the_helpers_that_they_call(target: str, dtype: str):
    model = "float32" if "float" in dtype else "int32"
    rows = [
        row
        for row in ROWS.values()
        if dtype in row.dtypes or (row.is_generic and model in row.dtypes)
    ]
    start = (list(TARGETS).index(target) * 5 + len(dtype) * 3) % FEWER
    seen = 0
    for row in rows[start::FEWER]:
        for case in list(make_cases(row, dtype, brief=True))[:2]:
            for function in functions_of(case, TARGETS[target]):
                called = set(CALL.findall(function.body))
                assert called == set(function.calls), (row, function.title)
                assert called <= set(HELPERS)
                assert function.shuffles == ("SHUFFLE_XOR(" in function.body)
                seen += 1
    assert seen > 10

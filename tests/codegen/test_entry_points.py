"""Entry points: functions as cases of few kernels, for drivers with a cost for each kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft import plugins
from weft_c.dialect import OPENCL
from weft_c.source.entry_points import make_entry_points
from weft_c.source.functions import Function, GPUKernel, Parameter, Source


def function(number: int, group: int = 1) -> Function:
    parameters = tuple(Parameter(f"x{n}", "f32", is_written=True) for n in range(number + 1))
    return Function(f"f{number}", parameters, f"    x0[0] = {number};", group)


def source_of(functions: list[Function], cases: int) -> Source:
    made = Source(OPENCL, cases)
    for each in functions:
        made.add(GPUKernel(each, (None,) * len(each.parameters), 1, ()))
    return made


@pytest.mark.parametrize(
    ("groups", "cases", "sizes"),
    [
        ([1] * 5, 1, [1, 1, 1, 1, 1]),
        ([1] * 5, 2, [2, 2, 1]),
        ([1] * 5, 8, [5]),
        ([1, 16, 1, 16], 8, [2, 1, 1]),
        ([16, 16], 8, [1, 1]),
        ([], 8, []),
    ],
)
def test_functions_of_one_work_item_are_cases_of_few_kernels(
    groups: list[int], cases: int, sizes: list[int]
) -> None:
    functions = [function(number, group) for number, group in enumerate(groups)]
    named = {each.name: each for each in functions}
    entry_points = list(make_entry_points(named, cases))
    assert [len(each.functions) for each in entry_points] == sizes
    assert {name for each in entry_points for name in each.functions} == set(named)
    assert len({each.name for each in entry_points}) == len(entry_points)
    assert source_of(functions, cases).text.count("__kernel") == len(entry_points)


def test_a_kernel_hands_each_case_its_arguments() -> None:
    functions = [function(number) for number in (2, 0)]
    made = source_of(functions, 2)
    (entry,) = made.entry_points
    first, second = (each.name for each in functions)
    assert [entry.case(name) for name in (first, second)] == [0, 1]
    text = made.text
    head = "const i32 number, GLOBAL void *p0, GLOBAL void *p1, GLOBAL void *p2)"
    assert f"void {entry.name}({head} {{" in text
    assert f"case 0: {first}(p0, p1, p2); break;" in text
    assert f"case 1: {second}(p0); break;" in text
    assert text.count("FUNCTION void f") == 2
    assert "switch (number + LOCAL_ID)" in text, "PoCL 7.1 aborts where it splits loops in cases"


def test_a_driver_compiles_loops_in_three_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL 7.1 ends the process that compiles such loops, if all work items reach them."""
    usable = plugins.backend_status("opencl").usable
    if not usable:
        pytest.skip(f"no OpenCL device works: {usable.reason}")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    x, filters = weft.placeholder((2, 8, 14, 14)), weft.variable((32, 8, 3, 3), initial_value=1)
    loss = weft.sum(weft.square(weft.conv(x, filters, padding=1)))
    with weft.make_transformer("opencl") as transformer:
        computation = transformer.computation(weft.deriv(loss, filters), x)
        gradient = computation(np.ones((2, 8, 14, 14), np.float32))
    assert gradient[:, :, 1, 1].tolist() == np.full((32, 8), gradient[0, 0, 1, 1]).tolist()
    assert gradient.min() > 0

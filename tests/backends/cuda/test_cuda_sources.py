"""CUDA sources of the kit's table are compiled with NVRTC; nothing is run, so no GPU is needed.

Those of float32 all are, and those of every fourth row in other dtypes.

What kernels compute is tested in the OpenCL dialect, which the same rules write them in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from nvrtc import ARCHITECTURES, NEWEST, complaints, usage_of

import weft
from weft.passes.interface import run_passes
from weft.passes.pipeline import Pipeline
from weft.plan.plan import make_plan
from weft.plan.steps import plan_of
from weft.testing.cases import Case, is_within, make_cases
from weft.testing.test_ops import ROWS
from weft.transforms.inlining import called_graphs, with_callees_prepared
from weft_c import CUDA, GPUKernel, Processor, Source, lower
from weft_c.runtime.transformer import target_of
from weft_cupy.device import ACCESS, ALIGNMENT, GROUP

PROCESSOR = Processor(
    CUDA,
    is_serial=False,
    units=132,
    group=GROUP,
    local_bytes=49152,
    alignment=ALIGNMENT,
    access_bytes=ACCESS,
)
"""An H200 without cuBLAS, so that products are kernels too."""
TARGET = target_of("cupy", PROCESSOR)
ROWS_PER_PROGRAM = 5
OTHERS = ("float64", "float16", "bfloat16", "bool", "int8", "int32", "int64", "uint16", "uint64")
NAMES = [name for name, row in ROWS.items() if "float32" in row.dtypes]
CHUNKS = [NAMES[i : i + ROWS_PER_PROGRAM] for i in range(0, len(NAMES), ROWS_PER_PROGRAM)]

FEWER = 4
"""Other dtypes are compiled of every fourth row, each of other ones."""

REGISTERS = 65536
"""Those of a multiprocessor."""

pytestmark = [
    pytest.mark.share(32),
    pytest.mark.slow,
    pytest.mark.needs("nvrtc"),
]


def lacking(case: Case) -> set[str]:
    """Return the kinds of ops in a case that devices cannot compute."""
    ops = weft.capture(case.results, case.placeholders).ops
    return TARGET.lacks.keys() & {type(op).__name__ for op in ops}


def passed(graph: weft.Graph) -> weft.Graph:
    """Return what the passes make of a graph."""
    return run_passes(graph, Pipeline(None).changed(TARGET), TARGET, "sources")


def source_of(cases: Sequence[Case]) -> str:
    """Return the program of cases, written as the backend writes it."""
    chosen = [case for case in cases if is_within(case, TARGET) and not lacking(case)]
    results = [op for case in chosen for op in case.results]
    graph = weft.capture(results, [x for case in chosen for x in case.placeholders])
    graph = passed(with_callees_prepared(graph, TARGET, passed))
    source = Source(CUDA)
    plans = [make_plan(graph, TARGET), *map(plan_of, called_graphs(graph))]
    for step in (step for plan in plans for step in plan.steps if not step.op.graphs):
        for work in lower(step, PROCESSOR):
            if isinstance(work, GPUKernel):
                source.add(work)
    assert source.functions
    return source.text


@pytest.mark.parametrize("names", CHUNKS, ids=[names[0] for names in CHUNKS])
def test_rows_compile_with_their_gradients_in_every_shape_and_layout(names: list[str]) -> None:
    cases = [case for name in names for case in make_cases(ROWS[name], "float32")]
    assert complaints(source_of(cases)) == ""


@pytest.mark.parametrize("names", CHUNKS, ids=[names[0] for names in CHUNKS])
def test_a_multiprocessor_has_what_blocks_take(names: list[str]) -> None:
    cases = [case for name in names for case in make_cases(ROWS[name], "float32", brief=True)]
    source = source_of(cases)
    threads = {
        name: int(count)
        for count, name in re.findall(r"__launch_bounds__\((\d+)\)\nvoid (\w+)", source)
    }
    used = usage_of(source, NEWEST)
    assert used.keys() == threads.keys(), complaints(source, [NEWEST])
    for name, (registers, shared) in used.items():
        assert registers * threads[name] <= REGISTERS, name
        assert shared <= PROCESSOR.local_bytes, name


@pytest.mark.long
@pytest.mark.parametrize("dtype", OTHERS)
def test_fewer_rows_compile_in_other_dtypes(dtype: str) -> None:
    model = "float32" if dtype.startswith(("float", "bfloat")) else "int32"
    rows = [
        row
        for row in ROWS.values()
        if dtype in row.dtypes or (row.is_generic and model in row.dtypes and dtype != "bool")
    ]
    chosen = rows[OTHERS.index(dtype) % FEWER :: FEWER]
    cases = [case for row in chosen for case in make_cases(row, dtype, brief=True)]
    assert complaints(source_of(cases), [ARCHITECTURES[0], NEWEST]) == ""


def test_a_source_with_an_error_does_not_compile() -> None:
    x = weft.placeholder((20, 20))
    graph = weft.capture([weft.cumsum(x, 0)], [x])
    (step,) = make_plan(graph, TARGET).steps
    source = Source(CUDA)
    for work in lower(step, PROCESSOR):
        assert isinstance(work, GPUKernel)
        source.add(work)
    assert complaints(source.text) == ""
    wrong = source.text.replace("f32 *", "f23 *")
    assert "f23" in complaints(wrong)
    assert usage_of(source.text, NEWEST)
    assert usage_of(wrong, NEWEST) == {}


def test_what_a_kernel_takes_is_seen() -> None:
    source = """
extern "C" __global__ __launch_bounds__(256) void small(float *x) { x[threadIdx.x] = 1; }
extern "C" __global__ __launch_bounds__(256) void large(float *x) {
    __shared__ float places[SIZE];
    places[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = places[255 - threadIdx.x];
}
"""
    most = PROCESSOR.local_bytes // 4
    used = usage_of(source.replace("SIZE", str(most)), NEWEST)
    assert [used[name].shared for name in ("small", "large")] == [0, PROCESSOR.local_bytes]
    assert used["small"].registers > 0
    assert "too much shared data" in complaints(source.replace("SIZE", str(most + 1)), [NEWEST])


def test_the_page_says_what_is_compiled() -> None:
    page = (Path(__file__).parents[3] / "docs" / "backends.md").read_text()
    section = page.partition("### Tests of CUDA")[2].partition("\n#")[0]
    assert all(f"for {each}" in section for each in ARCHITECTURES)
    words = {4: "fourth", 9: "nine"}
    assert f"every {words[FEWER]} in each of {words[len(OTHERS)]}\nother dtypes" in section

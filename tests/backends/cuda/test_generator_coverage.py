"""Every function that writes kernels runs, in the form or forms that it is for, in programs that
tests execute: rows of the kit, and larger shapes.

Serial kernels are executed by the OpenCL driver and as functions of the host, parallel ones by the
emulator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from test_larger_shapes import LARGE, MANY, WITH_DTYPES, results_of

import weft
import weft_c
from weft.ir.target import Target
from weft.passes.interface import run_passes
from weft.passes.pipeline import Pipeline
from weft.plan.plan import make_plan
from weft.plan.steps import plan_of
from weft.testing.cases import is_within, make_cases
from weft.testing.test_ops import ROWS
from weft.transforms.inlining import called_graphs, with_callees_prepared
from weft_c import CUDA, OPENCL, Processor, lower
from weft_c.runtime.transformer import target_of
from weft_c.source.values import register_type
from weft_native.dialect import host_dialect

pytestmark = pytest.mark.slow

ROOT = Path(weft_c.__file__).parent
MODULES = (
    "fused", "loops/*", "matmul/*", "ops/*", "reductions/*", "source/expressions", "source/values",
    "spatial/*",
)  # fmt: skip
"""Those that write kernels, not those that launch them."""

FORMS = {
    "serial": [
        Processor(OPENCL, is_serial=True, units=3, shares_host=True),
        Processor(host_dialect(16), is_serial=True, units=3, shares_host=True, alignment=64,
                  vector_lanes=16, vector_registers=32),
    ],
    "parallel": [
        Processor(OPENCL, is_serial=False, units=1, group=64, local_bytes=49152),
        Processor(CUDA, is_serial=False, units=MANY, local_bytes=49152, alignment=256,
                  access_bytes=16),
    ],
}  # fmt: skip

ONLY = {
    "serial": (
        "loops/elementwise.ElementWiseKernel._scalar", "loops/loop_nest.LoopNest.may_be_in_place",
        "loops/pointwise._interleaved_vectors", "matmul/accumulators.Accumulator.add_product",
        "loops/parallel.innermost_loop", "loops/parallel._contiguous_shares",
        "loops/parallel.part_bounds",
        "loops/parallel.work_item_bounds", "matmul/accumulators.Accumulator._type_in_memory",
        "matmul/accumulators.Accumulator.tile_rows", "matmul/accumulators.Accumulator.zero",
        "matmul/accumulators.Accumulator.is_plain", "matmul/accumulators.Accumulator.load_vector",
        "matmul/accumulators.Accumulator.store", "matmul/accumulators.Accumulator.horizontal_sum",
        "matmul/accumulators.Accumulator.type", "matmul/blocking.*",
        "matmul/epilogues.*.takes_vectors", "matmul/epilogues.*.target", "matmul/packed_panels.*",
        "matmul/packing.*", "matmul/products._packed_blocking", "matmul/products.packed_matmul*",
        "matmul/products._write_row_products.some_rows", "matmul/products._vector_sums",
        "matmul/register_tiles.*", "matmul/row_streams.*",
        "ops/argmax._ArgExtremumKernel.write_columns*",
        "ops/copies._copy_blocks*", "ops/scans._Scan._write_columns*",
        "ops/scattering._ScatterKernel._write_shares", "ops/sorting._SortKernel.write_insertion*",
        "ops/sorting._SortKernel.write_radix_sort*",
        "reductions/columns.*", "reductions/loops.ReductionLoops._needed_after",
        "reductions/loops.ReductionLoops.vector_accumulator_count",
        "reductions/split._SplitReduction.deviation_correction.added",
        "reductions/split._is_single_pass", "reductions/variance.VarianceReductionLoops.*",
        "reductions/variance.Variance.*", "reductions/variance.count_blocks",
        "reductions/variance.max_blocks", "reductions/variance.points_in_block",
        "source/values.ValueEmitter._converted_vector", "source/values.ValueEmitter._in_memory",
        "spatial/convolutions._direct_convolution", "spatial/direct_convolution.*",
        "spatial/filter_gradients.*", "spatial/filter_products.*", "spatial/geometry.Planes.*",
        "spatial/geometry._axis_phases",
        "spatial/geometry.forward", "spatial/geometry.transposed",
        "spatial/implicit_gemm.write_implicit_product*", "spatial/packed_convolution.*",
        "spatial/packed_filters.*", "spatial/padded_copies.*",
        "spatial/vectorized_pooling._*", "spatial/vectorized_pooling.has_vector_windows",
        "spatial/vectorized_pooling.inner_windows", "spatial/vectorized_pooling.write_*_rows*",
    ),
    "parallel": (
        "loops/parallel._vector_grid_stride_loop*", "loops/parallel._grid_stride_loop",
        "loops/parallel.work_group_loop",
        "loops/parallel.strided_loop", "loops/parallel.work_item_loop",
        "loops/piecewise.PiecewiseLoad.has_vectors",
        "loops/vectorized_access.VectorAccess.*", "loops/vectorized_access._*",
        "matmul/products._column*", "matmul/products._matmul_operands*", "matmul/shared_tiles._*",
        "matmul/shared_tiles.multiply_shared", "matmul/shared_tiles.partial_bytes",
        "ops/argmax._ArgExtremumKernel._compare", "ops/argmax._ArgExtremumKernel._store",
        "ops/argmax._ArgExtremumKernel._write_parts", "ops/argmax._ArgExtremumKernel.place_type",
        "ops/argmax._ArgExtremumKernel.write_groups", "ops/copies._copy_tiles*",
        "ops/copies._first_indices", "ops/scans._*.combined", "ops/scans._*.element",
        "ops/scans._Scan._assign", "ops/scans._Scan._share*", "ops/scans._Scan._st*",
        "ops/scans._Scan._write_groups", "ops/scans._Scan._write_parts",
        "ops/scattering._ScatterKernel._write_[aelp]*", "ops/scattering._ScatterKernel._write_set",
        "ops/scattering._last_*", "ops/scattering._number", "ops/sort_keys.reduce_highest_key",
        "ops/sorting._SortKernel._network", "ops/sorting._SortKernel.write_network",
        "ops/sorting._SortKernel.write_selection",
        "reductions/split._suits_work_groups",
        "reductions/work_group.*", "reductions/work_group_columns.*",
    ),
}  # fmt: skip
"""By form, patterns of functions that run in it alone."""

ELSEWHERE = (
    # What others implement.
    "matmul/epilogues.Epilogue.*", "matmul/prologues.OperandReader.load",
    "reductions/accumulators.Accumulators.has_scalar_remainder", "ops/scans._Scan.combined",
    "ops/scans._Scan.element", "ops/scans._Scan.step",
    # What accounts of a plan, and references, ask of an op.
    "*.Packed*Op.flops", "*.Packed*Op.reference",
    # What runs when a module is imported, or a launch.
    "ops/pointwise._expression_for*", "ops/helpers._atomic", "ops/helpers._combined",
    "source/expressions.Expression.__post_init__",
    "ops/on_host._compute",
    # Views have no steps; errors; cuBLAS has tests of its own.
    "ops/copies.view_rule", "ops/copies.view_as_complex_rule", "ops/gathering._take_nothing",
    "ops/indices.report_out_of_range",
    "source/expressions.Expression._unknown",
    "matmul/blas.*", "matmul/products.suits_blas",
    # Values of several pieces have tests of their own (test_piecewise.py), and so have products
    # with integers of few bits, on the host alone (test_native_grouped.py).
    "loops/piecewise.PiecewiseLoader._*", "loops/piecewise._contains",
    "matmul/grouped.*", "matmul/words.*", "matmul/products._write_rows_of_groups",
    # Numbers that a call tells, of programs with unknown lengths.
    "ops/generation.size_rule",
)  # fmt: skip
"""Patterns of functions that write no kernels of these programs."""


def functions() -> set[str]:
    """Return all functions of the modules, by module and qualified name."""
    found = set()
    for path in sorted(each for name in MODULES for each in ROOT.glob(f"{name}.py")):
        codes = [compile(path.read_text(), str(path), "exec")]
        while codes:
            code = codes.pop()
            codes += [each for each in code.co_consts if isinstance(each, CodeType)]
            is_function = code.co_flags & 2 and not code.co_name.startswith("<")
            if is_function:
                found.add(_name(code))
    return found


def _name(code: CodeType) -> str:
    module = Path(code.co_filename).relative_to(ROOT).with_suffix("").as_posix()
    return f"{module}.{code.co_qualname.replace('.<locals>', '')}"


class Watch:
    """Takes note of the functions of the generator that run within it."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()

    def __enter__(self) -> Watch:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.codes.add(frame.f_code)

    @property
    def names(self) -> set[str]:
        """Those of the functions."""
        mine = (each for each in self.codes if each.co_filename.startswith(f"{ROOT}/"))
        return {_name(each) for each in mine if not each.co_name.startswith("<")}


def programs(target: Target) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield results and parameters of programs that tests execute."""
    for row in ROWS.values():
        for dtype in [each for each in ("float32", "int32") if each in row.dtypes][:1]:
            for case in make_cases(row, dtype, brief=True):
                if is_within(case, target):
                    yield list(case.results), list(case.placeholders)
    for name, (build, shapes) in LARGE.items():
        for kind in ("float32", "float16") if name in WITH_DTYPES else ("float32",):
            xs = [weft.placeholder(shape, kind) for shape in shapes]
            yield results_of(build, xs), xs


def write(results: list[Any], parameters: list[Any], processor: Processor) -> None:
    """Write all kernels of a program."""
    target = target_of("cupy", processor)

    def passed(graph: weft.Graph) -> weft.Graph:
        return run_passes(graph, Pipeline(None).changed(target), target, "coverage")

    graph = weft.capture(results, parameters)
    if target.lacks.keys() & {type(op).__name__ for op in graph.ops}:
        return
    graph = passed(with_callees_prepared(graph, target, passed))
    for plan in [make_plan(graph, target), *map(plan_of, called_graphs(graph))]:
        for step in (each for each in plan.steps if not each.op.graphs):
            lower(step, processor)


def written(form: str) -> set[str]:
    """Return the functions that write the kernels of all programs in a form."""
    register_type.cache_clear()  # in another form it may have run already
    with Watch() as watch:
        for processor in FORMS[form]:
            for results, parameters in programs(target_of("cupy", processor)):
                write(results, parameters, processor)
    return watch.names


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_every_function_that_writes_kernels_runs(form: str) -> None:
    ran, (other,) = written(form), [each for each in FORMS if each != form]
    missing = {each for each in functions() - ran if not is_one_of(each, ELSEWHERE, ONLY[other])}
    assert missing == set()
    wrong = {each for each in ran & functions() if is_one_of(each, ONLY[other])}
    assert wrong == set(), "they run in this form too"


@pytest.mark.parametrize("patterns", [ELSEWHERE, *ONLY.values()])
def test_every_pattern_is_that_of_a_function(patterns: Sequence[str]) -> None:
    names = functions()
    assert [each for each in patterns if not any(fnmatch(name, each) for name in names)] == []


def is_one_of(name: str, *patterns: Sequence[str]) -> bool:
    """Whether a name has one of the patterns."""
    return any(fnmatch(name, each) for each in chain(*patterns))

"""Tests of this package where it is installed, on any backend with rules for it.

python -m pytest tests --weft-backend=native
"""

from __future__ import annotations

import ctypes
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_special.ops import LambertOp, SmoothOp, histogram, lambert, smooth

import weft
from weft.errors import DTypeError
from weft.testing.cases import make_cases, run_cases
from weft.testing.table.rows import ONE, Operand, Row

MATRICES = (((2, 3, 4),), ((5,),), ((3, 4),), ((2, 1, 3, 2),), ((1, 1),), ((0, 3),), ((3, 0),))
ROWS = [
    Row("lambert", lambda x: lambert(x, 3), (Operand("positive"),), shapes=ONE, twice=True),
    Row("smooth", lambda x: smooth(x, 0.75), shapes=MATRICES, twice=True),
    Row("histogram", lambda x: histogram(x, 3), (Operand("index", differentiable=False),),
        shapes=ONE, dtypes=("int32",), is_generic=False),
]  # fmt: skip
LONG = np.linspace(0, 4, 50_000, dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values_and_gradients_are_those_of_the_reference(
    transformer: weft.Transformer, row: Row, dtype: str
):
    """Of operands in all layouts, alone and with ops before and after."""
    if dtype not in row.dtypes and not (row.is_generic and "float" in dtype):
        pytest.skip("the op is of other dtypes")
    assert run_cases(transformer, make_cases(row, dtype)) == []


def test_what_stands_around_an_expression_is_in_its_kernel(transformer: weft.Transformer):
    x = weft.placeholder(LONG.shape)
    y = lambert(2 * x + 1)
    step = transformer.computation([y + 1, weft.sum(y), weft.deriv(weft.sum(y), x)], x)
    values, total, _ = step(LONG)
    assert [type(each.op).__name__ for each in step.plan.steps] == ["FusedOp"]
    w = LambertOp(weft.constant(LONG), factor=1.0).reference(2 * LONG + 1)
    np.testing.assert_allclose(values, w + 1, rtol=1e-6)
    np.testing.assert_allclose(total, w.sum(dtype=np.float64), rtol=1e-6)


def test_gradients_of_examples_are_those_of_a_loop(backend: str):
    def loss(x: Any):
        return weft.sum(lambert(smooth(x, 0.5)) * x)

    x = np.linspace(0.1, 3, 12, dtype=np.float32).reshape(3, 4)
    batched = weft.jit(weft.vmap(weft.grad(loss)), backend=backend)(x)
    one = weft.jit(weft.grad(loss), backend=backend)
    np.testing.assert_allclose(batched, [one(row) for row in x], rtol=1e-5)


def test_unknown_lengths_share_code(transformer: weft.Transformer, backend: str):
    n = weft.symbol("n")
    x = weft.placeholder((3, n))
    y = lambert(smooth(x * x, 0.5))
    counts = histogram(weft.cast(x, "int32"), 5)
    step = transformer.computation([y, weft.deriv(weft.sum(y), x), counts], x)
    for length in (40, 41, 57):
        array = np.linspace(0, 4.5, 3 * length, dtype=np.float32).reshape(3, length)
        values, slopes, counted = step(array)
        smoothed = SmoothOp(weft.constant(array), keep=0.5).reference(array * array)
        wanted = LambertOp(weft.constant(array), factor=1.0).reference(smoothed)
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6)
        assert slopes.shape == array.shape
        assert counted.tolist() == np.bincount(array.astype(int).ravel(), minlength=5).tolist()
    templates = {program.template for program in step.programs.values()}
    assert (len(templates), None in templates) == (1, backend == "numpy")


def test_a_saved_computation_is_loaded(transformer: weft.Transformer, tmp_path: Path):
    x = weft.placeholder((2, 3))
    step = transformer.computation(lambert(smooth(x, 0.5), 2), x)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    step.save(tmp_path / "special.weft")
    for trust in (False, True):
        loaded = weft.load(tmp_path / "special.weft", trust=trust)
        np.testing.assert_array_equal(loaded(array), step(array))
        loaded.transformer.close()


def test_exported_c_has_the_helpers(backend: str, tmp_path: Path):
    if backend != "native":
        pytest.skip("another backend exports no C")
    from weft_native import compiler

    x, numbers = weft.placeholder((2, 3)), weft.placeholder((4,), "int32")
    results = [lambert(smooth(x, 0.5), 2), histogram(numbers, 3)]
    with weft.make_transformer("native") as transformer:
        step = transformer.computation(results, x, numbers)
        source, _ = step.export_c(tmp_path, "special")
        given = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0, 2, 2, 5], np.int32)
        wanted = step(*given)
    library = tmp_path / "special.so"
    words = [*compiler.command(), "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    command = [*words, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    found = [np.empty((2, 3), np.float32), np.empty(3, np.uint32)]
    arrays = [ctypes.c_void_p(each.ctypes.data) for each in (*given, *found)]
    assert ctypes.CDLL(str(library)).special(*arrays) == 0, shlex.join(command)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
    assert found[1].tolist() == wanted[1].tolist() == [1, 0, 2]


def test_dtypes_without_a_meaning_are_refused():
    assert lambert(weft.placeholder((), "int32")).dtype == "float32"
    with pytest.raises(DTypeError, match="floats are smoothed, not int32"):
        smooth(weft.placeholder((3,), "int32"), 0.5)
    with pytest.raises(DTypeError, match="W is computed of real floats, not of complex64"):
        lambert(weft.placeholder((3,), "complex64"))
    with pytest.raises(DTypeError, match="int32 is counted, not float32"):
        histogram(weft.placeholder((3,)), 3)

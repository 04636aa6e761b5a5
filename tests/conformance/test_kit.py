"""The conformance kit itself: it finds what is wrong, and says which backend it could not test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.ops.pointwise.math import ExpOp
from weft.testing.cases import make_cases, run_cases
from weft.testing.numeric import ACCURACY, numeric_derivative
from weft.testing.reference import evaluate
from weft.testing.table.rows import Row

SQUARE = Row("square", weft.square, expected=np.square)


class Wrong(weft.NumPyTransformer):
    """Adds something to each result."""

    transformer_name = "wrong"
    error = 1.0

    def transform_ordered_ops(
        self, program: Any, ordered_ops: Any, name: str
    ) -> Callable[..., None]:
        run = super().transform_ordered_ops(program, ordered_ops, name)

        def wrong(*arrays: Any) -> None:
            run(*arrays)
            for array in arrays[len(program.graph.inputs) :]:
                array += array.dtype.type(self.error)

        return wrong


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(("error", "is_seen"), [(0, False), (1, True)])
def test_a_wrong_result_is_seen(dtype: str, error: float, is_seen: bool) -> None:
    transformer = Wrong()
    transformer.error = error
    problems = run_cases(transformer, make_cases(SQUARE, dtype))
    assert bool(problems) == is_seen
    assert all("elements differ" in problem for problem in problems)


def test_an_error_is_pinned_to_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*make_cases(SQUARE, "float64"), *make_cases(Row("exp", weft.exp), "float64")]
    with weft.make_transformer("numpy") as transformer:
        rules = sys.modules["weft_numpy.rules"].rules
        monkeypatch.setitem(rules._rules, ExpOp, lambda op, emit: emit.line("raise OSError('no')"))
        problems = run_cases(transformer, cases)
    assert problems
    assert all(problem.startswith("exp ") and "OSError" in problem for problem in problems)


def test_wide_evaluation_is_more_exact() -> None:
    x = weft.placeholder((), "float32")
    y = weft.cast(weft.exp(x), "float32") + weft.constant(0.1)
    graph = weft.capture([y], [x])
    (narrow,), _ = evaluate(graph, [np.float32(1)])
    (wide,), _ = evaluate(graph, [np.float32(1)], wide=True)
    assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
    assert wide == np.exp(1.0) + np.float64(np.float32(0.1))


def test_evaluation_starts_from_initial_values_and_returns_states() -> None:
    v = weft.variable((), initial_value=3)
    w = weft.variable((2,), initial_value=v * 2)
    weft.assign(w, w + 1)
    graph = weft.capture([w])
    (first,), states = evaluate(graph)
    (second,), _ = evaluate(graph, states=states)
    assert (first.tolist(), second.tolist()) == ([7, 7], [8, 8])


def test_numeric_derivative_of_a_cubic() -> None:
    x = np.array([[0.0, 1.0], [-2.0, 30.0]])
    found = numeric_derivative(lambda a, b: np.sum(a**3 * b), [x, 2.0], 0)
    np.testing.assert_allclose(found, 6 * x**2, rtol=ACCURACY, atol=ACCURACY)


def run_pytest(path: Path, *options: str) -> str:
    path.write_text("def test_it(transformer, backend): print(backend)\n")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parent).stdout


def test_a_run_without_the_plugin_goes_on(tmp_path: Path) -> None:
    out = run_pytest(tmp_path / "test_it.py", "-p", "no:weft")
    assert "fixture 'transformer' not found" in out

"""Functions that SciPy and scikit-learn wrote for the array API standard, traced and compiled.

They are public functions, which ask their arguments for their namespace. SciPy reads the variable
that allows this when it is imported, so they run in a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FUNCTIONS = {
    "sklearn": {
        "mean squared error": "metrics.mean_squared_error(x, y, multioutput='raw_values')",
        "mean absolute error": "metrics.mean_absolute_error(x, y, multioutput='raw_values')",
        "polynomial kernel": "metrics.pairwise.polynomial_kernel(x, y)",
        "paired distances": "metrics.pairwise.paired_euclidean_distances(x, y)",
    },
    "scipy": {
        "softmax": "special.softmax(x, axis=1)",
        "x log y": "special.xlogy(x, y)",
        "trapezoid": "integrate.trapezoid(x, axis=0)",
        "cumulative trapezoid": "integrate.cumulative_trapezoid(x, axis=0)",
        "geometric mean": "stats.gmean(x, axis=0)",
        "skew": "stats.skew(x, axis=0)",
        "kurtosis": "stats.kurtosis(x, axis=0)",
        "variation": "stats.variation(x, axis=0)",
        "standard error": "stats.sem(x, axis=0)",
        "differential entropy": "stats.differential_entropy(x, axis=0)",
    },
}

PROGRAM = """
import importlib, json, sys, warnings
import numpy as np
import weft

warnings.simplefilter("ignore")
package, *expressions = sys.argv[1:]
if package == "sklearn":
    import sklearn
    # Its checks for NaN and infinity ask for values, which tracing does not have.
    sklearn.set_config(array_api_dispatch=True, assume_finite=True)
    names = {"metrics": importlib.import_module("sklearn.metrics")}
else:
    names = {name: importlib.import_module("scipy." + name)
             for name in ("special", "integrate", "stats")}
x, y = np.random.default_rng(0).uniform(0.1, 1, (2, 6, 3)).astype("float32")
wrong = {}
for expression in expressions:
    function = eval("lambda x, y: " + expression, names)
    kinds = []
    def traced(*arrays):
        result = function(*arrays)
        kinds.append(type(result))
        return result
    got = weft.jit(traced, backend="numpy")(x, y)
    if not issubclass(kinds[0], weft.TensorOp) or not np.allclose(got, function(x, y), 1e-4, 1e-5):
        wrong[expression] = repr(got)
print(json.dumps([len(expressions), wrong]))
"""


@pytest.mark.parametrize("package", FUNCTIONS)
def test_functions_written_for_the_standard_are_traced(package: str) -> None:
    pytest.importorskip(package)
    expressions = FUNCTIONS[package].values()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, package, *expressions],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [len(expressions), {}]


def test_the_compatibility_library_takes_weft_for_the_namespace_of_a_tensor() -> None:
    compat = pytest.importorskip("sklearn.externals.array_api_compat")
    import weft

    x = weft.placeholder((2, 3))
    assert compat.array_namespace(x, 1.5, x * 2) is weft
    assert compat.is_array_api_obj(x)
    assert (compat.device(x), compat.size(x)) == (None, 6)
    assert compat.to_device(x, compat.device(x)) is x

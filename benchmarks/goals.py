"""The least ratios of eager NumPy's time over ours on backends beside NumPy.

They are for two cores of a processor, and were reached there by kernels written by hand or by other
compilers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

GOALS: Mapping[str, Mapping[str, float]] = {
    "opencl": {
        "10 ops, 1e+05 floats": 5,
        "10 ops, 1e+07 floats": 25,
        "20 ops, 1e+07 floats": 12,
        "softmax, 4096x1024": 4.4,
        "layer norm, 4096x1024": 12,
        "variance, 1e+07": 14,
        "sum, 1e+07": 4.2,
        "row sums, 4096x4096": 2.7,
        "column sums, 4096x4096": 1.3,
        "matmul, 512": 0.95,
        "matmul, 1024": 0.95,
        "matmul, 2048": 0.95,
        "matmul, 512, by a kernel": 0.85,
        "matmul, 1024, by a kernel": 0.85,
        "matmul, 2048, by a kernel": 0.85,
        "matmul, 16x128x128x64": 1.1,
        "convolution 3x3, 8x64x56x56": 2.3,
        "forward, CNN": 15,
        "a step, CNN": 5,
        "GELU by tanh": 1.5,
        "GELU by erf": 1.5,
        "a step, MLP": 1.1,
    }
}


def goals_for(
    backend: str, what: str, numpy_goals: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Return the least ratio for each rival; goals of the NumPy backend are for that one alone."""
    if backend == "numpy":
        return dict(numpy_goals)
    return {
        rival: GOALS.get(backend, {}).get(what) if rival == "eager" else None
        for rival in numpy_goals
    }


def of_numpy(goal: float) -> float | None:
    """Return a goal that only the NumPy backend has, or None where another one is measured."""
    return goal if os.environ.get("WEFT_BACKEND", "numpy") == "numpy" else None

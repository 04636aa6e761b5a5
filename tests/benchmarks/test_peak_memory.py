"""Peaks of memory beside onnxruntime: each process has its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import peak_memory
import pytest
from environment import run_fresh

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("linux"),
]
WEIGHTS, BALLAST = 40 << 20, 400 << 20


def saved(folder: Any, rows: Any):
    """Return the file of a model with weights, and that of its input."""
    weights = np.random.default_rng(0).standard_normal((rows, 1 << 10)).astype("float32")
    declared = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, rows]), ("y", [1, 1 << 10]))
    ]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    held = [onnx.numpy_helper.from_array(weights, "w")]
    graph = onnx.helper.make_graph([node], "g", declared[:1], declared[1:], held)
    onnx.save(onnx.helper.make_model(graph, ir_version=8), folder / f"{rows}.onnx")
    np.savez(folder / f"{rows}.npz", x=np.ones((1, rows), "float32"))
    return weights


def test_a_process_has_its_own_peak_with_its_weights(tmp_path: Path):
    ballast = np.ones(BALLAST, np.uint8)
    peaks = []
    for rows in (1, WEIGHTS >> 12):
        weights = saved(tmp_path, rows)
        names = [str(tmp_path / f"{rows}.{suffix}") for suffix in ("onnx", "npz", "out.npz")]
        arguments = [peak_memory.__file__, "--child", "weft", *names]
        peaks.append(int(run_fresh(arguments, str(tmp_path / "bytecode"))))
        with np.load(names[2]) as stored:
            (found,) = stored.values()
        np.testing.assert_allclose(found[0], weights.sum(0), 1e-3, 1e-2)
    assert peaks[0] < BALLAST == ballast.nbytes
    assert WEIGHTS * 0.8 < peaks[1] - peaks[0] < WEIGHTS * 3


def test_a_ratio_is_that_of_the_larger_peak():
    outcome = peak_memory.Outcome("m", 130_000_000, 120_000_000, 100_000_000, 1e-6)
    assert outcome.ratio == 1.3
    assert outcome.cells == ["m", "130", "120", "100", "1.30", "1.0e-06"]

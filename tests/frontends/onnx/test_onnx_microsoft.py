"""Ops of com.microsoft: against definitions in NumPy, and against onnxruntime where it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from microsoft_cases import CASES as FLOATS
from microsoft_cases import Case, model_of
from microsoft_quantized_cases import CASES as QUANTIZED

import weft_onnx

CASES = FLOATS | QUANTIZED


def agree(found: np.ndarray, wanted: np.ndarray, case: Case):
    assert found.shape == np.shape(wanted)
    if case.steps and found.dtype.kind in "iu":
        assert np.abs(found.astype(int) - np.asarray(wanted, int)).max() <= case.steps
        assert np.mean(found != wanted) < 0.05
    else:
        largest = max(float(np.abs(wanted).max(initial=0)), 1)
        np.testing.assert_allclose(found, wanted, case.tolerance, case.tolerance * largest)


def results_of(case: Case, expected: list[Any]):
    """Return the model of a case, its inputs, and the expected results by name."""
    outputs = [f"y{n}" if y is not None else "" for n, y in enumerate(expected)]
    model, inputs = model_of(case, outputs)
    return model, inputs, {n: y for n, y in zip(outputs, expected, strict=True) if n}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", CASES)
def test_a_node_gives_what_its_definition_gives(name: str):
    case = CASES[name]
    expected = case.definition(*case.operands, **case.attributes)
    model, inputs, wanted = results_of(case, expected)
    found = weft_onnx.load(model).run(inputs, "numpy")
    for each, y in wanted.items():
        agree(found[each], y, case)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.judge])
def test_a_node_gives_what_onnxruntime_gives(name: str):
    runtime = pytest.importorskip("onnxruntime")
    case = CASES[name]
    expected = case.definition(*case.operands, **case.attributes)
    model, inputs, wanted = results_of(case, expected)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = weft_onnx.load(model).run(inputs, "numpy")
    for each, y in zip(wanted, session.run(list(wanted), inputs), strict=True):
        agree(found[each], y, case)


OF_ALL = [name for name, case in CASES.items() if not case.steps and case.tolerance < 1e-3]


@pytest.mark.parametrize("half", [0, 1])
def test_every_backend_gives_what_the_definitions_give(backend: str, half: Any):
    """Many nodes in one model, since each program is compiled."""
    graph, given, wanted = None, {}, {}
    names = OF_ALL[half::2]
    for number, name in enumerate(names):
        case = CASES[name]
        model, inputs, expected = results_of(
            case, case.definition(*case.operands, **case.attributes)
        )
        prefixed = onnx.compose.add_prefix(model, f"{number}/")
        given.update({f"{number}/{key}": x for key, x in inputs.items()})
        wanted.update({f"{number}/{key}": (name, y) for key, y in expected.items()})
        if graph is None:
            graph = prefixed
        else:
            for field in ("node", "input", "output", "initializer"):
                getattr(graph.graph, field).extend(getattr(prefixed.graph, field))
    found = weft_onnx.load(graph).run(given, backend)
    for key, (name, y) in wanted.items():
        agree(found[key], y, CASES[name])

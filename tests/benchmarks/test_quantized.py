"""The models in 8 bits that are compared with onnxruntime."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import weft_onnx

pytestmark = [pytest.mark.long, pytest.mark.needs("compiler")]


def test_the_encoder_is_that_of_onnxruntime_in_both_forms(monkeypatch: pytest.MonkeyPatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    bench = importlib.import_module("quantized")
    for name, value in (("LAYERS", 1), ("SEQUENCE", 16), ("FEATURES", 48), ("HEADS", 4)):
        monkeypatch.setattr(bench, name, value)
    plain = bench.float_model("encoder")
    given = bench.inputs_of(plain)
    for kind in bench.KINDS:
        model = bench.quantized(plain, kind)
        (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
        (found,) = weft_onnx.load(model).prepare("native").run(given).values()
        assert np.linalg.norm(found - expected) < bench.TOLERANCE * np.linalg.norm(expected)


def test_ratios_are_times_over_those_of_onnxruntime():
    bench = importlib.import_module("quantized")
    assert bench.Outcome("encoder", 1.0, 2.0, 3.0, 4.0).ratio == 0.5

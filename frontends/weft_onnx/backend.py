"""The backend interface of the package onnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper
from onnx.backend import base

import weft
from weft import plugins
from weft_onnx.model import Model, load
from weft_onnx.program import Program

NAMES = {"CPU": "numpy", "CUDA": "cupy"}
"""The backends of device strings that name none."""


class Prepared(base.BackendRep):
    """A model prepared for a device.

    Attributes
    ----------
    program
        The program that runs it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the results for inputs: a sequence in the order of the model, or by name."""
        model = self.program.model
        if isinstance(inputs, dict):
            given = inputs
        else:
            if not isinstance(inputs, list | tuple):
                inputs = [inputs]
            names = list(model.inputs)
            if len(inputs) > len(names):
                names = list(model.declared)
            given = dict(zip(names, inputs, strict=False))
        results = self.program.run(given)
        found: tuple[Any, ...] = base.namedtupledict("Outputs", list(results))(*results.values())
        return found


class Backend(base.Backend):
    """weft as a backend of onnx: devices are the names of weft's backends, or CPU or CUDA."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a backend of this name is usable."""
        name = NAMES.get(device, device)
        if name not in plugins.names(plugins.BACKENDS):
            return False
        try:
            with weft.make_transformer(name):
                return True
        except weft.WeftError:
            return False

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Return a model prepared for a device."""
        found = model if isinstance(model, Model) else load(model)
        return Prepared(found.prepare(NAMES.get(device, device)))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Return the results of a model."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Return the results of a single node."""
        arrays = [np.asarray(each) for each in inputs]
        names = [name for name in node.input if name]
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        version = kwargs.get("opset_version", defs.onnx_opset_version())
        opset = helper.make_opsetid(node.domain, version)
        graph = helper.make_graph([node], "node", given, results)
        model = helper.make_model(graph, opset_imports=[opset])
        return cls.run_model(model, arrays, device)

"""The importer of model files, for `weft run` and other users of importers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import weft
from weft.runtime.importers import ImportedGraph
from weft.support.quoting import harmless
from weft_onnx.errors import ModelError
from weft_onnx.model import load
from weft_onnx.nodes import numpy_dtype


class ModelImporter:
    """Reads models whose shapes are known, but for the first axis of inputs."""

    suffixes = (".onnx",)

    def read(self, path: Path, constants: Mapping[str, Any] | None) -> ImportedGraph:
        """Return the graph of a model.

        An unknown length is 1. Raises ModelError for a malformed file, and NodeError where shapes
        depend on what a call computes; `weft_onnx.load` runs these too.
        """
        model = load(path)
        inputs = {name: _placeholder(name, kind) for name, kind in model.inputs.items()}
        return ImportedGraph(inputs=inputs, outputs=model.build(inputs))


def _placeholder(name: str, kind: Any) -> Any:
    if kind.WhichOneof("value") != "tensor_type":
        raise ModelError(f"input {harmless(name)} is no tensor")
    lengths = tuple(
        each.dim_value if each.HasField("dim_value") else 1 for each in kind.tensor_type.shape.dim
    )
    dtype = numpy_dtype(kind.tensor_type.elem_type)
    return weft.placeholder(lengths, dtype=dtype, name=harmless(name))

"""ONNX models: read, run on any backend, and fine-tuned.

`load` returns a `Model`; `Backend` is the interface of `onnx.backend.base`. Start reading at
`model`, then `tracing`, which makes ops of nodes, and `program`, which runs them. `lowering` has
the lowerings, one module for each family of ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl
from weft.support import source
from weft_onnx import lowering
from weft_onnx.backend import Backend, Prepared
from weft_onnx.errors import ModelError, NodeError, UnsupportedNodes
from weft_onnx.exporting import NotExportable, export, exports
from weft_onnx.model import Model, load
from weft_onnx.nodes import Node, lowers
from weft_onnx.program import Program

__all__ = [
    "Backend",
    "Model",
    "ModelError",
    "Node",
    "NodeError",
    "NotExportable",
    "Prepared",
    "Program",
    "UnsupportedNodes",
    "export",
    "exports",
    "load",
    "lowering",
    "lowers",
]

WEFT_API = "1.0"

source.add_internal_package("weft_onnx")


@hookimpl
def weft_register_frontends(register: Callable[[str, Any], None]) -> None:
    """Register the importer of models."""
    from weft_onnx.importer import ModelImporter

    register("onnx", ModelImporter())

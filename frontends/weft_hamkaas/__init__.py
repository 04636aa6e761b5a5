"""HamKaas: a script language of tensor nodes, its Python API, and models compiled from both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl
from weft.support import source
from weft_hamkaas.errors import KindError, NodeError, ScriptError
from weft_hamkaas.memory import Allocator, MemoryPlan, plan_memory
from weft_hamkaas.model import HamKaasModel, HamKaasPlugin
from weft_hamkaas.nodes import (
    BufferTensor,
    ComplexHadamardProductNode,
    ConstantTensor,
    HadamardProductNode,
    HamKaasNode,
    InputTensor,
    MatMulNode,
    PermuteNode,
    ReLUNode,
    ReplaceSliceNode,
    ReshapeNode,
    RmsNormNode,
    SiLUNode,
    SlicedSoftmaxNode,
    SliceNode,
    SumNode,
)
from weft_hamkaas.parser import parse_script
from weft_hamkaas.tensors import TensorMeta
from weft_hamkaas.traversal import TraversalResult, traverse_node

__all__ = [
    "Allocator",
    "BufferTensor",
    "ComplexHadamardProductNode",
    "ConstantTensor",
    "HadamardProductNode",
    "HamKaasModel",
    "HamKaasNode",
    "HamKaasPlugin",
    "InputTensor",
    "KindError",
    "MatMulNode",
    "MemoryPlan",
    "NodeError",
    "PermuteNode",
    "ReLUNode",
    "ReplaceSliceNode",
    "ReshapeNode",
    "RmsNormNode",
    "ScriptError",
    "SiLUNode",
    "SliceNode",
    "SlicedSoftmaxNode",
    "SumNode",
    "TensorMeta",
    "TraversalResult",
    "parse_script",
    "plan_memory",
    "traverse_node",
]

WEFT_API = "1.0"

source.add_internal_package("weft_hamkaas")


@hookimpl
def weft_register_frontends(register: Callable[[str, Any], None]) -> None:
    """Register the importer of scripts."""
    from weft_hamkaas.importer import ScriptImporter

    register("hamkaas", ScriptImporter())

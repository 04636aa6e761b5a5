"""weft: one graph of tensor operations, a backend by name, a compiled computation.

>>> import weft
>>> x = weft.placeholder((2,))
>>> y = weft.sum(weft.square(x))
>>> step = weft.make_transformer("numpy").computation([y, weft.deriv(y, x)], x)
>>> value, gradient = step([1.0, 2.0])
>>> value.item(), gradient.tolist()
(5.0, [2.0, 4.0])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft import errors, nervana, nn, ops, ranks, standard, train
from weft.autodiff.gradient_graph import (
    GradientGraph,
    autodiff,
)
from weft.autodiff.reverse import deriv, gradient_of
from weft.errors import WeftError
from weft.ir import ax, dtypes
from weft.ir.axes import Axes, Axis, FlattenedAxis, ShardAxis, make_axes, make_axis
from weft.ir.description import TensorDescription
from weft.ir.dtypes import (
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.ir.graph import Graph
from weft.ir.lengths import symbol
from weft.ir.op import Op, const, is_constant, is_scalar, with_op_metadata
from weft.ir.scope import metadata, name_scope, saved_user_deps
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp, TensorOp
from weft.nervana import *
from weft.nn import *
from weft.ops import *
from weft.passes.interface import GraphPass, PeepholeGraphPass
from weft.passes.visitors import visit
from weft.ranks import *
from weft.runtime.computation import Computation
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.runtime.factory import (
    backend,
    make_transformer,
)
from weft.runtime.program import Program
from weft.runtime.transformer import Transformer
from weft.standard import *
from weft.support import keyword_hints
from weft.support.spelling import unknown_name
from weft.train import *
from weft.transforms.capture import capture
from weft.transforms.computation_op import ComputationOp, computation

if TYPE_CHECKING:
    from weft import fft, linalg, signal, special
    from weft.functional import *
    from weft.runtime.artifact_loading import load
    from weft.text.parser import parse
    from weft_numpy.transformer import NumPyTransformer

_FUNCTIONS = [
    "JittedFunction",
    "cond",
    "fori_loop",
    "grad",
    "hessian",
    "jacobian",
    "jit",
    "jvp",
    "scan",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
"""What `weft.functional` exports, which is imported when one of them is used."""

__all__ = [
    "Axes",
    "Axis",
    "CompositeOp",
    "Computation",
    "ComputationOp",
    "DeviceBufferStorage",
    "DeviceTensor",
    "FlattenedAxis",
    "GradientGraph",
    "Graph",
    "GraphPass",
    "NumPyTransformer",
    "Op",
    "PeepholeGraphPass",
    "Program",
    "ShardAxis",
    "Target",
    "TensorDescription",
    "TensorOp",
    "Transformer",
    "WeftError",
    "__version__",
    "autodiff",
    "ax",
    "backend",
    "bool_",
    "capture",
    "complex64",
    "complex128",
    "computation",
    "const",
    "deriv",
    "dtypes",
    "errors",
    "fft",
    "float16",
    "float32",
    "float64",
    "gradient_of",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_constant",
    "is_scalar",
    "linalg",
    "load",
    "make_axes",
    "make_axis",
    "make_transformer",
    "metadata",
    "name_scope",
    "ops",
    "parse",
    "promote",
    "saved_user_deps",
    "signal",
    "special",
    "symbol",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "visit",
    "with_op_metadata",
]
__all__ += _FUNCTIONS
for _room in (nervana, nn, ops, ranks, standard, train):
    __all__ += _room.__all__

__version__ = "0.1.0.dev0"


keyword_hints.install()


def __getattr__(name: str) -> Any:
    """Resolve what is imported only when it is used, and op classes, which `weft.ops` holds."""
    if name == "NumPyTransformer":
        from weft import plugins

        return plugins.load(plugins.BACKENDS, "numpy", is_default=True)
    if name == "load":
        from weft.runtime import artifact_loading

        return artifact_loading.load
    if name == "parse":
        from weft.text import parser

        return parser.parse
    if name in _FUNCTIONS:
        return getattr(importlib.import_module("weft.functional"), name)
    if name == "bfloat16":
        return dtypes.as_dtype("bfloat16")
    if name in (
        "distributed",
        "fft",
        "functional",
        "linalg",
        "optim",
        "random",
        "signal",
        "special",
        "testing",
        "plugins",
    ):
        return importlib.import_module(f"weft.{name}")
    return unknown_name("weft", __all__)(name)


def __dir__() -> list[str]:
    """List what is public, and nothing that is only imported here."""
    return __all__

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

from weft import ax, dtypes, errors, ops
from weft.axes import Axes, Axis, FlattenedAxis, make_axes, make_axis
from weft.capture import capture
from weft.description import TensorDescription
from weft.device import DeviceBufferStorage, DeviceTensor
from weft.dtypes import (
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
from weft.errors import WeftError
from weft.factory import (
    allocate_transformer,
    backend,
    make_transformer,
    make_transformer_factory,
    set_transformer_factory,
    transformer_choices,
)
from weft.grad import deriv
from weft.graph import Graph
from weft.lengths import symbol
from weft.op import Op, const, is_constant, is_scalar, with_op_metadata
from weft.ops.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_not,
    maximum,
    minimum,
    not_equal,
    where,
)
from weft.ops.control import computation, doall, print_op, sequential, stop_gradient
from weft.ops.elementwise import (
    absolute,
    add,
    cast,
    cos,
    divide,
    exp,
    floordivide,
    log,
    mod,
    multiply,
    negative,
    power,
    reciprocal,
    sign,
    sin,
    sqrt,
    square,
    subtract,
    tanh,
)
from weft.ops.indexing import slice_along_axis, tensor_slice, update_slice
from weft.ops.joining import concat, concat_along_axis, one_hot, pad, stack
from weft.ops.linalg import dot, matmul
from weft.ops.movement import (
    axes_with_order,
    broadcast,
    cast_axes,
    cast_role,
    contiguous,
    expand_dims,
    flatten,
    flatten_at,
    map_roles,
    reshape,
    transpose,
    unflatten,
)
from weft.ops.nn import (
    cross_entropy_binary,
    cross_entropy_binary_inner,
    cross_entropy_multi,
    relu,
    safelog,
    sigmoid,
    sigmoidAtomic,
    softmax,
)
from weft.ops.random import normal, random_bits, uniform
from weft.ops.reduction import (
    L1_norm,
    L2_norm,
    argmax,
    argmin,
    batch_size,
    max,
    mean,
    min,
    prod,
    squared_L2,
    sum,
    tensor_size,
    variance,
)
from weft.ops.state import SetItem, assign, fill, set_item, value_of
from weft.ops.storage import (
    AssignableTensorOp,
    as_op,
    as_ops,
    constant,
    persistent_tensor,
    placeholder,
    temporary,
    variable,
)
from weft.passes import GraphPass, PeepholeGraphPass, visit
from weft.program import Computation, Program
from weft.scope import metadata, saved_user_deps
from weft.target import Target
from weft.tensor import CompositeOp, TensorOp
from weft.text import parse
from weft.transformer import Transformer

if TYPE_CHECKING:
    from weft_numpy.transformer import NumPyTransformer

__all__ = [
    "AssignableTensorOp",
    "Axes",
    "Axis",
    "CompositeOp",
    "Computation",
    "DeviceBufferStorage",
    "DeviceTensor",
    "FlattenedAxis",
    "Graph",
    "GraphPass",
    "L1_norm",
    "L2_norm",
    "NumPyTransformer",
    "Op",
    "PeepholeGraphPass",
    "Program",
    "SetItem",
    "Target",
    "TensorDescription",
    "TensorOp",
    "Transformer",
    "WeftError",
    "__version__",
    "absolute",
    "add",
    "allocate_transformer",
    "argmax",
    "argmin",
    "as_op",
    "as_ops",
    "assign",
    "ax",
    "axes_with_order",
    "backend",
    "batch_size",
    "bool_",
    "broadcast",
    "capture",
    "cast",
    "cast_axes",
    "cast_role",
    "complex64",
    "complex128",
    "computation",
    "concat",
    "concat_along_axis",
    "const",
    "constant",
    "contiguous",
    "cos",
    "cross_entropy_binary",
    "cross_entropy_binary_inner",
    "cross_entropy_multi",
    "deriv",
    "divide",
    "doall",
    "dot",
    "dtypes",
    "equal",
    "errors",
    "exp",
    "expand_dims",
    "fill",
    "flatten",
    "flatten_at",
    "float16",
    "float32",
    "float64",
    "floordivide",
    "greater",
    "greater_equal",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_constant",
    "is_scalar",
    "less",
    "less_equal",
    "log",
    "logical_not",
    "make_axes",
    "make_axis",
    "make_transformer",
    "make_transformer_factory",
    "map_roles",
    "matmul",
    "max",
    "maximum",
    "mean",
    "metadata",
    "min",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "normal",
    "not_equal",
    "one_hot",
    "ops",
    "pad",
    "parse",
    "persistent_tensor",
    "placeholder",
    "power",
    "print_op",
    "prod",
    "promote",
    "random_bits",
    "reciprocal",
    "relu",
    "reshape",
    "safelog",
    "saved_user_deps",
    "sequential",
    "set_item",
    "set_transformer_factory",
    "sigmoid",
    "sigmoidAtomic",
    "sign",
    "sin",
    "slice_along_axis",
    "softmax",
    "sqrt",
    "square",
    "squared_L2",
    "stack",
    "stop_gradient",
    "subtract",
    "sum",
    "symbol",
    "tanh",
    "temporary",
    "tensor_size",
    "tensor_slice",
    "transformer_choices",
    "transpose",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unflatten",
    "uniform",
    "update_slice",
    "value_of",
    "variable",
    "variance",
    "visit",
    "where",
    "with_op_metadata",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Resolve what is imported only when it is used, and op classes, which `weft.ops` holds."""
    if name == "NumPyTransformer":
        from weft import plugins

        return plugins.load(plugins.BACKENDS, "numpy")
    if name == "bfloat16":
        return dtypes.as_dtype("bfloat16")
    if name in ("testing", "plugins"):
        return importlib.import_module(f"weft.{name}")
    if name in ops.__all__:
        return getattr(ops, name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what is public, and nothing that is only imported here."""
    return __all__

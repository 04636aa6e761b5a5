"""PopXL: graphs as values, calls, streams and sessions, and autodiff as a graph transform.

>>> import weft_popxl as popxl
>>> import weft_popxl.ops as ops
>>> ir = popxl.Ir()
>>> with ir.main_graph:
...     total = popxl.variable([1.0, 2.0]) + 1
...     stream = popxl.d2h_stream(total.shape, total.dtype)
...     ops.host_store(stream, total)
>>> with popxl.Session(ir, "cpu") as session:
...     session.run()[stream].tolist()
[2.0, 3.0]
"""

from weft.support.source import add_internal_package

add_internal_package("weft_popxl")

from weft_popxl import dtypes, ops, transforms  # noqa: E402
from weft_popxl.binding import graph_input, graph_output  # noqa: E402
from weft_popxl.context import (  # noqa: E402
    gcg,
    get_current_graph,
    get_ir,
    get_main_graph,
    gir,
    gmg,
    in_sequence,
    io_tiles,
    ipu,
    name_scope,
)
from weft_popxl.data import constant, variable  # noqa: E402
from weft_popxl.dtypes import (  # noqa: E402
    bool,
    double,
    dtype,
    float,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft_popxl.errors import popart_exception  # noqa: E402
from weft_popxl.graph import Graph  # noqa: E402
from weft_popxl.ir import Ir  # noqa: E402
from weft_popxl.module import Module  # noqa: E402
from weft_popxl.random_seed import create_seeds  # noqa: E402
from weft_popxl.replica_grouping import ReplicaGrouping  # noqa: E402
from weft_popxl.session import Session  # noqa: E402
from weft_popxl.streams import (  # noqa: E402
    DeviceToHostStream,
    HostToDeviceStream,
    d2h_stream,
    h2d_stream,
)
from weft_popxl.tensor import Constant, Tensor, TensorByRef, TensorSpec, Variable  # noqa: E402

__all__ = [
    "Constant",
    "DeviceToHostStream",
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Module",
    "ReplicaGrouping",
    "Session",
    "Tensor",
    "TensorByRef",
    "TensorSpec",
    "Variable",
    "bool",
    "constant",
    "create_seeds",
    "d2h_stream",
    "double",
    "dtype",
    "dtypes",
    "float",
    "float16",
    "float32",
    "float64",
    "gcg",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "graph_input",
    "graph_output",
    "h2d_stream",
    "half",
    "in_sequence",
    "int8",
    "int16",
    "int32",
    "int64",
    "io_tiles",
    "ipu",
    "name_scope",
    "ops",
    "popart_exception",
    "transforms",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable",
]

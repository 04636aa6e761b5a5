"""Lowers fused kernels and unfused ops to OpenCL C or CUDA C.

`lower` turns a step of a plan into launches of C functions for a `Processor`, and `Source` collects
the functions of a program. A `Dialect` is a page of macros and a few lines of data, so another
dialect of C takes a single file.

The packages, each above those that it imports: `runtime` (the executor that backends share),
`fused` (rules of fused kernels), `legalization` (ops that replace others), `ops` and `spatial`
(rules of other ops), `reductions` and `matmul`, `loops` (loop nests without reductions), `lowering`
(rules and kernel builders), `source` (the text of a program).
"""

from weft.support.source import add_internal_package
from weft_c import matmul, ops, spatial
from weft_c.dialect import CUDA, OPENCL, Dialect
from weft_c.fused import fusible
from weft_c.legalization import legalized
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.lowering import Lowering, lower, rules, scratch_bytes
from weft_c.matmul.products import takes_prologue
from weft_c.processor import Processor
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.source.functions import Function, GPUKernel, HostCall, LibraryCall, Source

__all__ = [
    "CUDA",
    "OPENCL",
    "Dialect",
    "ElementWiseKernel",
    "Function",
    "GPUKernel",
    "GPUKernelGroup",
    "HostCall",
    "LibraryCall",
    "Lowering",
    "Processor",
    "Source",
    "fusible",
    "legalized",
    "lower",
    "matmul",
    "ops",
    "rules",
    "scratch_bytes",
    "spatial",
    "takes_prologue",
]

add_internal_package("weft_c")

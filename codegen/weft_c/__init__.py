"""Lowers fused kernels and unfused ops to OpenCL C or CUDA C.

`lower` turns a step of a plan into launches of C functions for a `Processor`, and `Source` collects
the functions of a program. A `Dialect` is a page of macros and a few lines of data, so another
dialect of C takes a single file.

A rule for an op of one's own is added to `rules`: an `Expression`, if the op is elementwise, or a
function of the op and a `Lowering`, which writes kernels with a `KernelBuilder` and `parallel_for`.
It holds for all dialects.

The packages, each above those that it imports: `runtime` (the executor that backends share),
`fused` (rules of fused kernels), `legalization` (ops that replace others), `ops`, `spatial` and
`fourier` (rules of other ops), `reductions` and `matmul`, `loops` (loop nests without reductions),
`lowering` (rules and kernel builders), `source` (the text of a program).
"""

from weft.support.source import add_internal_package
from weft_c import fourier, matmul, ops, spatial
from weft_c.dialect import CUDA, OPENCL, Dialect
from weft_c.fused import fusible, lower
from weft_c.legalization import legalized
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules, scratch_bytes
from weft_c.matmul.products import takes_prologue
from weft_c.ops.on_host import reference_rule
from weft_c.processor import Processor
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.source.code import Code
from weft_c.source.expressions import Expression
from weft_c.source.functions import Function, GPUKernel, HostCall, LibraryCall, Source
from weft_c.source.values import ValueEmitter

__all__ = [
    "CUDA",
    "OPENCL",
    "Array",
    "Code",
    "Dialect",
    "ElementWiseKernel",
    "Expression",
    "Function",
    "GPUKernel",
    "GPUKernelGroup",
    "HostCall",
    "KernelBuilder",
    "LibraryCall",
    "Lowering",
    "Processor",
    "Source",
    "ValueEmitter",
    "fourier",
    "fusible",
    "legalized",
    "lower",
    "matmul",
    "needs_scratch",
    "ops",
    "parallel_for",
    "reference_rule",
    "rules",
    "scratch_bytes",
    "spatial",
    "takes_prologue",
]

add_internal_package("weft_c")

"""Kernels as C: what a kernel, and every op that is none, is in OpenCL C and in CUDA C.

A `Processor` tells what to write for, `lower` turns a step of a plan into launches of C functions,
and `Source` collects the functions of a program. Dialects differ in a `Dialect`: a page of macros
and a few lines of data, so that another one takes a single file.
"""

from weft_c import products, sliding, steps
from weft_c.dialect import CUDA, OPENCL, Dialect
from weft_c.evaluation import ElementWiseKernel
from weft_c.function import Function, GPUKernel, HostCall, LibraryCall, Source
from weft_c.group import GPUKernelGroup
from weft_c.kernels import fusible
from weft_c.lowering import Lowering, lower, rules, scratch_bytes
from weft_c.processor import Processor
from weft_c.products import takes_prologue

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
    "lower",
    "products",
    "rules",
    "scratch_bytes",
    "sliding",
    "steps",
    "takes_prologue",
]

"""Kernels as C: what a kernel, and every op that is none, is in OpenCL C and in CUDA C.

A `Processor` tells what to write for, `lower` turns a step of a plan into launches of C functions,
and `Source` collects the functions of a program. Dialects differ in a `Dialect`: a page of macros
and a few lines of data, so that another one takes a single file.
"""

from weft.kernels.c import products, sliding, steps
from weft.kernels.c.dialect import CUDA, OPENCL, Dialect
from weft.kernels.c.evaluation import ElementWiseKernel
from weft.kernels.c.function import Function, GPUKernel, HostCall, LibraryCall, Source
from weft.kernels.c.group import GPUKernelGroup
from weft.kernels.c.kernels import fusible
from weft.kernels.c.lowering import Lowering, lower, rules, scratch_bytes
from weft.kernels.c.processor import Processor
from weft.kernels.c.products import takes_prologue

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

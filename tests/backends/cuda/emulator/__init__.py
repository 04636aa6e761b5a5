"""Kernels in CUDA C and OpenCL C, executed on the host, where everything they do is looked at.

No GPU is needed. g++ compiles the text that a backend writes for a parallel device; work items are
fibers, which take turns at barriers. Each launch runs in several orders, which must give the same.
What is wrong on some device, if not in these orders, is found: accesses outside of what a launch
was given or to memory that nobody has set, accesses that race with those of other work items,
barriers and shuffles that not all reach.

It does not know how long things take, what a compiler for GPUs makes of the text, memory that is
weakly ordered other than as races, nor how exact the device's functions are: it has the host's.
"""

from emulator.compiling import Kernel, compiler
from emulator.launching import ORDERS, Argument, Emulator, EmulatorError, Finding

__all__ = [
    "ORDERS",
    "Argument",
    "Emulator",
    "EmulatorError",
    "Finding",
    "Kernel",
    "compiler",
]

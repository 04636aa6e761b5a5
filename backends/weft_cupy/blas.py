"""cuBLAS by its C interface, since CuPy's calls cannot be captured in CUDA graphs.

Names and constants are those of cublas_v2.h and library_types.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from weft.ir.dtypes import DType
from weft_c.matmul.blas import Gemm
from weft_cupy.device import Device, Queue
from weft_cupy.errors import CuBLASError

_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
"""cudaDataType_t: CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF."""
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_FAST_TF32 = 68, 70, 77
_DEFAULT_ALGORITHM = -1
_SUMS_IN_FULL = 16
"""CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: split sums are not added in 16 bits."""
_FIRST_WITH_LARGE_WORKSPACE = 90
_WORKSPACE, _LARGE_WORKSPACE = 4 << 20, 32 << 20
"""The sizes that cuBLAS's documentation recommends; its own allocations cannot be captured."""


@cache
def library() -> Any:
    """Return cuBLAS, from a Python package or the system; None if it is not installed."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, OSError, RuntimeError):
        return None
    pointer: Any = ctypes.c_void_p
    number: Any = ctypes.c_int
    matrix = [pointer, number, number, ctypes.c_longlong]
    found.cublasCreate_v2.argtypes = [pointer]
    found.cublasDestroy_v2.argtypes = [pointer]
    found.cublasSetStream_v2.argtypes = [pointer, pointer]
    found.cublasSetWorkspace_v2.argtypes = [pointer, pointer, ctypes.c_size_t]
    found.cublasSetMathMode.argtypes = [pointer, number]
    found.cublasGemmStridedBatchedEx.argtypes = [
        pointer, *[number] * 5, pointer, *matrix, *matrix, pointer, *matrix, *[number] * 3
    ]  # fmt: skip
    return found


class Blas:
    """A handle of cuBLAS for a stream; created and used while the device is current.

    Products of 16-bit floats use tensor cores with sums in float32; those of float32 use float32,
    or TF32 on tensor cores with `fast_math`. An unclosed handle is destroyed by a finalizer.
    """

    def __init__(self, queue: Queue, fast_math: bool) -> None:
        self.library = library()
        device = queue.device
        is_large = device.candidate.capability >= _FIRST_WITH_LARGE_WORKSPACE
        size = _LARGE_WORKSPACE if is_large else _WORKSPACE
        self._computes = {
            "float64": _COMPUTE_64F,
            "float32": _COMPUTE_32F_FAST_TF32 if fast_math else _COMPUTE_32F,
        }
        self.workspace = device.memory(size, "the workspace of cuBLAS")
        self.handle = ctypes.c_void_p()
        _checked(self.library.cublasCreate_v2, ctypes.byref(self.handle))
        self._destroy = weakref.finalize(self, _destroy, self.library, device, self.handle)
        self._destroy.atexit = False  # the driver may be shut down by then
        try:
            _checked(self.library.cublasSetStream_v2, self.handle, queue.stream.ptr)
            place = self.workspace.address
            _checked(self.library.cublasSetWorkspace_v2, self.handle, place, size)
            _checked(self.library.cublasSetMathMode, self.handle, _SUMS_IN_FULL)
        except CuBLASError:
            self.close()
            raise

    def product(self, gemm: Gemm, dtype: DType, x: int, y: int, out: int) -> Callable[[], None]:
        """Return a function that multiplies matrices at some addresses, in stream order.

        The function raises CuBLASError.
        """
        kind = _TYPES[dtype.name]
        scalar = ctypes.c_double if dtype.name == "float64" else ctypes.c_float
        one, zero = scalar(1), scalar(0)
        left, right, result = gemm.left, gemm.right, gemm.out
        return partial(
            _checked,
            self.library.cublasGemmStridedBatchedEx,
            self.handle,
            int(left.is_transposed),
            int(right.is_transposed),
            gemm.m, gemm.n, gemm.k,
            ctypes.cast(ctypes.pointer(one), ctypes.c_void_p),
            y, kind, left.leading, left.step,
            x, kind, right.leading, right.step,
            ctypes.cast(ctypes.pointer(zero), ctypes.c_void_p),
            out, kind, result.leading, result.step,
            gemm.batch,
            self._computes.get(dtype.name, _COMPUTE_32F),
            _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def close(self) -> None:
        """Destroy the handle and release the workspace."""
        self._destroy()
        self.workspace.release()


def _checked(function: Callable[..., int], *args: Any) -> None:
    """Call a function of cuBLAS; raises CuBLASError if it fails."""
    status = function(*args)
    if status:
        raise CuBLASError(getattr(function, "__name__", "a call"), status)


def _destroy(library: Any, device: Device, handle: ctypes.c_void_p) -> None:
    with device.handle:
        library.cublasDestroy_v2(handle)

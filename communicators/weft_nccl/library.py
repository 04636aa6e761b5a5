"""CuPy and its bindings of NCCL, which are loaded when a program first uses the communicator."""

from __future__ import annotations

from functools import cache
from typing import Any

from weft.errors import BackendError

OLDEST = 21000
"""NCCL 2.10, the first that adds up bfloat16; the number is that of ``NCCL_VERSION_CODE``."""


@cache
def cupy() -> Any:
    """Return the module `cupy`; raises BackendError if it cannot be imported."""
    try:
        import cupy
    except (ImportError, OSError) as error:
        raise BackendError(
            f"the communicator nccl needs CuPy ({error}): pip install 'weftc[nccl]'"
        ) from error
    return cupy


@cache
def bindings() -> Any:
    """Return the module `cupy.cuda.nccl`, which says by `available` whether NCCL was found."""
    cupy()
    from cupy.cuda import nccl

    return nccl


def nccl() -> Any:
    """Return CuPy's bindings of NCCL; raises BackendError if it is missing or too old."""
    found = bindings()
    if not getattr(found, "available", False):
        raise BackendError(
            "CuPy finds no NCCL, which exists for Linux only: pip install nvidia-nccl-cu13 (for "
            "CUDA 12, nvidia-nccl-cu12), or use the communicator mpi"
        )
    version = min(found.get_version(), found.get_build_version())
    if version < OLDEST:
        raise BackendError(
            f"NCCL {_dotted(version)} is older than {_dotted(OLDEST)}: install a newer one and a "
            "CuPy that was built with it, or use the communicator mpi"
        )
    return found


def _dotted(version: int) -> str:
    """Return a version as text: 21005 is 2.10.5, and before 2.9, 2804 is 2.8.4."""
    major, rest = divmod(version, 10_000 if version >= 10_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"

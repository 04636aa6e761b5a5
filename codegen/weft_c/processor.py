"""Processor: the properties of a device that code generation depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft_c.dialect import Dialect
from weft_tiling.machine import Machine


@dataclass(frozen=True)
class Processor(Machine):
    """The properties of a device that code generation depends on, with those of a `Machine`.

    Attributes
    ----------
    dialect
        The dialect of C that it is programmed in.
    alignment
        The alignment of the addresses of kernel arguments, in bytes.
    access_bytes
        The width of vectorized accesses in bytes, a power of 2, on devices that are not serial; 0
        for scalar accesses.
    access_elements
        The most elements of such an access to operands of arithmetic; copies have no limit.
    has_fp64
        Whether the device supports float64.
    shares_host
        Whether the device works in the host's memory, so that host calls need no copies.
    host_work, host_work_even
        The multiplications from which on the host's BLAS computes a matrix product in shared
        memory: a product with a short side, and any other that stands among kernels. Below, the
        synchronization costs more, and so do the BLAS's threads, which spin while they wait and so
        take cores from the kernels that follow.
    has_blas
        Whether the backend runs a `LibraryCall` named ``matmul``.
    blas_dtypes
        The names of the dtypes that this BLAS multiplies.
    blas_work
        The multiplications of a product above which it is worth a call of this BLAS.
    vector_lanes
        The lanes of a vector of 32-bit elements, in a dialect with vectors.
    vector_registers
        The vectors of sums that fit in registers, beside operands.
    merges_launches
        Whether consecutive small launches become one kernel.
    cases
        The most functions that are merged as cases of one kernel; above 1 for drivers with a high
        fixed cost for each kernel.
    """

    dialect: Dialect
    alignment: int = 128
    access_bytes: int = 0
    access_elements: int = 1 << 16
    has_fp64: bool = True
    shares_host: bool = False
    host_work: int = 160**3
    host_work_even: int = 600**3
    has_blas: bool = False
    blas_dtypes: frozenset[str] = frozenset({"float16", "bfloat16", "float32", "float64"})
    blas_work: int = 2048
    vector_lanes: int = 16
    vector_registers: int = 26
    merges_launches: bool = True
    cases: int = 1

    @property
    def alone(self) -> Processor:
        """The processor of a program with a single op, where the host's BLAS pays off earlier."""
        return replace(self, host_work_even=self.host_work)

    @property
    def lanes(self) -> int:
        """The lanes of vectors in kernels; 1 for scalar code."""
        return self.vector_lanes if self.is_serial and self.dialect.has_vectors else 1

    @property
    def vector_bytes(self) -> int:
        """The width of vectorized accesses in bytes; 0 for scalar accesses.

        The host's arrays are aligned to their elements only, which rules out wider accesses.
        """
        if self.is_serial or self.shares_host:
            return 0
        return min(self.access_bytes, self.alignment)

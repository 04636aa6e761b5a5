"""Processor: the device that kernels are written for, in the few facts that decide their form."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft_c.dialect import Dialect


@dataclass(frozen=True)
class Processor:
    """A device, as kernels see it.

    Attributes
    ----------
    dialect
        The dialect of C that it is programmed in.
    is_serial
        Whether a work item is best given a long stretch of neighbouring elements, which it takes in
        vectors, as on a CPU; else neighbouring work items take neighbouring elements.
    units
        How many work groups run at the same time: cores, or multiprocessors.
    group
        The work items in a group, where they are not serial.
    local_bytes
        The memory that a work group shares.
    alignment
        The bytes to which addresses given to kernels are aligned.
    access_bytes
        The bytes that a work item best loads or stores at once where it is not serial, a power of
        2; 0 for an element at a time.
    has_fp64
        Whether it computes in float64.
    has_int64_atomics
        Whether ``ATOMIC_CAS_U64`` is there.
    shares_host
        Whether its memory is the host's, so that the host can take part without copies.
    host_work, host_work_even
        The multiplications from which on the host's BLAS makes a product of matrices, where the
        memory is the host's: one with a short side, and one without that stands among other
        kernels. Then it is worth that the device waits, and that threads of the BLAS, which wait
        for more by spinning, take units from the kernels that follow.
    has_blas
        Whether the backend runs a `LibraryCall` named ``matmul``.
    cases
        The most functions that are cases of one kernel: several where a kernel takes its driver
        long, whatever is in it.
    """

    dialect: Dialect
    is_serial: bool
    units: int
    group: int = 256
    local_bytes: int = 32768
    alignment: int = 128
    access_bytes: int = 0
    has_fp64: bool = True
    has_int64_atomics: bool = True
    shares_host: bool = False
    host_work: int = 160**3
    host_work_even: int = 600**3
    has_blas: bool = False
    cases: int = 1

    @property
    def alone(self) -> Processor:
        """The processor for a program of a single op."""
        return replace(self, host_work_even=self.host_work)

    @property
    def lanes(self) -> int:
        """The lanes of the vectors that kernels compute with; 1 for none."""
        return 16 if self.is_serial and self.dialect.has_vectors else 1

    @property
    def vector_bytes(self) -> int:
        """The bytes of neighbouring elements that kernels load and store at once; 0 for none.

        Arrays of the host, where kernels work on them, are aligned to no more than their elements.
        """
        if self.is_serial or self.shares_host:
            return 0
        return min(self.access_bytes, self.alignment)

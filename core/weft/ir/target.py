"""Targets: the capabilities of a backend, as passes and the planner query them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.errors import ArgumentError
from weft.ir.dtypes import DType, int64, name_of
from weft.ir.op import Op
from weft.ir.tensor import CompositeOp

TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "float32": (2e-5, 2e-5),
    "float64": (1e-12, 1e-12),
    "complex64": (2e-5, 2e-5),
    "complex128": (1e-12, 1e-12),
}


def never(op: Op) -> bool:
    """Fuse nothing."""
    return False


def as_it_is(op: Op) -> None:
    """Replace nothing."""


def no_reason(op: Op) -> str:
    """Give no reason."""
    return ""


def no_workspace(op: Op) -> int:
    """Ask for no scratch memory."""
    return 0


@dataclass(frozen=True)
class Target:
    """What a backend can do.

    Attributes
    ----------
    name
        The backend's name.
    supports
        Whether the backend has a rule for an op; composites it has one for are kept whole.
    refusal
        Why an op is not supported, where there is more to say than that it has no rule.
    rules
        The address of the backend's table of rules, which messages name; empty for a table that
        only plugins' hooks get.
    legalized
        What the backend computes in the place of a composite or a matrix product, such as that with
        a rearranged matrix, or None for the op itself; asked by the pass `decompose`, before
        constants are folded.
    fusible
        Whether an op can be an instruction of a fused kernel, which the backend then runs by its
        rule for `FusedOp`; never, unless the backend says so.
    max_kernel_values
        The most operands and instructions that one kernel may have together.
    max_kernel_buffers
        The most storages that one kernel may touch, its distinct operands and its results together,
        each counted as a storage of its own; None for any number. A constant without axes is not
        one, since kernels have its value in their text.
    max_product_row
        The most columns of a matrix product whose rows its kernel may also reduce; 0 for none.
    takes_prologue
        Whether the kernel of a matrix product may also compute its first operand, from elements at
        the same place: so it is where the product reads each of them about once. Never, unless the
        backend says so.
    repeats_kernels
        Whether kernels may repeat their body at each point; see `weft.kernels.Kernel.count`.
    max_elementwise_rank, max_reduction_rank
        The most axes that elementwise ops, and that reductions, may have; None for any number.
    alignment
        The bytes to which tensors in the arena are aligned, a multiple of `word_bytes`.
    word_bytes
        The bytes of the smallest word that the device can store. No two values share a word: each
        begins a new one, and storages are whole words long.
    workspace
        The scratch bytes that an op needs while it runs.
    dtypes
        The names of the dtypes that the device computes with.
    index_dtype
        The dtype of positions, indices and counts inside of programs: int64, or int32 if the device
        has no int64. The pass `narrow-integers` then computes 64-bit integers in 32 bits where
        their values are known to fit.
    lacks
        By the name of an op class that the backend cannot compute, the reason. The conformance kit
        expects such an op to be refused, and fails if it is computed after all.
    runs_graphs
        Whether it runs calls, loops and choices by itself; else passes put the ops of the graphs in
        their place, and a loop of unknown length is refused.
    lends_results
        Whether a call of a graph may write straight into the memory of a computation's results,
        which is another one each time; else what it yields is copied there.
    writes_arguments
        Whether a program may compute a result in the memory of a donated argument, which it then
        finds in the array of that result.
    fast_math
        Whether passes may change values in rare cases, such as ``0 * x`` to 0.
    special_values
        Whether NaN and infinities are computed as NumPy does. A device whose compilers may assume
        that there are none says no; the conformance kit then asks for no value that depends on one.
    tolerances
        By dtype name, the relative and absolute distance from an exact result that is accepted.
    """

    name: str
    supports: Callable[[Op], bool]
    refusal: Callable[[Op], str] = no_reason
    rules: str = ""
    legalized: Callable[[Op], Op | None] = as_it_is
    fusible: Callable[[Op], bool] = never
    max_kernel_values: int = 96
    max_kernel_buffers: int | None = None
    max_product_row: int = 8192
    takes_prologue: Callable[[Op], bool] = never
    repeats_kernels: bool = False
    max_elementwise_rank: int | None = None
    max_reduction_rank: int | None = None
    alignment: int = 256
    word_bytes: int = 1
    workspace: Callable[[Op], int] = no_workspace
    dtypes: frozenset[str] = frozenset(
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()  # noqa: SIM905
    )
    index_dtype: DType = int64
    lacks: Mapping[str, str] = field(default_factory=dict)
    runs_graphs: bool = False
    lends_results: bool = False
    writes_arguments: bool = False
    fast_math: bool = False
    special_values: bool = True
    tolerances: Mapping[str, tuple[float, float]] = field(default_factory=lambda: TOLERANCES)

    def __post_init__(self) -> None:
        if self.max_kernel_buffers is not None and self.max_kernel_buffers < 3:
            raise ArgumentError(f"target {self.name}: a kernel must touch 3 buffers at least")
        if self.alignment % self.word_bytes:
            problem = (
                f"alignment {self.alignment} is not a multiple of word_bytes {self.word_bytes}"
            )
            raise ArgumentError(f"target {self.name}: {problem}")
        if not self.runs_graphs:
            reason = "it has no loops whose length follows from data"
            object.__setattr__(self, "lacks", {"WhileOp": reason, **self.lacks})

    def keeps_whole(self, op: Op) -> bool:
        """Whether an op needs no decomposition: it is primitive, or the backend has a rule."""
        return not isinstance(op, CompositeOp) or self.supports(op)

    def whole_words(self, nbytes: int) -> int:
        """Return a number of bytes rounded up to whole words."""
        return -(-nbytes // self.word_bytes) * self.word_bytes

    def tolerance(self, dtype: DType) -> tuple[float, float]:
        """Return the relative and absolute tolerance for a dtype; zero for integers and bool."""
        return self.tolerances.get(name_of(dtype), (0.0, 0.0))

    def has_dtype(self, dtype: DType) -> bool:
        """Whether the backend computes with a dtype."""
        return name_of(dtype) in self.dtypes

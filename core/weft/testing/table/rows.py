"""The rows of the op table, and the shapes that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import WeftError
from weft.ir.axes import Axis
from weft.ir.tensor import TensorOp

Shapes = tuple[tuple[Any, ...], ...]

FLOATS = ("float32", "float64")
NUMBERS = (*FLOATS, "int32")
ALL = (*NUMBERS, "bool")
NARROW = ("float16", "bfloat16")
"""The rarer dtypes of a row of floats, run with its first shapes if a target supports them."""
INTEGERS = ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64")
"""The rarer dtypes of a row of integers."""

N, C, H, W = Axis(3, "N"), Axis(4, "C"), Axis(2, "H"), Axis(5, "W")
REC = Axis(2, "REC")

ONE: Shapes = (
    ((2, 3, 4),),
    ((),), ((5,),), ((3, 4),), ((2, 1, 3, 2),), ((2, 2, 1, 2, 3),),
    ((1,),), ((1, 1, 1),), ((0,),), ((2, 0, 3),), ((H, C),),
)  # fmt: skip
"""Shapes of one operand of rank 0 to 5, with lengths 1 and 0, and with names."""

ONE_FILLED: Shapes = tuple(shapes for shapes in ONE if 0 not in shapes[0])
"""The shapes with at least one element."""

TWO: Shapes = (
    ((2, 3, 4), (2, 3, 4)),
    ((), ()), ((5,), ()), ((), (5,)), ((3, 4), (4,)), ((3, 1), (2, 1, 4)), ((2, 1, 3, 2), (3, 1)),
    ((2, 2, 1, 2, 3), (2, 1, 2, 1, 3)), ((1,), (4,)), ((0,), (1,)), ((2, 0, 3), (3,)),
    ((H, C), (H, C)), ((H, C), (C, H)), ((C,), (H, C)), ((H, C), (C, N)), ((H, C), ()),
)  # fmt: skip
"""Shapes of two operands that broadcast, by NumPy's rule or by name."""

MATRIX: Shapes = (((3, 4),),)
CUBE: Shapes = (((2, 3, 4),),)
NAMED: Shapes = (((N, C, H),),)


@dataclass(frozen=True)
class Operand:
    """An operand of a row.

    Attributes
    ----------
    domain
        The domain of its samples; see `weft.testing.samples`.
    dtype
        Its dtype, if not the dtype of the run.
    differentiable
        Whether it has a gradient.
    """

    domain: str = "any"
    dtype: str | None = None
    differentiable: bool = True


@dataclass(frozen=True)
class Row:
    """A use of a public function, with its expected value.

    Attributes
    ----------
    function
        Its name in `weft`, dotted for one of a module inside.
    build
        A function from operands to the op.
    operands
        The operands.
    shapes
        The alternative shapes: for each operand a shape, or a tuple of axes.
    dtypes
        The dtypes of the runs.
    expected
        The same in NumPy, as a function of arrays, for the first shapes.
    case
        The name of the row among those of its function.
    twice
        Whether the second derivative is tested as well.
    is_special
        Whether it is defined at NaN, infinities, and all pairs of special integers.
    is_generic
        Whether it is also run in the rarer dtypes, 16-bit floats and other integers.
    """

    function: str
    build: Callable[..., TensorOp]
    operands: tuple[Operand, ...] = (Operand(),)
    shapes: Shapes = CUBE
    dtypes: tuple[str, ...] = FLOATS
    expected: Callable[..., Any] | None = None
    case: str = ""
    twice: bool = False
    is_special: bool = False
    is_generic: bool = True

    @property
    def name(self) -> str:
        """The function, and the case if there is one."""
        return f"{self.function}-{self.case}" if self.case else self.function

    @property
    def gradients(self) -> tuple[int, ...]:
        """The numbers of the operands with a gradient."""
        return tuple(i for i, operand in enumerate(self.operands) if operand.differentiable)


@dataclass(frozen=True)
class Refusal:
    """A wrong use of a public function, refused while the graph is built.

    Attributes
    ----------
    function
        Its name in `weft`, dotted for one of a module inside.
    case
        The name of the refusal among those of its function.
    build
        A function with the wrong call.
    error
        The class of its error.
    words
        A regular expression found in the message.
    """

    function: str
    case: str
    build: Callable[[], Any]
    error: type[WeftError]
    words: str

    @property
    def name(self) -> str:
        """The function and the case."""
        return f"{self.function}-{self.case}"


FIXED = Operand(differentiable=False)
"""An operand without a gradient."""


def operands(*domains: str) -> tuple[Operand, ...]:
    """Return differentiable operands of these domains."""
    return tuple(Operand(domain) for domain in domains)


def fixed(*domains: str) -> tuple[Operand, ...]:
    """Return operands of these domains that have no gradient."""
    return tuple(Operand(domain, differentiable=False) for domain in domains)

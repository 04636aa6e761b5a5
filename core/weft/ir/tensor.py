"""Tensor ops with Python's operators, and composite ops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from numpy.typing import ArrayLike

from weft.errors import DTypeError
from weft.ir import upcalls
from weft.ir.op import Op

operators: dict[str, Callable[..., TensorOp]] = {}
"""The functions behind Python's operators; the modules of `weft.ops` fill it."""


class TensorOp(Op):
    """An op that yields a tensor; Python's operators build further ops from it."""

    is_tensor = True
    __array_ufunc__ = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.axes)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The lengths of the axes."""
        return self.axes.lengths

    @property
    def ndim(self) -> int:
        """The number of axes, under NumPy's name."""
        return len(self.axes)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.axes.size

    @property
    def T(self) -> TensorOp:  # noqa: N802
        """The tensor with its axes in reverse order."""
        return operators["transpose"](self)

    @property
    def mT(self) -> TensorOp:  # noqa: N802
        """The tensor with its last two axes swapped."""
        return operators["matrix_transpose"](self)

    @property
    def schemas(self) -> list[Any]:
        """What the op means as part of a larger pattern, newest first."""
        found: list[Any] = self.__dict__.setdefault("_schemas", [])
        return found

    def add_schema(self, schema: Any) -> None:
        """Put a schema in front of the others; the newest with a composite gives the meaning."""
        self.schemas.insert(0, schema)

    def find_schema(self, kind: type) -> Any:
        """Return the newest schema of a class, or None."""
        return next((schema for schema in self.schemas if isinstance(schema, kind)), None)

    @property
    def meaning(self) -> Op:
        """The composite that the newest schema names, or the op itself."""
        for schema in self.__dict__.get("_schemas", ()):
            if schema.composite is not None:
                return schema.composite  # type: ignore[no-any-return]
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            function = getattr(sys.modules["weft"], name, None)
            hint = f": use weft.{name}(x)" if callable(function) else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def __add__(self, other: TensorLike) -> TensorOp:
        return operators["add"](self, other)

    def __radd__(self, other: TensorLike) -> TensorOp:
        return operators["add"](other, self)

    def __sub__(self, other: TensorLike) -> TensorOp:
        return operators["subtract"](self, other)

    def __rsub__(self, other: TensorLike) -> TensorOp:
        return operators["subtract"](other, self)

    def __mul__(self, other: TensorLike) -> TensorOp:
        return operators["multiply"](self, other)

    def __rmul__(self, other: TensorLike) -> TensorOp:
        return operators["multiply"](other, self)

    def __truediv__(self, other: TensorLike) -> TensorOp:
        return operators["divide"](self, other)

    def __rtruediv__(self, other: TensorLike) -> TensorOp:
        return operators["divide"](other, self)

    def __floordiv__(self, other: TensorLike) -> TensorOp:
        return operators["floordivide"](self, other)

    def __rfloordiv__(self, other: TensorLike) -> TensorOp:
        return operators["floordivide"](other, self)

    def __mod__(self, other: TensorLike) -> TensorOp:
        return operators["mod"](self, other)

    def __rmod__(self, other: TensorLike) -> TensorOp:
        return operators["mod"](other, self)

    def __pow__(self, other: TensorLike) -> TensorOp:
        return operators["power"](self, other)

    def __rpow__(self, other: TensorLike) -> TensorOp:
        return operators["power"](other, self)

    def __matmul__(self, other: TensorLike) -> TensorOp:
        return operators["matmul"](self, other)

    def __rmatmul__(self, other: TensorLike) -> TensorOp:
        return operators["matmul"](other, self)

    def __neg__(self) -> TensorOp:
        return operators["negative"](self)

    def __pos__(self) -> TensorOp:
        return self

    def __abs__(self) -> TensorOp:
        return operators["absolute"](self)

    def __lt__(self, other: TensorLike) -> TensorOp:
        return operators["less"](self, other)

    def __le__(self, other: TensorLike) -> TensorOp:
        return operators["less_equal"](self, other)

    def __gt__(self, other: TensorLike) -> TensorOp:
        return operators["greater"](self, other)

    def __ge__(self, other: TensorLike) -> TensorOp:
        return operators["greater_equal"](self, other)

    def __and__(self, other: TensorLike) -> TensorOp:
        return operators["and"](self, other)

    def __rand__(self, other: TensorLike) -> TensorOp:
        return operators["and"](other, self)

    def __or__(self, other: TensorLike) -> TensorOp:
        return operators["or"](self, other)

    def __ror__(self, other: TensorLike) -> TensorOp:
        return operators["or"](other, self)

    def __xor__(self, other: TensorLike) -> TensorOp:
        return operators["xor"](self, other)

    def __rxor__(self, other: TensorLike) -> TensorOp:
        return operators["xor"](other, self)

    def __lshift__(self, other: TensorLike) -> TensorOp:
        return operators["lshift"](self, other)

    def __rlshift__(self, other: TensorLike) -> TensorOp:
        return operators["lshift"](other, self)

    def __rshift__(self, other: TensorLike) -> TensorOp:
        return operators["rshift"](self, other)

    def __rrshift__(self, other: TensorLike) -> TensorOp:
        return operators["rshift"](other, self)

    def __invert__(self) -> TensorOp:
        return operators["invert"](self)

    def __getitem__(self, item: Any) -> TensorOp:
        return operators["getitem"](self, item)

    def __setitem__(self, item: Any, value: TensorLike) -> None:
        operators["set_item"](self, item, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.axes or not isinstance(self.axes[0].length, int):
            problem = "is iterated along its first axis, which has to have a known length"
            raise DTypeError(self.explain(f"a tensor op {problem}, not {self.axes}"))
        return iter([self[place] for place in range(self.axes[0].length)])

    def __bool__(self) -> bool:
        raise DTypeError(
            self.explain("a tensor op has no truth value before it is computed: use where()")
        )

    def __len__(self) -> int:
        raise DTypeError(self.explain("a tensor op has no len(): use axes, shape or rank"))

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise self._valueless()

    def __float__(self) -> float:
        raise self._valueless()

    def __int__(self) -> int:
        raise self._valueless()

    def __complex__(self) -> complex:
        raise self._valueless()

    def _valueless(self) -> DTypeError:
        return DTypeError(
            self.explain(
                "a tensor op has no value before it is computed: make a computation of it, and "
                "let weft's functions take the place of NumPy's"
            )
        )


TensorLike = TensorOp | ArrayLike
"""A tensor, or what `as_op` makes a constant of: a number, an array or nested lists."""


class CompositeOp(TensorOp):
    """An op with a decomposition into simpler ones, which backends without a rule for it get."""

    bypassed_by: ClassVar[tuple[type[Op], ...]] = ()
    """Ops that compute with this one's operand where they were given its result."""

    def decompose(self, *args: Any) -> TensorOp:
        """Return the same value made from simpler ops."""
        raise NotImplementedError

    def generate_adjoints(self, delta: Any, *args: Any) -> Iterable[Any]:
        """Differentiate the decomposition; a class overrides this where it knows better."""
        return upcalls.adjoints_through(self.decompose(*args), delta, args)

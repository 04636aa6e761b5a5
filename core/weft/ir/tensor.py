"""Tensor ops with Python's operators, and composite ops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from numpy.typing import ArrayLike

from weft.errors import DTypeError
from weft.ir import upcalls
from weft.ir.methods import ArrayOp
from weft.ir.op import Op
from weft.support.spelling import ADVICE, FUNCTIONS, UnknownAttribute, instead_of

_INSTEAD_OF_INTEGER = (
    "fori_loop() and while_loop() take it as a bound, x[i] and take() as an index, and x.shape has "
    "the lengths that are known"
)
_INSTEAD_OF_FLOAT = "weft's functions take the place of those of math, and astype() casts"
_INSTEAD_OF_ARRAY = "weft's functions take the place of NumPy's, and stack() joins ops"

operators: dict[str, Callable[..., TensorOp]] = {}
"""The functions behind Python's operators; the modules of `weft.ops` fill it."""


class TensorOp(ArrayOp):
    """An op that yields a tensor; Python's operators build further ops from it."""

    is_tensor = True
    instead_of_truth: ClassVar[str] = (
        "where() or cond() choose by it, while_loop() repeats, and &, | and ~ take the place of "
        "`and`, `or` and `not`"
    )

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
            problem = f"{type(self).__name__} has no attribute {name!r}"
            raise UnknownAttribute(problem, partial(_function_for, name))

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

    def __eq__(self, other: object) -> Any:
        return operators["equal"](self, other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return operators["not_equal"](self, other) if _is_operand(other) else NotImplemented

    # By identity: a dictionary finds an op by `is`, before it would ask for `==`.
    __hash__ = Op.__hash__

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

    def __bool__(self) -> bool:
        raise self._without("truth value", self.instead_of_truth)

    def __index__(self) -> int:
        raise self._without("integer value", _INSTEAD_OF_INTEGER)

    def __int__(self) -> int:
        raise self._without("integer value", _INSTEAD_OF_INTEGER)

    def __float__(self) -> float:
        raise self._without("value as a number", _INSTEAD_OF_FLOAT)

    def __complex__(self) -> complex:
        raise self._without("value as a number", _INSTEAD_OF_FLOAT)

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise self._without("value as a number", "weft.round() rounds tensors")

    def __format__(self, form: str) -> str:
        if form:
            raise self._without("value to format", "weft.print_op() prints it in every call")
        return super().__format__(form)

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise self._without("value as an array", _INSTEAD_OF_ARRAY)

    def _without(self, value: str, instead: str) -> DTypeError:
        """Return the error for an op whose value Python or NumPy asks for."""
        return DTypeError(self.explain(upcalls.without_value(self, value, instead)))


TensorLike = TensorOp | ArrayLike
"""A tensor, or what `as_op` makes a constant of: a number, an array or nested lists."""


def _function_for(name: str) -> str:
    """Return which function of weft to use in the place of an attribute that ops do not have."""
    functions: list[str] = sys.modules["weft"].__all__
    known = name if name in functions and name not in ADVICE else FUNCTIONS.get(name, "")
    return f": use weft.{known}(x)" if known else instead_of(name, functions)


def _is_operand(other: object) -> bool:
    """Whether `==` compares elements with it: tensors, numbers, arrays and lists of them."""
    if isinstance(other, TensorOp | Number) or type(other) in (list, tuple):
        return True
    return hasattr(other, "__array__")


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

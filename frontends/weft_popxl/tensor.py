"""Tensor: an immutable handle to what an op of a graph yields, with Python's operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from weft_popxl import dtypes
from weft_popxl.arguments import wholes
from weft_popxl.errors import refuse_type, refuse_value
from weft_popxl.storage import Place, Storage

if TYPE_CHECKING:
    from weft import TensorOp
    from weft_popxl.graph import Graph
    from weft_popxl.ir import Ir
    from weft_popxl.record import Record

operators: dict[str, Callable[..., Any]] = {}
"""The functions behind Python's operators and the methods; the modules of `ops` fill it."""


@dataclass(frozen=True)
class TensorSpec(Mapping[str, Any]):
    """What `create_graph` needs to know of an input.

    It is a mapping too, of `shape`, `dtype` and `meta_shape`: ``graph_input(**spec, name="x")``.

    Attributes
    ----------
    shape, dtype
        Of the tensors to be passed.
    meta_shape
        The shape before replicas share a tensor, which has no meaning here.
    by_ref
        Whether a call changes what it is given where the graph changes this input.
    """

    shape: tuple[int, ...]
    dtype: dtypes.dtype
    meta_shape: tuple[int, ...] = ()
    by_ref: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape))
        object.__setattr__(self, "dtype", dtypes.dtype.as_dtype(self.dtype))
        object.__setattr__(self, "meta_shape", checked_shape(self.meta_shape))

    def to_dict(self) -> dict[str, Any]:
        """Return what it is as a mapping."""
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[Any, ...]:
        """Return shape, dtype and meta_shape."""
        return tuple(self.to_dict().values())

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())


class Tensor:
    """What an op of a graph yields; made by ops, never constructed.

    Attributes
    ----------
    id
        The name with that of the graph before it, unique in the Ir.
    name
        The id without the graph's.
    graph, ir
        Where it belongs.
    shape, dtype
        As a tuple of integers, and a popxl dtype.
    by_ref
        Whether it is an input that a call passes by reference.
    label
        The name as it was given, before it was made unique.
    """

    id: str
    graph: Graph
    by_ref: bool
    op: TensorOp
    place: Place
    record: Record | None
    label: str

    def __init__(self, *args: Any, **options: Any) -> None:
        refuse_type(f"{type(self).__name__}s are made by ops, variable, constant and graph_input")

    @classmethod
    def _made(
        cls,
        graph: Graph,
        identifier: str,
        op: TensorOp,
        *,
        place: Place | None = None,
        by_ref: bool = False,
        record: Record | None = None,
        label: str = "t",
    ) -> Any:
        made = object.__new__(cls)
        made.__dict__.update(
            id=identifier,
            graph=graph,
            op=op,
            place=place or Storage(op),
            by_ref=by_ref,
            record=record,
            label=label,
        )
        return made

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{self!r} is immutable: {name!r} cannot be set")

    @property
    def ir(self) -> Ir:
        """The Ir that it belongs to."""
        return self.graph.ir

    @property
    def name(self) -> str:
        """The id without the graph's."""
        return self.graph._without_scope(self.id)

    @property
    def scope(self) -> str:
        """What is before the last slash of the id: the graph and the scopes of names."""
        return self.id.rpartition("/")[0]

    @property
    def dtype(self) -> dtypes.dtype:
        """The dtype."""
        return dtypes.dtype.as_dtype(self.op.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its dimensions."""
        return tuple(self.op.shape)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nelms(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """The shape before replicas share a tensor: empty, as none is shared here."""
        return ()

    def strides(self, shape: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return for each dimension the bytes to the next element, as NumPy has them.

        With a `shape`, those of a tensor of this dtype that has it.
        """
        lengths = self.shape if shape is None else checked_shape(shape)
        after = (math.prod(lengths[place + 1 :]) for place in range(len(lengths)))
        return tuple(self.dtype.itemsize * count for count in after)

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype, to create a graph with."""
        return TensorSpec(self.shape, self.dtype, by_ref=self.by_ref)

    @property
    def T(self) -> Tensor:  # noqa: N802
        """The tensor with its dimensions in reverse order."""
        return self._applied("transpose")

    @property
    def T_(self) -> Tensor:  # noqa: N802
        """The same memory with its dimensions in reverse order."""
        return self._applied("transpose_")

    def _applied(self, function: str, *args: Any) -> Tensor:
        made: Tensor = operators[function](self, *args)
        return made

    def transpose(self, permutation: Iterable[int] | None = None) -> Tensor:
        """Return it with permuted dimensions, in reverse order without a permutation."""
        return self._applied("transpose", permutation)

    def transpose_(self, permutation: Iterable[int] | None = None) -> Tensor:
        """Return the same memory with permuted dimensions."""
        return self._applied("transpose_", permutation)

    def reshape(self, shape: Iterable[int]) -> Tensor:
        """Return it in another shape, in which one length may be -1."""
        return self._applied("reshape", shape)

    def reshape_(self, shape: Iterable[int]) -> Tensor:
        """Return the same memory in another shape."""
        return self._applied("reshape_", shape)

    def flatten(self) -> Tensor:
        """Return it with one dimension."""
        return self._applied("flatten")

    def flatten_(self) -> Tensor:
        """Return the same memory with one dimension."""
        return self._applied("flatten_")

    def squeeze(self, axes: Iterable[int] | None = None) -> Tensor:
        """Return it without dimensions of length 1: all, or those given."""
        return self._applied("squeeze", axes)

    def detach(self) -> Tensor:
        """Return it, and let no gradient through."""
        return self._applied("detach")

    def detach_(self) -> Tensor:
        """Return the same memory, and let no gradient through."""
        return self._applied("detach_")

    def diag(self) -> Tensor:
        """Return the diagonal of a matrix; raises ValueError for other ranks than 2."""
        return self._applied("diag")

    def __add__(self, other: Any) -> Tensor:
        return self._applied("add", other)

    def __radd__(self, other: Any) -> Tensor:
        return _reflected("add", other, self)

    def __iadd__(self, other: Any) -> Tensor:
        return self._applied("add_", other)

    def __sub__(self, other: Any) -> Tensor:
        return self._applied("sub", other)

    def __rsub__(self, other: Any) -> Tensor:
        return _reflected("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self._applied("mul", other)

    def __rmul__(self, other: Any) -> Tensor:
        return _reflected("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return self._applied("div", other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _reflected("div", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return self._applied("fmod", other)

    def __rmod__(self, other: Any) -> Tensor:
        return _reflected("fmod", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return self._applied("pow", other)

    def __rpow__(self, other: Any) -> Tensor:
        return _reflected("pow", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return self._applied("matmul", other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _reflected("matmul", other, self)

    def __and__(self, other: Any) -> Tensor:
        return self._applied("logical_and", other)

    def __rand__(self, other: Any) -> Tensor:
        return _reflected("logical_and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return self._applied("logical_or", other)

    def __ror__(self, other: Any) -> Tensor:
        return _reflected("logical_or", other, self)

    def __invert__(self) -> Tensor:
        return self._applied("logical_not")

    def __lt__(self, other: Any) -> Tensor:
        return self._applied("less", other)

    def __le__(self, other: Any) -> Tensor:
        return self._applied("less_equal", other)

    def __gt__(self, other: Any) -> Tensor:
        return self._applied("greater", other)

    def __ge__(self, other: Any) -> Tensor:
        return self._applied("greater_equal", other)

    def __neg__(self) -> Tensor:
        return self._applied("negate")

    def __abs__(self) -> Tensor:
        return self._applied("abs")

    __array_ufunc__ = None

    def __getitem__(self, key: Any) -> Tensor:
        return self._applied("getitem", key)

    def __len__(self) -> int:
        if not self.rank:
            refuse_value(f"{self!r} is a scalar, which has no length")
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        refuse_type(f"{self!r} cannot be iterated: index it, or use ops.split")

    def __contains__(self, value: Any) -> NoReturn:
        refuse_type(f"what {self!r} contains is known only when it is computed")

    def __bool__(self) -> NoReturn:
        refuse_type(f"{self!r} has no truth value before it is computed: use ops.where")

    def __repr__(self) -> str:
        return f"{type(self).__name__}[id={self.id} shape={self.shape} dtype={self.dtype.name}]"


class Variable(Tensor):
    """A tensor of the main graph that keeps its value from one run to the next.

    Attributes
    ----------
    data
        The first value, as an array.
    """

    data: Any


class Constant(Tensor):
    """A tensor whose value is known while the graph is built.

    Attributes
    ----------
    data
        The value, as an array.
    """

    data: Any


class TensorByRef(Tensor):
    """As the annotation of a parameter, has calls pass it by reference."""


def _reflected(function: str, left: Any, right: Tensor) -> Tensor:
    made: Tensor = operators[function](left, right)
    return made


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; raises TypeError for what is none, ValueError for lengths < 0."""
    return tuple(wholes("a length of a shape", shape, least=0))

"""Tensor: an immutable handle of a value in a graph, with Python's operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Self

from weft_popxl import dtypes
from weft_popxl.arguments import wholes
from weft_popxl.errors import refuse_type, refuse_value
from weft_popxl.storage import Place, Storage

if TYPE_CHECKING:
    from weft import TensorOp
    from weft_popxl.graph import Graph
    from weft_popxl.ir import Ir
    from weft_popxl.record import Record
    from weft_popxl.replica_grouping import ReplicaGrouping

operators: dict[str, Callable[..., Any]] = {}
"""The functions of Python's operators and of the methods, registered by the modules of `ops`."""


@dataclass(frozen=True)
class TensorSpec(Mapping[str, Any]):
    """The description of an input for `create_graph`.

    It is also a mapping of `shape`, `dtype` and `meta_shape`: ``graph_input(**spec, name="x")``.

    Attributes
    ----------
    shape, dtype
        Of the input.
    meta_shape
        The shape before replicas share a tensor, without effect.
    by_ref
        Whether in-place changes of the input apply to the caller's tensor.
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
        """Return the description as a mapping."""
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
    """A value in a graph, created by ops, never constructed directly.

    Attributes
    ----------
    id
        The name prefixed with the graph's, unique in the Ir.
    name
        The id without the prefix.
    graph, ir
        The graph and the Ir of the tensor.
    shape, dtype
        A tuple of integers, and a popxl dtype.
    by_ref
        Whether it is an input that is passed by reference.
    label
        The name given by the user, which need not be unique.
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
    ) -> Self:
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
        """The id without the prefix of the graph."""
        return self.graph._without_scope(self.id)

    @property
    def scope(self) -> str:
        """The part of the id before the last slash: the graph and the name scopes."""
        return self.id.rpartition("/")[0]

    @property
    def dtype(self) -> dtypes.dtype:
        """The dtype."""
        return dtypes.dtype.as_dtype(self.op.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
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
        """The shape before replicas share a tensor: empty, since none is shared."""
        return ()

    def strides(self, shape: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return the strides in bytes of a contiguous array, as in NumPy.

        `shape` replaces the shape of the tensor.
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
        """A view with the dimensions in reverse order."""
        return self._applied("transpose_")

    def _applied(self, function: str, *args: Any) -> Tensor:
        made: Tensor = operators[function](self, *args)
        return made

    def transpose(self, permutation: Iterable[int] | None = None) -> Tensor:
        """Return it with permuted dimensions, in reverse order without a permutation."""
        return self._applied("transpose", permutation)

    def transpose_(self, permutation: Iterable[int] | None = None) -> Tensor:
        """Return a view with permuted dimensions."""
        return self._applied("transpose_", permutation)

    def reshape(self, shape: Iterable[int]) -> Tensor:
        """Return it in another shape, in which one length may be -1."""
        return self._applied("reshape", shape)

    def reshape_(self, shape: Iterable[int]) -> Tensor:
        """Return a view with another shape."""
        return self._applied("reshape_", shape)

    def flatten(self) -> Tensor:
        """Return it with one dimension."""
        return self._applied("flatten")

    def flatten_(self) -> Tensor:
        """Return a view with one dimension."""
        return self._applied("flatten_")

    def squeeze(self, axes: Iterable[int] | None = None) -> Tensor:
        """Return it without dimensions of length 1: all, or those given."""
        return self._applied("squeeze", axes)

    def detach(self) -> Tensor:
        """Return the tensor without a gradient."""
        return self._applied("detach")

    def detach_(self) -> Tensor:
        """Return a view without a gradient."""
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
    """A tensor of the main graph that keeps its value between runs.

    Attributes
    ----------
    data
        The initial value, as an array; with several groups of replicas, that of each.
    replica_grouping
        The groups of replicas that have the same initial value.
    retrieval_mode
        ``one_per_group`` or ``all_replicas``, as it was given.
    """

    data: Any
    replica_grouping: ReplicaGrouping
    retrieval_mode: str

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """The shape that a replica has."""
        return self.shape

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """The shape of the initial value, with a first axis for the groups if there are several."""
        count = self.replica_grouping.num_groups
        return (count, *self.shape) if count > 1 else self.shape


class Constant(Tensor):
    """A tensor whose value is known during construction.

    Attributes
    ----------
    data
        The value, as an array.
    """

    data: Any


class TensorByRef(Tensor):
    """An annotation for parameters that are passed by reference."""


def _reflected(function: str, left: Any, right: Tensor) -> Tensor:
    made: Tensor = operators[function](left, right)
    return made


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; raises TypeError for invalid ones, ValueError for lengths < 0."""
    return tuple(wholes("a length of a shape", shape, least=0))

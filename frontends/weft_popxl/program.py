"""A program under construction: an Ir, its graphs, their ops and tensors, and the streams.

A tensor has its graph, a graph its tensors and its Ir, and an Ir its graphs and streams. So these
classes are one module. The context, the innermost graph that is open, is an immutable value in a
context variable: threads and tasks have separate contexts, and leaving a context, even by an
exception, restores the previous one.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self, TypeVar

import weft
from weft import TensorOp
from weft.communicators import connected
from weft.ir.results import ResultOp
from weft.support import source
from weft_popxl import dtypes
from weft_popxl.arguments import text, whole
from weft_popxl.dot import write_dot
from weft_popxl.errors import ContextError, popart_exception, refuse_type, refuse_value
from weft_popxl.module import graph_name
from weft_popxl.replica_grouping import ReplicaGrouping, assigned_grouping, strided_grouping
from weft_popxl.storage import Place, Storage
from weft_popxl.tensor_spec import TensorSpec, checked_shape

T = TypeVar("T", bound="Tensor")

operators: dict[str, Callable[..., Any]] = {}
"""The functions of Python's operators and of the methods, registered by the modules above."""
_ir_numbers = itertools.count()
_hook_numbers = itertools.count()


def _operator(name: str, function: str) -> Callable[[Tensor, Any], Tensor]:
    """Return the method of an operator; that of a reflected one has its operands exchanged."""
    is_reflected = name.startswith("__r")

    def method(self: Tensor, other: Any) -> Tensor:
        made: Tensor = operators[function](*((other, self) if is_reflected else (self, other)))
        return made

    # Errors of weft name the function that the user called, which they read from the frame.
    method.__code__ = method.__code__.replace(co_name=name)
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    return method


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

    __add__ = _operator("__add__", "add")
    __radd__ = _operator("__radd__", "add")
    __iadd__ = _operator("__iadd__", "add_")
    __sub__ = _operator("__sub__", "sub")
    __rsub__ = _operator("__rsub__", "sub")
    __mul__ = _operator("__mul__", "mul")
    __rmul__ = _operator("__rmul__", "mul")
    __truediv__ = _operator("__truediv__", "div")
    __rtruediv__ = _operator("__rtruediv__", "div")
    __mod__ = _operator("__mod__", "fmod")
    __rmod__ = _operator("__rmod__", "fmod")
    __pow__ = _operator("__pow__", "pow")
    __rpow__ = _operator("__rpow__", "pow")
    __matmul__ = _operator("__matmul__", "matmul")
    __rmatmul__ = _operator("__rmatmul__", "matmul")
    __and__ = _operator("__and__", "logical_and")
    __rand__ = _operator("__rand__", "logical_and")
    __or__ = _operator("__or__", "logical_or")
    __ror__ = _operator("__ror__", "logical_or")
    __lt__ = _operator("__lt__", "less")
    __le__ = _operator("__le__", "less_equal")
    __gt__ = _operator("__gt__", "greater")
    __ge__ = _operator("__ge__", "greater_equal")

    def __invert__(self) -> Tensor:
        return self._applied("logical_not")

    def __neg__(self) -> Tensor:
        return self._applied("negate")

    def __abs__(self) -> Tensor:
        return self._applied("abs")

    __getitem__ = _operator("__getitem__", "getitem")
    __array_ufunc__ = None

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


class Record:
    """An op of a graph.

    Attributes
    ----------
    kind
        The function of `ops` that built it.
    inputs, outputs
        Its operands and results.
    reads, writes
        The storages that it reads and those that it changes.
    called_graphs
        The graphs that it calls.
    in_sequence
        Whether it runs after all earlier records with this flag.
    location
        The user's file and line.
    """

    def __init__(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        *,
        writes: Iterable[Storage] = (),
        called_graphs: Sequence[Graph] = (),
        in_sequence: bool = False,
        outputs: Sequence[Tensor] = (),
        location: source.Location | None = None,
    ) -> None:
        self.kind = kind
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.reads = dict.fromkeys(root for tensor in inputs for root in tensor.place.roots)
        self.writes = dict.fromkeys(writes)
        self.called_graphs = tuple(called_graphs)
        self.in_sequence = in_sequence
        self.location = location or source.user_location()

    @property
    def file_info(self) -> str:
        """The user's file and line, as text."""
        return source.file_info(self.location)

    def __repr__(self) -> str:
        return f"<{self.kind} of {', '.join(tensor.id for tensor in self.inputs)}>"


@dataclass(eq=False, repr=False)
class Stream:
    """A sequence of tensors of one shape and dtype between host and device.

    Attributes
    ----------
    ir
        The Ir of the stream.
    name
        Unique in the Ir.
    shape, dtype
        Of each tensor.
    wrap
        Whether the ops of a run wrap around to the first slice after `num_host_transfers` slices.
    """

    ir: Ir
    name: str
    shape: tuple[int, ...]
    dtype: dtypes.dtype
    wrap: bool = False

    @property
    def tensor_id(self) -> str:
        """The name."""
        return self.name

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(self.shape, self.dtype)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}[name={self.name} shape={self.shape} dtype={self.dtype.name}]"


class HostToDeviceStream(Stream):
    """A stream to the device; each `ops.host_load` takes the next tensor."""


class DeviceToHostStream(Stream):
    """A stream to the host; each `ops.host_store` appends a tensor."""


@dataclass(frozen=True)
class Load:
    """Slices of a stream that a graph loads, in one placeholder of shape (count, …)."""

    stream: HostToDeviceStream
    count: int
    op: TensorOp


@dataclass(frozen=True)
class Store:
    """Slices of a stream that a graph stores, in one op of shape (count, …)."""

    stream: DeviceToHostStream
    count: int
    op: TensorOp


@dataclass(frozen=True)
class Context:
    """The open graphs, innermost last; the name scopes; whether ops run in program order."""

    graphs: tuple[Graph, ...] = ()
    names: tuple[str, ...] = ()
    in_sequence: bool = False
    outer: Context | None = None

    @property
    def graph(self) -> Graph:
        """The innermost open graph; raises RuntimeError if there is none."""
        if not self.graphs:
            raise ContextError("there is no open graph: build inside `with ir.main_graph:`")
        return self.graphs[-1]

    @property
    def main_graph(self) -> Graph:
        """The main graph of the Ir; raises RuntimeError if no graph is open."""
        return self.graph.ir.main_graph

    @property
    def name_scopes(self) -> list[str]:
        """The names of the open name scopes, innermost last."""
        return list(self.names)


current: ContextVar[Context] = ContextVar("weft_popxl_context", default=Context())  # noqa: B039


def enter(graph: Graph) -> None:
    """Make a graph the current one; raises RuntimeError inside a graph of another Ir."""
    outer = current.get()
    if outer.graphs and outer.graphs[-1].ir is not graph.ir:
        raise ContextError(
            f"{graph} belongs to another Ir than the open {outer.graphs[-1]}: leave that first"
        )
    current.set(Context((*outer.graphs, graph), (), outer.in_sequence, outer))


def leave() -> None:
    """Restore the context before the last `enter`."""
    current.set(current.get().outer or Context())


@dataclass(frozen=True)
class Captured:
    """A captured graph; its parameters are the inputs and the slices of streams that it loads.

    Attributes
    ----------
    graph
        The captured graph. Its results are the outputs, the final values of inputs that are changed
        in place, and the slices that it stores.
    modified
        The indices of the inputs that are changed in place.
    op_of, tensor_of
        The op of each tensor, and the tensor of each op.
    """

    graph: weft.Graph
    modified: tuple[int, ...]
    op_of: dict[Tensor, Any]
    tensor_of: dict[Any, Tensor]


class Graph:
    """A graph of an Ir: `ir.main_graph`, or a result of `ir.create_graph`.

    As a context manager it is the graph for ops built inside. A graph that has been called,
    differentiated or compiled is immutable, unless it is the main graph.

    Attributes
    ----------
    ir
        The Ir of the graph.
    id, name
        Unique in the Ir; empty for the main graph.
    can_be_recursively_autodiffed
        Whether `autodiff` of a caller may create its gradient graph.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        refuse_type("graphs are not constructed: use ir.create_graph or ir.create_empty_graph")

    @classmethod
    def _made(cls, ir: Ir, name: str) -> Graph:
        made = object.__new__(cls)
        made.ir = ir
        made.id = made.name = name
        made._inputs, made._outputs, made._activations = [], [], []
        made._tensors, made._records, made._hooks = {}, [], {}
        made._loads, made._stores, made._effects = [], [], []
        return made

    ir: Ir
    id: str
    name: str
    can_be_recursively_autodiffed: bool = True
    _inputs: list[Tensor]
    _outputs: list[Tensor]
    _activations: list[Tensor]
    _tensors: dict[str, Tensor]
    _records: list[Record]
    _loads: list[Load]
    _stores: list[Store]
    _hooks: dict[int, Callable[[Record], Any]]
    _effects: list[Any]
    _captured: Captured | None = None
    _called: tuple[Graph, ...] = ()
    _adopted: weft.Graph | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs in the order of a call."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs and, after `autodiff`, the saved values for the gradient graph."""
        return (*self._outputs, *self._activations)

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        """The inputs by name."""
        return {tensor.name: tensor for tensor in self._inputs}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return tuple(self._tensors.values())

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables."""
        return tuple(t for t in self._tensors.values() if isinstance(t, Variable))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The constants."""
        return tuple(t for t in self._tensors.values() if isinstance(t, Constant))

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        """The graphs that its ops call, each once."""
        called = (graph for record in self._records for graph in record.called_graphs)
        return tuple(dict.fromkeys((*called, *self._called)))

    @property
    def ops(self) -> tuple[Record, ...]:
        """The records of its ops, in program order: kind, inputs, outputs and location.

        The kinds of ops of a gradient graph are weft's names of ops.
        """
        return tuple(self._records) if self._adopted is None else self._adopted_ops()

    @property
    def main_graph(self) -> Graph:
        """The main graph of the Ir."""
        return self.ir.main_graph

    @property
    def is_main(self) -> bool:
        """Whether it is the main graph."""
        return self.ir.main_graph is self

    def get_tensor(self, tensor_id: str) -> Tensor:
        """Return the tensor with an id; raises ValueError if there is none."""
        if text("the id of a tensor", tensor_id) not in self._tensors:
            refuse_value(f"there is no tensor {tensor_id!r} in {self}")
        return self._tensors[tensor_id]

    def register_op_created_hook(self, fn: Callable[[Record], Any]) -> int:
        """Register a function that is called with each new op of this graph; returns a handle."""
        if not callable(fn):
            refuse_type(f"a hook is a function of an op, not {fn!r}")
        handle = next(_hook_numbers)
        self._hooks[handle] = fn
        return handle

    def remove_op_created_hook(self, handle: int) -> None:
        """Remove a hook; raises ValueError for an unknown handle."""
        number = whole("the handle of a hook", handle)
        if number not in self._hooks:
            refuse_value(f"{self} has no hook with the handle {number}")
        del self._hooks[number]

    def __enter__(self) -> Graph:
        enter(self)
        return self

    def __exit__(self, *error: object) -> None:
        leave()

    def __contains__(self, tensor: Any) -> bool:
        if not isinstance(tensor, Tensor):
            refuse_type(f"a graph contains tensors, not {tensor!r}")
        return tensor.graph is self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.ir is other.ir and self.id == other.id

    def __hash__(self) -> int:
        return hash((self.id, id(self.ir)))

    def __iter__(self) -> Iterator[Any]:
        refuse_type(f"{self} cannot be iterated: use its tensors")

    def __repr__(self) -> str:
        return f"Graph(id={self.id!r})" if self.id else "Graph(main)"

    # Construction, for the modules of this package

    def _without_scope(self, identifier: str) -> str:
        return identifier.removeprefix(f"{self.id}/") if self.id else identifier

    def _identifier(self, name: str | None, scoped: bool = True) -> str:
        """Return a unique id for a new tensor, prefixed with the graph and the name scopes."""
        names = current.get().names if scoped else ()
        label = "t" if name is None else text("the name of a tensor", name)
        wanted = "/".join((*((self.id,) if self.id else ()), *names, label or "t"))
        return self.ir._unique(wanted)

    def _add(
        self,
        kind: type[T],
        op: Any,
        name: str | None = None,
        scoped: bool = True,
        **options: Any,
    ) -> T:
        """Return a new tensor of this graph for an op."""
        made = kind._made(self, self._identifier(name, scoped), op, label=name or "t", **options)
        self._tensors[made.id] = made
        return made

    def _require_open(self) -> None:
        if self._captured is not None:
            raise popart_exception(
                f"{self} has been called or differentiated, so it cannot change any more: build "
                "all of a graph before it is used"
            )

    def _record(self, record: Record) -> Record:
        self._require_open()
        self._records.append(record)
        return record

    def _announce(self, record: Record) -> None:
        for hook in tuple(self._hooks.values()):
            hook(record)

    # The captured graph

    def captured(self) -> Captured:
        """Return the captured graph; afterwards this graph is immutable."""
        if self._captured is None:
            self._captured = self._capture()
        return self._captured

    def _capture(self) -> Captured:
        modified = tuple(n for n, tensor in enumerate(self._inputs) if tensor.place.version)
        outputs = [tensor.place.read() for tensor in self._outputs]
        outputs += [self._inputs[number].place.read() for number in modified]
        outputs += [store.op for store in self._stores]
        tensors = self.tensors
        given: list[Tensor | Load] = [*self._inputs, *self._loads]
        parameters: list[Any] = [each.op for each in given]
        found = weft.capture(
            [*outputs, *(tensor.op for tensor in tensors), *self._effects],
            parameters,
            self.id or "main",
        )
        ops = found.outputs[len(outputs) : len(outputs) + len(tensors)]
        return Captured(
            found.replace(outputs=found.outputs[: len(outputs)]),
            modified,
            dict(zip(tensors, ops, strict=True)),
            dict(zip(reversed(ops), reversed(tensors), strict=True)),
        )

    def _adopt(self, graph: weft.Graph, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        """Set the captured graph of a new graph, and name its inputs and outputs."""
        for parameter, name in zip(graph.inputs, inputs, strict=True):
            self._inputs.append(self._add(Tensor, parameter, name, scoped=False))
        for op, name in zip(graph.outputs, outputs, strict=True):
            self._outputs.append(self._add(Tensor, op, name, scoped=False))
        op_of = {
            **dict(zip(self._outputs, graph.outputs, strict=True)),
            **dict(zip(self._inputs, graph.inputs, strict=True)),
        }
        tensor_of = {op: tensor for tensor, op in op_of.items()}
        self._captured = Captured(graph, (), op_of, tensor_of)
        self._adopted = graph

    def _adopted_ops(self) -> tuple[Record, ...]:
        """Return records of the ops of such a graph."""
        graph = self.captured().graph
        results: dict[Any, list[Any]] = {}
        for op in graph.ops:
            owner = op.args[0] if isinstance(op, ResultOp) else op
            results.setdefault(owner, []).append(op)
        given = set(graph.inputs)
        return tuple(
            [
                Record(
                    type(op).__name__.removesuffix("Op").lower(),
                    [self._tensor_of(arg, "t") for arg in op.args],
                    outputs=[self._tensor_of(each, "t") for each in made if each.is_tensor],
                    location=op.location,
                )
                for op, made in results.items()
                if op not in given and not op.is_constant
            ]
        )

    def _tensor_of(self, op: TensorOp, name: str) -> Tensor:
        """Return the tensor of an op of the captured graph; creates it if there is none."""
        captured = self.captured()
        found = captured.tensor_of.get(op)
        if found is None:
            found = self._add(Tensor, op, name, scoped=False)
            captured.tensor_of[op] = found
            captured.op_of[found] = op
        return found


class Ir:
    """A program, built inside `with ir.main_graph:` and run in a `Session`.

    Parameters
    ----------
    replication
        The number of replicas, each of which is a rank, a process of its own; ``"popdist"`` is the
        number of ranks of the communicator.

    Attributes
    ----------
    id
        A unique number.
    main_graph
        The graph that a session runs.
    num_host_transfers
        The maximum number of slices in an array of a run if the ops use fewer, and the number of
        slices of streams that wrap around; 1 by default.
    replication_factor
        The number of replicas.
    instance_replication_factor
        The number of replicas in this process, 1: arrays of a session have no axis for replicas.
    """

    instance_replication_factor = 1

    def __init__(self, replication: int | Literal["popdist"] = 1) -> None:
        self.id = next(_ir_numbers)
        self._names: dict[str, int] = {}
        self._graphs: list[Graph] = []
        self._graph_numbers = itertools.count()
        self.main_graph = Graph._made(self, "")
        self._graphs.append(self.main_graph)
        count: Any = replication
        if isinstance(replication, str) and replication == "popdist":
            count = connected().size
        self.replication_factor = count
        self.num_host_transfers = 1

    @property
    def num_host_transfers(self) -> int:
        """The maximum number of slices in the array of a stream if the ops use fewer."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, count: int) -> None:
        self._num_host_transfers = whole("num_host_transfers", count, least=1)

    @property
    def replication_factor(self) -> int:
        """The number of replicas."""
        return self._replication_factor

    @replication_factor.setter
    def replication_factor(self, count: int) -> None:
        self._replication_factor = whole("replication_factor", count, least=1)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, the main graph first."""
        return tuple(self._graphs)

    def create_graph(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """Create a graph by a call of a function or a `Module`.

        Each tensor or `TensorSpec` among the arguments becomes an input with its shape and dtype
        and the name of its parameter. Elements of lists and of ``*args`` are numbered; the function
        receives a list, tuple or named tuple of inputs. Other arguments are passed unchanged. The
        return value is the output or outputs: a tensor, an iterable of tensors, or None. Raises
        TypeError for a function that is not callable and for lists of tensors and other values,
        ValueError for arguments that do not match the signature and for other return values.
        """
        name = graph_name(fn)
        graph = Graph._made(self, f"{name}_subgraph({next(self._graph_numbers)})")
        operators["build"](graph, fn, args, kwargs)
        self._graphs.append(graph)
        return graph

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """Return an empty graph, to be built in its context."""
        label = "" if name is None else text("the name of a graph", name)
        graph = Graph._made(self, f"{label or 'graph'}_subgraph({next(self._graph_numbers)})")
        self._graphs.append(graph)
        return graph

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Return groups of replicas of which neighbors differ by a stride.

        By default `group_size` is the number of replicas divided by the stride. Raises TypeError
        for what are not integers, ValueError if the product of both does not divide the number of
        replicas.
        """
        step = whole("replica_grouping: stride", stride, least=1)
        size = self.replication_factor // step if group_size is None else group_size
        return strided_grouping(self.replication_factor, step, size)

    def replica_grouping_from_assignments(self, assignment: Iterable[int]) -> ReplicaGrouping:
        """Return groups of replicas from the group of each.

        Groups have equal sizes, and are numbered in the order in which they first occur. Raises
        TypeError for what are not integers, ValueError for other groups and another number of
        replicas.
        """
        return assigned_grouping(self.replication_factor, assignment)

    def dot_checkpoint(self, check: str, save_dir: str | os.PathLike[str] | None = None) -> None:
        """Write the current state of all graphs to the file ``<check>.dot``, for Graphviz.

        The file is in `save_dir`, by default the current folder, which is created if needed. An
        existing file is replaced. Characters of `check` that are not letters, digits, points or
        signs become underscores.
        """
        write_dot(self.graphs, text("dot_checkpoint: the check", check), save_dir)

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """Return the streams with loads."""
        return {load.stream for graph in self._graphs for load in graph._loads}

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """Return the streams with stores."""
        return {store.stream for graph in self._graphs for store in graph._stores}

    def _unique(self, name: str) -> str:
        """Return a name, with a number appended if it is taken."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self._unique(f"{name}__t{count}") if count else name

    def _graph_name(self, name: str) -> str:
        """Return a name for a graph, with a number appended if another graph has it."""
        taken = {graph.id for graph in self._graphs}
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        return next(each for each in itertools.chain([name], numbered) if each not in taken)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ir):
            refuse_type(f"an Ir can be compared with another Ir, not with {other!r}")
        return self is other

    def __hash__(self) -> int:
        return hash((Ir, self.id))

    def __repr__(self) -> str:
        return f"Ir(id={self.id})"

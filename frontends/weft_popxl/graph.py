"""Graph: a graph under construction with PopXL's names, and its captured `weft.Graph`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import weft
from weft.ir.results import ResultOp
from weft_popxl.arguments import text, whole
from weft_popxl.context import current, enter, leave
from weft_popxl.errors import popart_exception, refuse_type, refuse_value
from weft_popxl.record import Record
from weft_popxl.tensor import Constant, Tensor, Variable

if TYPE_CHECKING:
    from weft_popxl.ir import Ir
    from weft_popxl.streams import Load, Store

T = TypeVar("T", bound=Tensor)

_hook_numbers = itertools.count()


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
        made.can_be_recursively_autodiffed = True
        made._inputs = []
        made._outputs = []
        made._activations = []
        made._tensors = {}
        made._records = []
        made._loads = []
        made._stores = []
        made._hooks = {}
        made._captured = None
        made._effects = []
        made._called = ()
        made._adopted = None
        return made

    ir: Ir
    id: str
    name: str
    can_be_recursively_autodiffed: bool
    _inputs: list[Tensor]
    _outputs: list[Tensor]
    _activations: list[Tensor]
    _tensors: dict[str, Tensor]
    _records: list[Record]
    _loads: list[Load]
    _stores: list[Store]
    _hooks: dict[int, Callable[[Record], Any]]
    _captured: Captured | None
    _effects: list[Any]
    _called: tuple[Graph, ...]
    _adopted: weft.Graph | None

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

    def _tensor_of(self, op: Any, name: str) -> Tensor:
        """Return the tensor of an op of the captured graph; creates it if there is none."""
        captured = self.captured()
        found = captured.tensor_of.get(op)
        if found is None:
            found = self._add(Tensor, op, name, scoped=False)
            captured.tensor_of[op] = found
            captured.op_of[found] = op
        return found

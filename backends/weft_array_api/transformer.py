"""ArrayTransformer: a backend on any namespace of the array API standard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from weft.errors import ArgumentError
from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.storage import ReadOp
from weft.ir.target import Target
from weft.ir.traversal import nested
from weft.ops.control.graph_ops import GraphsOp
from weft.plan.plan import Step
from weft.report.recorder import Recorder
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.runtime.program import Program
from weft.runtime.transformer import Transformer
from weft.support.backports import override
from weft.support.interrupts import held
from weft.support.locks import cached_property
from weft_array_api.rules import Array, ArrayLibrary, Rule, rules


class ArrayBuffer(DeviceBufferStorage):
    """The array of a state or a constant. Other values live only during a call."""

    transformer: ArrayTransformer
    value: Array = None

    def allocate(self) -> None:
        """Do nothing: arrays are created when they are first needed."""

    @override
    def detach(self) -> None:
        super().detach()
        self.value = None

    @override
    def make_tensor(self, description: TensorDescription) -> ArrayTensor:
        return ArrayTensor(self, description)


class ArrayTensor(DeviceTensor):
    """The array of a buffer, zeros until it is set."""

    storage: ArrayBuffer

    def attach(self) -> None:
        """Do nothing: there is no memory to view."""

    @property
    def array(self) -> Array:
        """The library's array."""
        if self.storage.value is None:
            self.storage.transformer.require_open()
            self[...] = np.zeros(self.shape, self.dtype)
        return self.storage.value

    @override
    def get(self, out: Array | None = None) -> np.ndarray[Any, Any]:
        host = self.storage.transformer.library.to_host(self.array)
        if out is None:
            return np.array(host)
        np.copyto(out, host)
        return out  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return np.array(self.get()[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.storage.transformer.require_open()
        host = np.empty(self.shape, self.dtype) if key is Ellipsis else self.get()
        host[key] = value
        self.storage.value = self.storage.transformer.library.from_host(host)


class ArrayTransformer(Transformer):
    """A backend on a namespace of the array API standard, with a function call for each op.

    Correct rather than fast: it computes op by op, in memory that the library manages. A subclass
    names the `namespace`. Rules for further ops go into the table `weft_array_api.rules.rules`, by
    way of the plugin group ``weft.rules`` with entry names ``array.<name>``. ::

        class StrictTransformer(weft_array_api.ArrayTransformer):
            transformer_name = "strict"

            @classmethod
            def namespace(cls):
                import array_api_strict

                return array_api_strict

    Parameters
    ----------
    namespace
        The namespace, for a class without a default.
    device
        A device of the library; None for its default.
    """

    transformer_name: ClassVar[str] = "array"

    def __init__(self, namespace: Any = None, *, device: Any = None, **options: Any) -> None:
        super().__init__(**options)
        if self.memory_limit is not None:
            raise ArgumentError("memory_limit= has no effect here: the library manages its memory")
        self.library = ArrayLibrary(namespace or self.namespace(), device)

    @classmethod
    def namespace(cls) -> Any:
        """Return the default namespace of this class."""
        raise TypeError(f"{cls.__name__} names no array namespace: {cls.__name__}(namespace)")

    @cached_property
    def target(self) -> Target:
        """The ops of the backend, and the dtypes of the library."""
        return Target(
            name=self.transformer_name,
            supports=rules.supports,
            rules="weft_array_api.rules.rules",
            dtypes=frozenset(filter(self.library.has, dtypes.NAMES)),
            runs_graphs=True,
            fast_math=self.fast_math,
        )

    @override
    def device_buffer_storage(self, nbytes: int, name: str) -> ArrayBuffer:
        return ArrayBuffer(self, nbytes, name)

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Return a function that computes the graph op by op.

        The plan's addresses are not needed: every value is an array of its own, which goes when
        the last op has read it.
        """
        graph, library = program.graph, self.library
        program.source = "".join(f"{line}\n" for line in _listing(graph))
        inputs, outputs, updates = graph.inputs, graph.outputs, graph.updates
        constants = [op for op in graph.ops if op.is_constant]
        reads = [op for op in graph.ops if isinstance(op, ReadOp)]
        compute = _Ops(graph, library, {}, program.recorder).compute
        states: dict[Op, Any] = self.state_tensors
        tensors: dict[Op, Any] = program.tensors

        def run(*arrays: Any) -> None:
            values: dict[Op, Array] = {}
            values.update(zip(inputs, map(library.from_host, arrays), strict=False))
            values.update((op, tensors[op].array) for op in constants)
            values.update((op, states[op.state].array) for op in reads)
            with np.errstate(all="ignore"):
                compute(values)
            for op, out in zip(outputs, arrays[len(inputs) :], strict=True):
                np.copyto(out, library.to_host(values[op]))
            held(publish, values)

        def publish(values: dict[Op, Array]) -> None:
            for state, value in updates:
                states[state].storage.value = values[value]

        return run


class _Ops:
    """The ops of a graph in order, each with its rule and the values that die after it.

    `called` keeps the functions of called graphs, each made once.
    """

    def __init__(
        self,
        graph: Graph,
        library: ArrayLibrary,
        called: dict[Graph, Called],
        recorder: Recorder | None,
    ) -> None:
        self.library = library
        self.called = called
        self.recorder = recorder
        given = {*graph.inputs, *(op for op in graph.ops if _is_there(op))}
        ops = [op for op in graph.ops if op not in given]
        kept = {*graph.outputs, *(value for _, value in graph.updates)}
        last: dict[Op, Op] = {arg: op for op in ops for arg in op.args}
        dead: dict[Op, list[Op]] = {}
        for arg, op in last.items():
            if arg not in kept:
                dead.setdefault(op, []).append(arg)
        self.ops = [(op, self._rule(op), dead.get(op, [])) for op in ops]

    def _rule(self, op: Op) -> Rule:
        """Return the function that computes an op, or the graphs that it calls."""
        recorder = self.recorder
        if not isinstance(op, GraphsOp):
            rule = rules[type(op)]
            return rule if recorder is None else _recorded(rule, recorder.row([op]), recorder.mark)
        for graph in op.graphs:
            make = partial(_called, graph, self.library, self.called, recorder)
            nested(self.called, graph, make)

        def run(op: Any, library: ArrayLibrary, *args: Array) -> Any:
            return op.run(lambda graph, args: self.called[graph](args), args)

        return run

    def compute(self, values: dict[Op, Array]) -> None:
        """Compute all ops whose values are missing."""
        for op, rule, dead in self.ops:
            values[op] = rule(op, self.library, *[values[arg] for arg in op.args])
            for each in dead:
                del values[each]


def _recorded(rule: Rule, row: int, mark: Callable[[int], None]) -> Rule:
    """Return a rule that marks its end."""

    def run(*args: Any) -> Any:
        value = rule(*args)
        mark(row)
        return value

    return run


Called = Callable[[tuple[Array, ...]], tuple[Array, ...]]
"""A function that computes the outputs of a called graph."""


def _called(
    graph: Graph, library: ArrayLibrary, called: dict[Graph, Called], recorder: Recorder | None
) -> Called:
    """Return the function of a graph; `called` caches functions of graphs."""
    compute = _Ops(graph, library, called, recorder).compute
    constants = {op: library.from_host(op.const) for op in graph.ops if op.is_constant}

    def run(args: tuple[Array, ...]) -> tuple[Array, ...]:
        values: dict[Op, Array] = dict(zip(graph.inputs, args, strict=True))
        values.update(constants)
        compute(values)
        return tuple([values[op] for op in graph.outputs])

    return run


def _is_there(op: Op) -> bool:
    return op.is_constant or isinstance(op, ReadOp)


def _listing(graph: Graph) -> Iterator[str]:
    """Yield a line for each op of a graph, then those of the graphs that it calls."""
    yield from _ops_listed(graph)
    for each in reversed(called_graphs(graph)):
        yield f"{each.name}:"
        yield from (f"    {line}" for line in _ops_listed(each))


def _ops_listed(graph: Graph) -> Iterator[str]:
    for op in graph.ops:
        runs = [f"runs {each.name}" for each in op.graphs]
        call = f"{type(op).__name__}({', '.join([*map(format, op.args), *runs])})"
        yield f"{op} = {call}  # {op.file_info}"

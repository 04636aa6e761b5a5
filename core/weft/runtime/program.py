"""Computation: results and parameters bound to a transformer, callable with arrays.

A computation compiles one `Program` for each solution of the lengths that were unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError, NeedsMemory, NotPicklable, StateError
from weft.ir import dtypes
from weft.ir.axes import LONGEST, Axes, Axis
from weft.ir.graph import Graph
from weft.ir.lengths import Length, Symbol
from weft.ir.op import Op
from weft.plan.fusion_statistics import FusionStatistics, fusion_statistics
from weft.plan.plan import STATE, Buffer, Plan
from weft.plugins.blame import guarded, origin_of
from weft.runtime.call_path import make_executor
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.support.gc_pause import gc_paused
from weft.transforms.capture import capture, not_a_placeholder
from weft.transforms.computation_op import ComputationOp, resolved, structure

if TYPE_CHECKING:
    from weft.runtime.transformer import Transformer

Array = np.ndarray[Any, Any]


class Program:
    """One specialisation of a computation: all lengths known, compiled once.

    Attributes
    ----------
    name
        Unique in the transformer; names generated code.
    captured
        The graph before any pass. What it takes and returns is what the program does.
    graph
        The graph, after the passes once they have run.
    plan
        Its plan.
    arena_size, buffers
        What the plan says of memory.
    storages
        The device buffer behind each buffer; none for inputs and results, which are the caller's
        memory.
    tensors
        The device tensor of each op's value; none for those in inputs and results.
    run
        Computes: takes the input arrays, then the arrays to write results to.
    source
        The generated program as text; set it to text, or to a function that returns it.
    code
        What the backend keeps of its generated code; it is no one else's.
    is_restored, later
        Whether it was found compiled, and what works out its graph and its plan then: that happens
        when `graph`, `plan` or `tensors` is first looked at.
    """

    run: Callable[..., None]

    def __init__(self, name: str, graph: Graph, solution: Mapping[Symbol, int]) -> None:
        self.name = name
        self.captured = graph
        self.solution = solution
        self.arena_size = 0
        self.buffers: Sequence[Buffer] = ()
        self.storages: dict[Buffer, DeviceBufferStorage] = {}
        self.code: Any = None
        self.is_restored = False
        self.later: Callable[[], None] | None = None
        self._graph = graph
        self._plan: Plan | None = None
        self._tensors: dict[Op, DeviceTensor] | None = None
        self._source: str | Callable[[], str] = ""

    @property
    def graph(self) -> Graph:
        """The graph, after the passes once they have run."""
        self._look()
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def plan(self) -> Plan:
        """The plan."""
        self._look()
        if self._plan is None:
            problem = f"{self.name} has no plan: its transformer was closed before it was compiled"
            raise StateError(problem)
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._plan, self._tensors = plan, None
        self.arena_size, self.buffers = plan.arena_size, plan.buffers

    def _look(self) -> None:
        later = self.later
        if later is not None:
            later()

    @property
    def tensors(self) -> dict[Op, DeviceTensor]:
        """The device tensor of each op's value, but for those in inputs and results."""
        places = self.plan.tensors.items()
        if self._tensors is None:
            self._tensors = {
                op: self.storages[place.base].device_tensor(place)
                for op, place in places
                if place.base in self.storages
            }
        return self._tensors

    @property
    def states(self) -> list[Any]:
        """Every state that the program reads or writes."""
        if self.is_restored:
            return [buffer.owner for buffer in self.buffers if buffer.kind == STATE]
        return list(self._graph.states)

    @property
    def source(self) -> str:
        """The generated program as text."""
        source = self._source
        if not isinstance(source, str):
            source = self._source = source()
        return source

    @source.setter
    def source(self, source: str | Callable[[], str]) -> None:
        self._source = source


class Computation:
    """A callable computation; made by `Transformer.computation`.

    Attributes
    ----------
    transformer, name
        Where it belongs, and its name there.
    results, pack
        The ops that are returned, and what gives their values the structure that was asked for.
    graph
        The captured graph, before any pass.
    executor
        What a call runs: takes the arguments in order, returns the results. It is the first call
        that initialises the transformer; afterwards the executor is the compiled function.
    """

    def __init__(
        self,
        transformer: Transformer,
        results: Any,
        parameters: Sequence[Any],
        name: str,
        axes: Mapping[Any, int] | None = None,
    ) -> None:
        self.transformer = transformer
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a computation must be text, not {name!r}")
        self.name = name
        if isinstance(results, Graph | ComputationOp) and parameters:
            raise ArgumentError(f"{results} has its parameters already, these are too many")
        if isinstance(results, ComputationOp):
            self.graph, self.parameters = results.graph, results.parameters
            results = results.results
        elif isinstance(results, Graph):
            self.graph, self.parameters = results, tuple(op.source for op in results.inputs)
        else:
            ops, self.parameters = resolved(results, parameters)
            with gc_paused():
                self.graph = capture(ops, self.parameters, name)
                _ = self.graph.symbols
        self.results, self.pack = structure(results)
        self.given = _given_sizes(axes)
        self.programs: dict[tuple[tuple[int, ...], ...], Program] = {}
        self.arity = len(self.parameters)
        self.is_static = not set(self.graph.symbols) - set(self.given)
        self.executor: Callable[..., Any] = self._first_call
        self._executors: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run with one array, number or nested list for each parameter and return the results.

        Results are new arrays that belong to the caller, in the structure that the computation was
        made with: one op gives a value, a list or tuple a tuple, a set or dict a dict, and an op
        that yields no tensor None. ``feed_dict={placeholder: value}`` gives arguments by
        placeholder, ``out=`` arrays to write the results to. Raises ArgumentError for a wrong
        number of arguments, AxesError and DTypeError for one that does not fit.
        """
        if options or len(args) != self.arity:
            return self._call_with_options(args, **options)
        return self.executor(*args)

    def _call_with_options(
        self,
        args: tuple[Any, ...],
        feed_dict: Any = None,
        out: Any = None,
        **unknown: Any,
    ) -> Any:
        if unknown:
            names = ", ".join(op.name for op in self.parameters) or "none"
            raise ArgumentError(
                f"{self.name} takes its arguments by position ({names}), and the options feed_dict "
                f"and out, not {', '.join(unknown)}"
            )
        if feed_dict is not None:
            args += self._fed(feed_dict, len(args))
        if len(args) != self.arity:
            wanted = ", ".join(op.name for op in self.parameters)
            raise ArgumentError(
                f"Computation was expecting {self.arity} arguments, but was called with "
                f"{len(args)}. ({self.name} takes: {wanted or 'nothing'})"
            )
        if out is None:
            return self.executor(*args)
        return self._call_into(args, out if isinstance(out, tuple | list) else (out,))

    def _fed(self, feed: Any, given: int) -> tuple[Any, ...]:
        if not isinstance(feed, Mapping):
            problem = f"feed_dict= takes a dictionary, {{placeholder: value}}, not {feed!r:.80}"
            raise ArgumentError(f"{self.name}: {problem}")
        if not feed:
            return ()
        twice = [op.name for op in self.parameters[:given] if op in feed]
        if twice:
            problem = f"{', '.join(twice)} given by position and in feed_dict as well"
            raise ArgumentError(f"{self.name}: {problem}")
        unknown = [op for op in feed if op not in self.parameters]
        if unknown:
            for op in unknown:
                if getattr(op, "is_state", False) and not op.is_placeholder:
                    raise ArgumentError(not_a_placeholder(op))
            names = ", ".join(map(str, unknown))
            raise ArgumentError(f"{self.name} has no parameters {names}: list them when making it")
        rest = self.parameters[given:]
        missing = [op for op in rest if op not in feed]
        if missing:
            lines = [f"  {op.name}, {op.file_info}" for op in missing]
            raise ArgumentError("\n".join([f"{self.name} is missing values for:", *lines]))
        return tuple(feed[op] for op in rest)

    def _call_into(self, args: tuple[Any, ...], out: Sequence[Array]) -> Any:
        self.transformer.require_open()
        self._compile()
        arrays, program = self._prepared(args)
        outputs = program.captured.outputs
        if len(out) != len(outputs):
            raise ArgumentError(f"{self.name} has {len(outputs)} results, out= gives {len(out)}")
        for op, array in zip(outputs, out, strict=True):
            shape, dtype = op.axes.shape, op.dtype
            fits = isinstance(array, np.ndarray) and (array.shape, array.dtype) == (shape, dtype)
            if not (fits and array.flags.c_contiguous and array.flags.writeable):
                raise ArgumentError(
                    f"out= needs a writeable C-contiguous {dtype} array of shape {shape} for {op}"
                )
        if any(np.may_share_memory(a, b) for a, b in combinations(out, 2)):
            raise ArgumentError(f"{self.name}: two arrays of out= share memory")
        # Results are written as soon as they are known, while arguments may still be needed.
        arrays = [
            array.copy() if any(np.may_share_memory(array, target) for target in out) else array
            for array in arrays
        ]
        with self.transformer.state_lock:
            program.run(*arrays, *out)
        return self.pack(self.with_none(out))

    def with_none(self, values: Sequence[Any]) -> list[Any]:
        """Return values with None for what yields no tensor."""
        rest = iter(values)
        return [next(rest) if op.is_tensor else None for op in self.results]

    def transform(self, program: Program) -> None:
        """Turn a planned program into something that runs, and make it the executor."""
        if not program.is_restored:
            steps = program.plan.steps
            run = self.transformer.transform_ordered_ops(program, steps, program.name)
            program.run = guarded(run, origin_of(type(self.transformer)), f"in {program.name}")
        if self.is_static:
            self.executor = make_executor(self, program)

    def forget_executor(self) -> None:
        """Compile at the next call, because something failed after the executor was made."""
        if self.is_static:
            self.executor = self._first_call

    def ready_to_run(self, program: Program) -> Callable[..., None]:
        """Return what runs a program, once all it needs is there.

        An executor is there before that, and a thread that calls it waits for the one that still
        allocates, or compiles again if that one failed.
        """
        with self.transformer.state_lock:
            self._compile()
            return program.run

    def _first_call(self, *args: Any) -> Any:
        self._compile()
        return self.executor(*args)

    def _compile(self) -> None:
        """Initialise the transformer; an error in another computation is that one's to report."""
        with self.transformer.state_lock:  # another thread may be at it: once is enough
            if self.executor != self._first_call:
                return
            if self.is_static:
                self.transformer.compile(self, self.programs[()])
            else:
                self.executor = self._dispatch

    def _dispatch(self, *args: Any) -> Any:
        """Run the executor for the arguments' shapes, which is made when they are first seen."""
        found = self._executors.get(tuple([getattr(arg, "shape", None) for arg in args]))
        if found is None:
            arrays, program = self._prepared(args)
            found = make_executor(self, program)
            self._executors[tuple(array.shape for array in arrays)] = found
            return found(*arrays)
        return found(*args)

    def _prepared(self, args: Sequence[Any]) -> tuple[list[Array], Program]:
        """Return arguments as arrays and the program for their lengths, compiled if need be."""
        arrays = [self.coerce(number, arg) for number, arg in enumerate(args)]
        key = () if self.is_static else tuple(array.shape for array in arrays)
        with self.transformer.state_lock:
            if key not in self.programs:
                self.programs[key] = self.transformer.specialise(self, self.solve(key))
        program = self.programs[key]
        for number, op in enumerate(program.captured.inputs):
            self.coerce(number, arrays[number], op.axes)
        return arrays, program

    def coerce(self, number: int, value: Any, axes: Axes | None = None) -> Array:
        """Return an argument as a C-contiguous array of the parameter's dtype.

        `axes` are the parameter's, or those of a program, whose lengths are all known. Raises
        AxesError for a wrong rank or known length, DTypeError for a dtype that does not
        convert without changing its kind.
        """
        op = self.parameters[number]
        what = f"argument {number} of {self.name}, for {op.name} ({op.file_info})"
        if isinstance(value, Op):
            raise ArgumentError(f"{what}: {value} is an op, and a call takes arrays")
        with NeedsMemory(what):
            array = self._as_array(value, op.dtype, what)
        axes = op.axes if axes is None else axes
        lengths = axes.lengths
        known = all(
            mine == size
            for mine, size in zip(lengths, array.shape, strict=False)
            if isinstance(mine, int)
        )
        if array.ndim != len(lengths) or not known:
            raise AxesError(f"{what}: shape {array.shape} does not fit {axes}")
        with NeedsMemory(what):
            return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    @staticmethod
    def _as_array(value: Any, dtype: dtypes.DType, what: str) -> Array:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ArgumentError(f"{what}: {error}") from None
        return array if array.dtype == dtype else _converted(value, array, dtype, what)

    def solve(self, shapes: Sequence[tuple[int, ...]]) -> dict[Symbol, int]:
        """Return the lengths that follow from the arguments' shapes, from `axes` and from states.

        Raises AxesError if two disagree or a length is still unknown.
        """
        solution = dict(self.given)
        known = [
            (op, length, size)
            for op, shape in zip(self.parameters, shapes, strict=True)
            for length, size in zip(op.axes.lengths, shape, strict=True)
        ]
        known += [
            (state, length, size)
            for state in self.graph.states
            if state in self.transformer.state_tensors
            for length, size in zip(
                state.axes.lengths, self.transformer.state_tensors[state].shape, strict=True
            )
        ]
        for op, length, size in known:
            symbol = length.as_symbol() if isinstance(length, Length) else None
            if symbol is not None and solution.setdefault(symbol, size) != size:
                raise AxesError(
                    f"{self.name}: length {symbol} is {solution[symbol]} elsewhere, but {size} in "
                    f"{op.name} ({op.file_info})"
                )
        unknown = [symbol for symbol in self.graph.symbols if symbol not in solution]
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise AxesError(
                f"{self.name}: no argument tells the lengths {names}: give them when making the "
                "computation, as in axes={axis: 128}"
            )
        return solution

    @property
    def program(self) -> Program:
        """The only program of a computation whose lengths are all known, compiled if need be."""
        self._compile()
        if len(self.programs) != 1:
            raise ArgumentError(
                f"{self.name} has {len(self.programs)} programs, one for each solution of its "
                "unknown lengths: call it and look into its programs, or give axes={axis: 32}"
            )
        return next(iter(self.programs.values()))

    @property
    def plan(self) -> Plan:
        """The plan of the only program."""
        return self.program.plan

    @property
    def source(self) -> str:
        """The generated source of the only program."""
        return self.program.source

    @property
    def fusion_statistics(self) -> FusionStatistics:
        """What fusion did to the only program, in ops, kernels and bytes; a table as text."""
        return fusion_statistics(self.program.captured, self.plan)

    def __reduce_ex__(self, protocol: object) -> Any:
        problem = (
            f"{self!r} belongs to a transformer and can be neither copied nor pickled: make it"
        )
        raise NotPicklable(f"{problem} again where it is needed")

    def __repr__(self) -> str:
        return f"<Computation {self.name}: {self.arity} parameters, {len(self.results)} results>"


def _converted(value: Any, array: Array, dtype: dtypes.DType, what: str) -> Array:
    """Return an argument in the parameter's dtype; numbers without a dtype must fit exactly."""
    if not hasattr(value, "dtype") or (dtypes.is_integer(array.dtype) and dtypes.is_integer(dtype)):
        return dtypes.host_array(array, dtype, what)
    widens = dtypes.is_integer(array.dtype) and dtypes.is_inexact(dtype)
    if widens or np.can_cast(array.dtype, dtype, "same_kind"):
        with np.errstate(all="ignore"):  # too large for a narrower float is infinite
            return array.astype(dtype)
    raise DTypeError(f"{what}: {array.dtype} does not convert to {dtype}: cast it")


def _given_size(key: Any, size: Any) -> int:
    try:
        found = -1 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        found = -1
    if not 0 <= found <= LONGEST:
        raise AxesError(f"axes= gives {key!r} the length {size!r}, which is no whole number from 0")
    return found


def _given_sizes(axes: Mapping[Any, int] | None) -> dict[Symbol, int]:
    solution: dict[Symbol, int] = {}
    if axes is not None and not isinstance(axes, Mapping):
        raise ArgumentError(f"axes= takes a dictionary, as in axes={{axis: 128}}, not {axes!r}")
    for key, size in (axes or {}).items():
        length = key.length if isinstance(key, Axis) else key
        symbol = length.as_symbol() if isinstance(length, Length) else None
        if symbol is None:
            raise ArgumentError(f"axes= gives a length to {key!r}, which is not unknown")
        found = _given_size(key, size)
        if solution.setdefault(symbol, found) != found:
            raise AxesError(f"axes= gives two lengths to {symbol}: {solution[symbol]} and {found}")
    return solution

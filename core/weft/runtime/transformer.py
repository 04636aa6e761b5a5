"""The transformer: what a user sees of a backend, over a compiler and a state store.

The life cycle is that of the Nervana Graph transformer: computations are created, initialization
runs the passes, describes tensors, transforms their allocation and then the computations, and runs
the initializers. Each step is a method that a backend may extend. Everything is
incremental: a computation that is added later brings only its own buffers and initializers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from weft import plugins, settings
from weft.communicators.calls import RankCall, within
from weft.errors import ArgumentError, AxesError, StateError
from weft.ir import folded_constants, scope
from weft.ir.graph import Graph, in_order
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.ir.storage import AssignableTensorOp
from weft.ops.arguments import checked_integer
from weft.passes.interface import GraphPass
from weft.passes.pipeline import Pipeline
from weft.plan.rematerialization import checked_limit
from weft.plugins import contributions
from weft.plugins.blame import blaming, guarded, origin_of
from weft.report.progress import Stage
from weft.report.recorder import Recorder
from weft.runtime import agreement
from weft.runtime.call_path import make_executor
from weft.runtime.compile_cache import CompileCache
from weft.runtime.compiler import Compiler
from weft.runtime.computation import Computation
from weft.runtime.device import DeviceTensor
from weft.runtime.exchanges import is_shared
from weft.runtime.missing_values import has_initial_value
from weft.runtime.program import Family, Program
from weft.runtime.state_store import States, StateStore
from weft.support.gc_pause import gc_paused
from weft.support.locks import cached_property
from weft.support.ordered_set import OrderedSet
from weft.transforms.state_initializers import initial_constants, initialization_op, is_zero

if TYPE_CHECKING:
    from asyncio import Future

    from weft.communicators.interface import Communicator
    from weft.runtime.call_queue import CallQueue


Batch = dict[Program, Computation]
"""Programs that are compiled together, each with its computation."""


@contributions.base_of(plugins.BACKENDS)
class Transformer(StateStore):
    """A backend: compiles computations, and owns their states.

    Parameters
    ----------
    passes
        Names of passes, or pass objects, to run instead of the default pipeline.
    fast_math
        Allow rewrites that change values in rare cases.
    strict_finalize
        Refuse computations after initialization, as the reference did.
    memory_limit
        The most bytes that the arena of a program may have; values are computed again where it
        would need more. A computation that cannot be made to fit raises MemoryLimitError.
    cache
        Whether to keep compiled programs for other transformers and other processes, and to use
        those that they kept; a path is the folder to keep them in.

    Attributes
    ----------
    computations, all_results
        All computations, and all their result ops.
    init_computation
        The latest computation of initializers.
    finalized, initialized
        The state of the life cycle; `allocated` comes between these, and `closed` after them.
    checks_finite
        Whether calls check their results, which WEFT_CHECK_FINITE says when it is made.
    computation_class
        The class of its computations, which a backend may extend.
    """

    computation_class: ClassVar[type[Computation]] = Computation

    def __init__(
        self,
        *,
        passes: Iterable[str | GraphPass] | None = None,
        fast_math: bool = False,
        strict_finalize: bool = False,
        memory_limit: int | None = None,
        cache: bool | str | os.PathLike[str] = True,
    ) -> None:
        for option, value in (("fast_math", fast_math), ("strict_finalize", strict_finalize)):
            if not isinstance(value, bool | np.bool_):
                raise ArgumentError(f"{option}= takes True or False, not {value!r}")
        if not isinstance(cache, bool | str | os.PathLike) or "\0" in str(cache):
            raise ArgumentError(f"cache= takes True, False or the path of a folder, not {cache!r}")
        self.compile_cache = CompileCache(self, cache)
        self.checks_finite = settings.CHECK_FINITE.value
        self.fast_math = fast_math
        self.strict_finalize = strict_finalize
        self.memory_limit = None if memory_limit is None else checked_limit(memory_limit)
        self.computations: OrderedSet[Computation] = OrderedSet()
        self.all_results: OrderedSet[Op] = OrderedSet()
        self._init: Callable[[], Computation] | None = None
        self.finalized = self.initialized = False
        self._pending: Batch = {}
        self.graph_compiler = Compiler(Pipeline(passes), self.memory_limit)
        self._program_count = 0
        self._numbers = itertools.count()
        self._planned_again: set[Program] = set()
        super().__init__()  # at the end, since a fork finds it from now on

    # Computations

    def computation(
        self,
        results: Any,
        *parameters: Any,
        name: str | None = None,
        axes: Mapping[Any, int] | None = None,
    ) -> Computation:
        """Return a computation of ops; what they depend on is captured now.

        `results` is an op, a list, tuple, set or dict of ops, or None, or what has parameters of
        its own: a `ComputationOp` or a `Graph`. `parameters` are the placeholders that a call gives
        values for, in order, or ``"all"``. `axes` gives numbers to unknown lengths of these,
        by axis, by length or by name. Raises ArgumentError for a parameter that is not a
        placeholder, and for a length that is not among them.
        """
        self.require_open()
        if self.strict_finalize and self.finalized:
            raise StateError("Cannot create computations from a finalized transformer")
        number = next(self._numbers)
        title = name or f"computation_{number}"
        computation = self.computation_class(self, results, parameters, title, axes)
        computation.number_calls(name or "")
        self._add(computation)
        return computation

    def _add(self, computation: Computation) -> None:
        with self.state_lock:
            self.computations.add(computation)
            self.all_results.update(computation.results)
            if computation.is_static:
                self._pending[computation.programs[()]] = computation

    def inspection(self, graph: Graph, recorder: Recorder | None = None) -> Computation:
        """Return a computation of a captured graph that `discard` forgets.

        Its program is a variant that records its launches if there is a recorder.
        """
        name = f"{graph.name}_inspection_{next(self._numbers)}"
        computation = Computation(self, graph, (), name, recorder=recorder)
        computation.checks_finite = False
        computation.number_calls("an inspection")
        self._add(computation)
        return computation

    def discard(self, computations: Iterable[Computation]) -> None:
        """Forget computations and release what only they use."""
        with self.state_lock:
            for computation in computations:
                computation.refuse(self._refused)
                self.computations.discard(computation)
                for op in computation.results:
                    self.all_results.discard(op)
                for program in computation.programs.values():
                    self._release_constants(program)

    def new_program(
        self,
        name: str,
        graph: Graph,
        solution: Mapping[Symbol, int],
        recorder: Recorder | None = None,
        family: Family | None = None,
    ) -> Program:
        """Return a program for a graph whose lengths are known, with a number in its name."""
        with self.state_lock:
            self._program_count += 1
            return Program(f"{name}_{self._program_count}", graph, solution, recorder, family)

    @property
    def graph_passes(self) -> list[GraphPass]:
        """The passes that run on every graph, in order."""
        self._require_made()
        with self.state_lock:
            return self.graph_compiler.pipeline.passes

    @graph_passes.setter
    def graph_passes(self, passes: Iterable[str | GraphPass]) -> None:
        """Run these instead, as with ``passes=``, on what is compiled from now on."""
        self.require_open()
        if not isinstance(passes, Iterable):
            raise ArgumentError(f"graph_passes is a list of names and passes, not {passes!r}")
        compiler = Compiler(Pipeline(passes), self.memory_limit)
        with self.state_lock:
            self.graph_compiler = compiler

    def register_graph_pass(self, graph_pass: GraphPass, position: int | None = None) -> None:
        """Add a pass at the end of the pipeline, or at a position.

        Raises ArgumentError for anything but an object of a subclass of `GraphPass`.
        """
        if not isinstance(graph_pass, GraphPass):
            raise ArgumentError(
                f"a pass must be an object of a GraphPass class, not {graph_pass!r}"
            )
        self.require_open()
        passes = self.graph_passes
        index = len(passes)
        if position is not None:
            index = checked_integer("register_graph_pass", "the position", position)
        passes.insert(index, graph_pass)

    # Initialization

    def initialize(self) -> None:
        """Compile pending programs, allocate, and run pending initializers.

        Calling it again does nothing. All ranks call it if there are computations with collectives.
        If a computation cannot be compiled its error is raised, but the others are ready; it is
        tried again when it is called. Raises StateError if the transformer has been closed.
        """
        self.require_open()
        with self.state_lock:
            self.compile(dict(self._pending))

    def compile(self, wanted: Mapping[Program, Computation]) -> None:
        """Compile programs that are wanted, and pending ones; raise the first error of the wanted.

        Pending ones in which other ranks take part stay pending: these may not compile them now.
        Errors are not kept: a traceback references the callers' frames, and so their models and
        memory.
        """
        failures: dict[Program, Exception] = {}
        done: Batch = {}
        suspects: set[Program] = set()
        with self.state_lock, gc_paused():
            self.require_open()
            if wanted and all(program.is_compiled for program in wanted):
                return
            self._pending.update(wanted)
            if self.initialized and not self._pending:
                self._allocate_new_buffers()
            while (batch := self._next_batch(wanted, suspects)) or not self.initialized:
                try:
                    with blaming(
                        origin_of(type(self)), partial(self._compiling, batch), extends=False
                    ):
                        self._transform_computations(batch)
                except Exception as error:
                    if not batch:
                        raise
                    if len(batch) == 1:
                        failures |= dict.fromkeys(batch, error)
                    else:  # one of them is at fault, and the others are not to fail with it
                        suspects |= batch.keys()
                        self._pending = batch | self._pending
                except BaseException:
                    self._pending = batch | self._pending
                    raise
                else:
                    done |= batch
                self.initialized = True
        for computation in done.values():
            plugins.call_hooks("weft_computation_compiled", computation=computation)
        _raise_first(failures, wanted)

    def _compiling(self, batch: Batch) -> str:
        names = ", ".join(program.name for program in batch)
        return f"while it compiled {names} for backend {self.transformer_name}"

    def _next_batch(self, wanted: Container[Program], suspects: Container[Program]) -> Batch:
        """Take what to compile next from the pending programs.

        That is a suspect, else all that need this rank only, else a wanted one with other ranks.
        """
        pending = list(self._pending)
        batch = (
            [each for each in pending if each in suspects][:1]
            or [each for each in pending if not is_shared(each, self.state_tensors)]
            or [each for each in pending if each in wanted][:1]
        )
        return {program: self._pending.pop(program) for program in batch}

    def _transform_computations(self, batch: Batch) -> None:
        """Compile programs, allocate, and set initial values; an error undoes all of it."""
        init, programs = self._init, list(batch)
        executors = [(computation, computation.executor) for computation in batch.values()]
        try:
            title = f"compiling {_names(batch)}".rstrip()
            with Stage(title) as stage, self.memory_restored_on_error():
                stage.part = "agreement of ranks"
                with agreement.compiling(programs, self.states_set, self.compile_cache.is_on):
                    stage.part = "passes"
                    unknown = self.compile_cache.missing(programs)
                    if unknown:
                        self.run_registered_graph_passes(unknown)
                    initial = self._initial_programs(programs)
                    self._transform_programs([*programs, *initial], batch, stage)
                stage.part = "initial values"
                self.allocate([*programs, *initial])
                self.set_initial_constants()
                for program in initial:
                    self.require_values(f"the initial values of {_names(batch)}", program.captured)
                    with within(
                        RankCall(f"the initial values of {_names(batch)}", "initial values")
                    ):
                        program.run()
                self._set_waiting_values()
        except BaseException:
            self._init = init
            for computation, executor in executors:
                computation.executor = executor
            for program in programs:
                program.storages.clear()
            raise
        for program in programs:
            program.is_compiled = True

    def _transform_programs(self, programs: Sequence[Program], batch: Batch, stage: Stage) -> None:
        """Plan programs, describe their memory, and generate code and executors.

        Buffers of earlier computations are reused.
        """
        stage.part = "plan"
        for program in programs:
            if not program.is_restored:
                program.plan = self.graph_compiler.plan(program.graph, self.target, program.donated)
        self.transform_allocate(programs)
        stage.part = "code"
        for program in programs:
            if not program.is_restored:
                program.run = _generated(self, program)
        for program, computation in batch.items():
            if computation.is_static:
                computation.executor = make_executor(computation, program)
        self.finish_transform()
        self.compile_cache.keep(each for each in programs if each.recorder is None)
        folded_constants.forget()
        self.finalized = True

    def plan_again(self, program: Program, order: Sequence[Op]) -> None:
        """Compute the graph and plan of a restored program, with its ops in compiled order.

        This happens once; other threads meanwhile see the graph as it is.
        """
        with self.state_lock, gc_paused():
            if program.later is None or program in self._planned_again:
                return
            self._planned_again.add(program)
            try:
                self._plan_again(program, order)
                program.later = None
            finally:
                self._planned_again.discard(program)

    def _plan_again(self, program: Program, order: Sequence[Op]) -> None:
        program.graph = in_order(program.captured, order)
        self.run_registered_graph_passes([program])
        program.plan = self.graph_compiler.plan(program.graph, self.target, program.donated)
        if self.closed:
            return  # there is a plan to look at, but no memory
        self.transform_allocate([program])
        self.allocate([program])
        self.finish_transform()

    def run_registered_graph_passes(self, programs: Iterable[Program]) -> None:
        """Run the pipeline on the graph of each program and refuse ops without a rule."""
        for program in programs:
            program.graph = self.graph_compiler.run_passes(program.graph, self.target, program.name)

    def _initial_programs(self, programs: Sequence[Program]) -> list[Program]:
        """Return the program that computes first values of states, after passes, if there are any.

        Constant initial values are copied instead.
        """
        ordered = self.ordered_initializers(state for each in programs for state in each.states)
        given = {symbol: n for each in programs for symbol, n in each.solution.items()}
        name = f"init_{self._program_count}"
        if ordered or self._init is None:
            self._init = cache(partial(self._initial_computation, ordered, name, given))
        self.initial_constants = initial_constants(ordered)
        rest = [
            op for op in ordered if op.args[0] not in self.initial_constants and not is_zero(op)
        ]
        if not rest:
            return []
        program = self.new_program(name, initialization_op(rest, name, given).graph, given)
        if self.compile_cache.missing([program]):
            self.run_registered_graph_passes([program])
        return [program]

    def _initial_computation(
        self, initializers: Sequence[Op], name: str, given: Mapping[Symbol, int]
    ) -> Computation:
        computation = Computation(self, initialization_op(initializers, name, given), (), name)
        computation.uncompiled = "initial values are set, compiled when called"
        return computation

    @property
    def init_computation(self) -> Computation | None:
        """The latest computation of initializers, which resets states when it is called."""
        self.require_open()
        with self.state_lock:
            return None if self._init is None else self._init()

    # Values of states

    def state_tensor(self, state: Any) -> DeviceTensor:
        """Return the device tensor of a state, which is initialized if it has not been.

        From now on the state counts as written, since the tensor can be.
        """
        with self.state_lock:
            tensor = self._tensor_of(state)
            self.written.add(state)
            return tensor

    def _tensor_of(self, state: AssignableTensorOp) -> DeviceTensor:
        self._require_states([state])
        if state not in self.state_tensors:
            self._make_states([state], f"value_of_{state.name}")
        return self.state_tensors[state]

    def get_value(self, state: Any) -> np.ndarray[Any, Any]:
        """Return a copy of the current value of a state; raises StateError if it has none."""
        with self.state_lock:
            found = self.memory_of(state)
            if not has_initial_value(state) and state not in self.written:
                problem = "it has no value: give an initial_value=, or assign or set_value() before"
                raise StateError(state.explain(problem))
            return found

    get_tensor_view_value = get_value

    def memory_of(self, state: Any) -> np.ndarray[Any, Any]:
        """Return a copy of what the memory of a state holds: zeros if it has no value."""
        with self.state_lock:
            waiting = self._waiting_values.get(state)
            return self._tensor_of(state).get() if waiting is None else waiting.copy()

    def set_value(self, state: Any, value: Any) -> None:
        """Set the current value of a state; raises AxesError or DTypeError if it does not fit."""
        self._require_states([state])
        with self.state_lock:
            self.require_open()
            if not self._waits_for_ranks(state):
                self._tensor_of(state)
            self.write_state(state, value)

    def save_states(
        self,
        path: str | os.PathLike[str],
        states: States | None = None,
        communicator: Communicator | None = None,
    ) -> None:
        """Save the values of states to a safetensors file, a checkpoint, by their names.

        `states` are states with names, or a dictionary of them by name; by default all of this
        transformer. Those without a name are called by their kind, with a number. With a
        communicator all ranks take part: each writes a file with its share of the states, which
        are the same on all, and the first an index at `path`. What was at `path` stays until the
        new checkpoint is whole. Raises ArgumentError for a path that cannot be written, and
        CheckpointError, on all ranks, if the states differ or one of them fails.
        """
        from weft.runtime import checkpoints  # few programs need it

        checkpoints.save_states(self, path, states, communicator)

    def load_states(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        states: States | None = None,
    ) -> None:
        """Set states to the values in a file, on any backend and number of ranks, or to arrays.

        `source` is what `save_states` wrote, another safetensors file, or arrays by name, such as
        ``torch.load(path, weights_only=True)`` returns. `states` are as for `save_states`; where
        they are given, the source may have others too; PyTorch's ``num_batches_tracked`` always may
        be there. Raises CheckpointError, which lists every state that is missing, extra, or of
        another shape or dtype, and for what cannot be read. All states are set or none.
        """
        from weft.runtime import checkpoints

        checkpoints.load_states(self, source, states)

    def states(self) -> list[Any]:
        """Return all states that have a value, in the order of creation.

        A computation whose lengths are solved by a call need not have been called; only states
        of unknown lengths get their values there. Nor need one with collectives.
        """
        with self.state_lock:
            shared = [each for each in self._pending if is_shared(each, self.state_tensors)]
            alone = {
                each: computation
                for each, computation in self._pending.items()
                if each not in shared
            }
            self.compile(alone)
            later = [
                computation.graph for computation in self.computations if not computation.is_static
            ]
            later += [program.captured for program in self._pending]
            used = OrderedSet(state for graph in later for state in graph.states)
            missing = [s for s in used if s not in self.state_tensors and s.axes.is_static]
            if missing:
                self._make_states(missing, "values_of_states")
            return sorted(self.state_tensors, key=lambda op: op.serial)

    def _require_states(self, states: Iterable[Any]) -> None:
        self.require_open()
        for state in states:
            if not isinstance(state, AssignableTensorOp) or not state.is_state:
                raise ArgumentError(f"{state!r} is not a state of this transformer")
            with suppress(Exception):  # another computation's, which is its own to report
                self.compile({})
            if state not in self.state_tensors and not state.axes.is_static:
                raise AxesError(state.explain("its lengths are unknown until a call uses it"))

    def _make_states(self, states: Sequence[Any], name: str) -> None:
        """Give states their initial values, by a computation of them."""
        with scope.saved_user_deps():
            computation = Computation(self, states, (), name)
        self._add(computation)
        self.compile({computation.programs[()]: computation})

    def start_call(self, call: Callable[[], Any], in_order: bool) -> Future[Any]:
        """Start a call of a computation, for `Computation.call_async`; returns its future.

        By default it runs in a thread of the transformer, after those that were started before; if
        it is not `in_order`, in one of the threads of the event loop. A backend whose device can be
        awaited may override this.
        """
        return self._call_queue.start(call, in_order)

    @cached_property
    def _call_queue(self) -> CallQueue:
        from weft.runtime.call_queue import CallQueue  # few programs need it

        return CallQueue()

    def close(self) -> None:
        """Release all computations and device memory; the transformer cannot be used again."""
        self._close("the transformer has been closed: make another one")

    def __enter__(self) -> Self:
        self.require_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _close(self, why: str) -> None:
        with self.state_lock:
            super()._close(why)
            for computation in self.computations:
                computation.refuse(self._refused)
            self._pending = {}
            self.computations = OrderedSet()

    def _refused(self, *args: Any) -> NoReturn:
        raise StateError(self._why_closed)


def _generated(transformer: Transformer, program: Program) -> Callable[..., None]:
    """Return the code that a backend generates for a program, which a recorder may watch."""
    steps = program.plan.steps
    run = transformer.transform_ordered_ops(program, steps, program.name)
    run = guarded(run, origin_of(type(transformer)), f"in {program.name}")
    if program.recorder is None:
        return run
    return program.recorder.around(run, [step.op for step in steps])


def _names(batch: Batch) -> str:
    """Return the names of computations, as messages say them."""
    names = list(dict.fromkeys(computation.name for computation in batch.values()))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""


def _raise_first(failures: dict[Program, Exception], wanted: Container[Program]) -> None:
    """Raise the first error of a wanted program, if there is one, and forget the others.

    No frame of its traceback may reference the error, or all would live until a garbage collection.
    """
    failure = next((error for program, error in failures.items() if program in wanted), None)
    failures.clear()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure

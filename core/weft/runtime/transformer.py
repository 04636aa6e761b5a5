"""The transformer: a backend's life cycle. Compiles computations and owns their states.

The life cycle is that of the Nervana Graph transformer: computations are created, initialisation
runs the passes, describes tensors, transforms their allocation and then the computations, and runs
the initialisers. Each step is a method that a backend may extend. Everything is
incremental: a computation that is added later brings only its own buffers and initialisers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from weft import plugins, settings
from weft.cache.compile_cache import CompileCache
from weft.communicators.calls import Call, within
from weft.errors import ArgumentError, AxesError, StateError
from weft.ir import folded_constants, scope
from weft.ir.graph import Graph, in_order
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.ir.storage import AssignableTensorOp
from weft.ops.arguments import checked_integer
from weft.passes.interface import GraphPass, PassHistory
from weft.passes.pipeline import Pipeline
from weft.plan.plan import CONSTANT
from weft.plan.rematerialisation import checked_limit
from weft.plugins import contributions
from weft.plugins.blame import blaming, guarded, origin_of
from weft.report.progress import Stage
from weft.report.recorder import Recorder
from weft.runtime import agreement
from weft.runtime.compiler import Compiler
from weft.runtime.computation import Computation
from weft.runtime.device import DeviceTensor
from weft.runtime.exchanges import is_shared
from weft.runtime.initialisation import initial_computation
from weft.runtime.program import Program
from weft.runtime.state_store import StateStore
from weft.support.gc_pause import gc_paused
from weft.support.ordered_set import OrderedSet
from weft.transforms.initializers import initial_constants

if TYPE_CHECKING:
    from weft.communicators.interface import Communicator
    from weft.runtime.checkpoints import States


@contributions.base_of(plugins.BACKENDS)
class Transformer(StateStore):
    """A backend's compiler and runtime.

    Parameters
    ----------
    passes
        Names of passes, or pass objects, to run instead of the default pipeline.
    fast_math
        Allow rewrites that change values in rare cases.
    strict_finalize
        Refuse computations after initialisation, as the reference did.
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
        The latest computation of initialisers.
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
        self._pending: list[tuple[Computation, Program]] = []
        self.compiler = Compiler(Pipeline(passes), self.memory_limit)
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
        by axis, by length or by name. Raises ArgumentError for a parameter that is no placeholder,
        and for a length that is not among them.
        """
        self.require_open()
        if self.strict_finalize and self.finalized:
            raise StateError("Cannot create computations from a finalized transformer")
        number = next(self._numbers)
        title = name or f"computation_{number}"
        made = self.computation_class(self, results, parameters, title, axes)
        made.number_calls(name or "")
        self._add(made)
        return made

    def _add(self, made: Computation) -> None:
        with self.state_lock:
            self.computations.add(made)
            self.all_results.update(made.results)
            if made.is_static:
                program = self._program(made, made.arguments.given)
                made.programs[()] = program
                self._pending.append((made, program))

    def inspection(self, graph: Graph, recorder: Recorder | None = None) -> Computation:
        """Return a computation of a captured graph that `discard` forgets.

        Its program is a variant that records its launches if there is a recorder.
        """
        made = Computation(self, graph, (), f"{graph.name}_inspection_{next(self._numbers)}")
        made.checks_finite = False
        made.recorder = recorder
        made.number_calls("an inspection")
        self._add(made)
        return made

    def discard(self, computations: Iterable[Computation]) -> None:
        """Forget computations and release what only they use."""
        with self.state_lock:
            for made in computations:
                made.executor = self._refused
                self.computations.discard(made)
                for op in made.results:
                    self.all_results.discard(op)
                for program in made.programs.values():
                    for buffer, storage in program.storages.items():
                        if buffer.kind == CONSTANT:
                            self.device_buffers.discard(storage)

    def _program(self, made: Computation, solution: Mapping[Symbol, int]) -> Program:
        graph = made.graph.specialise(solution) if made.graph.symbols else made.graph
        self._program_count += 1
        name = f"{made.name}_{self._program_count}"
        return Program(name, graph, solution, made.recorder)

    def specialise(self, made: Computation, solution: Mapping[Symbol, int]) -> Program:
        """Compile a computation for one solution of its unknown lengths."""
        with self.state_lock:
            program = self._program(made, solution)
            self.compile(made, program)
        return program

    def compile(self, made: Computation, program: Program) -> None:
        """Compile a program and other pending ones; raises the error of this program only.

        Others in which other ranks take part stay pending: these may not compile them now.
        """
        with self.state_lock:
            self.require_open()
            if (made, program) not in self._pending:
                self._pending.append((made, program))
        failures = self._compile_pending([program])
        if program in failures:
            _raise_from(failures, program)

    @property
    def graph_passes(self) -> list[GraphPass]:
        """The passes that run on every graph, in order."""
        self._require_made()
        with self.state_lock:
            return self.compiler.pipeline.passes

    @graph_passes.setter
    def graph_passes(self, passes: Iterable[str | GraphPass]) -> None:
        """Run these instead, as with ``passes=``, on what is compiled from now on."""
        self.require_open()
        if not isinstance(passes, Iterable):
            raise ArgumentError(f"graph_passes is a list of names and passes, not {passes!r}")
        compiler = Compiler(Pipeline(passes), self.memory_limit)
        with self.state_lock:
            self.compiler = compiler

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
        place = len(passes)
        if position is not None:
            place = checked_integer("register_graph_pass", "the position", position)
        passes.insert(place, graph_pass)

    # Initialisation

    def initialize(self) -> None:
        """Compile pending programs, allocate, and run pending initialisers.

        Calling it again does nothing. All ranks call it if there are computations with collectives.
        If a computation cannot be compiled its error is raised, but the others are ready; it is
        tried again when it is called. Raises StateError if the transformer has been closed.
        """
        self.require_open()
        with self.state_lock:
            failures = self._compile_pending([program for _, program in self._pending])
        if failures:
            _raise_from(failures, next(iter(failures)))

    def _compile_pending(self, wanted: Collection[Program] = ()) -> dict[Program, Exception]:
        """Compile, allocate and initialise pending programs; returns the errors of failed ones.

        Those in which other ranks take part are compiled one by one, and only if they are wanted.
        Errors are not kept: a traceback references the callers' frames, and so their models and
        memory.
        """
        done: list[tuple[Computation, Program]] = []
        failures: dict[Program, Exception] = {}
        with self.state_lock, gc_paused():
            if self.initialized and not self._pending:
                self._allocate_new_buffers()
                return {}
            self.require_open()
            while (batch := self._next_batch(wanted)) or not self.initialized:
                self._pending = [each for each in self._pending if each not in batch]
                try:
                    self._compile_isolated(batch, failures)
                except BaseException:
                    self._pending = [*batch, *self._pending]
                    raise
                self.initialized = True
                done += batch
        for made, program in done:
            if program not in failures:
                plugins.call_hooks("weft_computation_compiled", computation=made)
        return failures

    def _next_batch(self, wanted: Collection[Program]) -> list[tuple[Computation, Program]]:
        """Return what to compile next: all that needs this rank only, else one that is wanted."""
        shared = [each for each in self._pending if is_shared(each[1], self.state_tensors)]
        alone = [each for each in self._pending if each not in shared]
        return alone or [each for each in shared if each[1] in wanted][:1]

    def _allocate_new_buffers(self) -> None:
        """Allocate buffers that were made by hand after the last program."""
        if self.unallocated:
            with self.memory_restored_on_error():
                self.transform_allocate(())
                self.allocate(())

    def _compile_isolated(
        self,
        pending: list[tuple[Computation, Program]],
        failures: dict[Program, Exception],
    ) -> None:
        """Compile programs together or, if that fails, one by one; adds their errors."""
        try:
            with blaming(origin_of(type(self)), lambda: self._compiling(pending), extends=False):
                self._compile_batch(pending)
        except Exception as error:
            if not pending:
                raise
            if len(pending) == 1:
                failures[pending[0][1]] = error
                return
        else:
            return
        for item in pending:
            self._compile_isolated([item], failures)

    def _compiling(self, pending: list[tuple[Computation, Program]]) -> str:
        names = ", ".join(program.name for _, program in pending)
        return f"while it compiled {names} for backend {type(self).transformer_name}"

    def _compile_batch(self, pending: list[tuple[Computation, Program]]) -> None:
        """Transform, allocate and initialise; an error undoes all of it."""
        init = self._init
        try:
            with _stage(pending) as stage, self.memory_restored_on_error():
                stage.part = "agreement of ranks"
                programs = [program for _, program in pending]
                with agreement.compiling(programs, self.states_set, self.compile_cache.is_on):
                    everything = self._transform_computations(pending, stage)
                stage.part = "initial values"
                self.allocate([program for _, program in everything])
                self.set_initial_constants()
                for _, program in everything[len(pending) :]:
                    with within(Call(f"the initial values of {_names(pending)}", "initial values")):
                        program.run()
                self.set_waiting_values()
        except BaseException:
            self._init = init
            for made, program in pending:
                made.forget_program()
                program.storages.clear()
            raise

    def _transform_computations(
        self, pending: list[tuple[Computation, Program]], stage: Stage
    ) -> list[tuple[Computation, Program]]:
        """Transform new programs; returns them, then those of their initialisers.

        Buffers and initialisers of earlier computations are reused.
        """
        stage.part = "passes"
        self._restore_or_run_passes(program for _, program in pending)
        everything = [*pending, *self._init_computation(pending)]
        initial = {program for _, program in everything[len(pending) :]}
        stage.part = "plan"
        for _, program in everything:
            if not program.is_restored:
                program.plan = self.compiler.plan(program.graph, self.target)
        self.transform_allocate([program for _, program in everything])
        stage.part = "code"
        for made, program in everything:
            if not program.is_restored:
                steps = program.plan.steps
                run = self.transform_ordered_ops(program, steps, program.name)
                program.run = guarded(run, origin_of(type(self)), f"in {program.name}")
                if program.recorder is not None:
                    ops = [step.op for step in steps]
                    program.run = program.recorder.around(program.run, ops)
            if made.checks_finite and program not in initial:
                from weft.runtime import nonfinite  # few programs need it

                program.run = nonfinite.checking(made, program)
            if made.exchange is not None:
                program.run = made.exchange.with_lengths(program)
            made.set_program(program)
        self.finish_transform()
        self.compile_cache.keep(each for _, each in everything if each.recorder is None)
        folded_constants.forget()
        self.finalized = True
        return everything

    def _restore_or_run_passes(self, programs: Iterable[Program]) -> None:
        """Restore programs from the cache, and run the passes on the others."""
        unknown = [
            each
            for each in programs
            if not (each.is_restored or (each.recorder is None and self.compile_cache.find(each)))
        ]
        if unknown:
            self.run_registered_graph_passes(unknown)

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
        program.plan = self.compiler.plan(program.graph, self.target)
        if self.closed:
            return  # there is a plan to look at, but no memory
        self.transform_allocate([program])
        self.allocate([program])
        self.finish_transform()

    def run_registered_graph_passes(self, programs: Iterable[Program]) -> None:
        """Run the pipeline on the graph of each program and refuse ops without a rule."""
        for program in programs:
            program.graph = self.compiler.run_passes(program.graph, self.target, program.name)

    def pass_histories(self, graph: Graph) -> list[PassHistory]:
        """Run the pipeline on a graph again, and return what it makes of it and of called graphs.

        Those that are called come first, the graph itself last.
        """
        found: list[PassHistory] = []
        with self.state_lock, gc_paused():
            self.compiler.run_passes(graph, self.target, graph.name, found)
        return found

    def _init_computation(
        self, pending: list[tuple[Computation, Program]]
    ) -> list[tuple[Computation, Program]]:
        """Create the computation that initialises states without memory, and run passes on it.

        Constant initial values are copied instead.
        """
        states = [state for _, program in pending for state in program.states]
        ordered = self.ordered_initializers(states)
        given = {symbol: n for _, program in pending for symbol, n in program.solution.items()}
        name = f"init_{self._program_count}"
        if ordered or self._init is None:
            self._init = cache(partial(self._initialising, ordered, name, given))
        self.initial_constants = initial_constants(ordered)
        rest = [op for op in ordered if op.args[0] not in self.initial_constants]
        if not rest:
            return []
        made = self._initialising(rest, name, given) if self.initial_constants else self._init()
        program = made.programs[()]
        self._restore_or_run_passes([program])
        return [(made, program)]

    def _initialising(
        self, initializers: Sequence[Op], name: str, given: Mapping[Symbol, int]
    ) -> Computation:
        made = initial_computation(self, initializers, name, given)
        made.programs[()] = self._program(made, made.arguments.given)
        return made

    @property
    def init_computation(self) -> Computation | None:
        """The latest computation of initialisers, which resets states when it is called."""
        self.require_open()
        with self.state_lock:
            return None if self._init is None else self._init()

    # Values of states

    def state_tensor(self, state: Any) -> DeviceTensor:
        """Return the device tensor of a state, which is initialised if it has not been."""
        with self.state_lock:
            self._require_states([state])
            if state not in self.state_tensors:
                self._make_states([state], f"value_of_{state.name}")
            return self.state_tensors[state]

    def get_value(self, state: Any) -> np.ndarray[Any, Any]:
        """Return a copy of the current value of a state."""
        with self.state_lock:
            waiting = self.waiting_values.get(state)
            return self.state_tensor(state).get() if waiting is None else waiting.copy()

    get_tensor_view_value = get_value

    def set_value(self, state: Any, value: Any) -> None:
        """Set the current value of a state; raises AxesError or DTypeError if it does not fit."""
        self._require_states([state])
        with self.state_lock:
            self.require_open()
            if not self.waits_for_ranks(state):
                self.state_tensor(state)
            self.write(state, value)

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

    def load_states(self, path: str | os.PathLike[str], states: States | None = None) -> None:
        """Set states to the values that `save_states` wrote, on any backend and number of ranks.

        `states` are as for `save_states`; where they are given, the file may have others too.
        Raises CheckpointError, which lists every state that is missing, extra, or of another shape
        or dtype, and for a file that cannot be read. All states are set or none.
        """
        from weft.runtime import checkpoints

        checkpoints.load_states(self, path, states)

    def states(self) -> list[Any]:
        """Return all states that have a value, in the order of creation.

        A computation whose lengths are solved by a call need not have been called; only states
        of unknown lengths get their values there. Nor need one with collectives.
        """
        with self.state_lock:
            failures = self._compile_pending()
            if failures:
                _raise_from(failures, next(iter(failures)))
            later = [made.graph for made in self.computations if not made.is_static]
            later += [program.captured for _, program in self._pending]
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
                self._compile_pending()
            if state not in self.state_tensors and not state.axes.is_static:
                raise AxesError(state.explain("its lengths are unknown until a call uses it"))

    def _make_states(self, states: Sequence[Any], name: str) -> None:
        """Give states their initial values, by a computation of them."""
        with scope.saved_user_deps():
            made = Computation(self, states, (), name)
        self._add(made)
        self.compile(made, made.programs[()])

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
            for made in self.computations:
                made.executor = self._refused
            self._pending = []
            self.computations = OrderedSet()

    def _refused(self, *args: Any) -> NoReturn:
        raise StateError(self._why_closed)


def _names(pending: Sequence[tuple[Computation, Program]]) -> str:
    """Return the names of computations, as messages say them."""
    names = list(dict.fromkeys(made.name for made, _ in pending))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""


def _stage(pending: Sequence[tuple[Computation, Program]]) -> Stage:
    """Return the stage in which computations are compiled."""
    return Stage(f"compiling {_names(pending)}".rstrip())


def _raise_from(failures: dict[Program, Exception], program: Program) -> NoReturn:
    """Raise the error of a program.

    No frame of its traceback may reference the error, or all would live until a garbage collection.
    """
    failure = failures[program]
    failures.clear()
    try:
        raise failure
    finally:
        del failure

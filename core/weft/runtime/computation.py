"""Computations: results and parameters bound to a transformer, called with arrays.

A computation compiles one `Program` for each solution of the lengths that were unknown. Few
programs need profiles, reports and artifacts, so their modules are imported where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from weft.errors import ArgumentError, NotPicklable
from weft.ir.axes import Axes
from weft.ir.dtypes import Array
from weft.ir.graph import Graph, exchanges
from weft.ir.lengths import Symbol
from weft.plan.donated_memory import Donated
from weft.plan.fusion_statistics import FusionStatistics, fusion_statistics
from weft.plan.plan import Plan
from weft.report.progress import Stage
from weft.report.recorder import Recorder
from weft.runtime.arguments import Arguments
from weft.runtime.call_path import make_dispatcher, make_executor
from weft.runtime.device_arrays import HOST, DeviceArrays
from weft.runtime.exchanges import Exchange
from weft.runtime.given_lengths import HOW_TO_GIVE, given_lengths
from weft.runtime.missing_values import uses
from weft.runtime.program import Family, Program
from weft.support.gc_pause import gc_paused
from weft.transforms.capture import capture
from weft.transforms.computation_op import ComputationOp, resolved, structure

if TYPE_CHECKING:
    from asyncio import Future

    from weft.report.profile import Profile
    from weft.runtime.bound_computation import BoundComputation
    from weft.runtime.nonfinite import NonFinite
    from weft.runtime.transformer import Transformer


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
        What a call runs: takes the arguments in order, returns the results. The first call compiles
        and replaces it.
    arguments
        The parameters, and the checks of a call's arguments.
    arrays
        What its arguments and results are: NumPy's arrays, or those of the device.
    checks_finite
        Whether a call raises CheckFailed for NaN and infinities in its results.
    recorder
        What records the launches of its programs; None for an ordinary computation.
    exchange
        What other ranks compare of its calls; None if they take no part.
    calls
        The generated functions that run its programs, by a global ``run`` each.
    uncompiled
        What its `condition` is until it is compiled.
    """

    uncompiled = "not compiled yet"

    def __init__(
        self,
        transformer: Transformer,
        results: Any,
        parameters: Sequence[Any],
        name: str,
        axes: Mapping[Any, int] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.transformer = transformer
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a computation must be text, not {name!r}")
        self.name = name
        self.graph, results, parameters = _graph_of(results, parameters, name)
        self.results, self.pack = structure(results)
        self.arguments = Arguments(name, parameters, given_lengths(axes, self.graph, name))
        self.programs: dict[tuple[tuple[int, ...], ...], Program] = {}
        self._family = Family(self.graph)
        self.arity = len(parameters)
        self.is_static = not set(self.graph.symbols) - set(self.arguments.given)
        self._executors: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.executor: Callable[..., Any] = (
            self._first_call
            if self.is_static
            else make_dispatcher(self._executors, self.arity, self._first_call_for_shapes)
        )
        self.checks_finite = transformer.checks_finite
        self.recorder = recorder
        self.arrays: DeviceArrays = HOST
        self.calls: WeakSet[Any] = WeakSet()
        self.exchange: Exchange | None = None
        self._direct_arity = self.arity
        if self.is_static:
            self.programs[()] = self._new_program(self.arguments.given)

    def _new_program(self, solution: Mapping[Symbol, int]) -> Program:
        graph = self.graph.specialize(solution) if self.graph.symbols else self.graph
        family = None if self.is_static else self._family
        program = self.transformer.new_program(self.name, graph, solution, self.recorder, family)
        program.donated, program.on_device = self._family.donated, self.arrays is not HOST
        return program

    def donate(self, donated: Donated) -> None:
        """Let results take over the memory of arguments, before it is compiled.

        `donated` has the number of an argument of the same shape and dtype for that of a result.
        Where the backend is not able to, results have memory of their own.
        """
        if self.transformer.target.writes_arguments:
            self._family.donated = dict(donated)
            for program in self.programs.values():
                program.donated = self._family.donated

    def keep_on_device(self) -> None:
        """Let results stay on the device, before it is compiled: they are the backend's arrays.

        Such arrays are arguments, too, as they are. Other arguments are copied to the device.
        """
        self.arrays = self.transformer.device_arrays
        for program in self.programs.values():
            program.on_device = self.arrays is not HOST

    def coerce(self, number: int, value: Any, axes: Axes) -> Any:
        """Return an argument as what programs take; see `Arguments.coerce`."""
        found = None if self.arrays is HOST else self.arrays.of(value)
        if found is None:
            return self.arrays.from_host(self.arguments.coerce(number, value, axes))
        self.arguments.require(number, found, axes)
        return found

    def refuse(self, refusal: Callable[..., Any]) -> None:
        """Let calls raise from now on, whatever runs its programs."""
        self.executor = refusal
        for call in list(self.calls):
            call.__globals__["run"] = refusal

    def number_calls(self, given_name: str) -> None:
        """Number its calls from now on, if other ranks take part, as one of a name or of none."""
        if exchanges(self.graph):
            self.exchange = Exchange(self.graph, self.name, given_name)
            self._direct_arity = -1

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run with one array, number or nested list for each parameter and return the results.

        Results are new arrays that belong to the caller, in the structure that the computation was
        made with: one op gives a value, a list or tuple a tuple, a set or dict a dict, and an op
        that yields no tensor None. ``feed_dict={placeholder: value}`` gives arguments by
        placeholder, ``out=`` arrays to write the results to. Raises ArgumentError for a wrong
        number of arguments, AxesError and DTypeError for one that does not fit.
        """
        if options or len(args) != self._direct_arity:
            return self._numbered_call(args, options)
        return self.executor(*args)

    def call_async(self, *args: Any, **options: Any) -> Future[Any]:
        """Start a call, and return its future, which a coroutine awaits for the results.

        The arguments are those of a call, and so are the results and the errors, which the future
        raises. The event loop is not blocked meanwhile, also not by compilation. Calls that read or
        write states take place in the order in which they were started, as do all calls of a
        backend that runs one at a time. Arguments are not copied: leave them as they are until the
        call has ended. A canceled call that has begun runs to its end. Raises ArgumentError if no
        event loop of asyncio is running.

        >>> import asyncio, numpy as np, weft
        >>> x = weft.placeholder([2], name="x")
        >>> async def main(double):
        ...     return await asyncio.gather(double.call_async([1, 2]), double.call_async([3, 4]))
        >>> with weft.make_transformer() as transformer:
        ...     asyncio.run(main(transformer.computation(x * 2, x)))
        [array([2., 4.], dtype=float32), array([6., 8.], dtype=float32)]
        """
        return self.start(partial(self, *args, **options))

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """Start what makes one call of it; returns the future of what that returns."""
        is_free = self.transformer.is_concurrent and self.exchange is None
        return self.transformer.start_call(call, not is_free or bool(self.graph.states))

    def bind(self, values: Mapping[Any, Any]) -> BoundComputation:
        """Return the computation with some parameters bound: its calls take only the others.

        `values` has an array for each placeholder to bind, such as the weights of a model. Calls
        read it where it is, without tests and copies: what is written to it is seen by the next
        call. A backend with memory of its own copies it at each call, as it does with arguments,
        unless it is one of the device's arrays. The computation itself stays as it is. Raises
        ArgumentError for a placeholder that is not a parameter, a value that is not a contiguous
        array, and an argument whose memory results take over; AxesError and DTypeError for another
        shape or dtype.

        >>> import numpy as np, weft
        >>> x, w = weft.placeholder([2], name="x"), weft.placeholder([2, 2], name="w")
        >>> weights = np.eye(2, dtype=np.float32)
        >>> with weft.make_transformer() as transformer:
        ...     layer = transformer.computation(x @ w, x, w).bind({w: weights})
        ...     before = layer([1, 2])
        ...     weights *= 3
        ...     print(before, layer([1, 2]))
        [1. 2.] [3. 6.]
        """
        numbers = {op: number for number, op in enumerate(self.parameters)}
        unknown = ", ".join(str(op) for op in values if op not in numbers)
        if unknown:
            raise ArgumentError(
                f"{self.name} has no parameters {unknown}: list them when making it"
            )
        from weft.runtime.bound_computation import BoundComputation  # few programs need it

        return BoundComputation(
            self, {numbers[op]: self._bindable(numbers[op], each) for op, each in values.items()}
        )

    def _bindable(self, number: int, value: Any) -> Any:
        """Return the array that calls read for a parameter; raises for a value that is none."""
        op, is_host = self.parameters[number], self.arrays is HOST
        what = f"{self.name} cannot bind {op.name} ({op.file_info})"
        array = np.asarray(value) if is_host and isinstance(value, np.ndarray) else value
        if type(array) is not self.arrays.kind:
            kind = f"{self.arrays.kind.__module__}.{self.arrays.kind.__name__}"
            raise ArgumentError(f"{what}: calls read a {kind}, and this is {value!r:.80}")
        self.arguments.require(number, array, op.axes)
        if not (array.flags.c_contiguous and self.arrays.is_ready(array)):
            raise ArgumentError(f"{what}: calls read a C-contiguous array where it is: copy it")
        if number in self._family.donated.values():
            raise ArgumentError(f"{what}: results are computed in its memory, it is donated")
        return array

    def _numbered_call(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if self.exchange is None:
            return self._call_with_options(args, **options)
        with self.exchange.call():
            return self._call_with_options(args, **options)

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
            args += self.arguments.fed(feed_dict, len(args))
        self._require_arity(args)
        if out is None:
            return self.executor(*args)
        return self._call_into(args, out if isinstance(out, tuple | list) else (out,))

    def _require_arity(self, args: Sequence[Any]) -> None:
        if len(args) != self.arity:
            wanted = ", ".join(op.name for op in self.parameters)
            problem = (
                f"Computation was expecting {self.arity} arguments, but was called with "
                f"{len(args)}. ({self.name} takes: {wanted or 'nothing'})"
            )
            missing = uses(self.graph, self.parameters[len(args) :])
            raise ArgumentError("\n".join([problem, *missing]))

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The placeholders that a call gives values for, in order."""
        return self.arguments.parameters

    def _call_into(self, args: tuple[Any, ...], out: Sequence[Array]) -> Any:
        self.transformer.require_open()
        self._compile()
        arrays, program = self._prepared(args)
        arrays = self.arguments.apart_from(arrays, out, program.captured.outputs)
        for result, number in program.donated.items():
            np.copyto(out[result], arrays[number])
        with self.transformer.state_lock:
            self.ready_to_run(program)(*arrays, *out)
            self.transformer.note_writes(program)
        return self.pack(self.with_none(out))

    def with_none(self, values: Sequence[Any]) -> list[Any]:
        """Return values with None for what yields no tensor."""
        rest = iter(values)
        return [next(rest) if op.is_tensor else None for op in self.results]

    def ready_to_run(self, program: Program) -> Callable[..., None]:
        """Compile a program if it is not compiled, and return what runs it and checks the results.

        The executor is there before the memory is. A thread that calls it meanwhile waits here.
        Raises StateError if it reads a state without a value.
        """
        if not program.is_compiled:
            self.transformer.compile({program: self})
        self.transformer.require_values(self.name, program.captured)
        run = program.run
        if self.checks_finite:
            from weft.runtime import nonfinite  # few programs need it

            run = nonfinite.checking(self, program)
        return run if self.exchange is None else self.exchange.with_lengths(program, run)

    def _first_call(self, *args: Any) -> Any:
        if self.exchange is None:  # else ranks agree first, so that all of them raise
            self.transformer.require_values(self.name, self.graph)
        self.transformer.compile({self.programs[()]: self})
        # Some drivers compile a kernel when it is launched for the first time.
        with Stage(f"first call of {self.name}"):
            return self.executor(*args)

    def _compile(self) -> None:
        """Compile the program, if there is only one and the transformer is open."""
        program = self.programs.get(())
        if program is not None and not (program.is_compiled or self.transformer.closed):
            self.transformer.compile({program: self})

    def _first_call_for_shapes(self, *args: Any) -> Any:
        """Make the executor for the shapes of arguments, unless they are no arrays, and run it."""
        arrays, program = self._prepared(args)
        shapes = tuple(array.shape for array in arrays)
        executor = self._executors.get(shapes)
        if executor is not None:
            return executor(*arrays)
        executor = self._executors[shapes] = make_executor(self, program)
        with Stage(f"first call of {self.name}"):
            return executor(*args)

    def _prepared(self, args: Sequence[Any]) -> tuple[list[Array], Program]:
        """Return arguments as arrays and the program for their lengths, compiled if need be."""
        args = [self.arrays.to_host(x) if type(x) is self.arrays.kind else x for x in args]
        arrays = [self.arguments.coerce(number, arg) for number, arg in enumerate(args)]
        key = () if self.is_static else tuple(array.shape for array in arrays)
        with self.transformer.state_lock:
            if key not in self.programs:
                solution = self.arguments.solve(key, self.graph, self.transformer.state_tensors)
                program = self._new_program(solution)
                self.transformer.compile({program: self})
                self.programs[key] = program
        program = self.programs[key]
        for number, op in enumerate(program.captured.inputs):
            self.arguments.coerce(number, arrays[number], op.axes)
        return arrays, program

    def find_nonfinite(self, *args: Any) -> NonFinite | None:
        """Return the op that NaN or an infinity comes from in a call; None if there is nothing.

        That is the first op, forward or gradient, whose operands were finite and whose value is
        not; an infinity counts only if it reaches a result or a state, or becomes NaN. The
        arguments are those of a call. The backend runs instrumented variants of the program, each
        compiled once for a search; graphs inside loops run one iteration at a time. States stay as
        they are, and nothing is printed or asserted. Raises what a call with these arguments does.

        >>> import numpy as np, weft
        >>> x = weft.placeholder([3], name="x")
        >>> with weft.make_transformer() as transformer:
        ...     step = transformer.computation(weft.sum(weft.sqrt(x - 1)), x)
        ...     found = step.find_nonfinite(np.float32([0, 1, 2]))
        >>> type(found.op).__name__, found.operands[0].low, found.value.nans
        ('SqrtOp', -1.0, 1)
        """
        self.transformer.require_open()
        self._require_arity(args)
        self._compile()
        arrays, program = self._prepared(args)
        from weft.runtime.nonfinite import find_nonfinite

        return find_nonfinite(self.transformer, program.captured, arrays)

    def profile(self, *args: Any, repeat: int = 10) -> Profile:
        """Return where the time of a call with these arguments goes.

        A variant of the program with time stamps is compiled, called `repeat` times, and forgotten.
        States get their values back; effects such as printing happen in every call. The rates of
        the machine are measured at the first profile on a device, which takes about a second.
        Raises what a call with these arguments does.

        >>> import numpy as np, weft
        >>> x = weft.placeholder([256, 256], name="x")
        >>> with weft.make_transformer() as transformer:
        ...     step = transformer.computation(weft.tanh(x @ x), x)
        ...     profile = step.profile(np.ones((256, 256), np.float32))
        >>> sum(row.flops for row in profile.rows) == 2 * 256**3 + 256**2
        True
        """
        self.transformer.require_open()
        self._require_arity(args)
        self._compile()
        arrays, program = self._prepared(args)
        if program.donated:
            arrays = [array.copy() for array in arrays]
        from weft.runtime.profiling import profile

        return profile(self, program.captured, arrays, repeat)

    def report(
        self, path: str | os.PathLike[str], *args: Any, profile: Profile | None = None
    ) -> None:
        """Write a page that shows what the compiler did, which needs no network.

        The page has the graph before and after each pass, the generated source beside the user's
        lines, and the plan of memory. With the arguments of a call it has a profile of that call
        too, unless `profile` is one taken before. The computation is compiled if it has not been.
        Raises ArgumentError if the file cannot be written, an older file then stays as it is, or if
        lengths are unknown and there are no arguments; StateError if the transformer was closed.

        >>> import os, tempfile, weft
        >>> x = weft.placeholder([3], name="x")
        >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
        >>> with weft.make_transformer() as transformer:
        ...     transformer.computation(weft.sum(x * 2), x).report(path)
        >>> os.path.getsize(path) > 1000
        True
        """
        from weft.runtime.reporting import write_report

        self.transformer.require_open()
        write_report(self, path, args, profile)

    def program_for(self, *args: Any) -> Program:
        """Return the program that a call with these arguments runs, compiled if need be."""
        self._require_arity(args)
        self._compile()
        return self._prepared(args)[1]

    def prepare(self) -> None:
        """Compile the program, if its lengths are all known, or wait for the shapes of a call."""
        self.transformer.require_open()
        self._compile()

    def save(self, path: str | os.PathLike[str], states: bool = False) -> None:
        """Save the computation to a file, an artifact, which `weft.load` reads anywhere.

        The file is a zip of the graph as text, its constants, and the plan, source and code of the
        programs that are compiled; nothing is pickled. States begin in the loaded computation with
        their initial values, or with `states` with their current ones. The file is there in full or
        not at all. Raises ArtifactError for an op that cannot be kept as text, results in a set,
        and initial values whose lengths only a call tells; ArgumentError for a path that cannot be
        written.
        """
        if not isinstance(states, bool):
            raise ArgumentError(f"states= takes True or False, not {states!r}")
        from weft.runtime.artifact_saving import save

        save(self, path, states)

    @property
    def program(self) -> Program:
        """The only program of a computation whose lengths are all known, compiled if need be."""
        self._compile()
        if len(self.programs) != 1:
            raise ArgumentError(
                f"{self.name} has {len(self.programs)} programs, one for each solution of its "
                f"unknown lengths: call it and look into its programs, or {HOW_TO_GIVE}"
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
        parts = f"{self.arity} parameters, {len(self.results)} results, {self.condition}"
        return f"<Computation {self.name} on {self.transformer.transformer_name}: {parts}>"

    @property
    def condition(self) -> str:
        """Whether it is compiled, as text; asking compiles nothing."""
        if self.transformer.closed:
            return "closed"
        if self.is_static:
            return "compiled" if self.programs[()].is_compiled else self.uncompiled
        count = len(self.programs)
        return f"compiled for {count} {'shape' if count == 1 else 'shapes'}"

    def _repr_html_(self) -> str:
        from weft.runtime.notebook import computation_as_html  # few programs need it

        return computation_as_html(self)


def _graph_of(results: Any, parameters: Sequence[Any], name: str) -> tuple[Graph, Any, Any]:
    """Return the graph of what a computation is made of, its results and its parameters."""
    if isinstance(results, Graph | ComputationOp) and parameters:
        raise ArgumentError(f"{results} has its parameters already, these are too many")
    if isinstance(results, ComputationOp):
        return results.graph, results.results, results.parameters
    if isinstance(results, Graph):
        return results, results, [op.source for op in results.inputs]
    ops, parameters = resolved(results, parameters)
    with gc_paused():
        graph = capture(ops, parameters, name)
        _ = graph.symbols
    return graph, results, parameters

"""Computations with bound parameters, whose arrays do not cross at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.errors import ArgumentError
from weft.runtime.call_path import make_dispatcher, make_executor

if TYPE_CHECKING:
    from asyncio import Future

    from weft.runtime.computation import Computation


class BoundComputation:
    """A computation that has arrays for some of its parameters; made by `Computation.bind`.

    A call takes the other arguments, in order, and returns what the computation returns. It shares
    the programs of the computation, and like it may be called by several threads.

    Attributes
    ----------
    computation
        The computation.
    values
        The arrays, by the number of the parameter.
    parameters
        The placeholders that a call gives values for, in order.
    """

    def __init__(self, computation: Computation, values: Mapping[int, Any]) -> None:
        self.computation = computation
        self.values = dict(values)
        self._taken = [n for n in range(computation.arity) if n not in self.values]
        self.parameters = tuple(computation.parameters[number] for number in self._taken)
        self._executors: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._executor: Callable[..., Any] = self._first_call
        # Ranks count the calls of the computation, so these are its own.
        self._direct_arity = len(self._taken) if computation.exchange is None else -1
        if not computation.is_static:
            self._executor = make_dispatcher(self._executors, len(self._taken), self._first_call)

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run with one array, number or nested list for each parameter and return the results.

        ``out=`` gives arrays to write the results to. Raises what the computation raises.
        """
        if out is not None or len(args) != self._direct_arity:
            return self.computation(*self._all(args), **({} if out is None else {"out": out}))
        return self._executor(*args)

    def call_async(self, *args: Any, out: Any = None) -> Future[Any]:
        """Start a call, and return its future; see `Computation.call_async`."""
        return self.computation.start(partial(self, *args, out=out))

    def _all(self, args: Sequence[Any]) -> list[Any]:
        """Return the arguments of the computation; raises ArgumentError for a wrong number."""
        if len(args) != len(self._taken):
            names = ", ".join(op.name for op in self.parameters) or "nothing"
            problem = (
                f"takes {names} besides what is bound, and was called with {len(args)} arguments"
            )
            raise ArgumentError(f"{self.computation.name} {problem}")
        found = {**self.values, **dict(zip(self._taken, args, strict=True))}
        return [found[number] for number in range(len(found))]

    def _first_call(self, *args: Any) -> Any:
        """Call the computation, which compiles what is missing, and make the function for others.

        Raises what the computation raises; the next call is then a first one again.
        """
        computation, values = self.computation, self._all(args)
        results = computation(*values)
        program = computation.program_for(*values)
        if computation.is_static:
            self._executor = make_executor(computation, program, self.values)
        else:
            shapes = tuple(program.captured.inputs[number].axes.shape for number in self._taken)
            if shapes not in self._executors:  # else an argument is not an array
                self._executors[shapes] = make_executor(computation, program, self.values)
        return results

    def __repr__(self) -> str:
        return f"<{self.computation!r} with {len(self.values)} parameters bound>"

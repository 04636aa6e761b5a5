"""Exchanges: the calls of computations in which other ranks take part, as the ranks compare them.

A computation is identified by its graph, its name if the user gave one, and how many equal ones
this process made before it. Computations without collectives are not counted, so a rank may have
others of its own. A call is identified by its number, in which one that raised counts: a rank that
goes on after an exception is noticed, instead of being one call ahead for ever.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weft.communicators.calls import RankCall, current_call, within
from weft.errors import CommunicationError
from weft.ir.graph import Graph, exchanges
from weft.ir.op import Op
from weft.ir.traversal import dependencies, postorder
from weft.ranks.collectives import communicators_of
from weft.runtime.graph_comparison import comparable, graph_digest, kinds
from weft.support.digest import digest_of
from weft.support.locks import renewed
from weft.transforms.state_initializers import initializers_of

if TYPE_CHECKING:
    from weft.runtime.program import Program

_made: Counter[str] = Counter()
_making = renewed(threading.RLock())


class Exchange:
    """What the ranks compare of the calls of one computation.

    Attributes
    ----------
    name, identity
        Those of the computation: for messages, and the same on all ranks.
    calls
        How many calls of it there were.
    """

    def __init__(self, graph: Graph, name: str, given_name: str) -> None:
        content = digest_of(f"{_graph_identity(graph)} {given_name}".encode())[:8]
        with _making:
            number = _made[content]
            _made[content] += 1
        self.name = name
        self.identity = f"{content}.{number}"
        self.calls = 0
        self._turns = _turns.setdefault(" ".join(communicators_of(graph)), _Turns())

    def call(self) -> _Turn:
        """Count a call, and return what its ``with`` statement takes.

        That raises CommunicationError if it overlaps with one of another thread.
        """
        self.calls += 1
        text = f"call {self.calls} of {self.name} ({self.identity})"
        return _Turn(self._turns, RankCall(text, f"{self.identity} {self.calls}"))

    def with_lengths(self, program: Program, run: Callable[..., None]) -> Callable[..., None]:
        """Return an executor that adds the lengths of a program to the name of its call."""
        if not program.solution:
            return run
        lengths = f" for {[op.axes.lengths for op in program.captured.inputs]}"

        def run_for_lengths(*arrays: Any) -> None:
            call = current_call()
            with within(RankCall(call.text + lengths, call.key + lengths)):
                run(*arrays)

        return run_for_lengths


class _Turns:
    """The turns of threads to exchange arrays through some communicators.

    Attributes
    ----------
    holder
        The call whose turn it is; None for none.
    disturbed
        What another thread tried meanwhile; empty for nothing.
    """

    def __init__(self) -> None:
        self.lock = renewed(threading.RLock())
        self.holder: RankCall | None = None
        self.disturbed = ""


class _Turn(within):
    """The turn of a call; those of two threads at once are an error in both."""

    __slots__ = ("_outer", "_turns")

    def __init__(self, turns: _Turns, call: RankCall) -> None:
        super().__init__(call)
        self._turns = turns

    def __enter__(self) -> None:
        turns = self._turns
        if not turns.lock.acquire(blocking=False):
            turns.disturbed = self.call.text
            raise _two_threads(self.call.text, turns.holder)
        self._outer, turns.holder = turns.holder, self.call
        super().__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        turns = self._turns
        try:
            super().__exit__(kind, error, trace)
        finally:
            disturbed, turns.holder = turns.disturbed, self._outer
            if self._outer is None:
                turns.disturbed = ""
            turns.lock.release()
        if disturbed and kind is None:
            raise _two_threads(self.call.text, RankCall(disturbed))


_turns: dict[str, _Turns] = {}


def _two_threads(one: str, other: RankCall | None) -> CommunicationError:
    also = other.text if other is not None else "another one"
    return CommunicationError(
        f"two threads exchange tensors at once, in {one} and in {also}: other ranks may do so in "
        "another order. Call one after the other, in an order that is the same on all ranks"
    )


def is_shared(program: Program, initialized: Iterable[Any]) -> bool:
    """Whether other ranks take part in a program, or in the first values of its states."""
    return bool(exchanges(program.captured)) or are_shared(program.states, initialized)


def are_shared(states: Iterable[Any], initialized: Iterable[Any]) -> bool:
    """Whether other ranks take part in computing the first values of states."""
    first = [write.args[1] for write in initializers_of(states, initialized)]
    computed = [value for value in first if not value.is_constant]
    return any(map(_takes_ranks, postorder(computed, dependencies)))


def _graph_identity(graph: Graph) -> str:
    """Return an identity of a graph, also where it has unknown lengths."""
    return kinds(graph) if graph.symbols else graph_digest(comparable(graph))


def _takes_ranks(op: Op) -> bool:
    """Whether other ranks take part in an op, or in a graph that it calls."""
    return op.is_exchange or any(map(exchanges, op.graphs))

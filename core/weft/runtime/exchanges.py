"""Exchanges: the calls of computations in which other ranks take part, as the ranks compare them.

A computation is identified by its graph, its name if the user gave one, and how many equal ones
this process made before it. Computations without collectives are not counted, so a rank may have
others of its own. A call is identified by its number, in which one that raised counts: a rank that
goes on after an exception is noticed, instead of being one call ahead for ever.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.communicators.calls import Call, current_call, within
from weft.errors import CommunicationError
from weft.ir.graph import Graph
from weft.ir.traversal import dependencies, postorder
from weft.runtime.graph_comparison import (
    comparable,
    exchanges,
    graph_digest,
    kinds,
    takes_ranks,
)
from weft.support.digest import digest_of
from weft.support.locks import renewed
from weft.transforms.initializers import initializers_of

if TYPE_CHECKING:
    from weft.runtime.program import Program

_made: Counter[str] = Counter()
_making = renewed(threading.Lock())


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
        content = digest_of(f"{_content(graph)} {given_name}".encode())[:8]
        with _making:
            number = _made[content]
            _made[content] += 1
        self.name = name
        self.identity = f"{content}.{number}"
        self.calls = 0
        names = sorted({op.communicator for op in exchanges(graph)})
        self._turn = _turns.setdefault(" ".join(names), _Turn())

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call, which the ``with`` block is; raises CommunicationError if two overlap."""
        self.calls += 1
        text = f"call {self.calls} of {self.name} ({self.identity})"
        with self._turn.taken(text), within(Call(text, f"{self.identity} {self.calls}")):
            yield

    def with_lengths(self, program: Program) -> Callable[..., None]:
        """Return what runs a program, as one for its lengths where a call tells them."""
        run = program.run
        if not program.solution:
            return run
        lengths = f" for {[op.axes.lengths for op in program.captured.inputs]}"

        def run_for_lengths(*arrays: Any) -> None:
            call = current_call()
            with within(Call(call.text + lengths, call.key + lengths)):
                run(*arrays)

        return run_for_lengths


class _Turn:
    """The turn of a thread to exchange arrays through some communicators.

    Attributes
    ----------
    disturbed
        What another thread tried meanwhile; empty for nothing.
    """

    def __init__(self) -> None:
        self.lock = renewed(threading.RLock())
        self.holder = self.disturbed = ""

    @contextmanager
    def taken(self, text: str) -> Iterator[None]:
        """Take the turn for a call; calls of two threads at once are an error in both."""
        if not self.lock.acquire(blocking=False):
            self.disturbed = text
            raise _two_threads(text, self.holder)
        before, self.holder = self.holder, text
        try:
            yield
            if self.disturbed:
                raise _two_threads(text, self.disturbed)
        finally:
            self.holder = before
            if not before:
                self.disturbed = ""
            self.lock.release()


_turns: dict[str, _Turn] = {}


def _two_threads(one: str, other: str) -> CommunicationError:
    return CommunicationError(
        f"two threads exchange tensors at once, in {one} and in {other}: other ranks may do so in "
        "another order. Call one after the other, in an order that is the same on all ranks"
    )


def is_shared(program: Program, initialised: Iterable[Any]) -> bool:
    """Whether other ranks take part in a program, or in the first values of its states."""
    return bool(exchanges(program.captured)) or are_shared(program.states, initialised)


def are_shared(states: Iterable[Any], initialised: Iterable[Any]) -> bool:
    """Whether other ranks take part in computing the first values of states."""
    first = [write.args[1] for write in initializers_of(states, initialised)]
    computed = [value for value in first if not value.is_constant]
    return any(map(takes_ranks, postorder(computed, dependencies)))


def _content(graph: Graph) -> str:
    """Return what tells a graph from others, also where it has unknown lengths."""
    return kinds(graph) if graph.symbols else graph_digest(comparable(graph))

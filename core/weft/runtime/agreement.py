"""Agreement of ranks: all compile the same graphs, the first of them for all.

Programs with collectives are compared before they are compiled, since ranks that compute different
graphs would wait for each other, or take one sum for another. So are the initial values of their
states: ranks that begin with different weights would train different models. They are compared as
graphs, before they are computed, so that what a rank computes from its number may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from weft.communicators.calls import current_call
from weft.communicators.choice import connected
from weft.communicators.interface import Communicator
from weft.errors import CommunicationError
from weft.ir import scope
from weft.ir.graph import Graph, exchanges
from weft.ir.storage import AssignableTensorOp
from weft.ops.control.effects import sequential
from weft.ranks.collectives import communications, communicators_of
from weft.runtime.graph_comparison import comparable, graph_digest, listing
from weft.support.digest import digest_of
from weft.transforms.capture import capture
from weft.transforms.state_initializers import initializers_of

if TYPE_CHECKING:
    from weft.runtime.program import Program

_ANY = "any"
"""In the place of a digest: agrees with every other."""


@contextmanager
def compiling(
    programs: Sequence[Program], were_set: Container[Any], is_cached: bool
) -> Iterator[None]:
    """Compare programs with collectives with those of other ranks, and compile them in turn.

    So are the initial values of their states, but for those that `were_set` to another value since.
    With a cache, rank 0 compiles first, and the others find what it has stored.

    Raises CommunicationError on all ranks if they compile different graphs, have different initial
    values, or are not as many as a graph was built for, and on the others if rank 0 cannot compile
    its own.
    """
    shared: dict[str, list[Program]] = {}
    for program in programs:
        for name in communicators_of(program.captured):
            shared.setdefault(name, []).append(program)
    several = [
        (connected(name), members) for name, members in shared.items() if connected(name).size > 1
    ]
    for ranks, members in several:
        for program in members:
            _compare(ranks, program, were_set)
    for program in programs:
        _require_ranks(program)
    if not several:
        yield
        return
    ranks, members = several[0]
    names = ", ".join(program.name for program in members)
    gather = partial(ranks.gather_text, label="the compilation of a graph", call=_call(members[0]))
    # All ranks have to know whether they take turns: one may have no cache.
    if "no" in gather("yes" if is_cached else "no"):
        yield
        return
    if ranks.rank:
        failure = gather("")[0]
        if failure:
            raise CommunicationError(f"rank 0 failed in the compilation of {names}: {failure}")
        yield
        return
    failure = "it was interrupted"
    try:
        yield
        failure = ""
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        gather(failure)


def _call(program: Program) -> str:
    """Describe a program's computation and its first collective, for messages."""
    call = current_call().text or f"the compilation of {program.name}"
    first = exchanges(program.captured)[0]
    return f"{call}, which has {type(first).__name__} in {first.file_info}"


def _require_ranks(program: Program) -> None:
    """Raise CommunicationError for a program that was built for another number of ranks."""
    for op in communications(program.captured):
        size = connected(op.communicator).size
        if op.ranks != size:
            problem = f"was built for {op.ranks} ranks, but {op.communicator!r} has {size} here"
            raise CommunicationError(op.explain(f"{problem}: start as many, or build it anew"))


def _compare(ranks: Communicator, program: Program, were_set: Container[Any]) -> None:
    """Raise CommunicationError on all ranks if programs or initial values differ."""
    gather = partial(ranks.gather_text, label="the comparison of a graph", call=_call(program))
    parts = _parts(program, were_set)
    digests = [_ANY if graph is None else graph_digest(graph) for _, graph in parts]
    if len(set(gather(digest_of(" ".join(digests).encode())))) == 1:
        return
    listed = [text.split(" ") for text in gather(" ".join(digests))]
    # Where programs differ so may the number of their states; they come first.
    for (problem, graph), row in zip(parts, zip(*listed, strict=False), strict=False):
        if len(set(row) - {_ANY}) > 1:
            lines = _first_difference(gather, graph)
            raise CommunicationError(f"{problem} The first difference:\n" + "\n".join(lines))


def _parts(program: Program, were_set: Container[Any]) -> list[tuple[str, Graph | None]]:
    """Return messages of mismatches, each with the graph to compare; None agrees with anything."""
    parts: list[tuple[str, Graph | None]] = [
        (
            f"the ranks compile different graphs of {program.name}: all ranks have to build the "
            "same one, and to take what differs, such as their share of a batch, as arguments of "
            "equal shape.",
            comparable(program.captured),
        )
    ]
    for state in program.captured.states:
        problem = (
            f"the ranks have different initial values of {state.label or state.kind} in "
            f"{state.file_info}, which {program.name} uses: give all ranks the same, as with the "
            "same seed, or that of rank 0, as in initial_value=weft.broadcast_from(value). What is "
            "to differ can be computed from weft.rank_index(), or be set later."
        )
        parts.append((problem, None if state in were_set else _initial_value(state)))
    return parts


def _initial_value(state: AssignableTensorOp) -> Graph:
    """Return the graph that gives a state its initial value; an empty one if it has none."""
    writes = initializers_of([state], ())
    with scope.saved_user_deps():
        return comparable(capture([sequential(writes)] if writes else [], (), state.name))


def _first_difference(gather: Callable[[str], list[str]], graph: Graph | None) -> list[str]:
    """Return a line for each rank whose graph is compared: its first op that differs."""
    texts = gather("" if graph is None else listing(graph))
    listings = {rank: text.split("\n") for rank, text in enumerate(texts) if text}
    rows = zip_longest(*listings.values(), fillvalue="nothing\tits graph ends before")
    different = (row for row in rows if len({op.partition("\t")[0] for op in row}) > 1)
    first = next(different, tuple(listing[-1] for listing in listings.values()))
    return [
        f"  rank {rank}: {what}, {where}"
        for rank, (what, _, where) in zip(
            listings, (op.partition("\t") for op in first), strict=True
        )
    ]

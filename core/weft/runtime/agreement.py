"""Agreement of ranks: all compile the same graphs, the first of them for all.

Programs with collectives are compared before they are compiled, since ranks that compute different
graphs would wait for each other, or take one sum for another. So are the initial values of their
states: ranks that begin with different weights would train different models. They are compared as
graphs, before they are computed, so that what a rank computes from its number may differ.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from weft.cache.structure import NotCanonical, structure_of
from weft.communicators.choice import connected
from weft.communicators.interface import Communicator
from weft.errors import CommunicationError
from weft.ir import scope
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.storage import constant
from weft.ops.collectives import BroadcastFromOp, communications
from weft.ops.control import sequential
from weft.support.digest import digest_of
from weft.transforms.capture import capture
from weft.transforms.initializers import initializers_of

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
        for name in sorted({op.communicator for op in communications(program.captured)}):
            shared.setdefault(name, []).append(program)
    several = [
        (connected(name), found) for name, found in shared.items() if connected(name).size > 1
    ]
    for ranks, found in several:
        for program in found:
            _compare(ranks, program, were_set)
    for program in programs:
        _require_ranks(program)
    # All ranks have to know whether they take turns: one may have no cache.
    if not several or "no" in several[0][0].gather_text("yes" if is_cached else "no", "a cache"):
        yield
        return
    ranks, found = several[0]
    label = f"the compilation of {', '.join(program.name for program in found)}"
    if ranks.rank:
        failure = ranks.gather_text("", label)[0]
        if failure:
            raise CommunicationError(f"rank 0 failed in {label}: {failure}")
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
        ranks.gather_text(failure, label)


def _require_ranks(program: Program) -> None:
    """Raise CommunicationError for a program that was built for another number of ranks."""
    for op in communications(program.captured):
        size = connected(op.communicator).size
        if op.ranks != size:
            problem = f"was built for {op.ranks} ranks, but {op.communicator!r} has {size} here"
            raise CommunicationError(op.explain(f"{problem}: start as many, or build it anew"))


def _compare(ranks: Communicator, program: Program, were_set: Container[Any]) -> None:
    """Raise CommunicationError on all ranks if programs or initial values differ."""
    label = f"the comparison of {program.name}"
    parts = _parts(program, were_set)
    digests = [_ANY if graph is None else _digest(graph) for _, graph in parts]
    if len(set(ranks.gather_text(digest_of(" ".join(digests).encode()), label))) == 1:
        return
    listed = [text.split(" ") for text in ranks.gather_text(" ".join(digests), label)]
    # Where programs differ so may the number of their states; they come first.
    for (problem, graph), row in zip(parts, zip(*listed, strict=False), strict=False):
        if len(set(row) - {_ANY}) > 1:
            lines = _first_difference(ranks, graph, label)
            raise CommunicationError(f"{problem} The first difference:\n" + "\n".join(lines))


def _parts(program: Program, were_set: Container[Any]) -> list[tuple[str, Graph | None]]:
    """Return what is compared, each with what to say if it differs; None agrees with anything."""
    found: list[tuple[str, Graph | None]] = [
        (
            f"the ranks compile different graphs of {program.name}: all ranks have to build the "
            "same one, and to take what differs, such as their share of a batch, as arguments of "
            "equal shape.",
            _comparable(program.captured),
        )
    ]
    for state in program.captured.states:
        problem = (
            f"the ranks have different initial values of {state.label or state.kind} in "
            f"{state.file_info}, which {program.name} uses: give all ranks the same, as with the "
            "same seed, or that of rank 0, as in initial_value=weft.broadcast_from(value). What is "
            "to differ can be computed from weft.rank_index(), or be set later."
        )
        found.append((problem, None if state in were_set else _initial_value(state)))
    return found


def _initial_value(state: Any) -> Graph:
    """Return the graph that gives a state its initial value; an empty one if it has none."""
    writes = initializers_of([state], ())
    with scope.saved_user_deps():
        return _comparable(capture([sequential(writes)] if writes else [], (), state.name))


def _comparable(graph: Graph) -> Graph:
    """Return a graph without the values of constants that only the root of a broadcast sends."""
    if BroadcastFromOp not in graph.kinds:
        return graph
    seen = set(graph.roots)  # what others than broadcasts need
    for op in reversed(graph.ops):
        if op in seen and not isinstance(op, BroadcastFromOp):
            seen.update(op.args)

    def change(op: Op) -> Op:
        if op in seen or not op.is_constant:
            return op
        with scope.replacing(op):
            return constant(0, op.axes, op.dtype)

    return graph.rewrite(change)


def _digest(graph: Graph) -> str:
    try:
        return structure_of(graph).digest
    except NotCanonical:
        return digest_of(_listing(graph).encode())


def _first_difference(ranks: Communicator, graph: Graph | None, label: str) -> list[str]:
    """Return a line for each rank whose graph is compared: its first op that differs."""
    texts = ranks.gather_text("" if graph is None else _listing(graph), label)
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


def _listing(graph: Graph) -> str:
    """Return a line for each op, those of called graphs too: what it is, and the user's line."""
    lines: list[str] = []
    for each in called_graphs(graph, own=True):
        numbers = {op: number for number, op in enumerate(each.ops)}
        for op in each.ops:
            operands = [f"%{numbers[arg]}" for arg in op.args]
            lines.append(f"{_description(op, operands)}\t{op.file_info}")
    return "\n".join(lines) or "nothing\tits graph is empty"


def _description(op: Op, operands: list[str]) -> str:
    """Return what an op is, the same on all ranks."""
    fields = {k: v for k, v in op.attributes().items() if isinstance(v, bool | int | float | str)}
    if op.is_constant:
        fields["crc32"] = f"{zlib.crc32(op.const.tobytes()):x}"
    options = ", ".join([*operands, *(f"{name}={value}" for name, value in fields.items())])
    value = f" {op.dtype}{list(op.axes.lengths)}" if op.is_tensor else ""
    return f"{type(op).__name__}({options}){value}".replace("\n", " ")

"""Agreement of ranks: all compile the same graphs, the first of them for all.

Programs with collectives are compared before they are compiled, since ranks that compute different
graphs would wait for each other, or take one sum for another.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

from weft.cache.structure import NotCanonical, structure_of
from weft.communicators.choice import connected
from weft.communicators.interface import Communicator
from weft.errors import CommunicationError
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ops.collectives import CommunicationOp
from weft.support.digest import digest_of

if TYPE_CHECKING:
    from weft.runtime.program import Program


@contextmanager
def compiling(programs: Sequence[Program], is_cached: bool) -> Iterator[None]:
    """Compare programs with collectives with those of other ranks, and compile them in turn.

    With a cache, rank 0 compiles first, and the others find what it has stored.

    Raises CommunicationError on all ranks if they compile different graphs, and on the others if
    rank 0 cannot compile its own.
    """
    shared: dict[str, list[Program]] = {}
    for program in programs:
        for name in _communicators(program.captured):
            shared.setdefault(name, []).append(program)
    several = [
        (connected(name), found) for name, found in shared.items() if connected(name).size > 1
    ]
    for ranks, found in several:
        for program in found:
            _compare(ranks, program)
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


def _communicators(graph: Graph) -> list[str]:
    """Return the names of the communicators that a graph, or one that it calls, uses."""
    ops = (op for each in called_graphs(graph, own=True) for op in each.ops)
    return sorted({op.communicator for op in ops if isinstance(op, CommunicationOp)})


def _compare(ranks: Communicator, program: Program) -> None:
    """Raise CommunicationError on all ranks if they compile different graphs."""
    label = f"the comparison of {program.name}"
    described = [_description(op) for op in _all_ops(program.captured)]
    digest = digest_of("\n".join(what for what, _ in described).encode())
    try:
        digest += structure_of(program.captured, all_values=False).digest
    except NotCanonical:
        digest += " of ops alone"
    if len(set(ranks.gather_text(digest, label))) == 1:
        return
    mine = "\n".join(f"{what}\t{where}" for what, where in described)
    listings = [text.split("\n") for text in ranks.gather_text(mine, label)]
    rows = zip_longest(*listings, fillvalue="nothing\tits graph ends before")
    different = (row for row in rows if len({op.partition("\t")[0] for op in row}) > 1)
    first = next(different, tuple(listing[-1] for listing in listings))
    lines = [
        f"  rank {rank}: {what}, {where}"
        for rank, (what, _, where) in enumerate(op.partition("\t") for op in first)
    ]
    raise CommunicationError(
        f"the ranks compile different graphs of {program.name}: all ranks have to build the same "
        "one, and to take what differs, such as their share of a batch, as arguments of equal "
        "shape. The first difference:\n" + "\n".join(lines)
    )


def _all_ops(graph: Graph) -> list[Op]:
    return [op for each in called_graphs(graph, own=True) for op in each.ops]


def _description(op: Op) -> tuple[str, str]:
    """Return what an op is, the same on all ranks, and where the user built it."""
    fields = {k: v for k, v in op.attributes().items() if isinstance(v, bool | int | float | str)}
    if op.is_constant:
        fields["crc32"] = f"{zlib.crc32(op.const.tobytes()):x}"
    options = ", ".join(f"{name}={value}" for name, value in fields.items())
    value = f" {op.dtype}{list(op.axes.lengths)}" if op.is_tensor else ""
    return f"{type(op).__name__}({options}){value}".replace("\n", " "), op.file_info

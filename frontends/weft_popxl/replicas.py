"""Replicas and the ranks of a communicator, each of which is one of them."""

from __future__ import annotations

from typing import Any

from weft import Graph
from weft.communicators import connected, default_name
from weft.ranks.collectives import communications
from weft_popxl.context import get_ir
from weft_popxl.errors import NotProvided, popart_exception, refuse_type, refuse_value
from weft_popxl.program import Ir, Variable
from weft_popxl.replica_grouping import ReplicaGrouping


def grouping_of(what: str, group: Any) -> ReplicaGrouping:
    """Return a grouping of the replicas of the current Ir, None for one group of all of them.

    Raises TypeError for what is not a grouping, ValueError for one of another number of replicas.
    """
    ir = get_ir()
    found = ir.replica_grouping() if group is None else group
    if not isinstance(found, ReplicaGrouping):
        refuse_type(f"{what}: a group must come from ir.replica_grouping, not {group!r}")
    if found.num_replicas != ir.replication_factor:
        refuse_value(f"{what}: {found} does not fit {ir} with {ir.replication_factor} replicas")
    return found


def ranks_of(what: str, group: Any) -> dict[str, Any]:
    """Return the attributes of a collective over a group of replicas, None for all of them.

    Raises what `grouping_of` does, and NotImplementedError for several groups of several replicas.
    """
    found = grouping_of(what, group)
    if found.num_groups == 1:
        return {"communicator": default_name(), "ranks": found.num_replicas}
    if found.group_size > 1:
        raise NotProvided(
            f"{what}: {found} has several groups, but a communicator connects all ranks of a "
            "program: use a group of all replicas"
        )
    return {"communicator": "local", "ranks": 1}


def own_data(variable: Variable) -> Any:
    """Return the initial value of a variable of the replica that this process runs."""
    grouping = variable.replica_grouping
    if grouping.num_groups == 1:
        return variable.data
    return variable.data[grouping.groups[connected().rank]]


def require_ranks(ir: Ir, graph: Graph) -> None:
    """Raise popart_exception unless each replica of a program is a rank of its communicator.

    `graph` is the captured main graph. A program of one replica without collectives needs none.
    """
    needed = {(op.communicator, op.ranks) for op in communications(graph)}
    if ir.replication_factor > 1:
        needed.add((default_name(), ir.replication_factor))
    for name, replicas in needed:
        size = connected(name).size
        if size != replicas:
            raise popart_exception(
                f"{ir} was built for a replication_factor of {replicas}, and the communicator "
                f"{name!r} has a size of {size}, but each replica is a rank: start as many "
                f"processes, as with `mpiexec -n {replicas} python program.py`, or say "
                f"Ir(replication={size})"
            )

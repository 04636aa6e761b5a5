"""Ir: a program, with its main graph, the called graphs and the streams."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

from weft.communicators import connected
from weft_popxl.arguments import text, whole
from weft_popxl.binding import build, name_of
from weft_popxl.dot import write_dot
from weft_popxl.errors import refuse_type
from weft_popxl.graph import Graph
from weft_popxl.replica_grouping import ReplicaGrouping, assigned_grouping, strided_grouping
from weft_popxl.streams import DeviceToHostStream, HostToDeviceStream

_numbers = itertools.count()


class Ir:
    """A program, built inside `with ir.main_graph:` and run in a `Session`.

    Parameters
    ----------
    replication
        The number of replicas, each of which is a rank, a process of its own; ``"popdist"`` is the
        number of ranks of the communicator.

    Attributes
    ----------
    id
        A unique number.
    main_graph
        The graph that a session runs.
    num_host_transfers
        The maximum number of slices in an array of a run if the ops use fewer, and the number of
        slices of streams that wrap around; 1 by default.
    replication_factor
        The number of replicas.
    instance_replication_factor
        The number of replicas in this process, 1: arrays of a session have no axis for replicas.
    """

    instance_replication_factor = 1

    def __init__(self, replication: int | Literal["popdist"] = 1) -> None:
        self.id = next(_numbers)
        self._names: dict[str, int] = {}
        self._graphs: list[Graph] = []
        self._graph_numbers = itertools.count()
        self.main_graph = Graph._made(self, "")
        self._graphs.append(self.main_graph)
        count: Any = replication
        if isinstance(replication, str) and replication == "popdist":
            count = connected().size
        self.replication_factor = count
        self.num_host_transfers = 1

    @property
    def num_host_transfers(self) -> int:
        """The maximum number of slices in the array of a stream if the ops use fewer."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, count: int) -> None:
        self._num_host_transfers = whole("num_host_transfers", count, least=1)

    @property
    def replication_factor(self) -> int:
        """The number of replicas."""
        return self._replication_factor

    @replication_factor.setter
    def replication_factor(self, count: int) -> None:
        self._replication_factor = whole("replication_factor", count, least=1)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, the main graph first."""
        return tuple(self._graphs)

    def create_graph(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """Create a graph by a call of a function or a `Module`.

        Each tensor or `TensorSpec` among the arguments becomes an input with its shape and dtype
        and the name of its parameter. Elements of lists and of ``*args`` are numbered; the function
        receives a list, tuple or named tuple of inputs. Other arguments are passed unchanged. The
        return value is the output or outputs: a tensor, an iterable of tensors, or None. Raises
        TypeError for a function that is not callable and for lists of tensors and other values,
        ValueError for arguments that do not match the signature and for other return values.
        """
        name = name_of(fn)
        graph = Graph._made(self, f"{name}_subgraph({next(self._graph_numbers)})")
        build(graph, fn, args, kwargs)
        self._graphs.append(graph)
        return graph

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """Return an empty graph, to be built in its context."""
        label = "" if name is None else text("the name of a graph", name)
        graph = Graph._made(self, f"{label or 'graph'}_subgraph({next(self._graph_numbers)})")
        self._graphs.append(graph)
        return graph

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Return groups of replicas of which neighbors differ by a stride.

        By default `group_size` is the number of replicas divided by the stride. Raises TypeError
        for what are not integers, ValueError if the product of both does not divide the number of
        replicas.
        """
        step = whole("replica_grouping: stride", stride, least=1)
        size = self.replication_factor // step if group_size is None else group_size
        return strided_grouping(self.replication_factor, step, size)

    def replica_grouping_from_assignments(self, assignment: Iterable[int]) -> ReplicaGrouping:
        """Return groups of replicas from the group of each.

        Groups have equal sizes, and are numbered in the order in which they first occur. Raises
        TypeError for what are not integers, ValueError for other groups and another number of
        replicas.
        """
        return assigned_grouping(self.replication_factor, assignment)

    def dot_checkpoint(self, check: str, save_dir: str | os.PathLike[str] | None = None) -> None:
        """Write the current state of all graphs to the file ``<check>.dot``, for Graphviz.

        The file is in `save_dir`, by default the current folder, which is created if needed. An
        existing file is replaced. Characters of `check` that are not letters, digits, points or
        signs become underscores.
        """
        write_dot(self.graphs, text("dot_checkpoint: the check", check), save_dir)

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """Return the streams with loads."""
        return {load.stream for graph in self._graphs for load in graph._loads}

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """Return the streams with stores."""
        return {store.stream for graph in self._graphs for store in graph._stores}

    def _unique(self, name: str) -> str:
        """Return a name, with a number appended if it is taken."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self._unique(f"{name}__t{count}") if count else name

    def _graph_name(self, name: str) -> str:
        """Return a name for a graph, with a number appended if another graph has it."""
        taken = {graph.id for graph in self._graphs}
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        return next(each for each in itertools.chain([name], numbered) if each not in taken)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ir):
            refuse_type(f"an Ir can be compared with another Ir, not with {other!r}")
        return self is other

    def __hash__(self) -> int:
        return hash((Ir, self.id))

    def __repr__(self) -> str:
        return f"Ir(id={self.id})"

"""Partitions of the replicas into groups of equal size."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from weft_popxl.arguments import whole, wholes
from weft_popxl.errors import NotProvided, refuse_value


@dataclass(frozen=True)
class ReplicaGrouping:
    """A partition of the replicas into groups of equal size.

    It is made by `Ir.replica_grouping` and `Ir.replica_grouping_from_assignments`. Raises
    ValueError unless all groups have the same number of replicas, and their numbers are 0, 1, 2 and
    so on in the order in which they first occur.

    Attributes
    ----------
    groups
        The group of each replica.
    """

    groups: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = list(dict.fromkeys(self.groups))
        if numbers != list(range(len(numbers))) or not numbers:
            refuse_value(
                "replica_grouping: groups are numbered 0, 1, 2, … in the order in which they first "
                f"occur, not {list(self.groups)}"
            )
        if len({self.groups.count(number) for number in numbers}) > 1:
            refuse_value(f"replica_grouping: groups have equal sizes, unlike {list(self.groups)}")

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.groups)

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return max(self.groups) + 1

    @property
    def group_size(self) -> int:
        """The number of replicas of a group."""
        return self.num_replicas // self.num_groups

    @property
    def assignment(self) -> list[int]:
        """The group of each replica, as a list."""
        return list(self.groups)

    @property
    def is_const(self) -> bool:
        """Whether neighbors of a group differ by the same number everywhere."""
        return len(self._strides()) <= 1

    @property
    def stride(self) -> int:
        """The difference between neighbors of a group; 1 for groups of one replica.

        Raises NotImplementedError if it is not the same everywhere.
        """
        strides = self._strides()
        if len(strides) > 1:
            raise NotProvided(f"{self} has no constant stride, but {sorted(strides)}")
        return strides.pop() if strides else 1

    def transpose(self) -> ReplicaGrouping:
        """Return the grouping whose group n consists of the replicas number n of all groups."""
        seen = [0] * self.num_groups
        turned = []
        for group in self.groups:
            turned.append(seen[group])
            seen[group] += 1
        return ReplicaGrouping(tuple(turned))

    def _strides(self) -> set[int]:
        members: dict[int, list[int]] = {}
        for replica, group in enumerate(self.groups):
            members.setdefault(group, []).append(replica)
        neighbors = itertools.chain(*map(itertools.pairwise, members.values()))
        return {after - before for before, after in neighbors}


def strided_grouping(replicas: int, stride: int, group_size: int) -> ReplicaGrouping:
    """Return groups of which neighbors differ by a stride.

    Raises TypeError for what are not integers, and ValueError unless the number of replicas is a
    multiple of ``stride * group_size``.
    """
    step = whole("replica_grouping: stride", stride, least=1)
    size = whole("replica_grouping: group_size", group_size, least=1)
    block = step * size
    if replicas % block:
        refuse_value(
            f"{replicas} replicas have no groups of {size} with a stride of {step}: their product "
            "must divide the number of replicas"
        )
    numbers = (replica // block * step + replica % step for replica in range(replicas))
    return ReplicaGrouping(tuple(numbers))


def assigned_grouping(replicas: int, assignment: Iterable[int]) -> ReplicaGrouping:
    """Return groups from the group of each replica.

    Raises TypeError for what are not integers, and ValueError for another number of replicas and as
    `ReplicaGrouping`.
    """
    groups = tuple(wholes("replica_grouping_from_assignments: a group", assignment, least=0))
    if len(groups) != replicas:
        refuse_value(
            f"replica_grouping_from_assignments takes the group of each of {replicas} replicas, "
            f"not {list(groups)}"
        )
    return ReplicaGrouping(groups)

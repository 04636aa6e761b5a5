"""Collapses neighboring dimensions of an iteration domain into one loop."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def collapse(
    domain: Sequence[int], roles: Sequence[Hashable], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return groups of dimensions, in order, that can be collapsed for every array.

    `strides` holds for each array its stride along every dimension of the domain, 0 where the array
    is invariant. Two dimensions are collapsed if, in every array, the stride of the first equals
    the length of the second times its stride, and their roles are equal. Dimensions of length 1
    are dropped and separate no others.

    >>> collapse((2, 1, 3, 4), "kkkr", [(48, 48, 16, 4), (12, 0, 4, 0)])
    ((0, 2), (3,))
    """
    groups: list[tuple[int, ...]] = []
    for place, length in enumerate(domain):
        if length == 1:
            continue
        last = groups[-1][-1] if groups else None
        joins = (
            last is not None
            and roles[last] == roles[place]
            and all(steps[last] == steps[place] * length for steps in strides)
        )
        if joins:
            groups[-1] = (*groups[-1], place)
        else:
            groups.append((place,))
    return tuple(groups)

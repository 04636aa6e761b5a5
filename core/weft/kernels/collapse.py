"""Collapses neighbouring dimensions of an iteration domain into one loop."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def collapse(
    domain: Sequence[int], roles: Sequence[Hashable], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions in groups, in order, each of which is one dimension for every array.

    `strides` gives for each array the step along every dimension of the domain, 0 where the array
    does not vary. Dimensions join where a step along the first is as long as all steps along the
    second, in every array, and their roles are equal. Dimensions of length 1 are left out; they
    keep no others apart.

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

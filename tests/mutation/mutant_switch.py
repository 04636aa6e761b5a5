"""Which mutant this process is, and which changed expressions its tests evaluate."""

from __future__ import annotations

import os

active = 0
"""The number of the mutant; 0 for none."""

_seen: set[tuple[int, str]] = set()


def is_on(number: int) -> bool:
    """Whether this process is a mutant; takes note of the test that asks."""
    folder = os.environ.get("WEFT_MUTANT_HITS")
    if folder:
        hit = number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        if hit not in _seen:
            _seen.add(hit)
            with open(os.path.join(folder, str(os.getpid())), "a") as file:
                file.write(f"{hit[0]}\t{hit[1]}\n")
    return number == active

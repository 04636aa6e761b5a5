"""The levels of the conformance kit: what a backend can be tested for while it is being written."""

from __future__ import annotations

import pytest

VALUES, GRADIENTS, DTYPES, BEHAVIOUR, THREADS, RANDOM = LEVELS = (
    "values",
    "gradients",
    "dtypes",
    "behaviour",
    "threads",
    "random",
)
"""In order: each op forward; its gradients and every layout of operands; the rarer dtypes; state,
order, results and errors; concurrent calls; random graphs. Each includes those before it."""

MARK = "weft_level"
TOGETHER = "weft_together"
"""The mark of tests whose rows are computed together; see `weft.testing.together`."""


def level(name: str) -> pytest.MarkDecorator:
    """Return the mark of the tests that begin at a level."""
    return getattr(pytest.mark, MARK)(name)  # type: ignore[no-any-return]


def includes(highest: str, name: str) -> bool:
    """Whether a run up to a level takes in another one."""
    return LEVELS.index(name) <= LEVELS.index(highest)

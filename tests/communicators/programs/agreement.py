"""Ranks that compile: the same graphs in turn, or different ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.errors import CommunicationError
from weft.runtime import compile_cache

how, folder = sys.argv[1:]
ranks = connected()
is_last = ranks.rank == ranks.size - 1
x = weft.placeholder((weft.symbol("batch"), 3))
y = weft.tanh(weft.all_reduce(x))
if how == "attribute":
    y = weft.all_reduce(y, "max" if is_last else "min")
elif how == "constant":
    y = y + np.full(3, ranks.rank, "float32")
elif how == "longer" and is_last:
    y = weft.sin(y)

found = []
restore = compile_cache.CompileCache.find


def watched(self: Any, program: Any):  # type: ignore[no-untyped-def]
    """Take note of which programs are in the cache."""
    found.append(restore(self, program))
    return found[-1]


compile_cache.CompileCache.find = watched
transformer = weft.make_transformer(
    "numpy", cache=False if how == "uncached" and is_last else folder
)
if how == "failure" and not ranks.rank:

    def broken(*args: Any):  # type: ignore[no-untyped-def]
        """Fail as a compiler does."""
        raise RuntimeError("the compiler is out of order")

    compile_cache.CompileCache.keep = broken
try:
    transformer.computation(y, x)(np.ones((0 if how == "share" and is_last else 4, 3), "float32"))
    heard = f"found {found}"
except (CommunicationError, RuntimeError) as error:
    heard = str(error)
Path(folder, f"rank{ranks.rank}.txt").write_text(heard)

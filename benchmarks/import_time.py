"""The time of ``import weft`` when NumPy is there already, in fresh interpreters.

The limit is reading the modules that weft itself consists of; nothing heavy belongs among them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from environment import run_fresh
from measure import Row, busy, main

SCRIPT = """
from time import perf_counter
start = perf_counter()
import numpy
middle = perf_counter()
import weft
print(middle - start, perf_counter() - middle)
"""


def imported(bytecode: str) -> tuple[float, float]:
    """Return the seconds that NumPy takes, and those that weft takes after it."""
    numpy, weft = map(float, run_fresh(["-c", SCRIPT], bytecode).split())
    return numpy, weft


def benchmark(rounds: int) -> Iterator[Row]:
    """Import again and again; the first time, which writes bytecode, does not count."""
    with TemporaryDirectory() as bytecode:
        imported(bytecode)
        numpy, weft = zip(*(imported(bytecode) for _ in range(max(rounds, 2))), strict=True)
    yield Row(
        "import weft after import numpy", statistics.median(weft) * 1e3, "ms", 150, busy(weft)
    )
    yield Row("import numpy", statistics.median(numpy) * 1e3, "ms")


if __name__ == "__main__":
    main(benchmark)

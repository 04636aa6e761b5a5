"""The time of ``import weft`` when NumPy is there already, in fresh interpreters.

The limit is reading the modules that weft itself consists of; nothing heavy belongs among them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory

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
    command = [sys.executable, "-c", SCRIPT]
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
    numpy, weft = map(float, done.stdout.split())
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

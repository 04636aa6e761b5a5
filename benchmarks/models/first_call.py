"""From ops to the first result of a model: run as a module, with the model's name, it is timed.

What is imported and what a user would have at hand, data and parameters, is there beforehand.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import pairwise
from time import perf_counter


def main() -> None:
    """Print the seconds of building the graph, of the first call, and of the next one."""
    model = import_module(f"models.{sys.argv[1]}")
    data, parameters = model.data(), model.parameters()
    times = [perf_counter()]
    program = model.program(parameters)
    times.append(perf_counter())
    _, call = program.compiled()
    call(*data)
    times.append(perf_counter())
    call(*data)
    times.append(perf_counter())
    print(*(after - before for before, after in pairwise(times)))


if __name__ == "__main__":
    main()

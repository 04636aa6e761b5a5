"""From ops to the first result of a model: run as a module, with the model's name, it is timed.

What is imported and what a user would have at hand, data and parameters, is there beforehand.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import pairwise
from time import perf_counter

import weft


def main() -> None:
    """Print the seconds of building the graph, of the first call, of the next, and the kernels.

    These are the distinct ones that a device's driver compiles; NumPy has none.
    """
    model = import_module(f"models.{sys.argv[1]}")
    data, parameters = model.data(), model.parameters()
    on_device = os.environ.get("WEFT_BACKEND", "numpy") != "numpy"
    if on_device:
        weft.make_transformer().close()  # finding and trying devices is not part of a graph
    times = [perf_counter()]
    program = model.program(parameters)
    times.append(perf_counter())
    _, call = program.compiled()
    call(*data)
    times.append(perf_counter())
    call(*data)
    times.append(perf_counter())
    kernels = len(call.program.code.source.functions) if on_device else 0
    print(*(after - before for before, after in pairwise(times)), kernels)


if __name__ == "__main__":
    main()

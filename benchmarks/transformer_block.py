"""The forward pass of a transformer block: weft against eager NumPy.

The limit is flops: six matrix products, two of them batched, 0.87 GFLOP. GELU with the error
function is compared too: NumPy has none, so that eager code takes that of SciPy, one element at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from limits import flops_limit
from measure import Row, interleaved, main, ratios
from memory import program_memory, working_memory
from models import block

GOAL = 1.2
FORMS = {"tanh": "GELU by tanh", "none": "GELU by erf"}


def compare(form: str, rounds: int) -> Iterator[Row]:
    """Compare times and memory with one form of GELU."""
    data, values = block.data(), block.parameters()
    program = block.program(values, form)
    _, call = program.compiled()
    eager = block.Eager(form)
    np.testing.assert_allclose(call(*data), eager(*data), rtol=1e-4, atol=1e-4)
    samples = interleaved({"weft": lambda: call(*data), "eager": lambda: eager(*data)}, rounds)
    yield from ratios(samples, {"eager": GOAL}, FORMS[form], flops_limit(block.FLOPS))
    nbytes = program_memory(program, data) - sum(value.nbytes for value in values)
    yield Row(f"memory of weft, {FORMS[form]}", nbytes / 1e6, "MB")
    nbytes = working_memory(lambda: lambda: eager(*data))
    yield Row(f"memory of eager, {FORMS[form]}", nbytes / 1e6, "MB")


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare with each form of GELU that can be computed here."""
    for form in FORMS:
        yield from compare(form, rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)

"""One training step of a small convolutional network: weft against eager NumPy with im2col.

The limit is flops: five convolutions and three products with the dense weights, 0.4 GFLOP, most of
them in the second layer. Windows as columns are nine times the images, so that bytes weigh as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from limits import flops_limit
from measure import Row, interleaved, main, ratios
from memory import program_memory, working_memory
from models import cnn
from models.program import check_training


def compare_forward(rounds: int) -> Iterator[Row]:
    """Compare the times of the network without training."""
    x, _ = cnn.data()
    _, call = cnn.forward(cnn.parameters()).compiled()
    eager = cnn.Eager()
    np.testing.assert_allclose(call(x), eager.forward(x), rtol=1e-4, atol=1e-4)
    samples = interleaved({"weft": lambda: call(x), "eager": lambda: eager.forward(x)}, rounds)
    flops = cnn.FIRST_FLOPS + cnn.SECOND_FLOPS + cnn.DENSE_FLOPS
    yield from ratios(samples, {"eager": None}, "forward, CNN", flops_limit(flops))


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare times and memory."""
    x, t = cnn.data()
    values = cnn.parameters()
    program = cnn.program(values)
    check_training(program, [cnn.Eager()], (x, t))
    _, step = program.compiled()
    eager = cnn.Eager()
    samples = interleaved({"weft": lambda: step(x, t), "eager": lambda: eager(x, t)}, rounds)
    yield from ratios(samples, {"eager": 3.0}, "a step, CNN", flops_limit(cnn.FLOPS))
    kept = sum(value.nbytes for value in values)
    held = {
        "weft": program_memory(program, (x, t)),
        "eager": working_memory(lambda: partial(cnn.Eager(), x, t)),
    }
    for name, nbytes in held.items():
        yield Row(f"memory of a step, {name}", (nbytes - kept) / 1e6, "MB")
    yield from compare_forward(rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)

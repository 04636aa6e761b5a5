"""One training step of a small network: weft against eager NumPy, and against NumPy by hand.

The limit is flops: five matrix products, 0.41 GFLOP, of which the two with the first weights are 98
in a hundred. What is left is bytes, about 20 MB through the nearest caches, most of them for the
update of the first weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from goals import of_numpy
from limits import flops_limit
from measure import Row, interleaved, main, ratios
from memory import program_memory, working_memory
from models import mlp
from models.program import check_training


def memory(x: Any, t: Any) -> Iterator[Row]:
    """Compare the memory that a step needs beyond the batch, the loss and the parameters."""
    values = mlp.parameters()
    program = mlp.program(values)
    held = {
        "weft": program_memory(program, (x, t)),
        "by hand": working_memory(lambda: partial(mlp.ByHand(), x, t)),
        "eager": working_memory(lambda: partial(mlp.Eager(), x, t)),
    }
    kept = sum(value.nbytes for value in values)
    ratio = (held["by hand"] - kept) / (held["weft"] - kept)
    yield Row("memory of a step, by hand over weft", ratio, "x", of_numpy(1.0), at_least=True)
    for name, nbytes in held.items():
        yield Row(f"memory of a step, {name}", (nbytes - kept) / 1e6, "MB")
    plan = program.compiled()[1].plan
    yield Row("arena over the most that is alive", plan.arena_size / plan.peak_live, "x", 1.05)


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare times and memory."""
    x, t = mlp.data()
    program = mlp.program(mlp.parameters())
    check_training(program, [mlp.ByHand(), mlp.Eager()], (x, t))
    _, step = program.compiled()
    by_hand, eager, products = mlp.ByHand(), mlp.Eager(), mlp.Products()
    samples = interleaved(
        {
            "weft": lambda: step(x, t),
            "eager": lambda: eager(x, t),
            "by hand": lambda: by_hand(x, t),
            "products": lambda: products(x),
        },
        rounds,
    )
    goals = {"eager": 1.15, "by hand": 1.0, "products": None}
    yield from ratios(samples, goals, "a step, MLP", flops_limit(mlp.FLOPS))
    yield from memory(x, t)


if __name__ == "__main__":
    main(benchmark)

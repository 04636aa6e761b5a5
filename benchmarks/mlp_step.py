"""One training step of a small network: weft against NumPy by hand, and against eager NumPy.

The limit is flops: five matrix products, 0.11 GFLOP, of which the two with the first weights are 98
in a hundred. What is left is bytes, about 9 MB through the nearest cache, a third of them for the
update of the first weights. The products alone are timed beside the steps.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import mlp
import numpy as np
from measure import Row, interleaved, main

import weft


def compiled() -> tuple[Any, Any, list[Any]]:
    """Return the transformer, the compiled step, and the variables that it trains."""
    x, t, loss, variables = mlp.weft_graph()
    transformer = weft.make_transformer("numpy")
    return transformer, transformer.computation(mlp.weft_results(loss, variables), x, t), variables


def check_equal(x: Any, t: Any, steps: int = 3) -> None:
    """Raise AssertionError if the three do not train alike."""
    transformer, step, variables = compiled()
    by_hand, eager = mlp.ByHand(), mlp.Eager()
    for _ in range(steps):
        losses = [step(x, t)[0], by_hand(x, t).copy(), eager(x, t)]
        np.testing.assert_allclose(losses, losses[2], rtol=1e-5)
    start = mlp.parameters()
    for index, variable in enumerate(variables):
        expected = eager.parameters[index] - start[index]
        for other in (transformer.get_value(variable), by_hand.parameters[index]):
            np.testing.assert_allclose(other - start[index], expected, rtol=1e-3, atol=1e-7)


def peak(call: Callable[[], Any]) -> int:
    """Return the most bytes that one call holds beyond what was held before it."""
    call()
    tracemalloc.start()
    call()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare times and memory."""
    x, t = mlp.data()
    check_equal(x, t)
    _, step, _ = compiled()
    by_hand, eager, products = mlp.ByHand(), mlp.Eager(), mlp.Products()
    samples = interleaved(
        {
            "weft": lambda: step(x, t),
            "by hand": lambda: by_hand(x, t),
            "eager": lambda: eager(x, t),
            "products": lambda: products(x),
        },
        rounds,
    )
    noise = samples.noise()
    yield Row("time, weft over by hand", samples.ratio("weft", "by hand"), "x", 1.10, noise)
    yield Row("time, eager over weft", samples.ratio("eager", "weft"), "x", by_allocator=True)
    yield Row("time, weft over its matrix products alone", samples.ratio("weft", "products"), "x")
    for name in ("weft", "by hand", "eager"):
        yield Row(f"time of a step, {name}", samples.median(name) * 1e6, "us")
    plan = step.plan
    held = {
        "weft": plan.arena_size + peak(lambda: step(x, t)),
        "by hand": by_hand.nbytes + peak(lambda: by_hand(x, t)),
        "eager": peak(lambda: eager(x, t)),
    }
    yield Row("transient memory, weft over by hand", held["weft"] / held["by hand"], "x", 1.0)
    for name, nbytes in held.items():
        yield Row(f"transient memory, {name}", nbytes / 1e6, "MB")
    yield Row("arena over the most that is alive", plan.arena_size / plan.peak_live, "x", 1.05)


if __name__ == "__main__":
    main(benchmark)

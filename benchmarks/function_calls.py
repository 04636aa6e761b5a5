"""The price of a call of a jitted function, above the computation that its user would write.

The limit for arrays as arguments is a tenth of the time of a net with three layers, on 16 rows. The
computation is the one by hand: placeholders, a transformer, and a call with arrays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from measure import Row, interleaved, main

import weft

ROWS, FEATURES, LAYERS = 16, 32, 3
NAMES = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "wb"]


def net(x: Any, *params: Any) -> Any:
    """Return what three layers yield."""
    for weight, bias in zip(params[::2], params[1::2], strict=True):
        x = weft.tanh(x @ weight + bias)
    return x


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare the calls of functions of arrays and of a dict with that of a computation."""
    rng = np.random.default_rng(0)
    shapes = [(FEATURES, FEATURES), (FEATURES,)] * LAYERS
    x, *params = (rng.normal(size=shape).astype("f4") for shape in [(ROWS, FEATURES), *shapes])
    placeholders = [weft.placeholder(value.shape) for value in (x, *params)]
    backend = os.environ.get("WEFT_BACKEND", "numpy")
    transformer = weft.make_transformer(backend)
    by_hand = transformer.computation(net(*placeholders), *placeholders)
    jitted = weft.jit(net, backend=transformer)
    of_dict = weft.jit(lambda params, x: net(x, *map(params.get, NAMES)), backend=transformer)
    names = {"x": x, "params": dict(zip(NAMES, params, strict=True))}
    names |= {"by_hand": by_hand, "jitted": jitted, "of_dict": of_dict}
    names |= dict(zip(NAMES, params, strict=True))
    args = ", ".join(["x", *NAMES])
    assert np.array_equal(by_hand(x, *params), jitted(x, *params))
    assert np.array_equal(by_hand(x, *params), of_dict(names["params"], x))
    calls = {"by hand": f"by_hand({args})", "jit": f"jitted({args})", "dict": "of_dict(params, x)"}
    samples = interleaved(calls, rounds, names)
    for name, limit in (("jit", 1.1), ("dict", None)):
        ratio = samples.ratio(name, "by hand")
        yield Row(f"call of a function, {name} over by hand", ratio, "x", limit, samples.noise())
    for name in calls:
        yield Row(f"call of three layers, {name}", samples.median(name) * 1e6, "us")


if __name__ == "__main__":
    main(benchmark)

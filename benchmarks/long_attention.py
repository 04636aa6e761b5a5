"""Attention of long sequences beside PyTorch: time, and memory that a fresh process adds.

Eight heads of 64, float32, results alone and with the gradients of query, key and value. Prints the
rows of the table in RESULTS.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from environment import cores

HEADS, DEPTH = 8, 64
CALLS = 5

Arrays = list[np.ndarray[Any, Any]]
Calls = tuple[Callable[[], Any], Callable[[], Any]]


def by_weft(arrays: Arrays, is_causal: bool) -> Calls:
    """Return the calls of weft on the native backend."""
    import weft

    def attention(query: Any, key: Any, value: Any) -> Any:
        return weft.attention(query, key, value, is_causal=is_causal)

    def with_gradients(*given: Any) -> Any:
        result, pull = weft.vjp(attention, *given[:3])
        return result, pull(given[3])

    forward = weft.jit(attention, backend="native")
    both = weft.jit(with_gradients, backend="native")
    return lambda: forward(*arrays[:3]), lambda: both(*arrays)


def by_torch(arrays: Arrays, is_causal: bool) -> Calls:
    """Return the calls of PyTorch."""
    import torch

    torch.set_num_threads(cores())
    *given, slopes = (torch.tensor(array) for array in arrays)
    attention = torch.nn.functional.scaled_dot_product_attention
    leaves = [each.clone().requires_grad_() for each in given]

    def with_gradients() -> Any:
        result = attention(*leaves, is_causal=is_causal)
        return result, torch.autograd.grad(result, leaves, slopes)

    return lambda: attention(*given, is_causal=is_causal), with_gradients


def measured(engine: str, length: int, is_causal: bool) -> str:
    """Return the times and the added memory of an engine."""
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(1, HEADS, length, DEPTH)).astype("f4") for _ in range(4)]
    calls = {"weft": by_weft, "torch": by_torch}[engine](arrays, is_causal)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = []
    for call in calls:
        times = []
        for _ in range(CALLS + 1):
            start = perf_counter()
            call()
            times.append(perf_counter() - start)
        added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        found.append(f"{min(times[1:]) * 1e3:.0f} | {added}")
    return " | ".join(found)


def main() -> None:
    """Print a row for each length and engine, or for one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--child", help="an engine that is measured here")
    parser.add_argument("--causal", action="store_true")
    options = parser.parse_args()
    if options.child:
        print(measured(options.child, options.lengths[0], options.causal))
        return
    for length in options.lengths:
        for is_causal in (False, True):
            for engine in ("weft", "torch"):
                command = [sys.executable, __file__, "--child", engine, "--lengths", str(length)]
                command += ["--causal"] if is_causal else []
                row = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                causal = ", causal" if is_causal else ""
                print(f"| {length}{causal} | {engine} | {row.strip()} |", flush=True)


if __name__ == "__main__":
    main()

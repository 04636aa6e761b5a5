"""Seeds for the host: one for each batch and replica from a number, and halves of 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_popxl.arguments import whole
from weft_popxl.errors import refuse_value


def create_seeds(
    seed: int,
    offset: int = 0,
    batches_per_step: int = 1,
    gradient_accumulation_factor: int = 1,
    replicas: int = 1,
) -> np.ndarray[Any, Any]:
    """Return seeds as pairs of uint32, high half first, generated like PopXL's.

    Their shape is (batches_per_step, gradient_accumulation_factor, replicas, 2) without the axes of
    length 1. Raises TypeError for a value that is not an integer, ValueError for counts below 1 and
    for a negative sum of seed and offset.
    """
    first = whole("create_seeds: the seed", seed) + whole("create_seeds: the offset", offset)
    whole("create_seeds: seed + offset", first, least=0)
    counts = {
        "batches_per_step": batches_per_step,
        "gradient_accumulation_factor": gradient_accumulation_factor,
        "replicas": replicas,
    }
    shape = [whole(f"create_seeds: {name}", count, least=1) for name, count in counts.items()]
    most = np.iinfo(np.uint64).max
    drawn = np.random.default_rng(first).integers(0, most, shape, np.uint64, endpoint=True)
    halves = np.stack([drawn >> np.uint64(32), drawn & np.uint64(2**32 - 1)], axis=-1)
    return halves.astype(np.uint32).squeeze()


def uint64_to_two_uint32(num: int) -> tuple[int, int]:
    """Return the high and the low 32 bits of a number; raises ValueError unless it has 64.

    >>> uint64_to_two_uint32(2**32 + 5)
    (1, 5)
    """
    return divmod(_below("uint64_to_two_uint32: the number", num, 64), 2**32)


def two_uint32_to_uint64(a: int, b: int) -> int:
    """Return the number of high bits a and low bits b; raises ValueError unless each has 32.

    >>> two_uint32_to_uint64(1, 5) == 2**32 + 5
    True
    """
    high, low = (_below("two_uint32_to_uint64: a half", half, 32) for half in (a, b))
    return high * 2**32 + low


def _below(what: str, value: int, bits: int) -> int:
    number = whole(what, value, least=0)
    if number >= 2**bits:
        refuse_value(f"{what} must be less than 2**{bits}, not {number}")
    return number

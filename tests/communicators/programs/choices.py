"""Ranks that choose between graphs with collectives, alike or not.

Arguments: the backend, and which loop or conditional chooses otherwise on the last rank.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft
from weft.communicators import connected

backend, how = sys.argv[1:]
ranks = connected()
mine, last = ranks.rank, ranks.size - 1
x, flag = weft.placeholder((3,)), weft.placeholder((), "bool")
count, limit = weft.placeholder((), "int32"), weft.placeholder((), "int32")


def summed(value: Any) -> Any:
    """Exchange; all collectives of this program are on this line."""
    return weft.all_reduce(value) / ranks.size


then, otherwise = (weft.capture([summed(x) * factor], [x]) for factor in (2, 3))
plain = weft.capture([x * 3], [x])
(chosen,) = weft.cond(flag, then, otherwise, [x], [x])
(skipped,) = weft.cond(flag, then, plain, [x], [x])
condition = weft.capture([count < limit], [count, x, limit])
body = weft.capture([count + 1, summed(x) + 1], [count, x, limit])
inner = weft.while_loop(condition, body, 0, x, limit)[1]
outer = weft.capture([count + 1, inner], [count, x, limit])
nested = weft.while_loop(weft.capture([count < 2], [count, x, limit]), outer, 0, x, limit)[1]

transformer = weft.make_transformer(backend)
CALLS: dict[str, Any] = {
    "choice": (transformer.computation(summed(chosen), x, flag), True, 2),
    "skipped": (transformer.computation(summed(skipped), x, flag), True, 2),
    "loop": (transformer.computation(summed(inner), x, limit), 2, 3),
    "nested": (transformer.computation(summed(nested), x, limit), 2, 5),
}
transformer.initialize()
array = np.ones(3, "float32")
for call, alike, wanted in CALLS.values():
    assert (call(array, alike) == wanted).all()
if how != "alike":
    call, alike, _ = CALLS[how]
    otherwise = not alike if alike is True else alike - 1
    print(call(array, otherwise if mine == last else alike))
    print(call(array, alike))
print("went on", flush=True)

"""What goes wrong between ranks.

Arguments: in which way, and the backend, if it is not numpy.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.errors import AxesError, CommunicationError
from weft.ops.control.effects import EffectOp


class Slow(EffectOp):
    """Takes a while."""

    def perform(self, *values: Any) -> None:
        """Wait."""
        time.sleep(0.3)


how, backend = (*sys.argv[1:], "numpy")[:2]
ranks = connected()
mine, last = ranks.rank, ranks.size - 1
x = weft.placeholder((4, 3))
transformer = weft.make_transformer(backend)
total = transformer.computation(weft.all_reduce(x), x)
gathered = transformer.computation(weft.all_gather(x), x)
other = weft.placeholder((2, 3))
smaller = transformer.computation(weft.all_reduce(other), other)
array = np.ones((4, 3), "float32")
transformer.initialize()
total(array)

if how == "order":
    first, second = (total, gathered) if mine == last else (gathered, total)
    first(array), second(array)
elif how == "shape":
    smaller(array[:2]) if mine == last else total(array)
elif how == "count":
    if mine != last:
        total(array)
    time.sleep(60)
elif how == "ended":
    for batch in [array][mine :: ranks.size]:
        total(batch)
    sys.exit()
elif how == "killed in a step":
    if mine == last:
        os.kill(os.getpid(), signal.SIGKILL)
    total(array)
elif how == "killed in a collective":
    if mine == last:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        total(array)
    time.sleep(1)
    total(array)
elif how == "skipped":
    for number in range(3):
        with suppress(AxesError):
            total(array[:3] if mine == last and not number else array)
elif how == "equal graphs":
    both = [transformer.computation(weft.all_reduce(x), x) for _ in range(2)]
    for call in both[:: -1 if mine == last else 1]:
        call(array)
elif how == "threads":
    both = [transformer.computation(weft.all_reduce(x), x) for _ in range(2)]

    def calling(number: int) -> None:
        """Begin at another time on each rank."""
        time.sleep(0.2 * ((number + mine) % 2))
        both[number](array)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(calling, range(2)))
elif how == "one computation in threads":
    waits = weft.make_transformer(backend).computation(weft.all_reduce(Slow(x)), x)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(waits, [array, array]))
elif how == "lengths":
    rows = weft.placeholder((weft.symbol("rows"),))
    summed = transformer.computation(weft.all_reduce(weft.sum(rows)), rows)
    for length in (3, 4, 3 + (mine == last)):
        summed(np.ones(length, "float32"))
elif how == "forked":
    if mine == last:
        with warnings.catch_warnings(action="ignore"):
            child = os.fork()
        if not child:
            try:
                total(array)
            except CommunicationError as error:
                sys.excepthook(type(error), error, None)
            os._exit(0)
        os.waitpid(child, 0)
    total(array)
elif how == "exception":
    if mine == last:
        raise ValueError("only here")
    total(array)
print("went on", flush=True)

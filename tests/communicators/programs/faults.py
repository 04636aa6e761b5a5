"""What goes wrong between ranks.

Arguments: in which way, and the backend, if it is not numpy.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

import weft
from weft.communicators import connected

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
elif how == "exception":
    if mine == last:
        raise ValueError("only here")
    total(array)
print("went on", flush=True)

"""Profiles a data-parallel step; every rank writes the trace of a call.

Arguments: the backend, and the folder to write to.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import weft
from weft.communicators import connected

backend, folder = sys.argv[1:]
rank = connected().rank
x = weft.placeholder((6, 8))
hidden = x
for number in range(4):
    weight = weft.variable((8, 8), initial_value=np.eye(8) + number / 9)
    hidden = weft.tanh(hidden @ weight)
loss = weft.mean(weft.square(hidden))
update = weft.sgd(*weft.data_parallel(loss, bucket_bytes=256), learning_rate=0.1)
step = weft.make_transformer(backend).computation([loss, update], x)
profile = step.profile(np.full((6, 8), rank, "float32"), repeat=3)
profile.to_chrome_trace(Path(folder) / f"{rank}.json")

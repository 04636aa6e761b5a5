"""Trains with sharded or whole state from one step to another, from and to a checkpoint.

Arguments: the backend, ``sharded`` or ``whole``, the first step and the one after the last, the
checkpoint, and the file for the weights. The checkpoint is read unless the first step is 0, and
then replaced.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import weft
from weft.communicators import connected

backend, form, *steps = sys.argv[1:5]
checkpoint, weights = map(Path, sys.argv[5:])
first, end = map(int, steps)
ranks = connected()
BATCH = 8
share = BATCH // ranks.size

numbers = np.random.default_rng(7)
x = weft.placeholder((share, 5))
w = weft.variable((5, 3), initial_value=numbers.normal(size=(5, 3)), name="w")
b = weft.variable((3,), initial_value=numbers.normal(size=3), name="b")
loss = weft.mean(weft.square(weft.tanh(x @ w + b)))
update = weft.adam(*weft.data_parallel(loss, sharded=form == "sharded"), learning_rate=0.05)
transformer = weft.make_transformer(backend)
step = transformer.computation([weft.all_reduce(loss, "mean"), update], x)
if first:
    transformer.load_states(checkpoint)
for number in range(first, end):
    batch = np.random.default_rng(number).normal(size=(BATCH, 5)).astype("float32")
    step(batch[ranks.rank * share : (ranks.rank + 1) * share])
transformer.save_states(checkpoint, communicator=ranks)
if ranks.rank == 0:
    np.savez(weights, w=transformer.get_value(w), b=transformer.get_value(b))

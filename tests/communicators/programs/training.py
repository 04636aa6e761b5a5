"""Trains a network on a share of each batch; writes the losses and weights of all steps.

Arguments: the backend, the file to write, the function of the optimizer.
"""

from __future__ import annotations

import sys

import numpy as np

import weft
from weft.communicators import connected
from weft.ranks.collectives import StartCollectiveOp

backend, path, optimizer = sys.argv[1:]
ranks = connected()
BATCH, STEPS = 24, 5
share = BATCH // ranks.size
mine = slice(ranks.rank * share, (ranks.rank + 1) * share)

numbers = np.random.default_rng(7)
images = numbers.normal(size=(STEPS, BATCH, 2, 8, 8)).astype("float32")
labels = numbers.integers(0, 5, (STEPS, BATCH)).astype("int64")

x = weft.placeholder((share, 2, 8, 8))
y = weft.placeholder((share,), "int64")
shapes = ((6, 2, 3, 3), (4, 6, 3, 3), (4 * 4 * 4, 20), (20, 5))
weights = [
    weft.variable(shape, initial_value=numbers.normal(size=shape) / 5, name=f"w{number}")
    for number, shape in enumerate(shapes)
]
averages = [weft.persistent_tensor((6,), initial_value=np.full(6, each)) for each in (0, 1)]
hidden = weft.conv2d(x, weights[0])
hidden = weft.batch_norm(hidden, 1.5, 0.1, *averages, training=True, across_ranks=True)
hidden = weft.relu(hidden)
hidden = weft.tanh(weft.conv2d(hidden, weights[1]))
hidden = weft.tanh(weft.reshape(hidden, (share, -1)) @ weights[2])
loss = weft.cross_entropy(hidden @ weights[3], y)
update = getattr(weft, optimizer)(*weft.data_parallel(loss, bucket_bytes=2048), learning_rate=0.05)
transformer = weft.make_transformer(backend)
step = transformer.computation([weft.all_reduce(loss, "mean"), update], x, y)
losses = [step(images[number][mine], labels[number][mine])[0] for number in range(STEPS)]

if ranks.size > 1:
    kinds = [type(each.op) for each in step.plan.steps]
    first = kinds.index(StartCollectiveOp)
    assert any("Matmul" in kind.__name__ or "Conv" in kind.__name__ for kind in kinds[first:])

values = [transformer.get_value(state) for state in (*weights, *averages)]
texts = ranks.gather_text(str([value.tobytes() for value in values]), "the weights")
assert len(set(texts)) == 1, "ranks have different weights"
if ranks.rank == 0:
    np.savez(path, losses=losses, **{f"w{number}": each for number, each in enumerate(values)})

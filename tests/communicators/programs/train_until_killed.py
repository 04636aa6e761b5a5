"""Trains a small network on all ranks, goes on from its checkpoint, and kills one rank on the way.

Arguments: the folder of the checkpoint; the rank; where it dies: in a ``step``, a ``collective`` or
a ``checkpoint``; in which of them, counted from 0; at which event there, which is the beginning or
end of a Python or C function, or at the end if there are fewer; how many seconds after it. With no
such rank the run is the reference: it writes all states at each checkpoint, and how many events
each step, collective and checkpoint had.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.runtime.checkpoints import read_values

STEPS, EVERY, BATCH = 60, 5, 8
folder, place = Path(sys.argv[1]), sys.argv[3]
victim, turn, event, delay = *(int(sys.argv[each]) for each in (2, 4, 5)), float(sys.argv[6])
ranks: Any = connected()
is_reference = victim >= ranks.size
print(f"process {os.getpid()}", flush=True)

events: dict[str, list[int]] = {"step": [], "collective": [], "checkpoint": []}
inside: list[str] = []


def die() -> None:
    """End this process as the system does when it is out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def is_last() -> bool:
    """Whether this rank is to die where it is."""
    return victim == ranks.rank and place in inside and len(events[place]) == turn + 1


def count(*_: Any) -> None:
    """Count an event in each of the places that the program is in."""
    for where in inside:
        events[where][-1] += 1
    if is_last() and events[place][-1] == event:
        if delay:
            threading.Timer(delay, die).start()
        else:
            die()


@contextmanager
def being(where: str) -> Iterator[None]:
    """Count the events inside as those of a place."""
    events[where].append(0)
    inside.append(where)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        if where == place and is_last() and events[place][-1] < event:
            die()
        inside.pop()
        sys.setprofile(count if inside else None)


start = ranks.start


def watched(*collective: Any) -> Any:
    """Start a collective, and watch that and the wait for its end."""
    with being("collective"):
        request = start(*collective)
    wait = request.wait

    def watched_wait() -> None:
        with being("collective"):
            wait()

    request.wait = watched_wait
    return request


ranks.start = watched

share = BATCH // ranks.size
x, y = weft.placeholder((share, 6), name="x"), weft.placeholder((share, 3), name="y")
numbers = np.random.default_rng(1)
shapes = ((6, 16), (16, 16), (16, 3))
weights = [
    weft.variable(shape, initial_value=numbers.normal(size=shape) / 4, name=f"w{number}")
    for number, shape in enumerate(shapes)
]
hidden = x
for weight in weights[:-1]:
    hidden = weft.dropout(weft.tanh(hidden @ weight), 0.1, seed=2, by_rank=True)
loss = weft.mean(weft.square(hidden @ weights[-1] - y))
taken = weft.persistent_tensor((), "int64", 0, name="steps")
with weft.saved_user_deps():
    update = weft.adam(*weft.data_parallel(loss, bucket_bytes=512), learning_rate=0.01)
    writes = weft.doall([update, weft.assign(taken, taken + 1)])
transformer = weft.make_transformer("numpy")
step = transformer.computation([weft.all_reduce(loss, "mean"), writes], x, y)

path = folder / "checkpoint"
if path.exists():
    transformer.load_states(path)
for number in range(int(transformer.get_value(taken)), STEPS):
    batch = np.random.default_rng([3, number]).normal(size=(BATCH, 9)).astype("float32")
    mine = batch[ranks.rank * share : (ranks.rank + 1) * share]
    with being("step"):
        step(mine[:, :6], mine[:, 6:])
    if (number + 1) % EVERY == 0:
        with being("checkpoint"):
            transformer.save_states(path, communicator=ranks)
        if is_reference and not ranks.rank:
            np.savez(folder / f"{number + 1}.npz", **read_values(path))
if is_reference:
    (folder / f"events{ranks.rank}.json").write_text(json.dumps(events))

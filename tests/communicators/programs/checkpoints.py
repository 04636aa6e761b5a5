"""Two ranks write checkpoints until rank 1 is killed, some time after the first is whole."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np

import weft
from weft.communicators import connected

path, delay = sys.argv[1], float(sys.argv[2])
ranks = connected("mpi")
states = [weft.variable((1000,), name=f"s{number}") for number in range(8)]
number = weft.placeholder((), name="number")
with weft.make_transformer("numpy") as transformer:
    step = transformer.computation(weft.doall([weft.assign(s, number) for s in states]), number)
    for count in range(1, 10**6):
        step(np.float32(count))
        transformer.save_states(path, communicator=ranks)
        if count == 1 and ranks.rank == 1:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

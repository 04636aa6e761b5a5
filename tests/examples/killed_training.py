"""Runs examples/data_parallel.py, and kills one of its ranks at a collective or soon after.

Arguments: the rank, the number of the collective, the seconds after it; then those of the example.
With no such rank it says how many collectives there are.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import data_parallel

from weft.communicators import connected

rank, number, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
ranks: Any = connected()
print(f"process {os.getpid()}", flush=True)
kill = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
start, started = ranks.start, []


def counting(*collective: Any) -> Any:
    started.append(collective[0].kind)
    if ranks.rank == rank and len(started) == number:
        kill.start()
    return start(*collective)


ranks.start = counting
data_parallel.app(sys.argv[4:], standalone_mode=False)
if ranks.rank == rank:
    kill.join()
elif ranks.rank == 0:
    print(f"collectives {len(started)}")

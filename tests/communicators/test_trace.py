"""The trace of a data-parallel step under real MPI: reductions start within the backward pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpi_launch import mpiexec


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_reductions_start_before_the_backward_pass_ends(backend: str, tmp_path: Path) -> None:
    ended = mpiexec(2, "traced_step.py", backend, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    for rank in range(2):
        trace = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        timed = sorted((each for each in trace if each["ph"] == "X"), key=lambda each: each["ts"])
        names = [each["name"] for each in timed]
        places = {
            kind: [place for place, name in enumerate(names) if kind in name.lower()]
            for kind in ("startcollective", "waitcollective", "matmul")
        }
        starts, waits, products = places.values()
        assert len(starts) == len(waits) == 4
        # The last product is the last gradient; only its own bucket starts after it.
        assert [start < products[-1] for start in starts] == [True, True, True, False]
        assert min(waits) > max(products)

"""Measures what `scaling_model.py` reads: messages, sums, all-reduces and training steps by MPI.

Needs mpi4py and an `mpiexec`. Every rank has one thread. The fastest round counts, since noise only
ever adds, and a round takes as long as its slowest rank. The parts of a step that only compute are
also given in processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from timeit import Timer
from typing import Any

import numpy as np
from environment import cores, untuned
from models import cnn
from models.program import normal
from scaling_model import BUCKET_BYTES, MEASURED, Gradient, buckets

import weft
from weft.files import replacing

Array = np.ndarray[Any, Any]

RANKS = (1, 2, 4)
SIZES = tuple(4000 * 10**power for power in range(5))
"""Bytes of messages and of all-reduces."""

SHORT = 20
"""How many times as many rounds messages and all-reduces have, which are shorter than steps."""

MLP_BATCH = 128
MLPS = {"MLP of 4 MB": (784, 1000, 250, 10), "MLP of 40 MB": (784, 2048, 2048, 2048, 10)}
"""The widths of the layers."""

THREADS = {"WEFT_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
RATE = 0.01


def mlp(
    widths: Sequence[int], batch: int = MLP_BATCH
) -> tuple[Any, list[Any], list[Any], tuple[Array, Array]]:
    """Return the loss of a network of dense layers, its placeholders, variables and data."""
    random = np.random.default_rng(0)
    x = weft.placeholder((batch, widths[0]))
    t = weft.placeholder((batch, widths[-1]))
    variables, h = [], x
    for inputs, units in pairwise(widths):
        h = h if h is x else weft.relu(h)
        weight = normal(random, (inputs, units), inputs**-0.5)
        variables.append(weft.variable(weight.shape, initial_value=weight))
        variables.append(weft.variable((units,), initial_value=0))
        h = weft.matmul(h, variables[-2]) + variables[-1]
    images = normal(random, (batch, widths[0]), 1)
    targets = np.eye(widths[-1], dtype="f4")[random.integers(0, widths[-1], batch)]
    return weft.cross_entropy(h, t), [x, t], variables, (images, targets)


def convolutional(
    batch: int = cnn.BATCH,
) -> tuple[Any, list[Any], list[Any], tuple[Array, Array]]:
    """Return the same of the convolutional network."""
    images, targets = cnn.data(batch)
    x, t = weft.placeholder(images.shape), weft.placeholder(targets.shape)
    variables = [weft.variable(each.shape, initial_value=each) for each in cnn.parameters()]
    return weft.cross_entropy(cnn.network(x, variables), t), [x, t], variables, (images, targets)


MODELS: dict[str, Callable[..., Any]] = {
    "CNN": convolutional,
    **{name: partial(mlp, widths) for name, widths in MLPS.items()},
}


class Training:
    """A step in parts: it computes gradients, reduces each bucket, and updates the parameters."""

    def __init__(self, name: str, ranks: int) -> None:
        self.transformer = weft.make_transformer("native")
        loss, placeholders, variables, self.data = MODELS[name]()
        gradients = [weft.deriv(loss, variable) for variable in variables]
        self.compute = self.transformer.computation([loss, *gradients], *placeholders)
        known = self._when_known(len(variables))
        order = sorted(range(len(variables)), key=known.__getitem__)
        self.gradients = [Gradient(4 * variables[each].axes.size, known[each]) for each in order]
        self.groups = []
        for bucket in buckets(self.gradients, BUCKET_BYTES):
            group: list[int] = []
            while sum(4 * variables[each].axes.size for each in group) < bucket.nbytes:
                group.append(order.pop(0))
            self.groups.append(group)
        sums = [weft.placeholder(variable.axes.lengths) for variable in variables]
        pairs = zip(variables, sums, strict=True)
        updates = [weft.assign(v, v - RATE / ranks * total) for v, total in pairs]
        self.update = self.transformer.computation(weft.doall(updates), *sums)

    def _when_known(self, count: int) -> list[float]:
        """Return when each gradient is known, as a share of the time of the computation."""
        profile = self.compute.profile(*self.data)
        plan = self.compute.plan
        ends: dict[Any, float] = {}
        for event in profile.events:
            for _, index in profile.rows[event.row].steps:
                for out in plan.steps[index].outs:
                    ends[out.base] = event.end
        results = plan.graph.outputs[-count:]
        return [ends[plan.describe(each).base] / profile.events[-1].end for each in results]

    def __call__(self, comm: Any) -> list[float]:
        """Train once: return the seconds of gradients, of the rest, and of each reduction.

        The first two are processor time. Ranks meet before each reduction, so
        that it does not contain the wait for a slower rank.
        """
        begin = process_time()
        _, *gradients = self.compute(*self.data)
        computed = process_time()
        packed = [
            np.concatenate([gradients[each].ravel() for each in group]) for group in self.groups
        ]
        rest = process_time() - computed
        reductions = []
        for bucket in packed:
            comm.Barrier()
            sent = perf_counter()
            reduce_in_place(comm, bucket)
            reductions.append(perf_counter() - sent)
        resumed = process_time()
        for group, total in zip(self.groups, packed, strict=True):
            ends = np.cumsum([gradients[each].size for each in group])
            for each, part in zip(group, np.split(total, ends[:-1]), strict=True):
                gradients[each] = part.reshape(gradients[each].shape)
        self.update(*gradients)
        rest += process_time() - resumed
        return [computed - begin, rest, *reductions]


def whole_step(comm: Any, name: str, rounds: int) -> float:
    """Return the seconds of a step of `weft.data_parallel`."""
    loss, placeholders, _, data = MODELS[name]()
    update = weft.sgd(*weft.data_parallel(loss), learning_rate=RATE)
    with weft.make_transformer("native") as transformer:
        step = transformer.computation([loss, update], *placeholders)
        return fastest_round(comm, lambda: step(*data), rounds)


def reduce_in_place(comm: Any, bucket: Array) -> None:
    """Replace an array by the sum of those of all ranks, without a copy where it is sent from."""
    from mpi4py import MPI

    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, bucket)


def fastest_round(comm: Any, work: Callable[[], Any], rounds: int, calls: int = 1) -> float:
    """Return the seconds of a call in the fastest round, each as long as its slowest rank."""
    work()
    least = float("inf")
    for _ in range(rounds):
        comm.Barrier()
        begin = perf_counter()
        for _ in range(calls):
            work()
        least = min(least, max(comm.allgather(perf_counter() - begin)) / calls)
    return least


def messages(comm: Any, rounds: int) -> list[tuple[int, float]]:
    """Return sizes in bytes, and the seconds in which two ranks send each other a message."""
    found = []
    for size in SIZES:
        data, other = np.ones(size // 4, "f4"), np.empty(size // 4, "f4")
        exchange = partial(comm.Sendrecv, data, 1 - comm.rank, recvbuf=other)
        found.append((size, fastest_round(comm, exchange, rounds, _calls(size))))
    return found


def sums(rounds: int) -> list[tuple[int, float]]:
    """Return sizes in bytes, and the seconds in which one operand is added to another."""
    found = []
    for size in SIZES:
        total, data = np.zeros(size // 4, "f4"), np.ones(size // 4, "f4")
        add = Timer(lambda total=total, data=data: np.add(total, data, total))
        calls = _calls(size)
        found.append((size, min(add.repeat(rounds, calls)) / calls))
    return found


def all_reduces(comm: Any, rounds: int) -> list[tuple[int, float]]:
    """Return sizes in bytes, and the seconds of an all-reduce."""
    found = []
    for size in SIZES:
        # Zeros that are written: sums of sums stay finite, and the memory is there.
        work = partial(reduce_in_place, comm, np.full(size // 4, 0, "f4"))
        found.append((size, fastest_round(comm, work, rounds, _calls(size))))
    return found


def _calls(size: int) -> int:
    """Return the calls of a round, which is to be shorter than the time slice of a process."""
    return max(1, min(20, 400_000 // size))


def steps(comm: Any, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the seconds of a step of each model, their parts, and when gradients are known."""
    found = {}
    for name in MODELS:
        step = Training(name, comm.size)
        least = step(comm)
        for _ in range(rounds):
            comm.Barrier()
            slowest = [max(each) for each in zip(*comm.allgather(step(comm)), strict=True)]
            least = [min(pair) for pair in zip(least, slowest, strict=True)]
        compute, update, *reductions = least
        found[name] = {
            "whole": whole_step(comm, name, rounds),
            "compute": compute,
            "update": update,
            "reductions": reductions,
            "gradients": [(each.nbytes, each.ready) for each in step.gradients],
        }
        step.transformer.close()
    return found


def measure_rank(rounds: int) -> dict[str, Any] | None:
    """Measure as one of the ranks that `mpiexec` started, and return what rank 0 has to print."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    found: dict[str, Any] = {"steps": steps(comm, rounds)}
    if comm.size == 1:
        found["sums"] = sums(SHORT * rounds)
    else:
        found["all_reduces"] = all_reduces(comm, SHORT * rounds)
    if comm.size == 2:
        found["messages"] = messages(comm, SHORT * rounds)
    return found if comm.rank == 0 else None


def launched(program: str, ranks: int, rounds: int) -> Any:
    """Return what rank 0 of a program prints as JSON, each rank with one thread.

    Raises RuntimeError if there is no `mpiexec`.
    """
    beside = str(Path(sys.executable).parent)
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([beside, os.environ["PATH"]]))
    if mpiexec is None:
        raise RuntimeError("no mpiexec: install MPI, or `pip install mpi4py mpich`")
    command = [sys.executable, program, "--rank", "--rounds", str(rounds)]
    done = subprocess.run(
        [mpiexec, "-n", str(ranks), *command],
        check=True, stdout=subprocess.PIPE, text=True, env=untuned() | THREADS,
    )  # fmt: skip
    return json.loads(done.stdout)


def measured(rounds: int) -> dict[str, Any]:
    """Return what each number of ranks measures, and the number of cores."""
    found: dict[str, Any] = {"cores": cores()}
    for ranks in RANKS:
        found[str(ranks)] = launched(__file__, ranks, rounds)
        print(f"measured {ranks} ranks", file=sys.stderr)
    return found


def main() -> None:
    """Measure, and write the file that the model reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of which the fastest counts")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        found = measure_rank(options.rounds)
        if found is not None:
            print(json.dumps(found))
        return
    text = json.dumps(measured(options.rounds), indent=1)
    with replacing(MEASURED) as file:
        file.write(f"{text}\n".encode())


if __name__ == "__main__":
    main()

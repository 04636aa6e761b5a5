"""How much of a network's time the backward pass hides, on imitated ranks with one thread.

A round has three steps in turn: in buckets without a wait, in buckets on the network, and with one
bucket on the network, whose reduction starts when the backward pass has ended. Hidden is what the
second takes less than the first and the time that the network imposes, as a share of that time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from environment import blas, cores, untuned
from measure import Samples, interleaved
from peers import RESULTS, write
from scaling_measured import MODELS, RATE, THREADS, mlp

import weft
from weft.testing.imitation import NO_WAIT, ImitatedRanks, Network, imitated_ranks

RANKS = 4
ONE = Network("1 GbE", 50e-6, 0.125e9)
TEN = Network("10 GbE", 50e-6, 1.25e9)
HUNDRED = Network("100 GbE", 5e-6, 12.5e9)
DEEP = (512, *[384] * 7, 10)
"""The widths of many layers of 4 MB; of the three of scaling_measured.py the first has 3 MB."""

BACKENDS = ("numpy", "native")
GOAL = 0.7


@dataclass(frozen=True)
class Case:
    """A step of training: the model and its batch, the bytes of a bucket, and the network."""

    name: str
    model: Callable[..., Any]
    batch: int
    bucket_bytes: int
    network: Network


CASES = (
    Case("CNN", MODELS["CNN"], 64, 2**14, ONE),
    Case("MLP of 4 MB, 3 layers", MODELS["MLP of 4 MB"], 512, 2**19, TEN),
    Case("MLP of 4 MB, 8 layers", partial(mlp, DEEP), 256, 2**19, TEN),
    Case("MLP of 40 MB, 4 layers", MODELS["MLP of 40 MB"], 192, 2**22, TEN),
    Case("MLP of 40 MB, 4 layers", MODELS["MLP of 40 MB"], 16, 2**22, HUNDRED),
)


class Step:
    """A compiled step of training.

    Attributes
    ----------
    imposed
        The seconds that the network imposed on the last call.
    waited
        The seconds that each call waited.
    """

    def __init__(self, call: Callable[[], Any], ranks: ImitatedRanks, network: Network) -> None:
        self.call, self.ranks, self.network = call, ranks, network
        self.imposed, self.waited = 0.0, list[float]()

    def __call__(self) -> None:
        """Train once on the network."""
        ranks = self.ranks
        ranks.network, ranks.imposed, ranks.waited = self.network, 0.0, 0.0
        self.call()
        self.imposed = ranks.imposed
        self.waited.append(ranks.waited)


@dataclass(frozen=True)
class Outcome:
    """The steps of a case on a backend, by name, and how long they took."""

    case: Case
    backend: str
    steps: dict[str, Step]
    samples: Samples

    @property
    def imposed(self) -> float:
        """The seconds that the network imposes on a step in buckets."""
        return self.steps["overlapped"].imposed

    @property
    def hidden(self) -> float:
        """The share of the imposed time that makes a step no longer."""
        return 1 - self.samples.difference("overlapped", "no wait") / self.imposed

    def not_waited(self, name: str) -> float:
        """Return the share of the imposed time during which a step did something else."""
        step = self.steps[name]
        return 1 - statistics.median(step.waited) / step.imposed

    def cells(self) -> list[str]:
        """Return the row of the table."""
        case = self.case
        times = {name: f"{1e3 * self.samples.median(name):.3g}" for name in self.steps}
        share = self.imposed / self.samples.median("no wait")
        verdict = "" if self.hidden >= GOAL else f"below {GOAL:.0%}"
        return [
            self.backend,
            case.name,
            str(case.batch),
            case.network.name,
            times["no wait"],
            f"{1e3 * self.imposed:.3g} ({share:.0%})",
            times["overlapped"],
            times["one bucket"],
            f"{self.hidden:.0%}",
            f"{self.not_waited('overlapped'):.0%}",
            f"{self.not_waited('one bucket'):.0%}",
            "; ".join(part for part in (verdict, self.samples.noise()) if part),
        ]


HEADING = (
    "backend", "step", "batch", "network", "no wait, ms", "imposed, ms", "overlapped, ms",
    "one bucket, ms", "hidden", "not waited", "the same in one bucket", "",
)  # fmt: skip


@contextmanager
def compiled(case: Case, backend: str, bucket_bytes: int) -> Iterator[Callable[[], Any]]:
    """Yield a step of training, which has been called."""
    loss, placeholders, _, data = case.model(case.batch)
    means = weft.data_parallel(loss, bucket_bytes=bucket_bytes)
    update = weft.sgd(*means, learning_rate=RATE)
    with weft.make_transformer(backend) as transformer:
        step = transformer.computation([loss, update], *placeholders)
        step(*data)
        yield lambda: step(*data)


def slowed(case: Case, backend: str, share: float) -> Case:
    """Return a case whose network is so slow that it imposes a share of a step without a wait."""
    found = outcome(case, backend, 3)
    factor = share * found.samples.median("no wait") / found.imposed
    network = replace(case.network.shared(factor), name=f"{case.network.name} / {factor:.1f}")
    return replace(case, network=network)


def outcome(case: Case, backend: str, rounds: int) -> Outcome:
    """Time the three steps of a case in turns."""
    with (
        imitated_ranks(RANKS) as ranks,
        compiled(case, backend, case.bucket_bytes) as in_buckets,
        compiled(case, backend, sys.maxsize) as in_one,
    ):
        steps = {
            "no wait": Step(in_buckets, ranks, NO_WAIT),
            "overlapped": Step(in_buckets, ranks, case.network),
            "one bucket": Step(in_one, ranks, case.network),
        }
        return Outcome(case, backend, steps, interleaved(steps, rounds))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return the table."""
    lines = [HEADING, ["---"] * len(HEADING), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Measure in a process with one thread, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21, help="how often steps take turns")
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="just this backend")
    parser.add_argument(
        "--share", type=float, help="slow networks down until they impose this share of a step"
    )
    parser.add_argument("--write", action="store_true", help=f"write the table to {RESULTS.name}")
    given = parser.parse_args()
    wanted = untuned() | THREADS
    if any(os.environ.get(name) != text for name, text in wanted.items()):
        command = [sys.executable, *sys.orig_argv[1:]]
        raise SystemExit(subprocess.run(command, env=wanted, check=False).returncode)
    load = os.getloadavg()[0]
    rows = []
    for backend in given.backend or BACKENDS:
        for case in CASES:
            if given.share is not None:
                case = slowed(case, backend, given.share)
            rows.append(outcome(case, backend, given.rounds).cells())
            print(" | ".join(rows[-1]), flush=True)
    networks = ", ".join(
        f"{each.name} ({1e6 * each.latency:.0f} µs, {each.bandwidth / 1e9:.4g} GB/s)"
        for each in (ONE, TEN, HUNDRED)
    )
    where = (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} on {cores()} cores, {RANKS} imitated ranks "
        f"with one thread on {networks}; BLAS: {blas()}; load before {load:.2g}."
    )
    text = f"{where}\n\n{markdown(rows)}"
    print(text)
    if given.write:
        write(text, RESULTS, "overlap")


if __name__ == "__main__":
    main()

"""Predicts the step times of data-parallel training on networks, from measured computation.

Messages cost a latency and a time a byte, sums a time a byte; `docs/scaling.md` has the formulae,
their sources and what they leave out. `scaling_measured.py` measures what this program reads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.testing.imitation import Network, ring

FOLDER = Path(__file__).parent
MEASURED = FOLDER / "scaling_measured.json"
PICTURE = FOLDER.parent / "docs" / "images" / "scaling.svg"
RANKS = tuple(2**power for power in range(11))
BUCKET_BYTES = 2**22
"""Those of `weft.data_parallel`."""


NETWORKS = (
    Network("10 GbE, TCP", 20e-6, 1.25e9),
    Network("100 GbE, RoCE", 0.8e-6, 12.5e9),
    Network("InfiniBand HDR", 0.6e-6, 25e9),
    Network("InfiniBand NDR", 0.6e-6, 50e9),
    Network("NVLink 4", 3.4e-6, 450e9),
)
"""Published figures; `docs/scaling.md` names where."""

ON_ACCELERATORS = ("NVLink 4",)
"""The networks whose ranks add in the memory of an accelerator, faster than messages arrive."""


def tree(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds of a reduction to one rank and a broadcast, along binomial trees."""
    return (ranks - 1).bit_length() * (2 * network.message(nbytes) + nbytes / network.sums)


def recursive_doubling(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds of an all-reduce in which pairs exchange all they have, in rounds."""
    rounds = ranks.bit_length() - 1
    exchange = network.message(nbytes) + nbytes / network.sums
    return rounds * exchange + _folded(ranks, nbytes, network)


def reduce_scatter_all_gather(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds of recursive halving with sums, then of recursive doubling without."""
    rounds = ranks.bit_length() - 1
    moved = nbytes * (1 - 1 / 2**rounds)
    taken = 2 * (rounds * network.latency + moved / network.bandwidth) + moved / network.sums
    return taken + _folded(ranks, nbytes, network)


def _folded(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds by which ranks beyond a power of two lend their data and get results."""
    if ranks & (ranks - 1) == 0:
        return 0.0
    return 2 * network.message(nbytes) + nbytes / network.sums


AllReduce = Callable[[int, float, Network], float]

ALGORITHMS: dict[str, AllReduce] = {
    "ring": ring,
    "tree": tree,
    "recursive doubling": recursive_doubling,
    "reduce-scatter, all-gather": reduce_scatter_all_gather,
}


def fastest(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds of the fastest all-reduce, which an MPI library would choose."""
    return min(algorithm(ranks, nbytes, network) for algorithm in ALGORITHMS.values())


def bandwidth_bound(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds that no all-reduce beats, since each rank sends and receives so much."""
    return 2 * (ranks - 1) / ranks * nbytes / network.bandwidth


@dataclass(frozen=True)
class Gradient:
    """A gradient of a step, or a bucket of several: its bytes, and the second when it is known."""

    nbytes: int
    ready: float


@dataclass(frozen=True)
class Step:
    """A training step of one rank, which reduces nothing.

    Attributes
    ----------
    gradients
        The gradients in the order in which they become known.
    backward
        The second at which the backward pass ends.
    update
        The seconds of the optimizer.
    """

    name: str
    gradients: tuple[Gradient, ...]
    backward: float
    update: float

    @property
    def alone(self) -> float:
        """The seconds of the step."""
        return self.backward + self.update

    @property
    def nbytes(self) -> int:
        """The bytes of all gradients."""
        return sum(gradient.nbytes for gradient in self.gradients)

    def slowed(self, factor: float) -> Step:
        """Return the step with all times multiplied."""
        late = [replace(each, ready=each.ready * factor) for each in self.gradients]
        return replace(
            self,
            gradients=tuple(late),
            backward=self.backward * factor,
            update=self.update * factor,
        )


def buckets(gradients: Iterable[Gradient], most: float) -> list[Gradient]:
    """Return gradients joined in order, as `weft.data_parallel` does.

    A bucket has at most so many bytes, unless it is one gradient. It is known when its last
    gradient is.
    """
    found: list[Gradient] = []
    for gradient in gradients:
        if found and found[-1].nbytes + gradient.nbytes <= most:
            gradient = Gradient(found.pop().nbytes + gradient.nbytes, gradient.ready)
        found.append(gradient)
    return found


def step_seconds(
    step: Step,
    ranks: int,
    network: Network,
    bucket_bytes: float = BUCKET_BYTES,
    all_reduce: AllReduce = fastest,
    overlap: bool = True,
) -> float:
    """Return the seconds of a step of many ranks, each with the batch of the step of one.

    A bucket's reduction starts when the bucket is known and the reduction before it has ended, or,
    without overlap, when the backward pass has ended as well. The optimizer waits for all.
    """
    end = 0.0 if overlap else step.backward
    for bucket in buckets(step.gradients, bucket_bytes):
        end = max(end, bucket.ready) + all_reduce(ranks, bucket.nbytes, network)
    return max(end, step.backward) + step.update


def efficiency(step: Step, ranks: int, network: Network, **options: Any) -> float:
    """Return the share of the time of a step that the ranks would need without reductions."""
    return step.alone / step_seconds(step, ranks, network, **options)


def fitted(name: str, messages: Sequence[tuple[float, float]], sums: float) -> Network:
    """Return the network whose messages take the measured seconds, given as pairs with bytes.

    The squares of relative errors are least, so that short messages count as much as long ones.
    """
    a = b = c = d = e = 0.0
    for nbytes, seconds in messages:
        weight = seconds**-2
        a += weight
        b += weight * nbytes
        c += weight * nbytes**2
        d += weight * seconds
        e += weight * seconds * nbytes
    determinant = a * c - b * b
    a_byte = (a * e - b * d) / determinant
    return Network(name, (c * d - b * e) / determinant, 1 / a_byte, sums)


@dataclass(frozen=True)
class Measured:
    """What `scaling_measured.py` measured on one machine.

    Attributes
    ----------
    steps
        The steps of one rank, at one thread.
    memory
        The memory that ranks of this machine share, as a network.
    parts
        The seconds of a step by ranks and name: the ``whole``, of `weft.data_parallel`; and, of one
        that reduces after the backward pass, ``compute`` and ``update``, in processor time, and
        the ``reductions``.
    all_reduces
        The seconds of an all-reduce by ranks and bytes.
    """

    cores: int
    steps: tuple[Step, ...]
    memory: Network
    parts: Mapping[tuple[int, str], Mapping[str, Any]]
    all_reduces: Mapping[tuple[int, int], float]

    def networks(self) -> list[Network]:
        """Return the published networks, with sums at this machine's rate where ranks have none."""
        return [
            network if network.name in ON_ACCELERATORS else replace(network, sums=self.memory.sums)
            for network in NETWORKS
        ]

    def ranks_per_core(self, ranks: int) -> float:
        """Return how many ranks share a core of this machine, at least 1."""
        return max(1.0, ranks / self.cores)

    def predicted_all_reduce(self, ranks: int, nbytes: int) -> float:
        """Return the seconds of an all-reduce in this machine's memory."""
        return fastest(ranks, nbytes, self.memory.shared(self.ranks_per_core(ranks)))

    def predicted_reductions(self, step: Step, ranks: int) -> float:
        """Return the seconds of all reductions of a step in this machine's memory."""
        found = buckets(step.gradients, BUCKET_BYTES)
        return sum(self.predicted_all_reduce(ranks, bucket.nbytes) for bucket in found)

    def predicted_step(self, step: Step, ranks: int) -> float:
        """Return the seconds of a step on this machine, whose cores also move the bytes."""
        factor = self.ranks_per_core(ranks)
        return step_seconds(step.slowed(factor), ranks, self.memory.shared(factor), overlap=False)


def read(path: Path = MEASURED) -> Measured:
    """Return what a file of `scaling_measured.py` says."""
    found = json.loads(path.read_text(encoding="utf-8"))
    alone = found["1"]
    steps = [
        Step(
            name,
            tuple([Gradient(size, share * each["compute"]) for size, share in each["gradients"]]),
            each["compute"],
            each["update"],
        )
        for name, each in alone["steps"].items()
    ]
    # Of the largest operands, which no cache holds.
    nbytes, seconds = alone["sums"][-1]
    parts, all_reduces = {}, {}
    for ranks, at in [(int(key), at) for key, at in found.items() if key.isdigit()]:
        parts |= {(ranks, name): each for name, each in at["steps"].items()}
        all_reduces |= {(ranks, size): taken for size, taken in at.get("all_reduces", ())}
    memory = fitted("shared memory", found["2"]["messages"], nbytes / seconds)
    return Measured(found["cores"], tuple(steps), memory, parts, all_reduces)


def predictions(measured: Measured, ranks: Sequence[int] = RANKS) -> list[dict[str, Any]]:
    """Return a row for each step, network and number of ranks: seconds with and without overlap."""
    return [
        {
            "step": step.name,
            "network": network.name,
            "ranks": each,
            "seconds": step_seconds(step, each, network),
            "without_overlap": step_seconds(step, each, network, overlap=False),
        }
        for step in measured.steps
        for network in measured.networks()
        for each in ranks
    ]


def checks(measured: Measured) -> list[dict[str, Any]]:
    """Return a row for each all-reduce, and for each step and its parts, as measured on ranks."""
    rows: list[tuple[str, int, float, float]] = [
        (
            f"all-reduce of {nbytes:,} bytes",
            ranks,
            seconds,
            measured.predicted_all_reduce(ranks, nbytes),
        )
        for (ranks, nbytes), seconds in measured.all_reduces.items()
    ]
    steps = {step.name: step for step in measured.steps}
    for (ranks, name), parts in measured.parts.items():
        step = steps[name]
        computing = parts["compute"] + parts["update"]
        reductions = measured.predicted_reductions(step, ranks)
        rows.append((f"{name}: computing", ranks, computing, step.alone))
        if ranks > 1:
            rows.append((f"{name}: reductions", ranks, sum(parts["reductions"]), reductions))
        rows.append((f"{name}: step", ranks, parts["whole"], measured.predicted_step(step, ranks)))
    names = ("what", "ranks", "measured", "predicted")
    return [dict(zip(names, row, strict=True)) for row in rows]


def print_tables(measured: Measured) -> None:
    """Print predictions and checks."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    shown = (1, 4, 16, 64, 256, 1024)
    for step in measured.steps:
        title = f"{step.name}: {step.alone * 1e3:.1f} ms alone, {step.nbytes / 1e6:.2f} MB"
        table = Table("network", title=title)
        for ranks in shown:
            table.add_column(f"{ranks} ranks", justify="right")
        for network in measured.networks():
            times = [step_seconds(step, ranks, network) for ranks in shown]
            cells = [f"{each * 1e3:.1f} ms, {step.alone / each:.0%}" for each in times]
            table.add_row(network.name, *cells)
        console.print(table)
    table = Table("this machine", title="measured and predicted")
    for column in ("ranks", "measured, ms", "predicted, ms", "ratio"):
        table.add_column(column, justify="right")
    for row in checks(measured):
        ratio = row["predicted"] / row["measured"]
        times = [f"{row[key] * 1e3:.3f}" for key in ("measured", "predicted")]
        table.add_row(row["what"], str(row["ranks"]), *times, f"{ratio:.2f}")
    console.print(table)


def draw(measured: Measured, path: Path = PICTURE) -> None:
    """Write the picture of the documentation: efficiency by ranks, and measured steps."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    from weft.files import replacing

    # A grey that is read on white and on black, and text that stays text.
    grey = {"text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"}
    settings = dict.fromkeys(grey, "#7d8590") | {"svg.fonttype": "none", "svg.hashsalt": "weft"}
    with plt.rc_context(settings):
        figure, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True, layout="constrained")
        for panel, step in zip(axes, measured.steps, strict=True):
            for network in measured.networks():
                shares = [100 * efficiency(step, each, network) for each in RANKS]
                (line,) = panel.plot(RANKS, shares, label=network.name)
                late = [100 * efficiency(step, each, network, overlap=False) for each in RANKS]
                panel.plot(RANKS, late, color=line.get_color(), linestyle=":")
            panel.set(title=step.name, xlabel="ranks", xscale="log", ylim=(0, 105))
            panel.set_xticks(RANKS[::2], [str(each) for each in RANKS[::2]])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        axes[0].set_ylabel("efficiency, %")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
        with replacing(path) as file:
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Print predictions as tables or as JSON, or draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, default=MEASURED, help="what the machine takes")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--draw", action="store_true", help=f"write {PICTURE.name}")
    options = parser.parse_args()
    measured = read(options.measured)
    if options.draw:
        draw(measured)
    elif options.json:
        print(json.dumps({"predictions": predictions(measured), "checks": checks(measured)}))
    else:
        print_tables(measured)


if __name__ == "__main__":
    main()
